"""Processes, topics and stores of the acceptance tests on real services."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acceptance.processes import Processes
from acceptance.records import Topic

from tests.conftest import MakeTopic
from tocsin.deploy.stack import LocalStack
from tocsin.schema.clock import SystemClock
from tocsin.schema.open_store import default_settings, open_store

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
        try:
            await store.initialise(default_settings(url, SystemClock().wall_ms()))
        finally:
            await store.close()

    asyncio.run(make())
    return url


@pytest.fixture
def processes(
    real_store: str, cassandra_stack: LocalStack, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Processes]:
    """Starts dispatchers and clients; whatever runs after the test is killed, and its log shown if the test failed."""
    processes = Processes(tmp_path, real_store, cassandra_stack.sink_url)
    yield processes
    processes.reap()
    print(processes)


@pytest.fixture
def open_topic(topic: MakeTopic, cassandra_stack: LocalStack) -> Iterator[OpenTopic]:
    """Make topics, and read them."""
    opened: list[Topic] = []

    def open_one() -> Topic:
        opened.append(Topic(cassandra_stack.kafka_bootstrap, topic(partitions=4)))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
