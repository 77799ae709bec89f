"""The network between an agent and LiveKit: without UDP for a while, and with little bandwidth. The
socket of signals stays up."""

import dataclasses
import time

import pytest

from kit import audio_match
from kit.livekit_client import LiveKitCaller
from kit.livekit_rooms import (
    GREETING,
    create_room,
    read_conversation,
    start_worker,
)
from kit.livekit_server import LiveKitServer, free_port
from kit.network_link import NetworkLink
from kit.polling import wait_until
from kit.server import Server, binary

pytestmark = [pytest.mark.long("livekit"), pytest.mark.alone]

QUESTION = "How many apple trees are there?"
SPEECH = (
    "The first room shows the old clocks, and the oldest of them was built by Thomas Tompion in "
    "sixteen seventy six. Five of its wheels are made of pear wood. "
    "Behind the house there is a garden with apple trees, a pond and a bench, where visitors may "
    "rest before they move on to the paintings. "
) * 5
#: Seconds without UDP: after 16 s, LiveKit gives the connection up and asks for a new one.
SHORT_CUT, LONG_CUT = 8, 20
#: Seconds until there are pictures again.
BACK_LIMIT = 5
#: kbit/s of the link: more than the voice, and less than voice and video of a speaking agent.
NARROW = 130
#: Seconds until the bandwidth is estimated, and of a measurement.
ESTIMATION, MEASUREMENT = 6, 8
#: Seconds until the full quality is back.
RECOVERY_LIMIT = 15
#: Audio packets per second.
PACKET_RATE = 50


@dataclasses.dataclass
class LinkedCall:
    """A call in a room whose server of ours reaches LiveKit by a link. The caller does not."""

    server: Server
    link: NetworkLink
    conversation: str
    caller: LiveKitCaller

    def expect_one_stay(self):
        """Checks that the agent has not left its room."""
        agent, received = self.caller.agent().identity, self.caller.received
        assert [how for _, who, how in received.participants if who == agent] == ["joined"]
        assert read_conversation(self.server, self.conversation)["status"] == "IN_PROGRESS"


@pytest.fixture
def linked(start_server, tmp_path, monkeypatch):
    with NetworkLink() as link:
        rtc = {
            "tcp_port": 0,
            "udp_port": free_port(),
            "use_external_ip": False,
            "enable_loopback_candidate": True,
            "interfaces": {"includes": ["lo", link.interface]},
        }
        addresses = ["127.0.0.1", link.host]
        with LiveKitServer("livekit-linked", bind_addresses=addresses, rtc=rtc) as livekit:
            monkeypatch.setenv("VISAVIS_BIN", str(link.wrap(binary(), tmp_path)))
            env = {
                "LIVEKIT_URL": f"ws://{link.host}:{livekit.port}",
                # A caller who is not heard must not end the call before its time is measured.
                "VISAVIS_TIMEOUTS_SILENCE": "120",
                "VISAVIS_LIMITS_LOAD": "0",
            }
            server = start_worker(start_server, livekit, "linked", env)
            # The built-in answerer says that it does not know: no language model of the test can be
            # reached from the other end of the link.
            agent = server.create_agent(greeting=GREETING, voice="slt")
            created = create_room(server, agent)
            token = created["livekit"]["participant_token"]
            with LiveKitCaller(livekit, token=token) as caller:
                caller.wait_for_caption(caller.wait_for_agent().identity, text=GREETING)
                yield LinkedCall(server, link, created["id"], caller)
            server.stop()


@pytest.mark.parametrize("seconds", [SHORT_CUT, LONG_CUT])
def test_a_call_goes_on_after_a_time_without_udp(linked, report, seconds):
    caller, agent = linked.caller, linked.caller.agent().identity
    linked.link.cut_udp()
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since >= seconds, "the end of the outage")
    linked.link.heal()
    start = time.monotonic()
    pictures = caller.wait_for_frames() - start
    linked.expect_one_stay()
    said = caller.speak(QUESTION)
    caller.wait_for_caption(caller.identity, text="apple trees")
    (_, answer) = caller.wait(lambda: answers(caller), "the answer")
    (arrival,) = audio_match.match_page_audio(
        [answer.text], "slt", caller.audio_of(agent).samples(said.end)
    )
    audio_match.expect_arrival(arrival, answer.text)
    report.check_target(f"livekit pictures after {seconds} s without UDP, s", pictures, BACK_LIMIT)


def answers(caller: LiveKitCaller) -> list:
    """The complete captions of the agent: its greeting and its answer. Empty without an answer."""
    complete = [one for one in caller.captions(caller.agent().identity) if one.is_final]
    return complete if len(complete) > 1 else []


@dataclasses.dataclass
class Rates:
    """What a caller received of the agent in a while."""

    video_kbits: float
    frames: float
    #: Share of the audio packets, and of the sound that the caller's client made up.
    received: float
    concealed: float


def measure(caller: LiveKitCaller, seconds: float) -> Rates:
    """What the caller receives from now on, for so many seconds of sound."""

    def read() -> tuple[float, dict, dict]:
        return time.monotonic(), caller.inbound_rtp("video")[0], caller.inbound_rtp("audio")[0]

    def sent(audio: dict) -> int:
        return audio["packets_received"] + audio.get("packets_lost", 0)

    start, video, audio = read()
    end = sent(audio) + seconds * PACKET_RATE
    wait_until(lambda: sent(caller.inbound_rtp("audio")[0]) >= end, "the packets of the agent")
    until, later_video, later_audio = read()
    duration, packets = until - start, sent(later_audio) - sent(audio)

    def added(before: dict, after: dict, name: str) -> int:
        return after.get(name, 0) - before.get(name, 0)

    return Rates(
        added(video, later_video, "bytes_received") * 8 / 1000 / duration,
        added(video, later_video, "frames_decoded") / duration,
        added(audio, later_audio, "packets_received") / packets,
        added(audio, later_audio, "concealed_samples")
        / added(audio, later_audio, "total_samples_received"),
    )


def test_the_quality_follows_the_bandwidth_to_livekit(linked, report):
    caller, link = linked.caller, linked.link
    path = f"/v1/conversation/{linked.conversation}/speak"
    assert linked.server.request("PUT", path, {"text": SPEECH}).status == 200
    caller.wait_for_event("agent.started_speaking")
    found = {"before": measure(caller, MEASUREMENT)}
    link.limit(NARROW)
    found["estimation"] = measure(caller, ESTIMATION)
    found["limited"] = measure(caller, MEASUREMENT)
    link.widen()
    start = time.monotonic()

    def is_back() -> bool:
        found["after"] = measure(caller, 2)
        return found["after"].video_kbits > 0.8 * found["before"].video_kbits

    wait_until(is_back, lambda: str(found))
    seconds = time.monotonic() - start
    report.add("a link of 130 kbit/s to LiveKit", {name: vars(one) for name, one in found.items()})
    before, limited = found["before"], found["limited"]
    assert limited.video_kbits < 0.5 * before.video_kbits, found
    assert 2 < limited.frames < 0.8 * before.frames, found
    assert limited.received > 0.9 and limited.concealed < 0.05, found
    linked.expect_one_stay()
    report.check_target("livekit full quality again s", seconds, RECOVERY_LIMIT)
