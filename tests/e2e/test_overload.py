"""Overload by one client, one customer or one provider. It is bounded, and no other call notices
it."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import re
import socket
import subprocess

import av
import numpy as np
import pytest
from aiortc.rtp import RtpPacket

from kit import webrtc_client
from kit.call import BrowserCall
from kit.load_generator import generator_command
from kit.polling import attempts
from kit.server import binary

QUESTION = "What do visitors see in the first room?"
GARDEN = "Tell me about the garden behind the house."
#: An answer that does not take long.
SHORT_ANSWER = "In the first room visitors see a large collection of old clocks."


@pytest.fixture
def bystander(server, call):
    """A call beside the flood."""
    agent = server.create_agent(
        knowledge=SHORT_ANSWER, turn={"preemptive_generation": False}, transcripts=[QUESTION]
    )
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    page.conversation, page.token = conversation["id"], conversation["token"]
    return page


def ask_and_wait(server, page) -> dict:
    """Asks, waits until the answer is audible, and returns the latencies of that turn."""
    before = len(server.wait_turns(page.conversation))
    mark = page.message_count()
    user_speech = page.speak(QUESTION)
    page.wait_for_event("agent.started_speaking", mark)
    page.wait_for_sound(user_speech.end)
    page.wait_for_event("agent.stopped_speaking", mark)
    turn = server.wait_turns(page.conversation, before + 1)[before]
    assert turn["tts_ttfb"] is not None, turn
    return turn


def flood_with_texts(server, call, bystander) -> dict:
    """Floods one call with texts while another caller asks. Returns the turn of the other
    caller."""
    agent = server.create_agent()
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    path = f"/v1/conversation/{conversation['id']}/speak"
    reply = server.request("PUT", path, {"text": "hello world. " * 60_000})
    assert reply.status == 400 and reply.json()["details"] == [
        {"field": "text", "reason": "must be at most 10000 characters"}
    ], reply
    longest = "hello world. " * 769
    mark = page.message_count()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for interrupt in (True, False):
            replies = list(
                pool.map(
                    lambda _, interrupt=interrupt: server.request(
                        "PUT", path, {"text": longest, "interrupt": interrupt}
                    ),
                    range(100),
                )
            )
            assert {reply.status for reply in replies} == {200}, replies
    turn = ask_and_wait(server, bystander)
    page.wait_for_event("agent.started_speaking", mark)
    mark = page.message_count()
    assert server.request("DELETE", f"/v1/conversation/{conversation['id']}").status == 200
    page.wait_for_event("call_ended", mark)
    return turn


def test_endless_texts_block_no_tts_of_another_call(server, call, bystander):
    flood_with_texts(server, call, bystander)


@pytest.mark.long("load")
def test_endless_texts_delay_no_tts_of_another_call(server, call, bystander, report):
    before = ask_and_wait(server, bystander)["tts_ttfb"]
    during = flood_with_texts(server, call, bystander)["tts_ttfb"]
    after = ask_and_wait(server, bystander)["tts_ttfb"]
    report.check_target(
        "first sound of a voice during a flood of texts, s more",
        during - before,
        0.5,
        server=server,
    )
    report.check_target(
        "first sound of a voice after a flood of texts, s more", after - before, 0.5, server=server
    )


def test_a_model_that_never_ends_is_cut_and_the_call_goes_on(server, call, scripted_llm, report):
    """100 000 tokens without a full stop."""
    endless = scripted_llm(
        lambda llm_request: (
            ["word "] * 100_000
            if llm_request["messages"][-1]["content"] == QUESTION
            else ["All is well."]
        )
    )
    llm = {"provider": "custom", "url": endless.base_url, "model": "scripted"}
    agent = server.create_agent(
        llm=llm, turn={"preemptive_generation": False}, transcripts=[QUESTION, GARDEN]
    )
    conversation = server.create_conversation(agent["id"])
    page = call().open(conversation["join_link"])
    page.join()
    rss, mark = server.rss_mb(), page.message_count()
    user_speech = page.speak(QUESTION)
    page.wait_for_event("agent.started_speaking", mark)
    page.wait_for_sound(user_speech.end)
    page.wait_for_message("bot-llm-stopped", mark)
    assert not endless.finished_at, "the stream was closed before its end"
    # The page gets the message before the record is written.
    server.wait_for_record(
        conversation["id"],
        lambda record: any("cut at 20000 characters" in text for text in record["warnings"]),
    )
    report.check_limit("MB more for a model that never ends", server.rss_mb() - rss, 60)
    mark = page.message_count()
    page.barge_in(GARDEN, into=1.0)
    page.wait_for_event("agent.interrupted", mark)
    interrupted = page.wait_for_event("agent.stopped_speaking", mark)
    assert set(interrupted["payload"]["text"].split()) == {"word"}
    again = page.wait_for_event("agent.stopped_speaking", interrupted["n"] + 1)
    assert again["payload"]["text"] == "All is well."


def test_offers_that_never_connect_keep_no_later_one_out(server, bystander):
    """A client with a bad network sends offer after offer. The last one counts, and the running
    call continues."""
    path = f"/rtc/{bystander.conversation}"
    offer = bystander.page.evaluate("e2e.offers.at(-1)").encode()
    headers = {"content-type": "application/sdp", "authorization": f"Bearer {bystander.token}"}
    for n in range(12):
        reply = server.request("POST", path, key=None, raw=offer, headers=headers)
        assert reply.status == 201, (n, reply)
    assert bystander.page.evaluate("e2e.peer.connectionState") == "connected"
    ask_and_wait(server, bystander)


def test_calls_at_once_are_counted_over_all_media_threads(start_server, call, tmp_path):
    server = (
        start_server(
            "one-call",
            data=tmp_path,
            env={"VISAVIS_LIMITS_CALLS": "1", "VISAVIS_MEDIA_THREADS": "2"},
        )
        .read_first_start()
        .wait_ready()
    )
    agent = server.create_agent()
    conversations = [server.create_conversation(agent["id"]) for _ in range(3)]
    first: BrowserCall = call().open(conversations[0]["join_link"])
    first.join()
    offer = first.page.evaluate("e2e.offers.at(-1)")

    def where(c):
        return (
            f"/rtc/{c['id']}",
            {"content-type": "application/sdp", "authorization": f"Bearer {c['token']}"},
        )

    path, headers = where(conversations[1])
    reply = server.request("POST", path, key=None, raw=offer.encode(), headers=headers)
    assert reply.status == 503 and reply.headers["retry-after"], reply
    first.page.click("#hang-up")
    server.wait_for(conversations[0]["id"], "ENDED")
    # A bad offer takes no slot, not even for a moment.
    for bad in (
        re.sub(r"m=audio \d+ ", "m=audio 99999999999 ", offer),
        offer.replace("a=fingerprint:sha-256 ", "a=fingerprint:sha-256 zz"),
        "v=0\r\n",
    ):
        for _ in attempts(60):
            reply = server.request("POST", path, key=None, raw=bad.encode(), headers=headers)
            # The first call may still be ending.
            if reply.status != 503:
                break
        assert reply.status == 400 and reply.json()["error"].startswith("bad SDP"), (
            bad[:60],
            reply,
        )
    path, headers = where(conversations[2])
    assert server.request("POST", path, key=None, raw=offer.encode(), headers=headers).status == 201


def test_of_five_deletes_at_once_one_ends_the_call(server, bystander):
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        replies = list(
            pool.map(
                lambda _: server.request("DELETE", f"/v1/conversation/{bystander.conversation}"),
                range(5),
            )
        )
    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409], replies
    assert all(
        reply.json() == {"error": "Conversation has ended"}
        for reply in replies
        if reply.status == 409
    )


def test_silent_tcp_connections_are_closed_and_block_no_client(server, bystander):
    answer = bystander.page.evaluate("e2e.peer.remoteDescription.sdp")
    lines = [
        line.split()
        for line in answer.splitlines()
        if line.startswith("a=candidate:") and " tcp " in line.lower()
    ]
    assert lines, answer
    place = (lines[0][4], int(lines[0][5]))
    silent = [socket.create_connection(place, timeout=60) for _ in range(400)]
    half = socket.create_connection(place, timeout=60)
    half.sendall(b"\x00\x54\x00\x01")
    for one in itertools.chain(silent, [half]):
        with contextlib.suppress(ConnectionResetError):
            assert one.recv(1) == b""
        one.close()
    ask_and_wait(server, bystander)


#: Stray datagrams per second, and the duration in seconds.
STRAY_RATE, FLOOD_SECONDS = 150_000, 6


async def receiver_report(client, times: int) -> dict:
    """The number of packets that a caller sent, and the number that the server reports as lost,
    after `times` further receiver reports."""
    sender = client.peer.getSenders()[0]

    async def wait():
        before, left = None, times
        while True:
            # A caller receives audio fifty times per second.
            async with client.changed:
                await client.changed.wait()
            found = {stat.type: stat for stat in (await sender.getStats()).values()}
            if report := found.get("remote-inbound-rtp"):
                left -= before is not None and report.timestamp != before
                before = report.timestamp
                if left <= 0:
                    return {"sent": found["outbound-rtp"].packetsSent, "lost": report.packetsLost}

    return await asyncio.wait_for(wait(), 60)


def counter(server, name: str) -> float:
    """The present value of a counter in `/metrics`; its labels belong to the name."""
    text = server.request("GET", "/metrics", key=None).body.decode()
    name, _, labels = name.partition("{")
    pattern = f"^{name}_total{re.escape('{' + labels) if labels else ''} (\\S+)"
    return float(re.search(pattern, text, re.MULTILINE).group(1))


async def call_beside_flood(server, conversation) -> dict:
    """Runs a caller beside a flood of its media port. Returns what the flooding program did, and
    the losses of the caller's packets meanwhile."""
    client = await webrtc_client.WhipClient(server, conversation, video=False).join()
    await client.wait_for(lambda: client.received_audio, what="the agent's sound")
    port = int(
        re.search(
            r"^a=candidate:\S+ 1 udp \d+ \S+ (\d+) typ host",
            client.peer.remoteDescription.sdp,
            re.MULTILINE | re.IGNORECASE,
        ).group(1)
    )
    before = await receiver_report(client, 1)
    flood = await asyncio.create_subprocess_exec(
        *generator_command(),
        *("flood", "--to", f"127.0.0.1:{port}"),
        *("--rate", str(STRAY_RATE), "--seconds", str(FLOOD_SECONDS)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, error_output = await asyncio.wait_for(flood.communicate(), 60)
    during = await receiver_report(client, 0)
    # A report arrives each second. The second one from now covers everything that was sent until
    # now.
    after = await receiver_report(client, 2)
    await client.hang_up()
    return {
        "flood": json.loads(output) if output else None,
        "unreached": error_output.decode().strip() if flood.returncode else None,
        "packets": during["sent"] - before["sent"],
        "lost": after["lost"] - before["lost"],
    }


@pytest.mark.long("load")
def test_a_flood_of_unknown_packets_loses_no_packet_of_a_call(start_server, tmp_path, report):
    """150,000 datagrams per second belong to no call. The same thread reads the caller's packets
    from the same socket; the server's receiver reports count them."""
    checked = subprocess.run(
        [binary(), "check", "--data", str(tmp_path / "check")],
        capture_output=True,
        text=True,
        check=False,
    )
    buffer = next(
        (line for line in checked.stdout.splitlines() if "UDP receive buffer" in line),
        checked.stdout + checked.stderr,
    )
    assert re.search(r"\d+ KiB\s*$", buffer), (
        f"this needs a receive buffer of 4 MiB: {buffer.strip()}"
    )
    server = (
        start_server("flood", data=tmp_path, env={"VISAVIS_MEDIA_THREADS": "1"})
        .read_first_start()
        .wait_ready()
    )
    before = counter(server, "visavis_datagrams_unknown")
    found = webrtc_client.run_async(
        call_beside_flood(server, server.create_conversation(server.create_agent()["id"]))
    )
    found["read"] = counter(server, "visavis_datagrams_unknown") - before
    report.add("a call beside a flood of stray datagrams", found)
    assert not found["unreached"], found["unreached"]
    assert found["packets"] >= 0.9 * 50 * FLOOD_SECONDS, found
    lost = found["lost"] / found["packets"]
    report.check_target(
        f"share of a call's packets lost beside {STRAY_RATE} strays a second",
        lost,
        0.01,
        noise=1,
        server=server,
    )


#: Number of hostile packets per second, and the duration in seconds.
HOSTILE_RATE, HOSTILE_SECONDS = 1500, 10


def hostile_payloads(random) -> list[bytes]:
    """Opus packets that are malformed, as expensive as possible, or alternate between loud noise
    and silence, so that the VAD and the turn detector always have something to decide."""
    encoder = av.CodecContext.create("libopus", "w")
    encoder.sample_rate, encoder.layout, encoder.format = 48_000, "mono", "s16"
    encoder.open()
    voices = []
    for n in range(60):
        amplitude = 12_000 if n // 15 % 2 else 0
        samples = (amplitude * random.uniform(-1, 1, (1, 960))).astype(np.int16)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate, frame.pts = 48_000, n * 960
        voices += [bytes(packet) for packet in encoder.encode(frame)]
    garbage = [random.bytes(int(size)) for size in random.integers(0, 1100, 60)]
    # RFC 6716, section 3.2.5: 48 CELT frames of 2.5 ms in one packet, 120 ms of full-band audio.
    longest = [bytes([28 << 3 | 3, 48]) + random.bytes(48 * 20) for _ in range(60)]
    return [payload for row in zip(voices, garbage, longest, strict=False) for payload in row]


async def last_sequence_number(sender) -> int:
    """The sequence number of the next RTP packet of an aiortc sender."""
    transport, found = sender.transport, asyncio.get_running_loop().create_future()
    send_rtp = transport._send_rtp

    async def record(data):
        is_rtcp = 192 <= data[1] <= 223
        if not is_rtcp and not found.done():
            found.set_result(int.from_bytes(data[2:4]))
        await send_rtp(data)

    transport._send_rtp = record
    try:
        return await asyncio.wait_for(found, 60)
    finally:
        transport._send_rtp = send_rtp


async def send_hostile_audio(client) -> int:
    """Sends audio under the call's own keys: 30 times real time, with timestamps and sequence
    numbers that jump. Returns the number of packets."""
    random = np.random.default_rng(21)
    payloads = hostile_payloads(random)
    sender = client.peer.getSenders()[0]
    sequence = await last_sequence_number(sender)
    sender.replaceTrack(None)
    opus = re.search(r"a=rtpmap:(\d+) opus/48000", client.peer.remoteDescription.sdp, re.IGNORECASE)
    clock = asyncio.get_running_loop().time
    started_at, sent, timestamp = clock(), 0, 0
    while (elapsed := clock() - started_at) < HOSTILE_SECONDS:
        while sent < elapsed * HOSTILE_RATE:
            # A third jumps ahead, as if many packets were lost. A sender's SRTP lets none go back.
            sequence = (sequence + (int(random.integers(1, 3000)) if sent % 3 == 0 else 1)) % (
                1 << 16
            )
            timestamp = (
                int(random.integers(1 << 32)) if sent % 3 == 0 else (timestamp + 960) % (1 << 32)
            )
            packet = RtpPacket(
                payload_type=int(opus[1]),
                sequence_number=sequence,
                timestamp=timestamp,
                ssrc=sender._ssrc,
                payload=payloads[sent // 5 % len(payloads)],
            )
            await sender.transport._send_rtp(packet.serialize())
            sent += 1
        # The agent's audio arrives fifty times per second.
        async with client.changed:
            await client.changed.wait()
    return sent


#: Counters of the server that show whether it kept up.
HOSTILE_METRICS = (
    "visavis_audio_frames",
    "visavis_audio_frames_late",
    "visavis_audio_frames_skipped",
    "visavis_audio_packets_rate_limited",
    'visavis_media_busy_seconds{thread="0"}',
)


async def call_beside_hostile_audio(server, conversations) -> dict:
    """Runs a caller beside one that sends hostile audio. Returns what the server did in a time of
    the same length without and with that audio."""
    neighbour, hostile = [
        await webrtc_client.WhipClient(server, conversation, video=False).join()
        for conversation in conversations
    ]
    for client in (neighbour, hostile):
        await client.wait_for(lambda client=client: client.received_audio, what="the agent's sound")
    found = {}
    for name in ("before", "during"):
        counted = {key: await asyncio.to_thread(counter, server, key) for key in HOSTILE_METRICS}
        reported = await receiver_report(neighbour, 1)
        if name == "during":
            found["hostile packets"] = await send_hostile_audio(hostile)
        else:
            await receiver_report(neighbour, HOSTILE_SECONDS)
        sent = (await receiver_report(neighbour, 0))["sent"]
        await receiver_report(neighbour, 2)
        after = await receiver_report(neighbour, 2)
        found[name] = {
            key: await asyncio.to_thread(counter, server, key) - value
            for key, value in counted.items()
        }
        found[name] |= {
            "packets": sent - reported["sent"],
            "lost": after["lost"] - reported["lost"],
        }
    await neighbour.hang_up()
    await hostile.hang_up()
    return found


@pytest.mark.long("load")
def test_hostile_audio_of_one_caller_does_not_affect_another_call(start_server, tmp_path, report):
    """One caller sends malformed, expensive and alternating audio at 30 times real time. The other
    one, on the same thread, loses no packet, and no frame of either agent is late."""
    server = (
        start_server("hostile", data=tmp_path, env={"VISAVIS_MEDIA_THREADS": "1"})
        .read_first_start()
        .wait_ready()
    )
    conversations = [server.create_conversation(server.create_agent()["id"]) for _ in range(2)]
    found = webrtc_client.run_async(call_beside_hostile_audio(server, conversations))
    report.add("a call beside hostile audio", found)
    during = found["during"]
    assert found["hostile packets"] >= 0.5 * HOSTILE_RATE * HOSTILE_SECONDS, found
    assert during["visavis_audio_packets_rate_limited"] > 0, found
    assert during["packets"] >= 0.9 * 50 * HOSTILE_SECONDS, found

    def share(name):
        return during[name] / during["visavis_audio_frames"]

    late = share("visavis_audio_frames_late") + share("visavis_audio_frames_skipped")
    for name, value in (
        ("share of a call's packets lost beside hostile audio", during["lost"] / during["packets"]),
        ("share of frames late or not sent beside hostile audio", late),
    ):
        report.check_target(name, value, 0.01, noise=1, server=server)
    busy = during['visavis_media_busy_seconds{thread="0"}'] / HOSTILE_SECONDS
    report.check_target(
        "busy share of the media thread beside hostile audio", busy, 0.25, server=server
    )
