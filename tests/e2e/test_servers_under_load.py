"""What several servers on one database cost, and calls without their database."""

import asyncio
import threading
import time

import numpy as np
import pytest

from kit.load_generator import read_report, run_load
from kit.polling import wait_until
from kit.server_metrics import metric
from kit.typed_call import TEST_TIMEOUT, TypedCall, create_typed_agent
from kit.webrtc_client import run_async

#: Commands of each kind.
COMMANDS = 100
#: Limits of the time that a relay adds to a command, in ms.
MAX_ADDED_P50, MAX_ADDED_P95 = 15, 50
CALLS, OUTAGE_SECONDS = 50, 60


@pytest.mark.long("load")
def test_a_command_through_another_server_takes_little_longer(separated_servers, report):
    one, other = separated_servers().servers
    conversation = one.create_conversation(create_typed_agent(one)["id"])
    path = f"/v1/conversation/{conversation['id']}/context"
    times = {"direct": [], "relayed": []}

    def send(kind, server):
        start = time.perf_counter()
        reply = server.request("POST", path, {"text": "It rains."})
        times[kind].append(1000 * (time.perf_counter() - start))
        assert reply.status == 200, reply

    def send_all():
        one.wait_for(conversation["id"], "IN_PROGRESS", TEST_TIMEOUT)
        for _ in range(COMMANDS):
            send("direct", one)
            send("relayed", other)

    async def call():
        client = await TypedCall(one, conversation).connect()
        await asyncio.to_thread(send_all)
        await client.hang_up()

    run_async(call())
    found = {
        kind: {"p50": float(np.percentile(taken, 50)), "p95": float(np.percentile(taken, 95))}
        for kind, taken in times.items()
    }
    report.add("commands through another server, ms", found)
    added = {name: found["relayed"][name] - found["direct"][name] for name in ("p50", "p95")}
    assert added["p50"] <= MAX_ADDED_P50 and added["p95"] <= MAX_ADDED_P95, found


@pytest.mark.long("load")
def test_fifty_calls_go_on_without_the_database(separated_servers, tmp_path, report):
    both = separated_servers(VISAVIS_SERVER_ALLOW_SCRIPTED="true")
    one, _ = both.servers
    run = {}

    def load():
        run["ended"] = run_load(
            *("--server", one.url, "--key", one.key, "--scripted", "--calls", str(CALLS)),
            *("--ramp", "10/s", "--duration", str(OUTAGE_SECONDS + 30)),
            *("--out", str(tmp_path / "found.json"), "--require", "failed == 0"),
        )

    thread = threading.Thread(target=load)
    thread.start()
    wait_until(
        lambda: metric(one, "visavis_calls ") == CALLS,
        lambda: f"all calls\n{one.log_tail()}",
        TEST_TIMEOUT,
    )
    for proxy in both.proxies:
        proxy.refuse()
    # The outage itself; the load generator talks meanwhile.
    threading.Event().wait(OUTAGE_SECONDS)
    for proxy in both.proxies:
        proxy.resume()
    # The figures include counts of the database.
    running = wait_until(
        lambda: metric(one, "visavis_calls "),
        lambda: f"the figures\n{one.log_tail()}",
        TEST_TIMEOUT,
    )
    thread.join()
    ended = run["ended"]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    records = one.request("GET", "/v1/ext/conversation?perpage=100").json()
    events = 0
    for record in records:
        one.wait_for(record["id"], "ENDED", TEST_TIMEOUT)
        stored = one.request("GET", f"/v1/ext/conversation/{record['id']}/events").json()
        assert [event["seq"] for event in stored] == list(range(len(stored))), record["id"]
        assert sum(event["what"] == "ended" for event in stored) == 1, stored[-3:]
        events += len(stored)
    found = {
        "calls": len(records),
        "running after the outage": running,
        "events": events,
        "dropped": metric(one, "visavis_events_dropped_total "),
        "turns": read_report(tmp_path / "found.json")["turns"],
    }
    report.add("fifty calls without their database", found)
    assert len(records) == running == CALLS and found["dropped"] == 0, found
