"""What one occurrence costs while ten thousand, a hundred thousand, a million others are armed.

The others wait at random minutes of the next day, as they would. Against them a herd of one size is dispatched, read to
re-armed, some times over, and the median of processor time and rate is taken. A cost that grows with what is armed
would show here as a ratio; there is no look-up whose price depends on it, so it should stay at one.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import AsyncIterator, Iterator

import msgspec

from tocsin.dispatcher.publisher import Publisher
from tocsin.loadtest.dispatch_run import DispatchRun, Seen, Stopwatch
from tocsin.schema.entries import Entry
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tocsin.schema.store import Settings, Store

#: Occurrences armed at each step, up to the count that is asked for.
STEPS = (10_000, 100_000, 1_000_000)
#: Occurrences of the herd that is measured, and how often.
HERD = 20_000
ROUNDS = 3


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured at one step."""

    name: str
    #: Occurrences that waited elsewhere.
    armed: int
    #: Dispatched and re-armed, a second.
    rate: float
    #: Processor time of this process for one occurrence, read to re-armed, in microseconds.
    processor_us: float
    #: Against the first step.
    ratio: float


async def scale(
    store: Store, settings: Settings, publisher: Publisher, *, topic: str, count: int
) -> AsyncIterator[Cost]:
    """The cost at each step up to `count` armed occurrences."""
    run = DispatchRun(store, settings, publisher)
    chosen = random.Random(3)  # noqa: S311 — a benchmark's inputs, repeatable
    await _dispatched(run, topic)  # warms up
    armed = 0
    first_us = 0.0
    for step in (*(each for each in STEPS if each < count), count):
        await run.write(_elsewhere(run, step - armed, chosen))
        armed = step
        watches = [await _dispatched(run, topic) for _ in range(ROUNDS)]
        cost_us = statistics.median(watch.processor_seconds for watch in watches) / HERD * 1e6
        first_us = first_us or cost_us
        yield Cost(
            name="scale",
            armed=armed,
            rate=round(HERD / statistics.median(watch.seconds for watch in watches)),
            processor_us=round(cost_us, 1),
            ratio=round(cost_us / first_us, 2),
        )


async def _dispatched(run: DispatchRun, topic: str) -> Stopwatch:
    """Dispatch one herd that is due already."""
    due = run.clock.wall_ms() + SECOND_MS // 10  # beyond what the dispatcher before has committed
    await run.write(run.entries(HERD, due, topic=topic))
    seen = Seen({topic: HERD})
    async with run.dispatcher(seen) as dispatcher:
        watch = Stopwatch()
        await seen.all_of(topic)
        await run.settled(dispatcher, due)
        watch.stop()
    seen.percentiles(topic)
    return watch


def _elsewhere(run: DispatchRun, count: int, chosen: random.Random) -> Iterator[Entry]:
    """Occurrences at random minutes, from three hours on."""
    soonest = run.clock.wall_ms() + 3 * HOUR_MS
    for entry in run.entries(count, soonest, topic="elsewhere"):
        due = soonest + chosen.randrange(DAY_MS // MINUTE_MS) * MINUTE_MS
        yield msgspec.structs.replace(entry, due=due, scheduled_for=due)
