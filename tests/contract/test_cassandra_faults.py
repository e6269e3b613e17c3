"""What Cassandra adds to the contract: nodes that stop, freeze or never were, and tables made by several at once."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from tocsin.deploy.stack import LocalStack
from tocsin.schema.errors import NotInitialised, SettingsError, StoreTimeout, StoreUnavailable
from tocsin.schema.open_store import default_settings, open_store
from tocsin.schema.store import SCHEMA_VERSION, PackRow, Settings, Store

from .conftest import GENESIS, SETTINGS, TIMING, Fresh

pytestmark = pytest.mark.cassandra

Result = TypeVar("Result")


@pytest.fixture
async def cassandra(cassandra_url: str) -> AsyncIterator[Store]:
    store = open_store(cassandra_url, timing=TIMING)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def other_keyspace(cassandra_session: Any) -> Iterator[str]:
    name = f"other_{secrets.token_hex(3)}"
    yield name
    cassandra_session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=30)


async def again_and_again(call: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a call as the protocol does; the test's own time limit ends it."""
    while True:
        try:
            return await call()
        except (StoreTimeout, StoreUnavailable):
            await asyncio.sleep(0.05)


# Nodes that go away


async def test_with_one_node_killed_every_acknowledged_pack_is_still_read(
    cassandra: Store, disturbed_stack: LocalStack, fresh: Fresh
) -> None:
    bucket = fresh.bucket()
    rows = [PackRow(bucket.start + number, number.to_bytes(16, "big"), b"body") for number in range(600)]

    async def write(mine: list[PackRow]) -> None:
        for row in mine:
            await again_and_again(lambda row=row: cassandra.write_pack(bucket, row))  # type: ignore[misc]

    writers = [asyncio.ensure_future(write(rows[start::20])) for start in range(20)]
    await asyncio.to_thread(disturbed_stack.stop_node, 3, gently=False)
    await asyncio.gather(*writers)

    async def read() -> list[PackRow]:
        return [row async for page in cassandra.read_packs(bucket) for row in page]

    assert await again_and_again(read) == rows
    assert len(await again_and_again(cassandra.server_times_ms)) == 2


async def test_without_a_majority_nothing_is_acknowledged_and_all_works_again_with_it(
    cassandra: Store, disturbed_stack: LocalStack, fresh: Fresh
) -> None:
    bucket = fresh.bucket()
    row = PackRow(bucket.start, b"id", b"body")
    for node in (2, 3):
        await asyncio.to_thread(disturbed_stack.stop_node, node, gently=False)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: cassandra.write_pack(bucket, row),
        lambda: cassandra.read_frontier(1),
        lambda: cassandra.read_schedules(["a"]),
        lambda: cassandra.write_frontier(1, {"committed": GENESIS}),
    ]
    for call in calls:
        with pytest.raises((StoreUnavailable, StoreTimeout)):
            await call()
    await asyncio.to_thread(disturbed_stack.heal)
    for call in calls:
        await again_and_again(call)
    assert [page async for page in cassandra.read_packs(bucket)] == [[row]]


async def test_a_frozen_node_is_left_within_seconds(
    cassandra: Store, disturbed_stack: LocalStack, fresh: Fresh
) -> None:
    bucket = fresh.bucket()
    await asyncio.to_thread(disturbed_stack.pause_node, 2)
    began = time.monotonic()
    # Enough partitions that each node is the first choice for some of them.
    for number in range(60):
        place = bucket._replace(sub=number)
        row = PackRow(bucket.start, b"id", b"body")
        await again_and_again(lambda place=place, row=row: cassandra.write_pack(place, row))  # type: ignore[misc]
    assert time.monotonic() - began < 25


# Nodes that were never there

OPEN = """
import asyncio, sys, time
from tocsin.schema.errors import TocsinError
from tocsin.schema.open_store import open_store

async def attempt(url):
    began = time.monotonic()
    try:
        await open_store(url).open()
    except TocsinError as error:
        print(type(error).__name__, error)
    assert time.monotonic() - began < 6

asyncio.run(attempt(sys.argv[1]))
"""


async def attempt_to_open(url: str) -> str:
    """What a program sees; nothing of the driver's own may stand beside it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", OPEN, url, stdout=pipe, stderr=pipe
    )
    output, noise = await process.communicate()
    assert noise == b""
    assert process.returncode == 0
    return output.decode()


async def test_where_nobody_listens_the_address_is_named_and_the_driver_keeps_quiet() -> None:
    answer = await attempt_to_open("cassandra://127.0.0.1:1,127.0.0.1:2/k")
    assert answer.startswith("StoreUnavailable no Cassandra node answers at 127.0.0.1:1, 127.0.0.1:2")


async def test_where_somebody_listens_and_never_answers_opening_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        answer = await attempt_to_open(f"cassandra://127.0.0.1:{silent.getsockname()[1]}/k")
    assert answer.startswith("StoreUnavailable no Cassandra node answers at 127.0.0.1:")


async def test_a_host_without_an_address_is_named() -> None:
    answer = await attempt_to_open("cassandra://no-such-host.invalid/k")
    assert answer.startswith("StoreUnavailable no Cassandra node answers at no-such-host.invalid:9042 ")


# Tables


async def test_several_inits_at_once_make_one_store(cassandra_stack: LocalStack, other_keyspace: str) -> None:
    url = cassandra_stack.store_url(other_keyspace)
    stores = [open_store(url, timing=TIMING) for _ in range(3)]
    wanted = [Settings(genesis=GENESIS + number, shard_ranges=4, layouts=SETTINGS.layouts) for number in range(3)]
    in_force = await asyncio.gather(*(store.initialise(each) for store, each in zip(stores, wanted, strict=True)))
    assert len(set(in_force)) == 1
    assert (await stores[0].read_frontier(3)).committed == in_force[0].genesis
    assert [lease.epoch for lease in await stores[2].read_leases()] == [0] * 4
    for store in stores:
        await store.close()


async def test_more_replicas_than_nodes_are_refused_and_nothing_is_made(
    cassandra_stack: LocalStack, cassandra_session: Any, other_keyspace: str
) -> None:
    url = cassandra_stack.store_url(other_keyspace)
    store = open_store(url, replication=5)
    with pytest.raises(SettingsError, match="replication 5 needs as many nodes, data centre datacenter1 has 3"):
        await store.initialise(default_settings(url, GENESIS))
    found = cassandra_session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    assert other_keyspace not in {row.keyspace_name for row in found}


async def test_another_schema_version_is_refused_with_what_to_do(
    cassandra: Store, cassandra_url: str, cassandra_session: Any, keyspace: str
) -> None:
    change = f"UPDATE {keyspace}.settings SET value = %s WHERE name = 'settings' IF EXISTS"
    (text,) = cassandra_session.execute(f"SELECT value FROM {keyspace}.settings WHERE name = 'settings'").one()
    newer = text.replace(f'"schema_version":{SCHEMA_VERSION}', '"schema_version":99')
    assert newer != text
    cassandra_session.execute(change, (newer,))
    for attempt in (open_store(cassandra_url).open(), open_store(cassandra_url).initialise(SETTINGS)):
        with pytest.raises(SettingsError, match=r"schema version 99.*use a newer release"):
            await attempt
    cassandra_session.execute(change, (text,))
    await cassandra.close()
    assert await cassandra.open() == SETTINGS


async def test_a_forked_process_is_told_to_open_its_own(cassandra: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreUnavailable, match="fork"):
        await cassandra.read_frontier(1)


async def test_a_missing_table_is_not_initialised_until_init_runs_again(
    cassandra_url: str, cassandra_session: Any, keyspace: str
) -> None:
    cassandra_session.execute(f"DROP TABLE {keyspace}.near", timeout=30)
    store = open_store(cassandra_url)
    with pytest.raises(NotInitialised):
        await store.open()
    assert await store.initialise(SETTINGS) == SETTINGS
    await store.close()
    assert await store.open() == SETTINGS
    await store.close()
