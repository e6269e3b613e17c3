"""How late occurrences are when nothing is a herd.

steady    schedules with a period of ten seconds, spread evenly over it, dispatched by one process for some periods
created   single runs created by a client up to ten seconds ahead of their due, all while the dispatcher runs

Both are medians and percentiles of acknowledged − due on the store's clock; there is nothing to compare them with but
the targets.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Iterator
from datetime import timedelta

import msgspec

from tocsin.dispatcher.publisher import Publisher
from tocsin.loadtest.dispatch_run import PAYLOAD_BYTES, DispatchRun, Percentiles, Seen, resident_mib_max
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.entries import Entry
from tocsin.schema.instants import SECOND_MS, to_datetime
from tocsin.schema.recurrence import Once
from tocsin.schema.store import Settings, Store

PERIOD_MS = 10 * SECOND_MS
#: Periods that are measured.
PERIODS = 3
#: How far ahead a single run is created at most.
AHEAD_MS = 10 * SECOND_MS
#: Clients that create at once, and how many single runs there are.
CALLERS = 8
CREATED = 1_000
#: From the start to the first due: a dispatcher takes its ranges meanwhile.
STARTING_MS = 15 * SECOND_MS


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark measured."""

    name: str
    occurrences: int
    lateness_p50_ms: int
    lateness_p99_ms: int
    lateness_max_ms: int
    early: int
    lost: int
    resident_mib_max: int


async def steady(store: Store, settings: Settings, publisher: Publisher, *, topic: str, count: int) -> Lateness:
    """So many schedules, each every ten seconds."""
    run = DispatchRun(store, settings, publisher)
    first = run.clock.wall_ms() + STARTING_MS
    await run.write(_spread(run, count, first, topic))
    seen = Seen({topic: count * PERIODS})
    async with run.dispatcher(seen):
        await seen.all_of(topic)
        measured = seen.percentiles(topic)
    return _lateness("steady", measured, seen)


async def created(store: Store, settings: Settings, publisher: Publisher, *, topic: str) -> Lateness:
    """Single runs, created up to ten seconds ahead."""
    run = DispatchRun(store, settings, publisher)
    seen = Seen({topic: CREATED})
    chosen = random.Random(7)  # noqa: S311 — a benchmark's inputs, repeatable
    remaining = iter(range(CREATED))
    async with run.dispatcher(seen) as dispatcher, AsyncScheduler(store) as scheduler:
        await run.settled(dispatcher, run.clock.wall_ms())

        async def caller() -> None:
            for number in remaining:
                at = to_datetime(run.clock.wall_ms() + chosen.randrange(AHEAD_MS))
                schedule_id = f"{uuid.uuid4().hex[:8]}-{number}"
                await scheduler.create(schedule_id, Once(at), topic=topic, payload=b"x" * PAYLOAD_BYTES)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        await seen.all_of(topic)
        measured = seen.percentiles(topic)
    return _lateness("created up to 10 s ahead", measured, seen)


def _spread(run: DispatchRun, count: int, first: int, topic: str) -> Iterator[Entry]:
    for number in range(count):
        due = first + PERIOD_MS * number // count
        yield from run.entries(1, due, topic=topic, period=timedelta(milliseconds=PERIOD_MS))


def _lateness(name: str, measured: Percentiles, seen: Seen) -> Lateness:
    return Lateness(
        name=name,
        occurrences=measured.count,
        lateness_p50_ms=measured.p50_ms,
        lateness_p99_ms=measured.p99_ms,
        lateness_max_ms=measured.max_ms,
        early=measured.early,
        lost=seen.missing(),
        resident_mib_max=resident_mib_max(),
    )
