"""Dispatchers are away for longer than rows are kept: every schedule lives on, and its catch-up policy is kept.

Real store, protocol and dispatchers on virtual time. What waited is seen to have left the store before a dispatcher
comes back; what is dispatched then can only come from the audit of what is owed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tocsin.dispatcher.fleet import Dispatcher, make_dispatcher
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.virtual_loop import VirtualClock, VirtualLoop
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.entries import parse_occurrence_key
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_datetime
from tocsin.schema.levels import Layout, Level, Levels
from tocsin.schema.recurrence import Every, Once
from tocsin.schema.schedules import CatchUp
from tocsin.schema.sqlite import PURGE_INTERVAL_MS, SqliteStore
from tocsin.schema.store import Settings
from tocsin.schema.timing import Timing

START = datetime(2026, 12, 1, 8, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
#: The first nominal time of whatever runs each hour.
FIRST = START + timedelta(hours=1)
RANGES = 2
TIMING = Timing(
    retention_ms=2 * HOUR_MS,
    tick_ms=5 * SECOND_MS,
    heartbeat_ms=MINUTE_MS,
    lease_ttl_ms=10 * MINUTE_MS,
    lease_margin_ms=MINUTE_MS,
    frontier_reread_ms=MINUTE_MS,
    clock_refresh_ms=MINUTE_MS,
)
#: A row of the minute level leaves two days and retention after its write at the latest.
OUTAGE = timedelta(days=3)


class Heard:
    """A Publisher that keeps what it is given, and an Observer of troubles."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.troubles: list[tuple[Any, ...]] = []

    async def start(self) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        self.records += records
        return [Outcome.ACKED] * len(records)

    def troubled(self, *what: Any) -> None:
        self.troubles.append(what)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None

    def nominal(self, schedule_id: str) -> list[datetime]:
        """When a schedule's records were nominal, in the order of their dispatch."""
        keys = [parse_occurrence_key(record.key.decode()) for record in self.records]
        return [to_datetime(at) for name, at, _ in keys if name == schedule_id]


class Bench:
    """A store, a client, and dispatchers that come and go."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop, START_MS)
        self.settings = Settings(genesis=START_MS, shard_ranges=RANGES, layouts=(Layout(0, RANGES),))
        self.store = SqliteStore("sqlite:///:memory:", None, timing=TIMING, clock=self.clock, create=self.settings)
        numbers = itertools.count(1)
        self.new_id = lambda: next(numbers).to_bytes(16)
        self.scheduler = AsyncScheduler(self.store, timing=TIMING, clock=self.clock, new_id=self.new_id)
        self.heard = Heard()
        self.run(self.store.open())
        self._running: tuple[Dispatcher, Any] | None = None

    def run(self, work: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def dispatch(self) -> None:
        dispatcher = make_dispatcher(
            self.store,
            self.settings,
            self.heard,
            dispatcher_id="d",
            observer=self.heard,  # type: ignore[arg-type]
            timing=TIMING,
            clock=self.clock,
            new_id=self.new_id,
        )
        self._running = dispatcher, self.loop.create_task(dispatcher.run())

    def stop(self) -> None:
        assert self._running is not None
        dispatcher, running = self._running
        dispatcher.stop()
        self.run(running)
        self._running = None

    def turn(self, duration: timedelta) -> None:
        self.run(self.clock.sleep_ms(duration // timedelta(milliseconds=1)))

    def purge(self) -> None:
        """Let the store forget what is old: it does with a write."""
        self.turn(timedelta(milliseconds=2 * PURGE_INTERVAL_MS))
        self.run(self.store.keep_request("nobody", "nothing", self.clock.wall_ms()))

    def packs(self) -> int:
        """How many packs lie on the minute and near levels, in any bucket of these days."""
        levels = Levels(TIMING, RANGES, self.settings.layouts)

        async def count() -> int:
            found = 0
            for level, shard_range in itertools.product((Level.MINUTE, Level.NEAR), range(RANGES)):
                for bucket in levels.buckets(level, shard_range, START_MS - DAY_MS, self.clock.wall_ms() + DAY_MS):
                    async for page in self.store.read_packs(bucket):
                        found += len(page)
            return found

        return int(self.run(count()))

    def close(self) -> None:
        if self._running is not None:
            self.stop()
        self.run(self.store.close())
        self.loop.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def hours(first: datetime, last: datetime) -> list[datetime]:
    count = (last - first) // timedelta(hours=1)
    return [first + timedelta(hours=number) for number in range(count + 1)]


def test_every_schedule_lives_on_and_its_policy_decides_what_was_missed(bench: Bench) -> None:
    hourly = Every(timedelta(hours=1), anchor=FIRST)
    for policy in CatchUp:
        bench.run(bench.scheduler.create(policy.value, hourly, topic="t", catch_up=policy))
    for name in ("paused", "updated"):
        bench.run(bench.scheduler.create(name, hourly, topic="t"))
    bench.run(bench.scheduler.create("once", Once(START + timedelta(hours=20)), topic="t"))
    bench.run(bench.scheduler.create("later", Once(START + timedelta(days=40)), topic="t"))
    bench.dispatch()
    bench.turn(timedelta(hours=2, minutes=30))
    bench.stop()
    before = {name: bench.heard.nominal(name) for name in ("latest", "all", "earliest", "skip")}
    gone = START + timedelta(hours=2, minutes=30)

    bench.turn(timedelta(hours=5))
    bench.run(bench.scheduler.pause("paused"))
    changed = bench.run(bench.scheduler.update("updated", recurrence=Every(timedelta(hours=6), anchor=FIRST)))
    assert changed.schedule is not None
    bench.turn(OUTAGE - timedelta(hours=5))
    bench.purge()
    assert bench.packs() == 0, "this outage was not long enough to prove anything"
    bench.heard.records.clear()
    back = gone + OUTAGE
    bench.dispatch()
    bench.turn(timedelta(hours=2))

    last, following = START + timedelta(hours=74), hours(START + timedelta(hours=75), START + timedelta(hours=76))
    assert last <= back < following[0]
    assert before == dict.fromkeys(before, hours(FIRST, START + timedelta(hours=2)))
    heard = bench.heard.nominal
    assert heard("latest") == [last, *following]
    assert heard("all") == [*hours(START + timedelta(hours=3), last), *following]
    assert heard("earliest") == [START + timedelta(hours=3), *following]
    assert heard("skip") == following
    assert heard("once") == [START + timedelta(hours=20)]
    assert heard("paused") == []
    assert heard("updated") == [FIRST + timedelta(hours=72)]
    assert bench.heard.troubles == []


def test_committed_stands_still_until_what_is_owed_is_armed(bench: Bench) -> None:
    bench.run(bench.scheduler.create("s", Every(timedelta(hours=1), anchor=FIRST), topic="t", catch_up=CatchUp.ALL))
    shard_range = Levels(TIMING, RANGES, bench.settings.layouts).shard_range("s")
    bench.turn(OUTAGE)
    bench.purge()
    assert bench.packs() == 0
    walk = bench.store.walk_schedules
    bench.store.walk_schedules = lambda *_: Stuck()  # type: ignore[method-assign,return-value,assignment]
    bench.dispatch()
    bench.turn(timedelta(hours=1))
    # Whoever comes next must not be told that all of this is done.
    assert bench.run(bench.store.read_frontier(shard_range)).committed == START_MS
    bench.stop()

    bench.store.walk_schedules = walk  # type: ignore[method-assign]
    bench.dispatch()
    bench.turn(timedelta(hours=1, minutes=5))

    assert bench.run(bench.store.read_frontier(shard_range)).committed > START_MS + 3 * DAY_MS
    assert bench.heard.nominal("s") == hours(FIRST, START + timedelta(hours=74))


class Stuck:
    """A walk that never gets on."""

    async def __anext__(self) -> Sequence[str]:
        await asyncio.Event().wait()
        raise StopAsyncIteration


def test_an_outage_shorter_than_that_walks_nothing(bench: Bench) -> None:
    bench.run(bench.scheduler.create("s", Every(timedelta(hours=1), anchor=FIRST), topic="t"))
    bench.turn(timedelta(hours=1, minutes=30))
    walked: list[int] = []
    walk = bench.store.walk_schedules
    bench.store.walk_schedules = lambda *a: walked.append(1) or walk(*a)  # type: ignore[method-assign,func-returns-value]
    bench.dispatch()
    bench.turn(timedelta(hours=3))
    assert walked == []
    assert bench.heard.nominal("s") == hours(FIRST, START + timedelta(hours=4))
