"""Lip sync. The measured avatar is brighter the wider its mouth is open (`tests/e2e/flash`).

`make test` measures on the server's clock, by RTP timestamps. The long tier measures in a browser:
each of twenty utterances is within the limits of perception and their mean is closer; the flashes
of a repeated word fit to half a picture; and so does the dark mouth of a human avatar.
"""

import asyncio
import itertools
import pathlib
import statistics

import numpy as np
import pytest

from kit import lips, rtp
from kit.webrtc_client import WhipClient, run_async

VOICE = "rms"
#: The lips close, round and open wide; each utterance takes about three seconds.
UTTERANCES = """
Maybe Bob put the big map by the pump.
My mother made a pot of soup for Papa.
Peter plays the piano from five to nine.
Both of the boats are moving out of the harbour.
A farmer found four fat mushrooms on the path.
The baby wants a banana and more of it now.
How about a warm bowl of brown bread pudding?
Poor Paul bought a pair of purple pants.
Five famous women have been above the clouds.
Would you open the window before we begin?
Mark my words the bus will be full by then.
Above the mountain the moon was pale and far.
That apple tree bears plums as you may believe.
We have a room for you from Monday to Friday.
The problem may be with the battery of the phone.
Bring me the blue box from behind the piano.
More than a million people have heard about him.
Father and Mother are above in the upper room.
A pint of milk with a pound of ham and a map of Rome.
Please move a bit so that all of us may pass by.
""".strip().splitlines()
#: Limit for the mean of all, in seconds.
MAX_MEAN_OFFSET = 0.04
#: The stock avatar whose open mouth is the darkest beside the skin around it, and how many of his
#: utterances are measured together.
PERSON_AVATAR, PERSON_UTTERANCES = "leo", 8
#: Its brightness in a browser when the mouth is half as open as for a vowel between two closures:
#: between two of its steps.
HALF_OPEN_BRIGHTNESS = (40 + 0.325 / 0.9 * 180) / 255
FLASH_AVATAR_FOLDER = pathlib.Path(__file__).parent / "flash"
#: A picture shows the mouth at its middle and 20 ms later, because people notice early sound first
#: (engine/src/show/animator.rs).
VIDEO_LEAD = 0.04
#: Measured on the server's clock: one sentence, because a pause between two has its own length.
SENTENCE = "Maybe Bob put the big map by the pump where my mother made a pot of soup for Papa."


def speak_text(server, page, conversation, text):
    """Makes the agent speak a text; returns when the speech began."""
    started_at, mark = page.audio_clock(), page.message_count()
    assert (
        server.request("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": text}).status
        == 200
    )
    page.wait_for_event("agent.started_speaking", mark, timeout=20)
    stopped = page.wait_for_event("agent.stopped_speaking", mark, timeout=30)
    # The silence with which flite begins may be skipped.
    before = started_at - 0.5
    _, sound = page.recording(before, page.wait_for_silence(after=stopped["t"]) + 1)
    start, fit = lips.find_start(text, VOICE, sound, before)
    assert fit > 0.8, f"{text!r} was not heard as it is spoken: {fit}"
    return start


@pytest.fixture(scope="module")
def flash_server(start_server):
    """A server with the avatar that flashes."""
    return (
        start_server("flash", env={"VISAVIS_AVATARS_DIR": str(FLASH_AVATAR_FOLDER)})
        .read_first_start()
        .wait_ready()
    )


@pytest.fixture
def flash_call(flash_server, call):
    """A call with the avatar that flashes: its server, page and conversation."""
    return (flash_server, *start_call(flash_server, call, "flash"))


def start_call(server, call, avatar):
    conversation = server.create_conversation(
        server.create_agent(greeting="", voice=VOICE, avatar={"avatar_key_id": avatar})["id"]
    )
    page = call().open(conversation["join_link"])
    page.join()
    # A browser needs time to synchronize audio and video, from any sender.
    page.wait_until_time(page.audio_clock() + 4)
    return page, conversation


def measure_mouth(server, page, conversation, text, open_mouth):
    """How far the mouth is open in the browser (times and values, by `open_mouth` of pictures), and
    how far it should be open."""
    page.capture_video()
    start = speak_text(server, page, conversation, text)
    page.capture_video(False)
    times, _, luma = page.captured_frames()
    jaw = lips.jaw_opening(text, VOICE)
    inside = (times > start - 1) & (times < start + lips.STEP_SECONDS * len(jaw) + 1)
    still = np.zeros(int(0.5 / lips.STEP_SECONDS))
    jaw = np.concatenate([still, jaw, still])
    return (
        times[inside],
        open_mouth(luma[inside]),
        start - 0.5 + lips.STEP_SECONDS * (np.arange(len(jaw)) + 0.5),
        jaw,
    )


def mouth_brightness(luma):
    return luma.mean(axis=(1, 2)) / 255


@pytest.mark.long("faces")
def test_lips_and_sound_of_twenty_utterances(flash_call, report, measurement_offset):
    server, page, conversation = flash_call
    found = []
    for text in UTTERANCES:
        times, shown, at, jaw = measure_mouth(server, page, conversation, text, mouth_brightness)
        shift, fit = lips.best_offset(times - measurement_offset, shown, at, jaw, reach=0.25)
        found.append((round(float(shift), 3), round(float(fit), 2)))
    shifts = [shift for shift, _ in found]
    mean = statistics.mean(shifts)
    report.add("lips and sound of twenty utterances", {"mean": mean, "shifts and fits": found})
    assert len(found) == 20 and min(fit for _, fit in found) > 0.7, found
    assert abs(mean) <= MAX_MEAN_OFFSET, (mean, found)
    assert all(lips.MIN_OFFSET <= shift <= lips.MAX_OFFSET for shift in shifts), found


@pytest.mark.long("faces")
def test_lips_and_sound_of_a_person(server, call, report, measurement_offset):
    """All utterances as one: the darkness of a human mouth says less than a flash."""
    page, conversation = start_call(server, call, PERSON_AVATAR)
    parts, ends = [], 0.0
    for text in UTTERANCES[:PERSON_UTTERANCES]:
        times, shown, at, jaw = measure_mouth(server, page, conversation, text, lips.mouth_darkness)
        # One after the other on a common clock, a second apart.
        later = ends + 1 - min(times[0], at[0])
        parts.append((times - measurement_offset + later, shown, at + later, jaw))
        ends = max(times[-1], at[-1]) + later
    shift, fit = lips.best_offset(
        *(np.concatenate(series) for series in zip(*parts, strict=True)), reach=0.25
    )
    report.add("lips and sound of a person", {"shift": float(shift), "fit": float(fit)})
    assert fit > 0.4 and abs(shift) <= MAX_MEAN_OFFSET, (shift, fit)


def test_lips_and_sound_have_one_clock(flash_server, report):
    """What the server sends, by its own timestamps. The load of the machine changes no figure."""
    conversation = flash_server.create_conversation(
        flash_server.create_agent(
            greeting="", voice=VOICE, avatar={"avatar_key_id": "flash"}, transcripts=[]
        )["id"]
    )

    async def talk():
        client = WhipClient(flash_server, conversation)
        audio_track, video_track = (rtp.TrackRecorder(client, kind) for kind in ("audio", "video"))
        await client.join()
        await client.wait_for(lambda: client.find_message("bot-ready"), 60, "bot-ready")
        speak = await asyncio.to_thread(
            flash_server.request,
            "PUT",
            f"/v1/conversation/{conversation['id']}/speak",
            {"text": SENTENCE},
        )
        assert speak.status == 200, speak
        await client.wait_for(
            lambda: client.find_message(event="agent.stopped_speaking"), 60, "the end of the text"
        )
        await client.wait_for(
            lambda: audio_track.reports and video_track.reports, 60, "sender reports"
        )
        await client.hang_up()
        return audio_track, video_track

    audio_track, video_track = run_async(talk())
    began, samples = rtp.decode_audio(audio_track)
    # The silence with which flite begins and ends is not sent.
    padded = np.pad(samples, rtp.CODECS["audio"][1])
    steps, spoken_at, share = lips.find_segments(SENTENCE, VOICE, padded, began - 1)
    times, luma = rtp.decode_video(video_track)
    jaw = lips.jaw_opening(SENTENCE, VOICE)
    steps, spoken_at = steps[steps < len(jaw)], spoken_at[steps < len(jaw)]
    # A picture counts where a segment that was found is spoken.
    inside = np.array(
        [np.abs(spoken_at - at).min(initial=np.inf) < lips.STEP_SECONDS for at in times]
    )
    assert share >= 0.5 and inside.sum() > 40, (share, int(inside.sum()))
    late, fit = lips.jaw_offset(
        times[inside],
        mouth_brightness(luma[inside] * 255),
        spoken_at + lips.STEP_SECONDS / 2,
        jaw[steps],
    )
    found = {
        "late": late,
        "fit": fit,
        "pictures": int(inside.sum()),
        "segments": share,
        "missing": [audio_track.missing_packets(), video_track.missing_packets()],
        "between reports": [audio_track.clock_drift(), video_track.clock_drift()],
    }
    report.add("lips by the server's time stamps", found)
    assert fit > 0.7, found
    assert abs(late + VIDEO_LEAD) <= MAX_MEAN_OFFSET, found


@pytest.mark.long("faces")
def test_an_avatar_flashes_with_the_sound(flash_call, report, measurement_offset):
    """Each flash belongs to a vowel between two closures. The offset is the middle of the flash
    against that of the vowel, to half a picture. Lips that shut for the closure make it early by
    some milliseconds."""
    server, page, conversation = flash_call
    page.capture_video()
    # A flashing avatar sends three pictures per second while it is silent, unlike a human one, and
    # the browser displays the next ones late. So some words come first.
    text = "This is the very same thing as ever until we get to " + "Papa " * 12
    begins = speak_text(server, page, conversation, text.strip())
    times, _, luma = page.captured_frames()
    # Lips are half open when a vowel begins or ends.
    bright = mouth_brightness(luma) > HALF_OPEN_BRIGHTNESS
    # A picture stays until the next one. The mouth is shut before the first.
    before = [False, *bright[:-1]]
    edges = [
        [
            at
            for at, now, then in zip(times, bright, before, strict=True)
            if now == to and then != to
        ]
        for to in (True, False)
    ]
    spoken = lips.flite_phones(text.strip(), VOICE)
    vowels = [
        (begins + before, begins + end)
        for (_, before), (name, end) in itertools.pairwise(spoken)
        if name == "aa"
    ]
    assert len(vowels) == 12
    # The nearest edge.
    found = [
        [
            min((edge - at for edge in every), key=abs) - measurement_offset
            for every, at in zip(edges, vowel, strict=True)
        ]
        for vowel in vowels
    ]
    middles = [(on + off) / 2 for on, off in found]
    report.add(
        "an avatar that flashes",
        {"offset": statistics.mean(middles), "spread": statistics.pstdev(middles), "edges": found},
    )
    assert all(len(every) >= len(vowels) for every in edges), (
        f"{len(vowels)} vowels, flashes begin {edges[0]} and end {edges[1]}"
    )
    # Lips that shut for the next phone are 20 ms early in the middle, and the offset of the loop is
    # known to 20 ms.
    assert (
        abs(statistics.mean(middles)) <= MAX_MEAN_OFFSET + 0.02
        and statistics.pstdev(middles) <= 0.02
    ), found
