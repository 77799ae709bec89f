"""Bad input gets a clear error, crashes nothing, and harms no other call."""

import re
import socket
import time

import pytest

from kit import facts

SDP = {"content-type": "application/sdp"}


@pytest.fixture
def talking(server, call):
    """A call that goes on beside the bad input, and is still well afterwards."""
    agent = server.agent(knowledge=facts.LONG)
    conversation = server.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    yield page
    assert server.alive(), server.tail()
    page.quiet(lasting=0.5, timeout=40)
    mark = page.mark()
    said = page.speak("What do visitors see in the first room?")
    page.event("agent.started_speaking", mark, timeout=20)
    page.sound(said.end)


def offer_of(page) -> str:
    return page.page.evaluate("e2e.offers.at(-1)")


def test_bad_offers(server, talking):
    agent = server.agent()
    conversation = server.conversation(agent["id"])
    where, token = f"/rtc/{conversation['id']}", {"authorization": f"Bearer {conversation['token']}"}
    good = offer_of(talking)

    def post(body, headers=token, path=where, kind=SDP):
        return server.call("POST", path, key=None, raw=body, headers={**kind, **headers})

    for garbage in (b"", b"hello", b"v=0\r\n", b"\x00\xff" * 5000, good.replace("ice-ufrag", "x").encode(), good.replace("fingerprint", "x").encode()):
        reply = post(garbage)
        assert reply.status == 400 and reply.json()["error"], (garbage[:40], reply)
    assert post(good[:150].encode()).status in (400, 406), "an offer that ends before its first section"
    no_opus = re.sub(r"opus/48000/2", "foo/48000/2", good, flags=re.I)
    reply = post(no_opus.encode())
    assert reply.status == 406 and reply.json()["error"], reply
    for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": f"Bearer {conversation['token'][:-3]}abc"}):
        reply = post(good.encode(), headers)
        assert reply.status == 401 and reply.json()["error"], reply
    other = server.conversation(agent["id"])
    assert post(good.encode(), {"authorization": f"Bearer {other['token']}"}).status == 401, "a token of another conversation"
    assert post(b"{}", kind={"content-type": "application/json"}).status == 415
    assert post(b"x" * 10_000_000).status == 413
    assert server.record(conversation["id"])["status"] == "STARTED", "a bad offer must not use the conversation up"

    for body in ({}, {"sdp": 1, "type": "offer"}, {"sdp": "x", "type": "offer"}, {"sdp": good, "type": "answer"}):
        reply = server.call("POST", "/api/offer", body, key=None, headers=token)
        assert reply.status == 400 and reply.json()["error"], (body, reply)
    reply = server.call("POST", "/api/offer", key=None, raw=b"not json", headers={**token, "content-type": "application/json"})
    assert reply.status == 400, reply
    assert server.call("GET", where, key=None).status == 405


def test_an_expired_link(start, call, tmp_path):
    """The time for the first join is configuration: here it is one second."""
    server = start("expired", data=tmp_path, env={"VISAVIS_TIMEOUTS_TOKEN": "1"}).first_start().ready()
    agent = server.agent()
    conversation = server.conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.pass_to(page.now() + 2.2)
    page.page.click("#join")
    page.page.wait_for_selector("#over-words:has-text('expired')")
    page.shot("expired")


def test_bad_requests(server, talking):
    wrong = {"error": "Unauthorized: not a valid authorization api key"}
    for key in (None, "nonsense", server.key + "x"):
        reply = server.call("GET", "/v1/ext/agent", key=key)
        assert reply.status == 401 and reply.json() == wrong, reply
    reply = server.call("POST", "/v1/ext/agent", raw=b"{", headers={"content-type": "application/json"})
    assert reply.status == 400 and reply.json() == {"error": "Invalid request body"}, reply
    reply = server.call("POST", "/v1/ext/agent", {"agent_name": "x"})
    assert reply.status == 400 and reply.json()["error"] == "Invalid request body", reply
    huge = b'{"agent_name": "' + b"x" * 10_000_000 + b'"}'
    reply = server.call("POST", "/v1/ext/agent", raw=huge, headers={"content-type": "application/json"}, timeout=30)
    assert reply.status == 413 and reply.json()["error"], reply
    missing = "00000000-0000-4000-8000-000000000000"
    for method, path, body, status, answer in (
        ("GET", f"/v1/ext/conversation/{missing}", None, 404, {"error": "Conversation not found"}),
        ("GET", "/v1/ext/conversation/nonsense", None, 404, {"error": "Conversation not found"}),
        ("DELETE", f"/v1/ext/agent/{missing}", None, 404, {"message": "Agent details not found"}),
        ("POST", "/v1/ext/conversation", {"agent_id": missing}, 404, {"message": "Agent details not found"}),
        ("POST", "/v1/auth/conversation", {"agentId": missing}, 404, {"message": "Agent details not found"}),
    ):
        reply = server.call(method, path, body)
        assert reply.status == status and reply.json() == answer, (method, path, reply)
    reply = server.call("GET", "/no/such/path")
    assert reply.status == 404 and reply.json()["error"], reply
    reply = server.call("PATCH", "/v1/ext/avatars")
    assert reply.status == 405 and reply.headers["allow"] and reply.json()["error"], reply


def test_noise_at_the_media_port(server, talking):
    """RTP, STUN and DTLS look-alikes and plain noise, at every UDP address that the server names; the call beside hears nothing of it."""
    answer = talking.page.evaluate("e2e.peer.remoteDescription.sdp")
    places = {(m[1], int(m[2])) for m in re.finditer(r"a=candidate:\S+ 1 udp \d+ (\d+\.\d+\.\d+\.\d+) (\d+) typ host", answer, re.I)}
    assert places, answer
    packets = [
        bytes([0x80, 111]) + bytes(range(2, 12)) + b"\x55" * 160,  # RTP
        bytes([0x80, 200]) + bytes(26),  # RTCP
        b"\x00\x01\x00\x08\x21\x12\xa4\x42" + bytes(20),  # STUN without integrity
        b"\x16\xfe\xff" + b"\x00" * 60,  # DTLS
        b"", b"x", b"\xff" * 1400,
    ]  # fmt: skip
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for place in places:
        for _ in range(400):
            for packet in packets:
                out.sendto(packet, place)
    out.close()
    assert talking.page.evaluate("e2e.peer.connectionState") == "connected"


def test_text_where_sound_is_expected(server, talking):
    """Nonsense on the data channel: answered or ignored, never the end of the call."""
    mark = talking.mark()
    for text in ("", "[1]", "nonsense", '{"label":"rtvi-ai"}', '{"label":"other","type":"send-text","id":"1","data":{"content":"x"}}', "x" * 70_000, '{"a":' * 2000):
        talking.page.evaluate("(text) => { try { e2e.channel.send(text); } catch {} }", text)
    talking.page.evaluate("""() => { const bytes = new Uint8Array(2000); e2e.channel.send(bytes);
        e2e.channel.send(JSON.stringify({label: 'rtvi-ai', type: 'nobody-knows', id: 'a1', data: {}}));
        e2e.channel.send(JSON.stringify({label: 'rtvi-ai', type: 'send-text', id: 'a2', data: {}}));
        e2e.channel.send(JSON.stringify({label: 'rtvi-ai', type: 'client-message', id: 'a3', data: {t: 'nonsense'}}));
        e2e.channel.send(JSON.stringify({label: 'rtvi-ai', type: 'llm-function-call-result', id: 'a4', data: {tool_call_id: 'none', result: {}}})); }""")
    wanted = {"a1", "a2", "a3", "a4"}
    end = time.monotonic() + 10
    while wanted:
        found = talking.message("error-response", mark, timeout=max(0.1, end - time.monotonic()))
        mark = found["n"] + 1
        wanted.discard(found["id"])
        assert found["data"]["error"], found


def test_clients_that_only_hold_connections(start, tmp_path):
    """Half a header, no header, a body that never comes: each is let go, and others are served meanwhile."""
    server = start("slow", data=tmp_path, env={"VISAVIS_TIMEOUTS_REQUEST": "1", "VISAVIS_LIMITS_CONNECTIONS": "12"}).first_start().ready()
    place = server.url.removeprefix("http://").split(":")
    post = f"POST /v1/ext/agent HTTP/1.1\r\nhost: localhost\r\nx-api-key: {server.key}\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{{"
    wanted = [(b"GET /healthz HTTP/1.1\r\nhost: loc", b"")] * 10 + [(b"", b"")] * 10 + [(post.encode(), b"HTTP/1.1 408 ")] * 10
    held = []
    for sent, answer in wanted:
        connection = socket.create_connection(place, timeout=15)
        connection.sendall(sent)
        held.append((connection, answer))
    # More than there are places for: this one waits until the first are gone.
    assert server.call("GET", "/healthz", key=None).status == 200
    for connection, answer in held:
        said = b""
        while part := connection.recv(4096):
            said += part
        connection.close()
        assert said.startswith(answer) and bool(said) == bool(answer), said
