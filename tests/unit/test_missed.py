"""Dispatchers are away for a while, or slow: what was missed is as each schedule says, and a slow herd is never missed.

The first table is the one users read: down over 10:00, 10:10 and 10:20, back at 10:25.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from unit.virtual_bench import START, Bench

from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.received import Received
from tocsin.schema.instants import MINUTE_MS, SECOND_MS
from tocsin.schema.recurrence import Every, Once
from tocsin.schema.schedules import CatchUp
from tocsin.schema.timing import Timing

#: A dispatcher that looks once a second: every look costs the test time.
TIMING = Timing(
    tick_ms=SECOND_MS,
    heartbeat_ms=20 * SECOND_MS,
    lease_ttl_ms=2 * MINUTE_MS,
    lease_margin_ms=20 * SECOND_MS,
    frontier_reread_ms=20 * SECOND_MS,
    clock_refresh_ms=20 * SECOND_MS,
)
#: What the users' table calls ten o'clock.
TEN = START + timedelta(minutes=12)
EVERY = Every(timedelta(minutes=10), anchor=TEN - timedelta(minutes=10))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(TIMING)
    yield bench
    bench.close()


def at(minutes: int) -> datetime:
    """So many minutes past ten."""
    return TEN + timedelta(minutes=minutes)


def missed_counts(bench: Bench) -> list[int]:
    """What each record says of how many were passed over before it."""
    return [Received.from_record(record).missed for record in bench.heard.records]


def away_from_ten_until_ten_twenty_five(bench: Bench, **policy: Any) -> None:
    bench.run(bench.scheduler.create("s", EVERY, topic="t", start=at(-10), **policy))
    bench.dispatch()
    bench.turn(at(-5) - START)
    bench.stop()
    assert bench.heard.nominal("s") == [at(-10)]
    bench.heard.records.clear()
    bench.turn(timedelta(minutes=30))
    bench.dispatch()
    bench.turn(timedelta(minutes=6))


@pytest.mark.parametrize(
    ("policy", "dispatched", "missed", "skipped"),
    [
        (CatchUp.LATEST, [20, 30], [2, 0], 2),
        (CatchUp.ALL, [0, 10, 20, 30], [0, 0, 0, 0], 0),
        (CatchUp.EARLIEST, [0, 30], [0, 0], 2),
        (CatchUp.SKIP, [30], [0], 3),
    ],
)
def test_each_policy_does_what_it_says(
    bench: Bench, policy: CatchUp, dispatched: list[int], missed: list[int], skipped: int
) -> None:
    away_from_ten_until_ten_twenty_five(bench, catch_up=policy)

    assert bench.heard.nominal("s") == [at(minutes) for minutes in dispatched]
    assert missed_counts(bench) == missed
    assert bench.heard.skips == ({"missed": skipped} if skipped else {})


def test_beyond_its_limit_a_catch_up_keeps_the_newest_and_counts_the_rest(bench: Bench) -> None:
    away_from_ten_until_ten_twenty_five(bench, catch_up=CatchUp.ALL, max_catch_up=2)

    assert bench.heard.nominal("s") == [at(10), at(20), at(30)]
    assert missed_counts(bench) == [1, 0, 0]
    assert bench.heard.skips == {"missed": 1}


def test_what_has_expired_meanwhile_is_skipped_whatever_the_policy(bench: Bench) -> None:
    away_from_ten_until_ten_twenty_five(bench, catch_up=CatchUp.ALL, expires_after=timedelta(minutes=20))

    assert bench.heard.nominal("s") == [at(10), at(20), at(30)]
    assert bench.heard.skips == {"expired": 1}


def test_a_single_occurrence_comes_late_unless_it_expires(bench: Bench) -> None:
    for name, expires in (("late", None), ("gone", timedelta(minutes=1))):
        bench.run(bench.scheduler.create(name, Once(at(0)), topic="t", expires_after=expires))
    bench.turn(at(25) - START)
    bench.dispatch()
    bench.turn(timedelta(minutes=1))

    assert bench.heard.nominal("late") == [at(0)]
    assert bench.heard.nominal("gone") == []
    assert bench.heard.skips == {"expired": 1}


def test_a_herd_that_takes_minutes_to_carry_away_is_late_and_not_missed(bench: Bench) -> None:
    count, slow_ms = 20, 3 * MINUTE_MS
    keep = bench.heard.publish

    async def publish(records: Sequence[Record]) -> Sequence[Outcome]:
        await bench.clock.sleep_ms(slow_ms)
        return await keep(records)

    bench.heard.publish = publish  # type: ignore[method-assign]
    minutely = Every(timedelta(minutes=1), anchor=TEN)
    for number in range(count):
        # Were one of them taken for missed, it would be skipped.
        name = f"s{number}"
        bench.run(bench.scheduler.create(name, minutely, topic=f"t{number}", start=TEN, catch_up=CatchUp.SKIP))
    bench.dispatch()
    bench.turn(at(20) - START)

    assert bench.heard.skips == {}
    for number in range(count):
        nominal = bench.heard.nominal(f"s{number}")
        assert nominal == [at(minutes) for minutes in range(len(nominal))]
        assert len(nominal) > 3
