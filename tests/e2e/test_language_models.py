"""Any OpenAI-compatible server: a slow one, broken ones, and one that calls a tool. The call always lives on."""

from kit import voice

APOLOGY = "I'm sorry, something went wrong. Please say that again."


def agent_with(server, model, **more):
    return server.agent(llm={"provider": "custom", "url": model.base, "token": "secret-token", "model": "scripted"}, **more)


def ask(page, text="What do visitors see in the first room?"):
    mark = page.mark()
    said = page.speak(text)
    page.event("utterance_committed", mark, timeout=20)
    return mark, said


def test_sound_starts_while_the_words_still_stream(server, call, model, report):
    """Six seconds of stream; the first sentence must be heard long before its end."""
    words = "The first room is full of clocks. Then there is a second room with many old pictures. And at the end there is a garden.".split()
    slow = model(lambda asked: [part for word in words for part in (word + " ", 0.25)])
    agent = agent_with(server, slow, turn={"preemptive_generation": False})
    page = call().open(server.conversation(agent["id"])["join_link"])
    page.join()
    mark, said = ask(page)
    sound = page.sound(said.end)
    assert not slow.done, "the stream had ended before the first sound"
    sent = len(slow.sent)
    answer = page.event("agent.stopped_speaking", mark, timeout=30)
    report.add("slow stream", {"words sent at the first sound": sent, "of": len(words), "first sound after": sound["from"] - said.end})
    assert answer["payload"]["text"].split() == words
    silent = page.quiet(after=said.end)
    _, heard = page.recording(said.end, silent)
    wrong, count = voice.errors(" ".join(words), voice.recognise(heard))
    assert wrong <= 0.4 * count
    asked = slow.requests[0]
    assert asked["stream"] is True and asked["model"] == "scripted"
    assert asked["messages"][0]["role"] == "system" and "friendly assistant" in asked["messages"][0]["content"]
    assert asked["messages"][-1]["role"] == "user"


def check_apology(server, call, model, script, before=""):
    """The first question fails as `script` says; the apology is heard, and the next question is answered."""
    answers = [script, ["All is well again."]]
    broken = model(lambda asked: answers[0] if not any(m.get("content") and "garden" in str(m["content"]) for m in asked["messages"] if m["role"] == "user") else answers[1])
    agent = agent_with(server, broken, turn={"preemptive_generation": False})
    conversation = server.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    mark, said = ask(page)
    heard_texts = []
    at = mark
    while not heard_texts or heard_texts[-1] != APOLOGY:
        stopped = page.event("agent.stopped_speaking", at, timeout=25)
        heard_texts.append(stopped["payload"]["text"])
        at = stopped["n"] + 1
    assert " ".join(heard_texts[:-1]).strip() == before, heard_texts
    silent = page.quiet(after=said.end)
    _, sound = page.recording(said.end, silent)
    assert {"sorry", "something", "wrong"} <= set(voice.words(voice.recognise(sound)))
    mark, said = ask(page, "Tell me about the garden behind the house.")
    again = page.event("agent.stopped_speaking", mark, timeout=20)
    assert again["payload"]["text"] == "All is well again."
    assert server.record(conversation["id"])["status"] == "IN_PROGRESS"


def test_a_server_that_fails_is_apologised_for(server, call, model):
    check_apology(server, call, model, ["!500"])


def test_a_server_that_stalls_is_apologised_for(server, call, model):
    check_apology(server, call, model, ["!stall"])


def test_a_stream_cut_in_mid_sentence_is_apologised_for(server, call, model):
    check_apology(server, call, model, ["The first room is full of clocks. ", "And then there ", 0.3, "is a", "!cut"], before="The first room is full of clocks.")


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
    agent = agent_with(server, thinker, hooks=hooks, tools=[made.json()["id"]], turn={"preemptive_generation": False})
    conversation = server.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    mark, said = ask(page, "What is the weather like over there?")
    done = hooks.until(conversation["id"], "tool_call")
    assert done["event"]["payload"] == {"tool_name": "sky_over", "parameters": {"place": "Green Hill", "unit": "C"}, "result": {"sky": "purple", "degrees": 21}}
    first = page.event("agent.stopped_speaking", mark, timeout=20)
    assert first["payload"]["text"] == "One moment please."
    answer = page.event("agent.stopped_speaking", first["n"] + 1, timeout=20)
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
