"""Processes, topics and stores of the acceptance tests on real services."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
import pytest
from acceptance.faults import Fleet
from acceptance.processes import Processes
from acceptance.pulse import OpenScheduler
from acceptance.records import PARTITIONS, Topic
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import MakeTopic
from tocsin import Scheduler
from tocsin.deploy.stack import LocalStack
from tocsin.schema.clock import SystemClock
from tocsin.schema.open_store import default_settings, open_store
from tocsin.schema.timing import Timing

#: Of a store as `init` makes it.
SHARD_RANGES = 64

OpenTopic = Callable[[], Topic]


@pytest.fixture(scope="module")
def timing() -> Timing:
    """Of the module's store, its dispatchers and clients; a module may have its own."""
    return Timing()


@pytest.fixture(scope="module")
def shard_ranges() -> int:
    """Of the module's store; a module may have fewer, which cost a busy machine less."""
    return SHARD_RANGES


@pytest.fixture(scope="module")
def publisher_settings() -> dict[str, int | str]:
    """Of the module's dispatchers, where they differ from the defaults; a module may have its own."""
    return {}


@pytest.fixture(scope="module")
def real_store(cassandra_stack: LocalStack, timing: Timing, shard_ranges: int) -> str:
    """The URL of a store on three nodes, made once for the module.

    It stays until the nodes go. A Cassandra node that drops tables while hints for them arrive may fail in the middle
    of it ("Unknown CF"), and from then on its schema differs from the others' for good.
    """
    url = cassandra_stack.store_url(f"acceptance_{secrets.token_hex(3)}")

    async def make() -> None:
        store = open_store(url, timing=timing)
        settings = default_settings(url, SystemClock().wall_ms())
        assert settings.shard_ranges == SHARD_RANGES
        await store.initialise(msgspec.structs.replace(settings, shard_ranges=shard_ranges))
        await store.close()

    asyncio.run(make())
    return url


@pytest.fixture(scope="module")
def nodes(cassandra_stack: LocalStack) -> list[tuple[str, int]]:
    """Where the store's nodes listen."""
    return [(host, cassandra_stack.cassandra_port) for host in cassandra_stack.cassandra_contact_points]


@pytest.fixture(scope="module")
def module_processes(
    real_store: str,
    cassandra_stack: LocalStack,
    timing: Timing,
    publisher_settings: dict[str, int | str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Processes]:
    """Starts dispatchers and clients; whatever runs after the module is killed."""
    folder = tmp_path_factory.mktemp("processes")
    tables = {"timing": msgspec.structs.asdict(timing), "publisher": publisher_settings}
    lines = (
        line
        for name, table in tables.items()
        for line in (f"[{name}]", *(f"{key} = {value!r}" for key, value in table.items()))
    )
    (folder / "tocsin.toml").write_text("\n".join(lines))
    processes = Processes(folder, real_store, cassandra_stack.sink_url)
    yield processes
    processes.reap()


@pytest.fixture
def processes(module_processes: Processes) -> Iterator[Processes]:
    """The same, and what they said is shown where the test fails."""
    yield module_processes
    print(module_processes)


@pytest.fixture(scope="module")
def fleet(module_processes: Processes, nodes: list[tuple[str, int]], shard_ranges: int) -> Iterator[Fleet]:
    """Two dispatchers that share all ranges; a test that ends one starts another."""
    fleet = Fleet(module_processes, nodes, shard_ranges)
    fleet.start()
    fleet.start()
    fleet.until_shared()
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def open_scheduler(real_store: str, timing: Timing) -> OpenScheduler:
    """Opens clients of the module's store that wait long: the machine is busy."""
    return lambda: Scheduler(open_store(real_store, timing=timing), timeout=timedelta(minutes=2))


@pytest.fixture(scope="module")
def open_module_topic(cassandra_stack: LocalStack, kafka_admin: AdminClient) -> Iterator[OpenTopic]:
    """Make topics that outlive a test, and read them."""
    opened: list[Topic] = []

    def open_one() -> Topic:
        name = f"acceptance-{secrets.token_hex(6)}"
        kafka_admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result()
        opened.append(Topic(cassandra_stack.kafka_bootstrap, name))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


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
