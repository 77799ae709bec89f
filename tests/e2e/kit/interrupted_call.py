"""A call with hosted providers in which the user asks, interrupts a long answer, and asks again."""

from . import audio_match, provider_call, providers

QUESTION = "What do visitors see in the first room?"
TOUR = "Tell me about the whole tour please."
STOP = "Stop please. I have another question."
ANSWERS = {
    QUESTION: "In the first room visitors see a large collection of old clocks.",
    TOUR: " ".join(
        f"The room number {number} is full of interesting things from far away."
        for number in ("one", "two", "three", "four", "five", "six", "seven", "eight")
    ),
    STOP: "Of course. What would you like to know?",
}


async def talk(server, conversation) -> dict:
    """A question, a long answer that is interrupted, and a last answer."""
    client = await provider_call.SpokenCall(server, conversation).connect()
    assert await client.say(QUESTION) == QUESTION
    spoken_at = client.times_of("user.stopped_speaking")[-1]
    await client.wait_for_utterance(ANSWERS[QUESTION])
    # The sound of the last word follows its event.
    heard = client.samples() + 24_000
    await client.wait_for(lambda: client.samples() >= heard, what="half a second of sound")
    arrival = client.arrival(ANSWERS[QUESTION], 0)
    assert await client.say(TOUR) == TOUR
    await client.wait_for_start(2)
    heard = client.samples() + 48_000
    await client.wait_for(lambda: client.samples() >= heard, what="a second of sound")
    assert await client.say(STOP) == STOP
    assert len(client.times_of("agent.interrupted")) == 1
    await client.wait_for_utterance(ANSWERS[STOP])
    utterances = client.utterances()
    await client.hang_up()
    return {
        "spoken_at": spoken_at,
        "cut_at": client.times_of("agent.stopped_speaking")[1],
        "arrival": arrival,
        "utterances": utterances,
    }


def check(found: dict, record: dict, llm: providers.Fake, tts: providers.Fake):
    """What was spoken, heard and cancelled."""
    audio_match.expect_arrival(found["arrival"], ANSWERS[QUESTION])
    first, cut, last = found["utterances"]
    assert (first, last) == (ANSWERS[QUESTION], ANSWERS[STOP])
    assert cut and ANSWERS[TOUR].startswith(cut.rstrip(".…")) and cut != ANSWERS[TOUR]
    assert record["warnings"] == []
    texts = [(entry["role"], entry["content"]) for entry in record["transcript"]]
    assert texts == [
        ("user", QUESTION),
        ("assistant", first),
        ("user", TOUR),
        ("assistant", cut),
        ("user", STOP),
        ("assistant", last),
    ]
    assert llm.messages()[1].cancelled, "the generation of the answer went on"
    assert tts.cancelled, tts.describe()
    assert not any("eight" in text for text in tts.spoken)
