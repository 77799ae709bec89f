"""Tags of expressions in the text of a language model, in messages of the agent and of `speak`. No
client reads or hears one."""

import json

from kit import typed_call

GREETING = "[glad] Welcome to the museum. [nod]"
QUESTION = "Is the second room open?"
#: How the model streams its answers: a tag is split over two tokens.
TOKENS = ["[wa", "rm] It is open, ", "[n", "od] and the café too. ", "[curious] ", "Hungry? [sic]"]
ANSWER = "It is open, and the café too. Hungry? [sic]"
TAGS = ["[glad", "[nod", "[wa", "[n", "[curious", "[calm", "rm]", "od]"]


def test_tags_are_removed_before_anybody_reads_or_hears_them(server, scripted_llm, webhooks):
    llm = scripted_llm(lambda request: iter(TOKENS))
    agent = typed_call.create_typed_agent(
        server, llm_server=llm, greeting=GREETING, hooks=webhooks, avatar={"avatar_key_id": "nia"}
    )

    async def work(client):
        await client.wait_for_utterance("Welcome to the museum.")
        await client.ask(QUESTION, ANSWER)
        speak_url = f"/v1/conversation/{client.conversation['id']}/speak"
        message = {"text": "[calm] The café closes soon.", "expression": "warm"}
        assert server.request("PUT", speak_url, message).status == 200
        await client.wait_for_utterance("The café closes soon.")
        client.send_typed("Thank you.")
        await client.wait_for(lambda: len(client.utterances()) == 4, what="the second answer")
        for message in client.messages:
            assert not any(tag in json.dumps(message) for tag in TAGS), message

    record = typed_call.run_call(server, agent, work)
    webhooks.wait_for(record["id"], "call_ended")
    for seen in (record, webhooks.events_of(record["id"])):
        assert not any(tag in json.dumps(seen) for tag in TAGS), seen
    spoken = [entry["content"] for entry in record["transcript"] if entry["role"] == "assistant"]
    assert spoken == ["Welcome to the museum.", ANSWER, "The café closes soon.", ANSWER], spoken
    # The model reads which tags it may write, and none in the conversation.
    first, second = (request["messages"] for request in llm.requests)
    assert "[concerned]" in first[0]["content"], first
    history = second[1:]
    assert ANSWER in [message["content"] for message in history], history
    assert not any(tag in json.dumps(history) for tag in TAGS), history


def test_the_offer_of_tags_can_be_turned_off(server, scripted_llm):
    llm = scripted_llm(lambda request: iter(TOKENS))
    agent = typed_call.create_typed_agent(server, llm_server=llm, config={"expressions": False})

    async def work(client):
        await client.ask(QUESTION, ANSWER)

    typed_call.run_call(server, agent, work)
    assert "[concerned]" not in json.dumps(llm.requests[0]["messages"]), llm.requests
