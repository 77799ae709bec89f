"""The load generator against the server under test: real WebRTC calls, and the generator's report
about them. Times and many calls belong to the long tier."""

import json

import pytest

from kit.load_generator import read_report, require_arguments, run_load


@pytest.fixture(scope="module")
def scripted_server(start_server):
    return start_server("load").read_first_start().wait_ready()


#: What must hold for three callers on any machine.
REQUIREMENTS = [
    "failed == 0",
    "errors == 0",
    "turns.wrong == 0",
    "turns.missing == 0",
    "turns.unanswered == 0",
    "events.missing == 0",
    "events.out_of_order == 0",
    "video.decode_errors == 0",
]


#: What a recording may cost.
RECORDING_REQUIREMENTS = [
    "recording.media_ms_per_call_second <= 0.3ms",
    "recording.call_ms_per_call_second <= 1ms",
    "recording.delivery_ms_per_call_second <= 10ms",
    "recording.dropped_packets == 0",
    "recording.failed == 0",
]


#: Packets of the microphone that arrive three at a time, up to 60 ms late and reordered.
JITTER_ARGUMENTS = ["--burst", "3", "--jitter", "60"]


def run_three_callers(server, out, limits, line=()):
    arguments = [*"--scripted --calls 3 --ramp 4/s --duration 12".split(), *line]
    run = run_load(
        "--server",
        server.url,
        "--key",
        server.key,
        *arguments,
        "--out",
        str(out),
        *require_arguments(REQUIREMENTS + limits),
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return read_report(out)


def test_three_callers_are_answered_interrupt_and_get_every_event(
    scripted_server, tmp_path, report
):
    found = run_three_callers(scripted_server, tmp_path / "found.json", [])
    report.add("three callers", found)
    shares = {"n", "p50", "p95", "p99", "max"}
    assert all(set(spread) == shares for spread in found["ms"].values()), found["ms"]
    for name in ("join", "voice_to_voice", "ttff"):
        spread = found["ms"][name]
        assert (
            spread["n"] >= 3
            and 0 < spread["p50"] <= spread["p95"] <= spread["p99"] <= spread["max"]
        ), (name, spread)
    # The second utterance of a caller interrupts the answer to the first. It ends about 5 s before
    # the call, which is enough on a busy machine; the third one ends too late to be judged. A
    # caller that joined late has no time for the second one. An answer cannot come before all of
    # its words were heard, and endpointing, model and voice take their time.
    assert found["calls"] == 3 and found["turns"]["right"] == found["turns"]["expected"] >= 3
    assert found["ms"]["voice_to_voice"]["p50"] > 800
    assert found["cpu_model"] and found["events"]["expected"] >= 9
    # CPU time: other programs change it little.
    report.check_limit(
        "three callers: CPU of the server a call-second, ms",
        found["server"]["cpu_ms_per_call_second"],
        60,
    )
    left = [
        agent["agent_name"]
        for agent in scripted_server.request("GET", "/v1/ext/agent?perpage=100").json()
    ]
    assert "Load" not in left, "the run's agent is gone"


@pytest.mark.long("load")
def test_three_callers_are_answered_soon(scripted_server, tmp_path):
    limits = [
        "p95(voice_to_voice) < 2s",
        "n(barge_in) == 3",
        "p95(barge_in) < 1s",
        "video.fps_speaking > 15",
    ]
    found = run_three_callers(scripted_server, tmp_path / "found.json", limits)
    assert found["ms"]["barge_in"]["p50"] > 200 and found["turns"]["expected"] >= 6
    assert found["video"]["decoded"] > 100 and found["events"]["expected"] > 20


@pytest.mark.long("load")
def test_three_callers_whose_packets_come_unevenly_are_understood(
    scripted_server, tmp_path, report
):
    """Word for word: no turn is wrong or missing."""
    found = run_three_callers(
        scripted_server,
        tmp_path / "found.json",
        ["n(barge_in) == 3"],
        [*JITTER_ARGUMENTS, "--seed", "20"],
    )
    report.add("three callers on an uneven line", found)
    requested = found["asked"]
    assert (requested["burst"], requested["jitter"], requested["seed"]) == (3, 60, 20), requested
    assert found["turns"]["right"] == found["turns"]["expected"] >= 6, found["turns"]


@pytest.mark.long("load")
@pytest.mark.parametrize("channels", ["mixed", "split"])
def test_a_recording_costs_little(scripted_server, tmp_path, report, channels):
    """CPU time per second of a call: on the media threads, during the call, and afterwards."""
    run = run_load(
        *("--server", scripted_server.url, "--key", scripted_server.key, "--scripted"),
        *("--calls", "10", "--ramp", "10/s", "--duration", "20", f"--record={channels}"),
        *("--out", str(tmp_path / "found.json")),
        *require_arguments(["failed == 0", *RECORDING_REQUIREMENTS]),
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = read_report(tmp_path / "found.json")
    cost = found["recording"]
    report.add(f"recordings of ten calls, {channels}", cost)
    assert found["asked"]["record"] == channels
    # Every call is recorded, written and delivered.
    assert cost["delivered"] == found["calls"] == 10 and cost["bytes_per_call_second"] > 2_000
    assert cost["media_ms_per_call_second"] > 0 and cost["disk_ms_per_call_second"] > 0
    assert cost["delivery_ms_per_call_second"] > 0
    assert "recording CPU " in run.stdout


@pytest.mark.long("load")
def test_a_broken_limit_fails(scripted_server):
    run = run_load(
        "--server",
        scripted_server.url,
        "--key",
        scripted_server.key,
        "--scripted",
        "--calls",
        "1",
        "--duration",
        "5",
        "--require",
        "p50(voice_to_voice) < 100ms",
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "FAILED  p50(voice_to_voice) < 100ms: the value is " in run.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--require", "p95(latency) < 1s"], 2, '"latency" is not one of join, voice_to_voice'),
        (["--calls", "0"], 2, "--calls must be between 1 and"),
        (["--jitter", "9999"], 2, "--jitter must be at most 1000 ms"),
        (["--server", "nowhere"], 2, "is not a URL like"),
        (["--server", "http://127.0.0.1:1"], 1, "cannot reach the server at http://127.0.0.1:1/"),
        (["--key", "vv_wrong"], 1, "401"),
    ],
)
def test_invalid_arguments_are_reported_in_one_sentence(
    scripted_server, arguments, status, sentence
):
    given = {"--server": scripted_server.url, "--key": scripted_server.key} | dict(
        zip(arguments[::2], arguments[1::2], strict=True)
    )
    run = run_load("--scripted", *[word for pair in given.items() for word in pair])
    assert run.returncode == status, run.stdout + run.stderr
    assert sentence in run.stderr and run.stderr.count("\n") == 1, run.stderr


def test_a_server_without_scripted_models_says_so(start_server):
    server = (
        start_server("unscripted", env={"VISAVIS_STT_POOL": "1"}, scripted=False)
        .read_first_start()
        .wait_ready()
    )
    run = run_load(
        "--server", server.url, "--key", server.key, "--scripted", "--calls", "1", "--duration", "2"
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert run.stderr == "the server does not allow scripted models: run it with --allow-scripted\n"


@pytest.mark.long("load")
def test_a_thousand_short_calls_leak_nothing(start_server, tmp_path, report):
    """Twenty callers, whose packets arrive late and in bursts, hang up at a random moment within 6
    s and call again."""
    server = start_server("soak").read_first_start().wait_ready()
    out = tmp_path / "soak.json"
    # The run is short, and a heap grows in steps. 10 000 calls are measured separately (`make
    # soak`).
    run = run_load(
        "--server",
        server.url,
        "--key",
        server.key,
        "--scripted",
        "--calls",
        "20",
        "--ramp",
        "10/s",
        "--cycle",
        "6",
        "--duration",
        "176",
        *JITTER_ARGUMENTS,
        "--out",
        str(out),
        "--require",
        "soak.rss_growth <= 10%",
        timeout=400,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(out.read_text())
    soak = found["soak"] | {"asked": found["asked"]}
    report.add("soak", soak)
    assert soak["calls"] >= 1000, soak
    assert soak["calls_left"] == 0 and soak["decoders_left"] == 0, soak
    # Since the middle of the run. A leak would be one file per call, 500 in all. Twenty callers
    # hang up at the same time, so there are twenty connections and the files that the store may
    # open.
    assert (
        soak["threads"][1] <= soak["threads"][0] + 8 and soak["files"][1] <= soak["files"][0] + 40
    ), soak
