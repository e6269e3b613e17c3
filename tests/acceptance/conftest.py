"""Processes, topics and stores of the acceptance tests on real services."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator

import pytest
from acceptance.faults import Fleet
from acceptance.processes import Processes
from acceptance.records import PARTITIONS, Topic

from tests.conftest import MakeTopic
from tocsin.deploy.stack import LocalStack
from tocsin.schema.clock import SystemClock
from tocsin.schema.open_store import default_settings, open_store

#: Of a store as `init` makes it.
SHARD_RANGES = 64

OpenTopic = Callable[[], Topic]


@pytest.fixture(scope="module")
def real_store(cassandra_stack: LocalStack) -> str:
    """The URL of a store on three nodes, made once for the module.

    It stays until the nodes go. A Cassandra node that drops tables while hints for them arrive may fail in the middle
    of it ("Unknown CF"), and from then on its schema differs from the others' for good.
    """
    url = cassandra_stack.store_url(f"acceptance_{secrets.token_hex(3)}")

    async def make() -> None:
        store = open_store(url)
        settings = await store.initialise(default_settings(url, SystemClock().wall_ms()))
        await store.close()
        assert settings.shard_ranges == SHARD_RANGES

    asyncio.run(make())
    return url


@pytest.fixture(scope="module")
def nodes(cassandra_stack: LocalStack) -> list[tuple[str, int]]:
    """Where the store's nodes listen."""
    return [(host, cassandra_stack.cassandra_port) for host in cassandra_stack.cassandra_contact_points]


@pytest.fixture(scope="module")
def module_processes(
    real_store: str, cassandra_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Processes]:
    """Starts dispatchers and clients; whatever runs after the module is killed."""
    processes = Processes(tmp_path_factory.mktemp("processes"), real_store, cassandra_stack.sink_url)
    yield processes
    processes.reap()


@pytest.fixture
def processes(module_processes: Processes) -> Iterator[Processes]:
    """The same, and what they said is shown where the test fails."""
    yield module_processes
    print(module_processes)


@pytest.fixture(scope="module")
def fleet(module_processes: Processes, nodes: list[tuple[str, int]]) -> Iterator[Fleet]:
    """Two dispatchers that share all ranges; a test that ends one starts another."""
    fleet = Fleet(module_processes, nodes, SHARD_RANGES)
    fleet.start()
    fleet.start()
    fleet.until_shared()
    yield fleet
    fleet.close()


@pytest.fixture
def open_topic(topic: MakeTopic, cassandra_stack: LocalStack) -> Iterator[OpenTopic]:
    """Make topics, and read them."""
    opened: list[Topic] = []

    def open_one() -> Topic:
        opened.append(Topic(cassandra_stack.kafka_bootstrap, topic(partitions=PARTITIONS)))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
