"""Lips and sound in a browser, utterance by utterance: each within what a person takes for one, and all together exact."""

import statistics

from kit import lips

#: Lips that close, round and open wide; each of some three seconds.
UTTERANCES = """
Maybe Bob put the big map by the pump.
My mother made a pot of soup for Papa.
Peter plays the piano from five to nine.
Both of the boats are moving out of the harbour.
A farmer found four fat mushrooms on the path.
The baby wants a banana, and more of it now.
How about a warm bowl of brown bread pudding?
Poor Paul bought a pair of purple pants.
Five famous women have been above the clouds.
Would you open the window before we begin?
Mark my words, the bus will be full by then.
Above the mountain, the moon was pale and far.
Papa's apple tree bears plums, as you may believe.
We have a room for you from Monday to Friday.
The problem may be with the battery of the phone.
Bring me the blue box from behind the piano.
More than a million people have heard about him.
Father and Mother are above, in the upper room.
A pint of milk, a pound of ham, and a map of Rome.
Please move a bit, so that all of us may pass by.
""".strip().splitlines()
#: Of the mean of all, in seconds.
EXACT = 0.04


def test_lips_and_sound_of_twenty_utterances(server, call, report, own_offset):
    conversation = server.conversation(server.agent(greeting="")["id"])
    page = call().open(conversation["join_link"])
    page.join()
    found = []
    for text in UTTERANCES:
        page.watch_face()
        begun, mark = page.now(), page.mark()
        assert server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": text}).status == 200
        page.event("agent.started_speaking", mark, timeout=20)
        stopped = page.event("agent.stopped_speaking", mark, timeout=30)
        _, sound = page.recording(begun, page.quiet(after=stopped["t"]))
        page.watch_face(False)
        times, _, luma = page.pictures()
        shift, fit = lips.offset(times, lips.darkness(luma), *lips.envelope(sound, begun))
        found.append((round(shift - own_offset, 3), round(fit, 2)))
    shifts = [shift for shift, _ in found]
    mean = statistics.mean(shifts)
    report.add("lips and sound of twenty utterances", {"mean": mean, "shifts": found})
    assert len(found) == 20 and statistics.median(fit for _, fit in found) > 0.4, found
    assert abs(mean) <= EXACT, (mean, found)
    assert all(lips.EARLIEST <= shift <= lips.LATEST for shift in shifts), found
