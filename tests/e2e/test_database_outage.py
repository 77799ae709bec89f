"""Servers whose database is away: calls go on, requests are refused soon, and each call ends once.
The tests run in real time, because leases and timeouts of connections do."""

import asyncio
import datetime
import json
import signal

import pytest

from kit.polling import wait_until
from kit.server_metrics import metric
from kit.store_outage import (
    REQUEST_TIMEOUT,
    ask,
    check_record,
    create_agent,
    join,
    offer,
    run_long_separation,
)
from kit.typed_call import TEST_TIMEOUT, TypedCall
from kit.webrtc_client import run_async


def test_an_outage_of_the_database_ends_no_call_and_loses_no_event(separated_servers, webhook_log):
    both = separated_servers()
    one, other = both.servers
    conversation = one.create_conversation(create_agent(one, webhook_log))

    async def call():
        client = await join(one, conversation)
        for proxy in both.proxies:
            proxy.refuse()
        await ask(client)
        # A request is refused soon, whatever it needs, and names when to try again.
        for server in both.servers:
            for method, path, body in (
                ("GET", "/v1/ext/agent", None),
                ("POST", "/v1/ext/guardrail", {"name": "Late", "prompt": "p"}),
                ("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": "Hello."}),
            ):
                reply = await asyncio.to_thread(
                    server.request, method, path, body, timeout=REQUEST_TIMEOUT
                )
                assert reply.status == 503 and reply.headers["retry-after"], (path, reply)
        # The metrics of the server itself need no database.
        for server in both.servers:
            assert await asyncio.to_thread(metric, server, "visavis_store_failing ") == 1
        # The server that holds the call needs no database to let its client come back.
        reply = await asyncio.to_thread(offer, one, conversation)
        assert reply.status == 201 and b"a=candidate" in reply.body, reply
        reply = await asyncio.to_thread(offer, other, conversation)
        assert reply.status == 503 and reply.headers["retry-after"] == "1", reply
        await ask(client)
        for proxy in both.proxies:
            proxy.resume()
        await client.wait_for_record_value(
            lambda record: sum(e["role"] == "user" for e in record["transcript"]) == 3,
            "the questions of the outage on record",
        )
        await ask(client)
        await client.hang_up()

    run_async(call())
    record = check_record(other, conversation, webhook_log, questions=4)
    assert record["end_reason"] == "user_left"


@pytest.mark.long("store")
@pytest.mark.parametrize("how", ["refuse", "freeze"])
def test_a_separated_server_s_calls_end_once_and_it_hangs_them_up(
    separated_servers, webhook_log, how
):
    both = separated_servers(lease=4, silence=3)
    one, other = both.servers
    proxy = both.proxies[0]
    run_long_separation(both, webhook_log, getattr(proxy, how), proxy.resume)
    # It goes on with new calls.
    wait_until(
        lambda: one.request("GET", "/readyz", key=None).status == 200,
        one.log_tail,
        TEST_TIMEOUT,
    )
    again = one.create_conversation(create_agent(one, webhook_log))

    async def second():
        client = await TypedCall(one, again).connect()
        await ask(client)
        await client.hang_up()

    run_async(second())
    check_record(other, again, webhook_log, questions=1)


@pytest.mark.long("store")
def test_a_frozen_process_adds_nothing_after_its_calls_were_ended(separated_servers, webhook_log):
    both = separated_servers(lease=4, silence=3)
    one, other = both.servers
    conversation = one.create_conversation(create_agent(one, webhook_log))

    async def call():
        client = await join(one, conversation)
        one.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(other.wait_for, conversation["id"], "ENDED", TEST_TIMEOUT)
        listed = await asyncio.to_thread(other.request, "GET", "/v1/ext/servers")
        states = {item["is_self"]: item["state"] for item in listed.json()}
        assert states == {True: "ready", False: "lost"}, listed.json()
        one.process.send_signal(signal.SIGCONT)
        await client.peer.close()

    run_async(call())
    check_record(other, conversation, webhook_log, questions=1)
    wait_until(
        lambda: all(
            item["state"] == "ready" for item in other.request("GET", "/v1/ext/servers").json()
        ),
        lambda: f"both servers ready\n{one.log_tail()}",
        TEST_TIMEOUT,
    )
    check_record(one, conversation, webhook_log, questions=1)


@pytest.mark.long("store")
def test_a_killed_process_is_noticed_when_its_lease_ends(separated_servers, webhook_log):
    # A process that may come back would have ten minutes more.
    both = separated_servers(lease=6, silence=600)
    one, other = both.servers
    conversation = other.create_conversation(create_agent(one, webhook_log))

    async def call():
        client = await join(other, conversation)
        other.kill()
        await client.peer.close()

    run_async(call())
    record = one.wait_for(conversation["id"], "ENDED", timeout=TEST_TIMEOUT)
    assert record["end_reason"] == "error" and "clock" in json.dumps(record["transcript"])


@pytest.mark.long("store")
def test_a_connection_that_is_cut_for_less_than_the_lease_ends_no_call(
    separated_servers, webhook_log
):
    both = separated_servers(lease=12, silence=1)
    one, other = both.servers
    conversation = one.create_conversation(create_agent(one, webhook_log))

    def seconds_without_renewal() -> float:
        listed = other.request("GET", "/v1/ext/servers").json()
        times = {item["is_self"]: item["renewed_at"] for item in listed}
        own, cut = (datetime.datetime.fromisoformat(times[is_self]) for is_self in (True, False))
        return (own - cut).total_seconds()

    async def call():
        client = await join(one, conversation)
        both.proxies[0].refuse()
        await asyncio.to_thread(
            wait_until,
            lambda: seconds_without_renewal() > 5,
            lambda: f"the cut: {other.request('GET', '/v1/ext/servers')}",
            TEST_TIMEOUT,
        )
        both.proxies[0].resume()
        await asyncio.to_thread(
            wait_until,
            lambda: seconds_without_renewal() < 5,
            lambda: f"a renewal: {other.request('GET', '/v1/ext/servers')}",
            TEST_TIMEOUT,
        )
        await ask(client)
        await client.hang_up()

    run_async(call())
    record = check_record(other, conversation, webhook_log, questions=2)
    assert record["end_reason"] == "user_left"
