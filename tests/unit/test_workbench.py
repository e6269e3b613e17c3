"""The workbench users test their code on: real schedules, real dispatches, and a clock that is turned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

import pytest

import tocsin
from tocsin import Cron, Daily, Every, InvalidSchedule, NewSchedule, Once, Received, Workbench
from tocsin.dispatcher.workbench import SETTLE_MS

START = datetime(2026, 12, 1, 8, tzinfo=UTC)
SETTLED = timedelta(milliseconds=2 * SETTLE_MS)


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with Workbench(start=START) as bench:
        yield bench


def test_what_falls_due_is_dispatched_in_order_with_what_a_consumer_needs(bench: Workbench) -> None:
    bench.scheduler.create("nine", Cron("0 9 * * *"), topic="mail", payload=b"hello", headers={"k": "v"}, tenant="x")
    bench.scheduler.create("half", Every(timedelta(minutes=30), anchor=START), topic="push")
    records = bench.advance(timedelta(hours=2))
    at = [(record.schedule_id, record.due - START) for record in records]
    minutes = [("half", 30), ("half", 60), ("nine", 60), ("half", 90), ("half", 120)]
    assert sorted(at) == sorted((name, timedelta(minutes=minute)) for name, minute in minutes)
    assert [record.due for record in records] == sorted(record.due for record in records)
    (nine,) = (record for record in records if record.schedule_id == "nine")
    assert (nine.key, nine.topic, nine.payload) == ("nine@2026-12-01T09:00:00.000Z", "mail", b"hello")
    assert (nine.headers, nine.tenant, nine.scheduled_for) == ({"k": "v"}, "x", nine.due)


def test_nothing_due_later_than_asked_for_is_handed_out_and_nothing_is_lost_between_turns(bench: Workbench) -> None:
    bench.scheduler.create("s", Every(timedelta(seconds=1), anchor=START), topic="t", start=START + timedelta(hours=1))
    due: list[datetime] = []
    for _ in range(20):
        asked_at = bench.now
        records = bench.advance(timedelta(minutes=6, seconds=7))
        assert all(record.due <= asked_at + timedelta(minutes=6, seconds=7) for record in records)
        due += [record.due for record in records]
        assert bench.now - asked_at - timedelta(minutes=6, seconds=7) <= SETTLED
    first = START + timedelta(hours=1)
    assert due == [first + timedelta(seconds=number) for number in range(len(due))]
    assert due[-1] > first


def test_a_long_turn_gives_what_many_short_ones_give_and_nothing_is_missed() -> None:
    def turned(*durations: timedelta) -> list[Received]:
        with Workbench(start=START) as bench:
            for seconds in (45, 600, 3_601):
                bench.scheduler.create(f"s{seconds}", Every(timedelta(seconds=seconds), anchor=START), topic="t")
            bench.scheduler.create("jitters", Cron("*/5 * * * *"), topic="t", jitter=timedelta(minutes=2))
            bench.scheduler.create("expires", Cron("7 * * * *"), topic="t", expires_after=timedelta(seconds=90))
            records = [record for duration in durations for record in bench.advance(duration)]
        # Each turn takes a little more than was asked for.
        ended = [replace(record, version=0) for record in records if record.due <= START + timedelta(hours=6)]
        return sorted(ended, key=lambda record: (record.due, record.key))

    long = turned(timedelta(hours=6))
    short = turned(*[timedelta(minutes=1)] * 360)
    assert long == short
    assert len(long) > 500
    assert {record.missed for record in long} == {0}


def test_a_schedule_that_is_due_in_a_moment_is_there_at_the_next_turn(bench: Workbench) -> None:
    bench.scheduler.create("soon", Once(bench.now + timedelta(seconds=1)), topic="t")
    bench.scheduler.send_at("t", b"timer", at=bench.now + timedelta(milliseconds=200), timer_id="timer")
    assert [record.schedule_id for record in bench.advance(timedelta(seconds=1))] == ["timer", "soon"]
    assert bench.dispatch_due() == []


def test_a_cancelled_schedule_is_heard_of_no_more(bench: Workbench) -> None:
    bench.scheduler.create("s", Every(timedelta(minutes=1)), topic="t")
    assert bench.advance(timedelta(minutes=5))
    bench.scheduler.cancel("s")
    assert bench.advance(timedelta(minutes=5)) == []


def test_a_night_passes_with_its_clock_change_and_its_holiday() -> None:
    nine = Daily(time(9), tz="Europe/Berlin")
    with Workbench(start=datetime(2027, 3, 28, 0, 30, tzinfo=UTC)) as bench:
        bench.scheduler.set_calendar("off", [date(2027, 3, 28)])
        bench.scheduler.create("works", nine, topic="t")
        bench.scheduler.create("rests", nine, topic="t", exclude=["off"])
        records = bench.advance(timedelta(hours=7))
        # Berlin's clock went forward at 01:00 UTC.
        assert [record.key for record in records] == ["works@2027-03-28T07:00:00.000Z"]


def test_code_that_awaits_runs_in_the_bench_s_time(bench: Workbench) -> None:
    async def work() -> int:
        async for result in bench.asynchronous.create_many(
            NewSchedule(schedule_id=f"s{hour}", recurrence=Once(START + timedelta(hours=hour)), topic="t")
            for hour in range(1, 4)
        ):
            assert result.error is None
        await asyncio.sleep(2.5 * 3600)
        return len([schedule async for schedule in bench.asynchronous.list()])

    assert bench.run(work()) == 3
    assert [record.schedule_id for record in bench.dispatch_due()] == ["s1", "s2"]
    assert [record.schedule_id for record in bench.advance(timedelta(hours=1))] == ["s3"]


@pytest.mark.parametrize("duration", [timedelta(seconds=-1), timedelta(days=32)])
def test_the_clock_goes_forward_and_not_too_far_at_once(bench: Workbench, duration: timedelta) -> None:
    with pytest.raises(InvalidSchedule, match="duration"):
        bench.advance(duration)


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="start"):
        Workbench(start=datetime(2026, 12, 1))  # noqa: DTZ001 — what is refused


def test_every_public_name_can_be_imported() -> None:
    assert all(getattr(tocsin, name) is not None for name in tocsin.__all__)
    with pytest.raises(AttributeError):
        _ = tocsin.nothing  # type: ignore[attr-defined]
