"""Any OpenAI-compatible server: a slow one, broken ones, and one that calls a tool. The call always
survives."""

import re
import threading

import pytest

from kit import audio_match

#: In two pieces, as the voice speaks it.
APOLOGY = ["I'm sorry, something went wrong.", "Please say that again."]
FIRST_ROOM = "What do visitors see in the first room?"
WEATHER = "What is the weather like over there?"


def create_agent_with(server, model, **more):
    return server.create_agent(
        llm={
            "provider": "custom",
            "url": model.base_url,
            "token": "secret-token",
            "model": "scripted",
        },
        turn={"preemptive_generation": False},
        **more,
    )


def ask(page, text):
    mark = page.message_count()
    user_speech = page.speak(text)
    assert page.wait_for_event("utterance_committed", mark)["payload"]["text"] == text
    return mark, user_speech


def test_sound_starts_while_the_words_still_stream(server, call, scripted_llm):
    """The first sentence is audible before the model writes the rest."""
    first, rest = (
        "The first room is full of clocks. Then there ",
        "is a second room with many old pictures.",
    )
    first_sentence_heard = threading.Event()

    def stream_words(llm_request):
        """A model that stays silent for five seconds is given up. This one sends a word now and
        then, until the first sentence is audible."""
        yield first
        for word in re.split(r"(?<= )", rest):
            first_sentence_heard.wait(3)
            yield word

    slow = scripted_llm(stream_words)
    agent = create_agent_with(server, slow, transcripts=[FIRST_ROOM])
    page = call(options={"packets": True}).open(
        server.create_conversation(agent["id"])["join_link"]
    )
    page.join()
    mark, user_speech = ask(page, FIRST_ROOM)
    page.wait_for_sound(user_speech.end)
    assert not slow.finished_at, "the stream had ended before the first sound"
    first_sentence_heard.set()
    answer = page.wait_for_event("agent.stopped_speaking", mark)
    assert answer["payload"]["text"] == first + rest
    # A browser without CPU time has gaps within an answer, too.
    page.wait_for_silence(after=answer["t"])
    _, agent_audio = page.rtp_audio(user_speech.end, page.audio_clock())
    sentences = [
        "The first room is full of clocks.",
        "Then there is a second room with many old pictures.",
    ]
    for sentence, arrival in zip(
        sentences, audio_match.match_page_audio(sentences, "rms", agent_audio), strict=True
    ):
        audio_match.expect_arrival(arrival, sentence)
    llm_request = slow.requests[0]
    assert llm_request["stream"] is True and llm_request["model"] == "scripted"
    assert (
        llm_request["messages"][0]["role"] == "system"
        and "friendly assistant" in llm_request["messages"][0]["content"]
    )
    assert llm_request["messages"][-1] == {"role": "user", "content": FIRST_ROOM}


def check_apology(server, call, model, failures: list[tuple[list, list[str]]]):
    """Each of the first questions fails as its script says: the text before the failure and the
    apology are audible. The last question is answered."""
    questions = ["Tell me more.", "And then?", "Is all well?"][-len(failures) - 1 :]
    scripts = {question: script for question, (script, _) in zip(questions, failures, strict=False)}
    broken = model(
        lambda llm_request: scripts.get(
            llm_request["messages"][-1]["content"], ["All is well again."]
        )
    )
    agent = create_agent_with(server, broken, transcripts=questions)
    conversation = server.create_conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    page.join()
    for question, (_, before) in zip(questions, failures, strict=False):
        at, user_speech = ask(page, question)
        texts = []
        while not texts or texts[-1] != " ".join(APOLOGY):
            stopped = page.wait_for_event("agent.stopped_speaking", at)
            texts.append(stopped["payload"]["text"])
            at = stopped["n"] + 1
        assert texts[:-1] == before, texts
        page.wait_for_silence(after=stopped["t"])
        _, agent_audio = page.rtp_audio(user_speech.end, page.audio_clock())
        for sentence, arrival in zip(
            [*before, *APOLOGY],
            audio_match.match_page_audio([*before, *APOLOGY], "rms", agent_audio),
            strict=True,
        ):
            audio_match.expect_arrival(arrival, sentence)
    mark, _ = ask(page, questions[-1])
    again = page.wait_for_event("agent.stopped_speaking", mark)
    assert again["payload"]["text"] == "All is well again."
    assert server.get_conversation(conversation["id"])["status"] == "IN_PROGRESS"


def test_the_agent_apologizes_for_a_failed_language_model(server, call, scripted_llm):
    cut = ["The first room is full of clocks. ", "And then there ", 0.3, "is a", "!cut"]
    check_apology(
        server, call, scripted_llm, [(["!500"], []), (cut, ["The first room is full of clocks."])]
    )


@pytest.mark.long("providers")
def test_the_agent_apologizes_for_a_stalled_language_model(server, call, scripted_llm):
    check_apology(server, call, scripted_llm, [(["!stall"], [])])


def test_a_tool_call_reaches_its_server(server, call, scripted_llm, tool, webhooks):
    weather = tool({"sky": "purple", "degrees": 21})

    def script(llm_request):
        if any(message["role"] == "tool" for message in llm_request["messages"]):
            return ["The sky is purple ", "and it has twenty one degrees."]
        assert llm_request["tools"][0]["function"]["name"] == "sky_over", llm_request["tools"]
        call_ = {
            "index": 0,
            "id": "call_7",
            "type": "function",
            "function": {"name": "sky_over", "arguments": '{"place": '},
        }
        return [
            {"tool_calls": [call_]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '"Green Hill", "unit": "C"}'}}]},
        ]

    llm_server = scripted_llm(script)
    schema = {
        "type": "function",
        "name": "sky_over",
        "description": "The weather at a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "unit": {"type": "string"}},
            "required": ["place"],
        },
    }
    created = server.request(
        "POST",
        "/v1/ext/tool",
        {
            "type": "tool.api",
            "schema": schema,
            "event_messages": {"on_start": {"message": "One moment please."}},
            "request_config": {
                "method": "GET",
                "url": weather.url + "/sky/{place}",
                "headers": {"x-secret": "s3cret"},
            },
        },
    )
    assert (
        created.status == 201 and created.json()["message"] == "Tool details created successfully"
    ), created
    agent = create_agent_with(
        server, llm_server, hooks=webhooks, tools=[created.json()["id"]], transcripts=[WEATHER]
    )
    conversation = server.create_conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    page.join()
    mark, _ = ask(page, WEATHER)
    done = webhooks.wait_for(conversation["id"], "tool_call")
    assert done["event"]["payload"] == {
        "tool_name": "sky_over",
        "parameters": {"place": "Green Hill", "unit": "C"},
        "result": {"sky": "purple", "degrees": 21},
        "status": "completed",
    }
    first = page.wait_for_event("agent.stopped_speaking", mark)
    assert first["payload"]["text"] == "One moment please."
    answer = page.wait_for_event("agent.stopped_speaking", first["n"] + 1)
    assert answer["payload"]["text"] == "The sky is purple and it has twenty one degrees."
    request = weather.calls[0]
    assert (request["method"], request["path"]) == ("GET", "/sky/Green%20Hill?unit=C"), request
    assert {k.lower(): v for k, v in request["headers"].items()}["x-secret"] == "s3cret"
    assert len(weather.calls) == 1
    order = [message["role"] for message in llm_server.requests[-1]["messages"]]
    assert order == ["system", "user", "assistant", "tool"], (
        "what was said while the tool ran stands before its call, the result last"
    )
    assert llm_server.requests[-1]["messages"][2]["content"] == "One moment please."
    result = next(m for m in llm_server.requests[-1]["messages"] if m["role"] == "tool")
    tool_call_message = next(m for m in llm_server.requests[-1]["messages"] if m.get("tool_calls"))
    assert (
        result["tool_call_id"] == tool_call_message["tool_calls"][0]["id"]
        and "purple" in result["content"]
    )
