"""How fast one process dispatches, as a ratio to a bare loop over the same store and broker in the same run.

dispatch   a herd that is due already: read, publish, re-arm. The bare loop reads the same packs, produces the same
records, and writes packs of the next occurrences, without a rule or a check in between
herd       a herd that is still ahead: read and prepared before its instant, then published. The bare loop only
produces. Beside the herd another topic has ten occurrences a second: what a herd of others costs them

The dispatcher is measured first and the bare loop afterwards, so that the memory that is named is the dispatcher's; a
small herd before both warms up connections, broker and store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from tocsin.dispatcher.publisher import Publisher
from tocsin.dispatcher.record import record_of
from tocsin.loadtest import herd
from tocsin.loadtest.dispatch_run import DispatchRun, Percentiles, Seen, Stopwatch, resident_mib_max
from tocsin.schema.entries import Entry, decode_pack
from tocsin.schema.instants import DAY_MS, HOUR_MS, SECOND_MS
from tocsin.schema.schedules import decode_spec
from tocsin.schema.store import Settings, Store

#: Occurrences that warm everything up.
WARMING = 10_000
#: Readers of the bare loop; a dispatcher reads its 64 ranges at once.
READERS = 16
#: The other topic: one occurrence each so many milliseconds, from so long before the herd to so long after it.
BESIDE_EVERY_MS = 100
BESIDE_BEFORE_MS = 2_000
BESIDE_AFTER_MS = 8_000


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark measured."""

    name: str
    occurrences: int
    #: Occurrences a second.
    rate: float
    #: The same of the bare loop.
    bare_rate: float
    ratio: float
    #: Processor time of this process for one occurrence, all threads, in microseconds; of the bare loop too.
    processor_us: float
    bare_processor_us: float
    lateness_p50_ms: int
    lateness_p99_ms: int
    lateness_max_ms: int
    #: Of the topic beside the herd; 0 where there is none.
    beside_p99_ms: int
    beside_max_ms: int
    early: int
    lost: int
    #: Of this process, before the bare loop.
    resident_mib_max: int


async def dispatch(store: Store, settings: Settings, publisher: Publisher, *, topic: str, count: int) -> Figures:
    """Dispatch a herd that is due already."""
    run = DispatchRun(store, settings, publisher)
    await _bare_loop(run, WARMING, topic)
    due = run.clock.wall_ms()  # long ago once it is written
    await run.write(run.entries(count, due, topic=topic))
    seen = Seen({topic: count})
    async with run.dispatcher(seen) as dispatcher:
        watch = Stopwatch()
        await seen.all_of(topic)
        await run.settled(dispatcher, due)
        watch.stop()
    return await _figures("dispatch", watch, seen, topic, bare=lambda: _bare_loop(run, count, topic))


async def herd_ahead(
    store: Store, settings: Settings, publisher: Publisher, *, topic: str, beside: str, count: int
) -> Figures:
    """Dispatch a herd that is read before its instant, beside a topic that knows nothing of it."""
    run = DispatchRun(store, settings, publisher)
    await _bare_produce(run, WARMING, topic)
    # A million takes a while to write, and the minute is read ten seconds ahead.
    ahead_ms = 15 * SECOND_MS + count // 12
    due = (run.clock.wall_ms() + ahead_ms) // SECOND_MS * SECOND_MS
    await run.write(run.entries(count, due, topic=topic))
    dues = range(due - BESIDE_BEFORE_MS, due + BESIDE_AFTER_MS, BESIDE_EVERY_MS)
    for each in dues:
        await run.write(run.entries(1, each, topic=beside, period=timedelta(days=1)))
    seen = Seen({topic: count, beside: len(dues)})
    async with run.dispatcher(seen) as dispatcher:
        await asyncio.sleep((due - run.clock.wall_ms()) / 1000)
        watch = Stopwatch()
        await seen.all_of(topic)
        watch.stop()
        await run.settled(dispatcher, due)
        await seen.all_of(beside)
    bare_count = min(count, 200_000)  # built beforehand, so it has to fit into memory
    return await _figures(
        "herd", watch, seen, topic, beside=seen.percentiles(beside), bare=lambda: _bare_produce(run, bare_count, topic)
    )


async def _figures(
    name: str,
    watch: Stopwatch,
    seen: Seen,
    topic: str,
    *,
    bare: Callable[[], Awaitable[tuple[int, Stopwatch]]],
    beside: Percentiles | None = None,
) -> Figures:
    resident = resident_mib_max()
    lateness = seen.percentiles(topic)
    count = lateness.count
    bare_count, bare_watch = await bare()
    rate, bare_rate = count / watch.seconds, bare_count / bare_watch.seconds
    return Figures(
        name=name,
        occurrences=count,
        rate=round(rate),
        bare_rate=round(bare_rate),
        ratio=round(rate / bare_rate, 2),
        processor_us=round(watch.processor_seconds / count * 1e6, 1),
        bare_processor_us=round(bare_watch.processor_seconds / bare_count * 1e6, 1),
        lateness_p50_ms=lateness.p50_ms,
        lateness_p99_ms=lateness.p99_ms,
        lateness_max_ms=lateness.max_ms,
        beside_p99_ms=beside.p99_ms if beside else 0,
        beside_max_ms=beside.max_ms if beside else 0,
        early=lateness.early + (beside.early if beside else 0),
        lost=seen.missing(),
        resident_mib_max=resident,
    )


async def _bare_loop(run: DispatchRun, count: int, topic: str) -> tuple[int, Stopwatch]:
    """Reading, producing and writing the same, and nothing else."""
    buckets = iter(await run.write(run.entries(count, run.clock.wall_ms() + 30 * DAY_MS, topic=topic)))
    watch = Stopwatch()

    async def reader() -> None:
        for bucket in buckets:
            rows = [row async for page in run.store.read_packs(bucket) for row in page]
            found = [entry for row in rows for entry in decode_pack(row.body)]
            await run.produce(found)
            again = (
                Entry(e.schedule_id, e.due + HOUR_MS, e.due + HOUR_MS, 1, spec=e.spec, payload=e.payload) for e in found
            )
            await herd.write_packs(run.store, herd.packs(run.levels, again, herd.new_id))

    await asyncio.gather(*(reader() for _ in range(READERS)))
    return count, watch.stop()


async def _bare_produce(run: DispatchRun, count: int, topic: str) -> tuple[int, Stopwatch]:
    """Producing the same records, built beforehand."""
    entries = list(run.entries(count, run.clock.wall_ms(), topic=topic))
    spec = decode_spec(entries[0].spec)
    records = [record_of(entry, spec) for entry in entries]
    watch = Stopwatch()
    await run.publish(records)
    return count, watch.stop()
