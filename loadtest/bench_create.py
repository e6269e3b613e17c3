"""How fast schedules and timers come in, as a ratio to bare statements on the same store in the same run.

create     one after another per caller, many callers at once; bare: the conditional insert of the same rows alone
send_at    single timers, many callers at once; bare: the insert of the same packs of one
send_many  timers in packs, all into one minute; bare: the insert of the same packs of many
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import msgspec

from tocsin.loadtest import herd
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.producer.timers import NewTimer
from tocsin.schema.clock import SystemClock
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, to_datetime
from tocsin.schema.levels import Levels
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import ScheduleRow, Spec, State, encode_spec
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
    """Schedules created singly at random minutes of the day; the store is open, with these settings."""
    now = max(settings.genesis, SystemClock().wall_ms())
    random_minute = random.Random(seed)  # noqa: S311 — a benchmark's inputs, repeatable
    starts = [now + HOUR_MS + random_minute.randrange(1_000) * MINUTE_MS for _ in range(count)]
    run = uuid.uuid4().hex[:8]

    def rows() -> Iterator[ScheduleRow]:
        for number, start in enumerate(starts):
            spec = Spec(recurrence=Every(timedelta(days=1), anchor=to_datetime(start)), topic="bench", start=start)
            yield ScheduleRow(
                schedule_id=f"bare-{run}-{number}",
                version=now * 1000,
                token=uuid.uuid4().bytes,
                state=State.ACTIVE,
                since=start,
                spec=encode_spec(spec),
                payload=PAYLOAD,
                created_at=now,
                updated_at=now,
            )

    bare_seconds = await _timed(rows(), store.insert_schedule)
    async with AsyncScheduler(store, timeout=timedelta(seconds=60)) as scheduler:

        async def one(number: int) -> None:
            recurrence = Every(timedelta(days=1), anchor=to_datetime(starts[number]))
            start = to_datetime(starts[number])
            await scheduler.create(f"{run}-{number}", recurrence, topic="bench", payload=PAYLOAD, start=start)

        seconds = await _timed(iter(range(count)), one)
    return _rate("create", count, seconds, bare_seconds)


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


async def _timed(work: Iterator[Work], call: Callable[[Work], Awaitable[object]]) -> float:
    """Seconds for all calls, so many callers at once."""

    async def caller() -> None:
        for each in work:
            await call(each)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began


def _rate(name: str, count: int, seconds: float, bare_seconds: float) -> Rate:
    return Rate(
        name=name,
        calls=count,
        rate=round(count / seconds),
        bare_rate=round(count / bare_seconds),
        ratio=round(bare_seconds / seconds, 2),
    )
