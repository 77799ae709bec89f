"""A call with hosted providers in which the user asks, interrupts a long answer, and asks again."""

from . import audio_match, provider_call, providers

QUESTION = "What do visitors see in the first room?"
TOUR = "Tell me about the whole tour please."
STOP = "Stop please. I have another question."
#: The long answer begins with a short sentence: what was heard of a segment is known while the
#: vendor sends it only if it reports the times of words.
ANSWERS = {
    QUESTION: "In the first room visitors see a large collection of old clocks.",
    TOUR: "I will tell you. "
    + " ".join(
        f"The room number {number} is full of interesting things from far away."
        for number in ("one", "two", "three", "four", "five", "six", "seven", "eight")
    ),
    STOP: "Of course. What would you like to know?",
}

#: Seconds from the end of an interrupted reply to the vendor's cancel message, and from
#: `user.stopped_speaking` to its end mark. A reply that is only paused is not cancelled.
CANCEL_SECONDS, END_MARK_SECONDS = 0.05, 0.15


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


def is_end_mark(message) -> bool:
    """Whether a message asks for the final transcript."""
    kinds = ("Finalize", "ForceEndpoint", "ForceEndTurn", "input_audio_buffer.commit")
    return isinstance(message, dict) and (
        message.get("type") in kinds or message.get("commit") is True
    )


def is_cancel(message) -> bool:
    """Whether a message cancels a speech."""
    return isinstance(message, dict) and bool(
        message.get("cancel") or message.get("close_context") or message.get("type") == "Clear"
    )


def report_times(report, name: str, found: dict, stt: providers.Fake, tts: providers.Fake):
    """How soon the vendors were told that the user has stopped, and that the reply has ended. A
    request is the end mark itself, and is cancelled by its end."""
    marks = [
        one.at for record in stt.records for one in record.received if is_end_mark(one.message)
    ]
    marks += [one.opened_at for one in stt.records if one.path.endswith("/transcriptions")]
    report.check_target(
        f"{name}: end of speech to the end mark at the vendor, s",
        stt.started_at + min(marks) - found["spoken_at"],
        END_MARK_SECONDS,
    )
    cancels = [
        one.at for record in tts.records for one in record.received if is_cancel(one.message)
    ]
    cancels += [one.closed_at for one in tts.records if one.cancelled]
    report.check_target(
        f"{name}: the end of the reply to the cancel message at the vendor, s",
        min(at for at in cancels if tts.started_at + at > found["cut_at"] - 1)
        + tts.started_at
        - found["cut_at"],
        CANCEL_SECONDS,
    )
