"""Bad input gets a clear error, crashes nothing, and disturbs no other call."""

import asyncio
import json
import re
import socket
import threading

import pytest

from kit import sdp, stores, typed_call

SDP = {"content-type": "application/sdp"}


class ConcurrentCall:
    """A call in its own thread. It continues while the test does something else."""

    def __init__(self, server):
        self.server = server
        self.conversation = server.create_conversation(
            typed_call.create_typed_agent(
                server, knowledge="The museum has an old clock in the first room."
            )["id"]
        )
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.client = self.run(self.connect())

    async def connect(self):
        return await typed_call.TypedCall(self.server, self.conversation).connect()

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(3 * typed_call.TEST_TIMEOUT)

    def check_alive(self):
        """Checks that it is still connected, answers what is typed, and receives audio."""
        self.client.messages.clear()
        received_before = len(self.client.received_audio)
        self.run(self.client.ask("What is in the first room?", "old clock"))
        self.run(
            self.client.wait_for(
                lambda: any(sound.any() for sound in self.client.received_audio[received_before:]),
                what="a sound",
            )
        )
        assert self.client.peer.connectionState == "connected"

    def close(self):
        self.run(self.client.hang_up())
        self.loop.call_soon_threadsafe(self.loop.stop)


@pytest.fixture
def concurrent_call(server):
    """A call that runs beside the bad input, and still works afterwards."""
    other_call = ConcurrentCall(server)
    with server.without_errors():
        yield other_call
        assert server.is_alive(), server.log_tail()
        other_call.check_alive()
        other_call.close()


@pytest.fixture(scope="module")
def valid_offer():
    return sdp.make_offer()


def test_bad_offers(server, concurrent_call, valid_offer):
    agent = typed_call.create_typed_agent(server)
    conversation = server.create_conversation(agent["id"])
    where, token = (
        f"/rtc/{conversation['id']}",
        {"authorization": f"Bearer {conversation['token']}"},
    )

    def post(body, headers=token, path=where, kind=SDP):
        return server.request(
            "POST",
            path,
            key=None,
            raw=body,
            headers={**kind, **headers},
            timeout=typed_call.TEST_TIMEOUT,
        )

    for garbage in (
        b"",
        b"hello",
        b"v=0\r\n",
        b"\x00\xff" * 5000,
        valid_offer.replace("ice-ufrag", "x").encode(),
        valid_offer.replace("fingerprint", "x").encode(),
    ):
        reply = post(garbage)
        assert reply.status == 400 and reply.json()["error"], (garbage[:40], reply)
    assert post(valid_offer[:150].encode()).status in (400, 406), (
        "an offer that ends before its first section"
    )
    no_opus = re.sub(r"opus/48000/2", "foo/48000/2", valid_offer, flags=re.IGNORECASE)
    reply = post(no_opus.encode())
    assert reply.status == 406 and reply.json()["error"], reply
    for headers in (
        {},
        {"authorization": "Bearer nonsense"},
        {"authorization": f"Bearer {conversation['token'][:-3]}abc"},
    ):
        reply = post(valid_offer.encode(), headers)
        assert reply.status == 401 and reply.json()["error"], reply
    other = server.create_conversation(agent["id"])
    assert (
        post(valid_offer.encode(), {"authorization": f"Bearer {other['token']}"}).status == 401
    ), "a token of another conversation"
    assert post(b"{}", kind={"content-type": "application/json"}).status == 415
    assert post(b"x" * 10_000_000).status == 413
    assert server.get_conversation(conversation["id"])["status"] == "STARTED", (
        "a bad offer must not use the conversation up"
    )

    for body in (
        {},
        {"sdp": 1, "type": "offer"},
        {"sdp": "x", "type": "offer"},
        {"sdp": valid_offer, "type": "answer"},
    ):
        reply = server.request("POST", "/api/offer", body, key=None, headers=token)
        assert reply.status == 400 and reply.json()["error"], (body, reply)
    reply = server.request(
        "POST",
        "/api/offer",
        key=None,
        raw=b"not json",
        headers={**token, "content-type": "application/json"},
    )
    assert reply.status == 400, reply
    assert server.request("GET", where, key=None).status == 405


def test_an_expired_link(server, call):
    """What the page says about a link that is used for the first time an hour after its
    creation."""
    conversation = server.create_conversation(typed_call.create_typed_agent(server)["id"])
    page = call()
    # The page asks about the conversation when it opens. The link must be valid until that is
    # answered.
    with page.page.expect_response(
        lambda answer: answer.url.endswith(f"/join/{conversation['id']}/about")
    ) as met:
        page.open(conversation["join_link"])
    assert met.value.status == 200, met.value
    stores.Sqlite().execute(
        server,
        [
            (
                "UPDATE conversation SET created_at = created_at - 3600000000 WHERE id = "
                f"'{conversation['id']}'"
            )
        ],
    )
    page.page.click("#join")
    page.page.wait_for_selector(
        "#over-words:has-text('expired')", timeout=typed_call.TEST_TIMEOUT * 1000
    )
    page.save_screenshot("expired")


def test_bad_requests(server, concurrent_call):
    wrong = {"error": "Unauthorized: not a valid authorization api key"}
    for key in (None, "nonsense", server.key + "x"):
        reply = server.request("GET", "/v1/ext/agent", key=key)
        assert reply.status == 401 and reply.json() == wrong, reply
    reply = server.request(
        "POST", "/v1/ext/agent", raw=b"{", headers={"content-type": "application/json"}
    )
    assert reply.status == 400 and reply.json() == {"error": "Invalid request body"}, reply
    reply = server.request("POST", "/v1/ext/agent", {"agent_name": "x"})
    assert reply.status == 400 and reply.json()["error"] == "Invalid request body", reply
    huge = b'{"agent_name": "' + b"x" * 10_000_000 + b'"}'
    reply = server.request(
        "POST",
        "/v1/ext/agent",
        raw=huge,
        headers={"content-type": "application/json"},
        timeout=typed_call.TEST_TIMEOUT,
    )
    assert reply.status == 413 and reply.json()["error"], reply
    missing = "00000000-0000-4000-8000-000000000000"
    for method, path, body, status, answer in (
        ("GET", f"/v1/ext/conversation/{missing}", None, 404, {"error": "Conversation not found"}),
        ("GET", "/v1/ext/conversation/nonsense", None, 404, {"error": "Conversation not found"}),
        ("DELETE", f"/v1/ext/agent/{missing}", None, 404, {"message": "Agent details not found"}),
        (
            "POST",
            "/v1/ext/conversation",
            {"agent_id": missing},
            404,
            {"message": "Agent details not found"},
        ),
        (
            "POST",
            "/v1/auth/conversation",
            {"agentId": missing},
            404,
            {"message": "Agent details not found"},
        ),
    ):
        reply = server.request(method, path, body)
        assert reply.status == status and reply.json() == answer, (method, path, reply)
    reply = server.request("GET", "/no/such/path")
    assert reply.status == 404 and reply.json()["error"], reply
    reply = server.request("PATCH", "/v1/ext/avatars")
    assert reply.status == 405 and reply.headers["allow"] and reply.json()["error"], reply


def test_noise_at_the_media_port(server, concurrent_call):
    """Packets that resemble RTP, STUN or DTLS, and plain noise, go to every UDP address that the
    server names. The other call does not notice them."""
    answer = concurrent_call.client.peer.remoteDescription.sdp
    places = {
        (m[1], int(m[2]))
        for m in re.finditer(
            r"a=candidate:\S+ 1 udp \d+ (\d+\.\d+\.\d+\.\d+) (\d+) typ host", answer, re.IGNORECASE
        )
    }
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


def test_text_where_sound_is_expected(concurrent_call):
    """Invalid text on the data channel is answered or ignored, and never ends the call. No client
    sends more than the 65,536 bytes that the server's description allows."""
    client = concurrent_call.client
    other = '{"label":"other","type":"send-text","id":"1","data":{"content":"x"}}'
    refused = {
        "a1": ("nobody-knows", {}),
        "a2": ("send-text", {}),
        "a3": ("client-message", {"t": "nonsense"}),
        "a4": ("llm-function-call-result", {"tool_call_id": "none", "result": {}}),
    }

    async def work():
        for nonsense in (
            "",
            "[1]",
            "nonsense",
            '{"label":"rtvi-ai"}',
            other,
            "x" * 65_536,
            '{"a":' * 2000,
            bytes(2000),
        ):
            client.channel.send(nonsense)
        for id, (type, data) in refused.items():
            client.channel.send(
                json.dumps({"label": "rtvi-ai", "type": type, "id": id, "data": data})
            )

        def answers():
            found = [m for m in client.messages if m["type"] == "error-response"]
            return found if {m["id"] for m in found} == refused.keys() else None

        assert all(m["data"]["error"] for m in await client.wait_for(answers, what="four refusals"))
        errors = [m["data"]["error"] for m in client.messages if m["type"] == "error"]
        assert errors == ["Message without id"], errors

    concurrent_call.run(work())


def test_clients_that_only_hold_connections(start_server, tmp_path):
    """Half a header, no header, a body that never arrives: the server closes each of these
    connections, and serves others meanwhile."""
    # This test makes no call. So the server needs no models, which take most of the time of a
    # start.
    env = {
        "VISAVIS_TIMEOUTS_REQUEST": "1",
        "VISAVIS_LIMITS_CONNECTIONS": "12",
        "VISAVIS_MODELS_DIR": str(tmp_path),
    }
    server = start_server("slow", data=tmp_path, env=env).read_first_start()
    place = server.url.removeprefix("http://").split(":")
    post = (
        "POST /v1/ext/agent HTTP/1.1\r\nhost: localhost\r\nx-api-key: "
        f"{server.key}\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{{"
    )
    wanted = (
        [(b"GET /healthz HTTP/1.1\r\nhost: loc", b"")] * 10
        + [(b"", b"")] * 10
        + [(post.encode(), b"HTTP/1.1 408 ")] * 10
    )
    held = []
    for sent, answer in wanted:
        connection = socket.create_connection(place, timeout=typed_call.TEST_TIMEOUT)
        connection.sendall(sent)
        held.append((connection, answer))
    # There are more connections than the limit allows. The server closes those that were idle
    # longest.
    assert (
        server.request("GET", "/healthz", key=None, timeout=typed_call.TEST_TIMEOUT).status == 200
    )
    for connection, answer in held:
        received = b""
        try:
            while part := connection.recv(4096):
                received += part
        except ConnectionResetError:
            # The server closed the connection before it had read everything.
            pass
        connection.close()
        assert received.startswith(answer) and bool(received) == bool(answer), received
