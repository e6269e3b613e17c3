"""How fast schedules and timers come in, as a ratio to bare statements on the same store in the same run.

create       one after another per caller, many callers at once; bare: the conditional insert of the same rows alone
create_many  one caller, many items, with ids of ours and with generated ones; bare: the same
send_at      single timers, many callers at once; bare: the insert of the same packs of one
send_many    timers in packs, all into one minute; bare: the insert of the same packs of many

Schedules begin at random minutes: what shares no bucket shares no pack, the hard case.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import msgspec

from tocsin.loadtest import herd
from tocsin.producer.definition import NewSchedule
from tocsin.producer.many import WINDOW
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.producer.timers import NewTimer
from tocsin.schema.clock import SystemClock
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, to_datetime
from tocsin.schema.levels import Levels
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import ScheduleRow, State, encode_spec
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

#: Callers at once.
CALLERS = 32
PAYLOAD = b"x" * 200

Work = TypeVar("Work")


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark measured, calls a second."""

    name: str
    calls: int
    rate: float
    bare_rate: float
    ratio: float


async def create(store: Store, settings: Settings, *, count: int, seed: int = 1) -> Rate:
    """Schedules created singly, many callers at once; the store is open, with these settings."""
    schedules = list(_schedules(settings, count, seed))
    bare_seconds = await _timed(map(_row, schedules), store.insert_schedule)
    async with AsyncScheduler(store, timeout=timedelta(seconds=60)) as scheduler:

        async def one(schedule: NewSchedule) -> None:
            recurrence, start = schedule.recurrence, schedule.start
            await scheduler.create(schedule.schedule_id, recurrence, topic="bench", payload=PAYLOAD, start=start)

        seconds = await _timed(iter(schedules), one)
    return _rate("create", count, seconds, bare_seconds)


async def create_many(store: Store, settings: Settings, *, count: int, generated: bool = False, seed: int = 2) -> Rate:
    """Schedules created by one call, with ids of ours or generated ones; bare: as many conditional inserts at once."""
    schedules = list(_schedules(settings, count, seed + generated))
    bare_seconds = await _timed(map(_row, schedules), store.insert_schedule, callers=WINDOW)
    wanted = [dataclasses.replace(each, schedule_id=None) for each in schedules] if generated else schedules
    async with AsyncScheduler(store, timeout=timedelta(seconds=60)) as scheduler:
        began = time.perf_counter()
        async for result in scheduler.create_many(wanted):
            if result.error is not None:
                raise result.error
        seconds = time.perf_counter() - began
    return _rate("create_many, generated ids" if generated else "create_many", count, seconds, bare_seconds)


def _schedules(settings: Settings, count: int, seed: int) -> Iterator[NewSchedule]:
    """Daily schedules that begin at random minutes of the next day."""
    now = max(settings.genesis, SystemClock().wall_ms())
    random_minute = random.Random(seed)  # noqa: S311 — a benchmark's inputs, repeatable
    run = uuid.uuid4().hex[:8]
    for number in range(count):
        start = to_datetime(now + HOUR_MS + random_minute.randrange(1_000) * MINUTE_MS)
        rule = Every(timedelta(days=1), anchor=start)
        yield NewSchedule(schedule_id=f"{run}-{number}", recurrence=rule, topic="bench", payload=PAYLOAD, start=start)


def _row(schedule: NewSchedule) -> ScheduleRow:
    """The row that creating it makes, under another id."""
    now = SystemClock().wall_ms()
    return ScheduleRow(
        schedule_id=f"bare-{schedule.schedule_id}",
        version=now * 1000,
        token=uuid.uuid4().bytes,
        state=State.ACTIVE,
        since=now,
        spec=encode_spec(schedule.spec(now)),
        payload=schedule.payload,
        topic=schedule.topic,
        created_at=now,
        updated_at=now,
    )


async def send_at(store: Store, settings: Settings, *, count: int) -> Rate:
    """Single timers."""
    at = _minute_ahead()
    levels = Levels(Timing(), settings.shard_ranges, settings.layouts)
    entries = [timer.entry(at - HOUR_MS, 0) for timer in _timers(count, at)]
    rows = [row for entry in entries for row in herd.packs(levels, [entry], herd.new_id)]
    bare_seconds = await _timed(iter(rows), lambda row: store.write_pack(*row))
    async with AsyncScheduler(store, timeout=timedelta(seconds=60)) as scheduler:

        async def one(timer: NewTimer) -> None:
            await scheduler.send_at(timer.topic, timer.payload, at=timer.at, timer_id=timer.timer_id)

        seconds = await _timed(_timers(count, at), one)
    return _rate("send_at", count, seconds, bare_seconds)


async def send_many(store: Store, settings: Settings, *, count: int) -> Rate:
    """Timers in packs, all into one minute."""
    at = _minute_ahead()
    levels = Levels(Timing(), settings.shard_ranges, settings.layouts)
    entries = [timer.entry(at - HOUR_MS, 0) for timer in _timers(count, at)]
    began = time.perf_counter()
    await herd.write_packs(store, herd.packs(levels, entries, herd.new_id))
    bare_seconds = time.perf_counter() - began
    timers = list(_timers(count, at))
    async with AsyncScheduler(store, timeout=timedelta(seconds=60)) as scheduler:
        began = time.perf_counter()
        async for result in scheduler.send_many(timers):
            if result.error is not None:
                raise result.error
        seconds = time.perf_counter() - began
    return _rate("send_many", count, seconds, bare_seconds)


def _minute_ahead() -> int:
    return (SystemClock().wall_ms() + DAY_MS // 4) // MINUTE_MS * MINUTE_MS


def _timers(count: int, at: int) -> Iterator[NewTimer]:
    run = uuid.uuid4().hex[:8]
    instant = to_datetime(at)
    for number in range(count):
        yield NewTimer(timer_id=f"{run}-{number}", topic="bench", at=instant, payload=PAYLOAD)


async def _timed(work: Iterator[Work], call: Callable[[Work], Awaitable[object]], *, callers: int = CALLERS) -> float:
    """Seconds for all calls, so many callers at once."""

    async def caller() -> None:
        for each in work:
            await call(each)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return time.perf_counter() - began


def _rate(name: str, count: int, seconds: float, bare_seconds: float) -> Rate:
    return Rate(
        name=name,
        calls=count,
        rate=round(count / seconds),
        bare_rate=round(count / bare_seconds),
        ratio=round(bare_seconds / seconds, 2),
    )
