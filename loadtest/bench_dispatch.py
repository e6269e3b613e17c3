"""How fast one process dispatches, as a ratio to a bare loop over the same store and broker in the same run.

dispatch   a herd that is due already: read, publish, re-arm. The bare loop reads the same packs, produces the same
records, and writes packs of the next occurrences, without a rule or a check in between
herd       a herd that is still ahead: read and prepared before its instant, then published. The bare loop only
produces
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec

from tocsin.dispatcher.collector import spare_the_collector
from tocsin.dispatcher.fleet import Dispatcher, make_dispatcher
from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.dispatcher.record import record_of
from tocsin.loadtest import herd
from tocsin.schema.clock import SystemClock
from tocsin.schema.entries import Entry, decode_pack
from tocsin.schema.instants import DAY_MS, HOUR_MS, SECOND_MS
from tocsin.schema.levels import Bucket, Levels
from tocsin.schema.schedules import decode_spec
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

#: Records of one publish call in the bare loops, as in a dispatcher's batch.
BATCH = 500
#: Bytes of each payload.
PAYLOAD_BYTES = 200


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
    early: int
    lost: int
    #: Of this process, since it began.
    resident_mib_max: int


class Stopwatch:
    """Seconds of the wall and of this process's processors, from its making to `stop`."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()
        self.seconds = self.processor_seconds = 0.0

    def stop(self) -> Stopwatch:
        """Keep what has passed."""
        self.seconds = time.perf_counter() - self._began[0]
        self.processor_seconds = time.process_time() - self._began[1]
        return self


class Lateness:
    """Hears of every dispatch; an Observer."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.milliseconds: list[int] = []
        self.errors: list[Exception] = []
        self.finished = asyncio.Event()

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:  # noqa: ARG002 — the protocol's
        """Keep the lateness of each."""
        self.milliseconds += [now - entry.due for entry in entries]
        if len(self.milliseconds) >= self.expected:
            self.finished.set()

    def troubled(self, action: str, error: Exception) -> None:  # noqa: ARG002 — the protocol's
        """Keep what failed; a benchmark with failures says so."""
        self.errors.append(error)

    def skipped(self, reason: str, count: int) -> None:
        """Nothing is skipped here."""

    def verified(self, answer: str) -> None:
        """Nothing is marked here."""

    def parked(self, topic: str, entries: Sequence[Entry]) -> None:
        """No topic fails here."""

    def demoted(self, level: str, count: int) -> None:
        """Late re-arms are part of what is measured."""

    def dead_lettered(self, reason: str, key: str) -> None:
        """Nothing is given up here."""

    def owns(self, shard_range: int, epoch: int) -> None:
        """All of them."""

    def lost(self, shard_range: int, epoch: int, reason: str) -> None:
        """At the end."""


async def dispatch(store: Store, settings: Settings, publisher: Publisher, *, topic: str, count: int) -> Figures:
    """Dispatch a herd that is due already."""
    run = _Run(store, settings, publisher, topic, count)
    bare = await run.bare_loop(run.clock.wall_ms() + 30 * DAY_MS)
    due = run.clock.wall_ms() - 5 * SECOND_MS
    await run.write_herd(due)
    async with run.dispatcher() as (dispatcher, seen):
        watch = Stopwatch()
        await seen.finished.wait()
        await _all_settled(dispatcher, due)
        watch.stop()
    return run.figures("dispatch", seen, watch, bare)


async def herd_ahead(
    store: Store, settings: Settings, publisher: Publisher, *, topic: str, count: int, ahead_ms: int = 20_000
) -> Figures:
    """Dispatch a herd that is read before its instant."""
    run = _Run(store, settings, publisher, topic, count)
    bare = await run.bare_produce()
    due = (run.clock.wall_ms() + ahead_ms) // SECOND_MS * SECOND_MS
    await run.write_herd(due)
    async with run.dispatcher() as (dispatcher, seen):
        await asyncio.sleep((due - run.clock.wall_ms()) / 1000)
        watch = Stopwatch()
        await seen.finished.wait()
        watch.stop()
        await _all_settled(dispatcher, due)
    return run.figures("herd", seen, watch, bare)


class _Run:
    """One benchmark on one store and topic."""

    def __init__(self, store: Store, settings: Settings, publisher: Publisher, topic: str, count: int) -> None:
        spare_the_collector()
        self.clock = SystemClock()
        self._store = store
        self._settings = settings
        self._publisher = publisher
        self._topic = topic
        self._count = count
        self._levels = Levels(Timing(), settings.shard_ranges, settings.layouts)
        self._prefix = uuid.uuid4().hex[:8]

    async def write_herd(self, due: int) -> list[Bucket]:
        """Write the packs of the herd; the buckets it lies in."""
        rows = herd.packs(self._levels, self._entries(due), herd.new_id)
        await herd.write_packs(self._store, rows)
        return list(dict.fromkeys(bucket for bucket, _ in rows))

    async def bare_loop(self, due: int) -> Stopwatch:
        """Reading, producing and writing the same, and nothing else."""
        buckets = await self.write_herd(due)
        watch = Stopwatch()
        remaining = iter(buckets)

        async def worker() -> None:
            for bucket in remaining:
                read = [row async for page in self._store.read_packs(bucket) for row in page]
                found = [entry for row in read for entry in decode_pack(row.body)]
                await self._produce(found)
                again = (
                    Entry(e.schedule_id, e.due + HOUR_MS, e.due + HOUR_MS, 1, spec=e.spec, payload=e.payload)
                    for e in found
                )
                await herd.write_packs(self._store, herd.packs(self._levels, again, herd.new_id))

        await asyncio.gather(*(worker() for _ in range(16)))
        return watch.stop()

    async def bare_produce(self) -> Stopwatch:
        """Producing the same records, built beforehand."""
        spec = None
        records = []
        for entry in self._entries(self.clock.wall_ms()):
            spec = spec or decode_spec(entry.spec)
            records.append(record_of(entry, spec))
        watch = Stopwatch()
        await self._publish(records)
        return watch.stop()

    @contextlib.asynccontextmanager
    async def dispatcher(self) -> AsyncIterator[tuple[Dispatcher, Lateness]]:
        """A running dispatcher, and who hears of what it does."""
        seen = Lateness(self._count)
        dispatcher = make_dispatcher(
            self._store,
            self._settings,
            _Shared(self._publisher),
            dispatcher_id=f"bench-{self._prefix}",
            observer=seen,
            timing=Timing(),
            clock=self.clock,
            new_id=herd.new_id,
        )
        running = asyncio.get_running_loop().create_task(dispatcher.run())
        try:
            yield dispatcher, seen
        finally:
            dispatcher.stop()
            await running

    def figures(self, name: str, seen: Lateness, watch: Stopwatch, bare: Stopwatch) -> Figures:
        """What was measured, in one record."""
        if seen.errors:
            raise seen.errors[0]
        lateness = sorted(seen.milliseconds)
        return Figures(
            name=name,
            occurrences=self._count,
            rate=round(self._count / watch.seconds),
            bare_rate=round(self._count / bare.seconds),
            ratio=round(bare.seconds / watch.seconds, 2),
            processor_us=round(watch.processor_seconds / self._count * 1e6, 1),
            bare_processor_us=round(bare.processor_seconds / self._count * 1e6, 1),
            lateness_p50_ms=lateness[len(lateness) // 2],
            lateness_p99_ms=lateness[len(lateness) * 99 // 100],
            lateness_max_ms=lateness[-1],
            early=sum(each < 0 for each in lateness),
            lost=max(0, self._count - len(lateness)),
            resident_mib_max=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        )

    def _entries(self, due: int) -> list[Entry]:
        payload = b"x" * PAYLOAD_BYTES
        period = timedelta(hours=1)
        return list(herd.entries(self._prefix, self._count, due, topic=self._topic, payload=payload, period=period))

    async def _produce(self, found: Sequence[Entry]) -> None:
        spec = decode_spec(found[0].spec)
        await self._publish([record_of(entry, spec) for entry in found])

    async def _publish(self, records: Sequence[Record]) -> None:
        batches = [records[start : start + BATCH] for start in range(0, len(records), BATCH)]
        for outcomes in await asyncio.gather(*(self._publisher.publish(batch) for batch in batches)):
            if any(outcome is not Outcome.ACKED for outcome in outcomes):
                raise RuntimeError("the broker refused a record; the benchmark's figures would mean nothing")


class _Shared:
    """The run's publisher, which the dispatcher neither starts nor closes: the bare loop uses the same one."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def start(self) -> None:
        """Started already."""

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Hand over."""
        return await self._publisher.publish(records)

    async def close(self, timeout_ms: int) -> None:
        """Closed by the run's owner."""


async def _all_settled(dispatcher: Dispatcher, due: int) -> None:
    """Wait until every range's committed has passed the herd: the re-arms are acknowledged too."""
    while any(  # noqa: ASYNC110 — an owner tells nobody when it has settled
        owner.waiting.count or owner.committed < due for owner in dispatcher.owners.values()
    ):
        await asyncio.sleep(0.02)
