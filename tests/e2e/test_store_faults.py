"""Faults of the database and of the network to it, with a PostgreSQL server of the test's own: the
record of each call is complete, and ends once."""

import asyncio
import json

import pytest

from kit.polling import wait_until
from kit.server_metrics import metric
from kit.store_outage import ask, check_record, create_agent, join, offer, run_long_separation
from kit.typed_call import TEST_TIMEOUT
from kit.webrtc_client import run_async

pytestmark = pytest.mark.long("store")


def server_states(server) -> dict:
    """The state of each server in the list: of this one under True, of the other under False."""
    listed = server.request("GET", "/v1/ext/servers").json()
    return {item["is_self"]: item["state"] for item in listed}


def test_a_partition_shorter_than_the_silence_ends_no_call(servers_on_own_postgres, webhook_log):
    # The database closes sessions that it cannot reach after five seconds. That is no end of the
    # process, although the lock of the process is free then.
    both = servers_on_own_postgres(lease=9, silence=60)
    one, other = both.servers
    conversation = one.create_conversation(create_agent(one, webhook_log))

    async def call():
        client = await join(one, conversation)
        both.postgres.cut(0)
        await ask(client)
        await asyncio.to_thread(
            wait_until,
            lambda: server_states(other) == {True: "ready", False: "lost"},
            lambda: f"the partition: {server_states(other)}",
            TEST_TIMEOUT,
        )
        path = f"/v1/ext/conversation/{conversation['id']}"
        record = await asyncio.to_thread(other.request, "GET", path)
        assert record.json()["status"] == "IN_PROGRESS", record
        await ask(client)
        both.postgres.heal(0)
        await client.wait_for_record_value(
            lambda record: sum(e["role"] == "user" for e in record["transcript"]) == 3,
            "the questions of the partition on record",
        )
        await client.hang_up()

    run_async(call())
    record = check_record(other, conversation, webhook_log, questions=3)
    assert record["end_reason"] == "user_left"
    assert metric(one, "visavis_events_fenced_total") == 0


def test_a_longer_partition_ends_the_call_once_and_the_server_hangs_up(
    servers_on_own_postgres, webhook_log
):
    pair = servers_on_own_postgres(lease=4, silence=3)
    network = pair.postgres
    run_long_separation(pair, webhook_log, lambda: network.cut(0), lambda: network.heal(0))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_database_ends_no_call(servers_on_own_postgres, webhook_log, mode):
    both = servers_on_own_postgres(lease=4, silence=3)
    one, other = both.servers
    agent = create_agent(one, webhook_log)
    first, second = one.create_conversation(agent), other.create_conversation(agent)

    async def call():
        clients = [await join(one, first), await join(other, second)]
        for _ in range(2):
            await asyncio.to_thread(both.postgres.restart, mode)
            for client in clients:
                await ask(client)
        for client in clients:
            await client.wait_for_record_value(
                lambda record: sum(e["role"] == "user" for e in record["transcript"]) == 3,
                "all questions on record",
            )
            await client.hang_up()

    run_async(call())
    for conversation in (first, second):
        record = check_record(one, conversation, webhook_log, questions=3)
        assert record["end_reason"] == "user_left"
    assert sum(metric(server, "visavis_events_fenced_total") for server in both.servers) == 0


def test_a_full_database_disk_ends_no_call_and_loses_no_event(servers_on_own_postgres, webhook_log):
    both = servers_on_own_postgres(disk_mb=192, lease=4, silence=3)
    one, other = both.servers
    conversation = one.create_conversation(create_agent(one, webhook_log))
    knowledge = {"name": "Large", "prompt": "x" * 60_000}

    async def call():
        client = await join(one, conversation)
        both.postgres.fill_disk()
        # Until its present files are full, the database accepts writes.
        refused = await asyncio.to_thread(
            wait_until,
            lambda: find_refusal(other, knowledge),
            lambda: f"a refused write\n{other.log_tail()}",
            TEST_TIMEOUT,
        )
        assert refused.status == 503 and refused.headers["retry-after"], refused
        await ask(client)
        await ask(client)
        both.postgres.empty_disk()
        if not both.postgres.is_running():
            both.postgres.start()
        await client.wait_for_record_value(
            lambda record: sum(e["role"] == "user" for e in record["transcript"]) == 3,
            "the questions on record",
        )
        await client.hang_up()

    run_async(call())
    record = check_record(other, conversation, webhook_log, questions=3)
    assert record["end_reason"] == "user_left"


def find_refusal(server, knowledge):
    """The reply to a write that was refused, or None."""
    reply = server.request("POST", "/v1/ext/guardrail", knowledge)
    return None if reply.status == 200 else reply


def test_a_hundred_pairs_of_concurrent_offers_lose_no_call(separated_servers):
    both = separated_servers()
    one, other = both.servers
    agent = create_agent(one, None)

    async def one_try(number):
        conversation = one.create_conversation(agent)
        # A client joins through one server, while a second tab of it sends its offer to the other
        # one, which never connects.
        here, there = (one, other) if number % 2 else (other, one)
        joining = asyncio.create_task(join(here, conversation))
        second = await asyncio.to_thread(offer, there, conversation)
        assert second.status == 201, second
        client = await joining
        await client.hang_up()
        return conversation

    async def all_tries():
        return [await one_try(number) for number in range(100)]

    for conversation in run_async(all_tries()):
        record = other.wait_for(conversation["id"], "ENDED", TEST_TIMEOUT)
        assert record["end_reason"] == "user_left", record
        assert "first room" in json.dumps(record["transcript"]), record
