"""The stores that the contract suite runs on.

One more kind of store is one more entry in `SUBJECTS`: a function from the test's request to a `Subject`. Tests share
what a kind of store keeps (a keyspace costs seconds), so each takes ranges, ids and buckets of its own from `fresh`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from random import Random
from typing import NamedTuple

import pytest
from simulation.cluster import Cluster
from simulation.replicated_store import ReplicatedStore

from tocsin.deploy.stack import LocalStack
from tocsin.schema.clock import SystemClock
from tocsin.schema.instants import DAY_MS, MINUTE_MS
from tocsin.schema.levels import Bucket, Layout, Level
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

GENESIS = 1_796_000_000_000
SETTINGS = Settings(genesis=GENESIS, shard_ranges=4, layouts=(Layout(0, 16),))
#: Heartbeats live for two seconds.
TIMING = Timing(lease_ttl_ms=2_000, lease_margin_ms=500, heartbeat_ms=500)


class ManualClock(SystemClock):
    """The host's clock, moved on by hand."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


class Subject(NamedTuple):
    """A kind of store, as the suite uses it."""

    #: What it is opened by in another process.
    url: str
    #: One more store object on the data of this test, not open.
    another: Callable[[], Store]
    #: A store object where nobody has run `init`.
    untouched: Callable[[], Store]
    #: Let the store's time pass, in ms.
    pass_time: Callable[[int], Awaitable[None]]


def _sqlite(request: pytest.FixtureRequest) -> Subject:
    folder = request.getfixturevalue("tmp_path")
    url = f"sqlite:///{folder}/store.db"
    clock = ManualClock()

    async def pass_time(duration_ms: int) -> None:
        clock.ahead_ms += duration_ms

    return Subject(
        url,
        another=lambda: open_store(url, timing=TIMING, clock=clock),
        untouched=lambda: open_store(f"sqlite:///{folder}/nothing.db", timing=TIMING, clock=clock),
        pass_time=pass_time,
    )


def _cassandra(request: pytest.FixtureRequest) -> Subject:
    url = request.getfixturevalue("cassandra_url")
    stack = request.getfixturevalue("cassandra_stack")

    async def pass_time(duration_ms: int) -> None:
        # A real cluster's time to live: there is no clock to turn, and nothing that tells when it is over.
        await asyncio.sleep(duration_ms / 1000)

    return Subject(
        url,
        another=lambda: open_store(url, timing=TIMING),
        untouched=lambda: open_store(stack.store_url("never_made"), timing=TIMING),
        pass_time=pass_time,
    )


def _simulated(_: pytest.FixtureRequest) -> Subject:
    """The store of the simulation, every fault off: three replicas in memory, each message with a delay of its own."""
    clock = ManualClock()
    clusters = [Cluster(Random(number), clock.wall_ms, delay_ms=0.5, heartbeat_ttl_ms=2_000) for number in range(2)]

    async def pass_time(duration_ms: int) -> None:
        clock.ahead_ms += duration_ms

    return Subject(
        ReplicatedStore.url,
        another=lambda: ReplicatedStore(clusters[0]),
        untouched=lambda: ReplicatedStore(clusters[1]),
        pass_time=pass_time,
    )


SUBJECTS: dict[str, Callable[[pytest.FixtureRequest], Subject]] = {
    "sqlite": _sqlite,
    "cassandra": _cassandra,
    "simulated": _simulated,
}


@pytest.fixture(scope="module")
def cassandra_url(cassandra_stack: LocalStack, keyspace: str) -> str:
    """Tables on three nodes, three replicas, made once for the module."""
    url = cassandra_stack.store_url(keyspace)

    async def make() -> None:
        store = open_store(url, timing=TIMING)
        await store.initialise(SETTINGS)
        await store.close()

    asyncio.run(make())
    return url


@pytest.fixture(params=["sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra), "simulated"])
def subject(request: pytest.FixtureRequest) -> Subject:
    """A kind of store; a test that uses it runs once on each."""
    return SUBJECTS[request.param](request)


@pytest.fixture
async def store(subject: Subject) -> AsyncIterator[Store]:
    """An open store with tables."""
    store = subject.another()
    await store.initialise(SETTINGS)
    yield store
    await store.close()


@pytest.fixture
async def second_store(subject: Subject, store: Store) -> AsyncIterator[Store]:
    """Another open store object on the same data."""
    second = subject.another()
    await second.open()
    yield second
    await second.close()


class Fresh:
    """Names and places that no other test of the run has used."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers

    def shard_range(self) -> int:
        """A range without registers: `init` made far fewer."""
        return 1_000 + next(self._numbers)

    def schedule_id(self) -> str:
        return f"schedule-{next(self._numbers)}"

    def bucket(self, level: Level = Level.MINUTE) -> Bucket:
        width = DAY_MS if level is Level.FAR else MINUTE_MS
        return Bucket(level, (GENESIS // width + next(self._numbers)) * width, 16, 3)


_numbers = itertools.count()


@pytest.fixture
def fresh() -> Fresh:
    """Names and places of this test's own."""
    return Fresh(_numbers)
