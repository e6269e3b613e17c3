"""Dispatchers are away for longer than rows are kept: every schedule lives on, and its catch-up policy is kept.

Real store, protocol and dispatchers on virtual time. What waited is seen to have left the store before a dispatcher
comes back; what is dispatched then can only come from the audit of what is owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import pytest
from unit.virtual_bench import RANGES, START, START_MS, Bench

from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tocsin.schema.levels import Levels
from tocsin.schema.recurrence import Every, Once
from tocsin.schema.schedules import CatchUp
from tocsin.schema.timing import Timing

#: The first nominal time of whatever runs each hour.
FIRST = START + timedelta(hours=1)
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


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(TIMING)
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
    assert {action for action, _ in bench.heard.troubles} == {"owes"}
    assert {error.shard_range for _, error in bench.heard.troubles} == set(range(RANGES))


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
