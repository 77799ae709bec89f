"""Any OpenAI-compatible server: a slow one, broken ones, and one that calls a tool. The call always lives on."""

import re
import threading

import pytest

from kit import sound

#: In two pieces, as the voice speaks it.
APOLOGY = ["I'm sorry, something went wrong.", "Please say that again."]
FIRST_ROOM = "What do visitors see in the first room?"
WEATHER = "What is the weather like over there?"


def agent_with(server, model, **more):
    return server.agent(llm={"provider": "custom", "url": model.base, "token": "secret-token", "model": "scripted"}, turn={"preemptive_generation": False}, **more)


def ask(page, text):
    mark = page.mark()
    said = page.speak(text)
    assert page.event("utterance_committed", mark)["payload"]["text"] == text
    return mark, said


def test_sound_starts_while_the_words_still_stream(server, call, model):
    """The first sentence is heard before the model writes the rest."""
    first, rest = "The first room is full of clocks. Then there ", "is a second room with many old pictures."
    heard_first = threading.Event()

    def words(asked):
        """One that stays silent for five seconds is given up: a word now and then, until the first sentence is heard."""
        yield first
        for word in re.split(r"(?<= )", rest):
            heard_first.wait(3)
            yield word

    slow = model(words)
    agent = agent_with(server, slow, hears=[FIRST_ROOM])
    page = call(options={"packets": True}).open(server.conversation(agent["id"])["join_link"])
    page.join()
    mark, said = ask(page, FIRST_ROOM)
    page.sound(said.end)
    assert not slow.done, "the stream had ended before the first sound"
    heard_first.set()
    answer = page.event("agent.stopped_speaking", mark)
    assert answer["payload"]["text"] == first + rest
    # A browser that gets no processor is silent amid an answer, too.
    page.quiet(after=answer["t"])
    _, heard = page.packets(said.end, page.now())
    sentences = ["The first room is full of clocks.", "Then there is a second room with many old pictures."]
    for sentence, came in zip(sentences, sound.heard_by_page(sentences, "rms", heard), strict=True):
        sound.expect(came, sentence)
    asked = slow.requests[0]
    assert asked["stream"] is True and asked["model"] == "scripted"
    assert asked["messages"][0]["role"] == "system" and "friendly assistant" in asked["messages"][0]["content"]
    assert asked["messages"][-1] == {"role": "user", "content": FIRST_ROOM}


def check_apology(server, call, model, failures: list[tuple[list, list[str]]]):
    """Each of the first questions fails as its script says: what came before and the apology are heard. The last question is answered."""
    questions = ["Tell me more.", "And then?", "Is all well?"][-len(failures) - 1 :]
    scripts = {question: script for question, (script, _) in zip(questions, failures, strict=False)}
    broken = model(lambda asked: scripts.get(asked["messages"][-1]["content"], ["All is well again."]))
    agent = agent_with(server, broken, hears=questions)
    conversation = server.conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    page.join()
    for question, (_, before) in zip(questions, failures, strict=False):
        at, said = ask(page, question)
        texts = []
        while not texts or texts[-1] != " ".join(APOLOGY):
            stopped = page.event("agent.stopped_speaking", at)
            texts.append(stopped["payload"]["text"])
            at = stopped["n"] + 1
        assert texts[:-1] == before, texts
        page.quiet(after=stopped["t"])
        _, heard = page.packets(said.end, page.now())
        for sentence, came in zip([*before, *APOLOGY], sound.heard_by_page([*before, *APOLOGY], "rms", heard), strict=True):
            sound.expect(came, sentence)
    mark, _ = ask(page, questions[-1])
    again = page.event("agent.stopped_speaking", mark)
    assert again["payload"]["text"] == "All is well again."
    assert server.record(conversation["id"])["status"] == "IN_PROGRESS"


def test_a_server_that_fails_or_breaks_off_is_apologised_for(server, call, model):
    cut = ["The first room is full of clocks. ", "And then there ", 0.3, "is a", "!cut"]
    check_apology(server, call, model, [(["!500"], []), (cut, ["The first room is full of clocks."])])


@pytest.mark.long("providers")
def test_a_server_that_stalls_is_apologised_for(server, call, model):
    check_apology(server, call, model, [(["!stall"], [])])


def test_a_tool_is_really_called(server, call, model, tool, hooks):
    weather = tool({"sky": "purple", "degrees": 21})

    def script(asked):
        if any(message["role"] == "tool" for message in asked["messages"]):
            return ["The sky is purple ", "and it has twenty one degrees."]
        assert asked["tools"][0]["function"]["name"] == "sky_over", asked["tools"]
        call_ = {"index": 0, "id": "call_7", "type": "function", "function": {"name": "sky_over", "arguments": '{"place": '}}
        return [{"tool_calls": [call_]}, {"tool_calls": [{"index": 0, "function": {"arguments": '"Green Hill", "unit": "C"}'}}]}]

    thinker = model(script)
    schema = {"type": "function", "name": "sky_over", "description": "The weather at a place.",
              "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "unit": {"type": "string"}}, "required": ["place"]}}  # fmt: skip
    made = server.call("POST", "/v1/ext/tool", {"type": "tool.api", "schema": schema, "event_messages": {"on_start": {"message": "One moment please."}},
                                                "request_config": {"method": "GET", "url": weather.url + "/sky/{place}", "headers": {"x-secret": "s3cret"}}})  # fmt: skip
    assert made.status == 201 and made.json()["message"] == "Tool details created successfully", made
    agent = agent_with(server, thinker, hooks=hooks, tools=[made.json()["id"]], hears=[WEATHER])
    conversation = server.conversation(agent["id"])
    page = call(options={"packets": True}).open(conversation["join_link"])
    page.join()
    mark, said = ask(page, WEATHER)
    done = hooks.until(conversation["id"], "tool_call")
    assert done["event"]["payload"] == {"tool_name": "sky_over", "parameters": {"place": "Green Hill", "unit": "C"}, "result": {"sky": "purple", "degrees": 21}}
    first = page.event("agent.stopped_speaking", mark)
    assert first["payload"]["text"] == "One moment please."
    answer = page.event("agent.stopped_speaking", first["n"] + 1)
    assert answer["payload"]["text"] == "The sky is purple and it has twenty one degrees."
    request = weather.calls[0]
    assert (request["method"], request["path"]) == ("GET", "/sky/Green%20Hill?unit=C"), request
    assert {k.lower(): v for k, v in request["headers"].items()}["x-secret"] == "s3cret"
    assert len(weather.calls) == 1
    order = [message["role"] for message in thinker.requests[-1]["messages"]]
    assert order == ["system", "user", "assistant", "tool"], "what was said while the tool ran stands before its call, the result last"
    assert thinker.requests[-1]["messages"][2]["content"] == "One moment please."
    result = next(m for m in thinker.requests[-1]["messages"] if m["role"] == "tool")
    asked = next(m for m in thinker.requests[-1]["messages"] if m.get("tool_calls"))
    assert result["tool_call_id"] == asked["tool_calls"][0]["id"] and "purple" in result["content"]
