"""Calls with hosted providers, whose fakes speak the vendors' protocols (kit/providers)."""

from kit import audio_match, provider_call, providers, speech
from kit.providers.transcription import Utterance
from kit.typed_call import run_call
from kit.webrtc_client import run_async

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
APOLOGY = "Sorry, I cannot think at the moment."


def ask(page, question: str) -> tuple[int, float]:
    """The number of the first message after the question, and the end of the user's speech on the
    page's clock."""
    mark = page.message_count()
    spoken = page.speak(question)
    committed = page.wait_for_event("utterance_committed", mark)
    assert committed["payload"]["text"] == question, committed
    return mark, spoken.end


def test_a_call_with_deepgram_anthropic_and_elevenlabs(server, call, webhooks, vendor):
    """The user asks, interrupts, and hangs up. Transcript, answer and sound are right. The vendors
    see the cancellation and the end."""
    deepgram = vendor(providers.DeepgramFake, [Utterance.spoken(q) for q in ANSWERS])
    # Both are still busy when the user interrupts.
    anthropic = vendor(providers.AnthropicFake, ANSWERS.get, tokens_per_second=10)
    elevenlabs = vendor(providers.ElevenLabsFake, pace=1.1)
    agent = provider_call.create_agent(
        server,
        stt=deepgram,
        llm=anthropic,
        tts=elevenlabs,
        turn={"min_interruption_duration": 0.25},
        hooks=webhooks,
    )
    conversation = server.create_conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    assert deepgram.records == elevenlabs.records == [], "a connection of nobody"
    page.join()

    mark, asked_until = ask(page, QUESTION)
    answer = page.wait_for_event("agent.stopped_speaking", mark)
    assert answer["payload"]["text"] == ANSWERS[QUESTION]
    page.wait_for_silence(after=answer["t"])
    _, sound = page.rtp_audio(asked_until, page.audio_clock())
    arrival = audio_match.match_page_audio([ANSWERS[QUESTION]], provider_call.FAKE_VOICE, sound)[0]
    audio_match.expect_arrival(arrival, ANSWERS[QUESTION])

    mark, _ = ask(page, TOUR)
    page.barge_in(STOP, into=1.0)
    page.wait_for_event("agent.interrupted", mark)
    stopped = page.wait_for_event("agent.stopped_speaking", mark)
    heard = stopped["payload"]["text"]
    assert heard and ANSWERS[TOUR].startswith(heard.rstrip(".…")) and heard != ANSWERS[TOUR]
    committed = page.wait_for_event("utterance_committed", stopped["n"])
    assert committed["payload"]["text"] == STOP
    last = page.wait_for_event("agent.stopped_speaking", committed["n"])
    assert last["payload"]["text"] == ANSWERS[STOP]
    assert anthropic.messages()[1].cancelled, "the generation of the answer went on"
    closed = [m for m in elevenlabs.records[0].texts() if m.get("close_context")]
    # The sound of the cut reply may have been sent already, so the message alone counts.
    assert "reply-2" in [m["context_id"] for m in closed], elevenlabs.describe()
    assert not any("eight" in text for text in elevenlabs.spoken)

    page.page.click("#hang-up")
    record = server.wait_for(conversation["id"], "ENDED")
    for fake in (deepgram, elevenlabs):
        fake.wait_for(lambda fake=fake: fake.open_count() == 0, "the end of the connection")
        assert [one.said_goodbye for one in fake.records] == [True], fake.describe()
    webhooks.wait_for(conversation["id"], "call_ended")
    assert record["warnings"] == []
    texts = [(entry["role"], entry["content"]) for entry in record["transcript"]]
    assert texts == [
        ("user", QUESTION),
        ("assistant", ANSWERS[QUESTION]),
        ("user", TOUR),
        ("assistant", heard),
        ("user", STOP),
        ("assistant", ANSWERS[STOP]),
    ]
    sent = anthropic.messages()[-1].body
    assert sent["messages"][-2]["content"][0]["text"].startswith(heard[:20])
    assert not page.browser_errors, page.browser_errors
    fakes = [deepgram, anthropic, elevenlabs]
    provider_call.check_secrets(server, fakes, agent, conversation)
    provider_call.check_protocols(fakes)


def test_a_wrong_key_of_the_speech_to_text_is_told_and_the_call_goes_on(server, vendor):
    deepgram = vendor(providers.DeepgramFake)
    choice = provider_call.choice(deepgram, token="wrong-key-0123456789")
    agent = provider_call.create_agent(server, stt=choice)
    conversation = server.create_conversation(agent["id"])

    async def talk():
        client = await provider_call.SpokenCall(server, conversation).connect()
        understood = await client.say(QUESTION)
        await client.hang_up()
        return understood

    understood = run_async(talk())
    # The built-in recognizer is right about most words.
    errors, count = speech.word_errors(QUESTION, understood)
    assert errors <= count / 2, understood
    record = server.wait_for(conversation["id"], "ENDED")
    assert record["warnings"] == [
        "The API key for Deepgram is not valid; the built-in STT is used instead."
    ]
    assert len(deepgram.records) == 1 and "wrong-key" not in server.log.read_text()


def test_a_wrong_key_of_the_language_model_is_told_and_the_call_apologizes(server, vendor):
    anthropic = vendor(providers.AnthropicFake)
    elevenlabs = vendor(providers.ElevenLabsFake)
    choice = provider_call.choice(anthropic, token="wrong-key-0123456789")
    agent = provider_call.create_agent(
        server, llm=choice, tts=elevenlabs, config={"error_message": APOLOGY}
    )

    async def talk(client):
        await client.ask("What is new?", APOLOGY)

    record = run_call(server, agent, talk)
    assert record["warnings"] == ["The API key for Anthropic is not valid."]
    assert elevenlabs.spoken == [APOLOGY]
    assert len(anthropic.messages()) == 1 and "wrong-key" not in server.log.read_text()
