"""What the dispatch benchmarks share: a dispatcher on a real store and broker, who hears of it, and a stopwatch."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
import uuid
from array import array
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice

import msgspec

from tocsin.dispatcher.collector import spare_the_collector
from tocsin.dispatcher.fleet import Dispatcher, make_dispatcher
from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.dispatcher.record import record_of
from tocsin.loadtest import herd
from tocsin.schema.clock import SystemClock
from tocsin.schema.entries import Entry
from tocsin.schema.levels import Bucket, Levels
from tocsin.schema.schedules import decode_spec
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

#: Records of one publish call in the bare loops, as in a dispatcher's batch.
BATCH = 500
#: Bytes of each payload.
PAYLOAD_BYTES = 200
#: Entries turned into packs at once; a million of them at once would be measured as the dispatcher's memory.
SLICE = 50_000
#: Without a dispatch for so long the rest counts as lost.
SILENCE_SECONDS = 30


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


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of one topic's occurrences, acknowledged − due, in ms."""

    count: int
    p50_ms: int
    p99_ms: int
    max_ms: int
    early: int


class Seen:
    """Hears of every dispatch; an Observer."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        self._missing = dict(expected)
        self._all = {topic: asyncio.Event() for topic in expected}
        self._lateness: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
        self.errors: list[Exception] = []

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """Keep the lateness of each."""
        self._lateness[topic].extend([now - entry.due for entry in entries])
        self._missing[topic] -= len(entries)
        if self._missing[topic] <= 0:
            self._all[topic].set()

    async def all_of(self, topic: str) -> None:
        """Wait for the last occurrence of a topic; where nothing comes any more, what is missing is lost."""
        while not self._all[topic].is_set():
            missing = self._missing[topic]
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all[topic].wait(), SILENCE_SECONDS)
            if missing == self._missing[topic]:
                return

    def missing(self) -> int:
        """Occurrences that never came."""
        return sum(max(0, missing) for missing in self._missing.values())

    def percentiles(self, topic: str) -> Percentiles:
        """What was measured of a topic. Raises what failed meanwhile: the figures would mean nothing."""
        if self.errors:
            raise self.errors[0]
        lateness = sorted(self._lateness[topic])
        return Percentiles(
            count=len(lateness),
            p50_ms=lateness[len(lateness) // 2],
            p99_ms=lateness[len(lateness) * 99 // 100],
            max_ms=lateness[-1],
            early=sum(each < 0 for each in lateness),
        )

    def troubled(self, action: str, error: Exception) -> None:  # noqa: ARG002 — the protocol's
        """Keep what failed; a benchmark with failures says so."""
        self.errors.append(error)

    def skipped(self, reason: str, count: int) -> None:
        """Nothing is skipped here."""

    def verified(self, answer: str) -> None:
        """Whether anything is marked is part of what is measured."""

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


class DispatchRun:
    """One benchmark on one store; every run has schedules of its own."""

    def __init__(self, store: Store, settings: Settings, publisher: Publisher) -> None:
        spare_the_collector()
        self.clock = SystemClock()
        self.store = store
        self.levels = Levels(Timing(), settings.shard_ranges, settings.layouts)
        self._settings = settings
        self._publisher = publisher

    def entries(self, count: int, due: int, *, topic: str, period: timedelta = timedelta(hours=1)) -> Iterator[Entry]:
        """Occurrences of so many fresh schedules, all due at one instant (ms UTC)."""
        prefix = uuid.uuid4().hex[:8]
        return herd.entries(prefix, count, due, topic=topic, payload=b"x" * PAYLOAD_BYTES, period=period)

    async def write(self, entries: Iterable[Entry]) -> list[Bucket]:
        """Put entries on the minute level; the buckets they lie in."""
        remaining = iter(entries)
        buckets: dict[Bucket, None] = {}
        while some := list(islice(remaining, SLICE)):
            rows = herd.packs(self.levels, some, herd.new_id)
            await herd.write_packs(self.store, rows)
            buckets |= dict.fromkeys(bucket for bucket, _ in rows)
        return list(buckets)

    async def produce(self, entries: Sequence[Entry]) -> None:
        """Make the records of these entries and publish them."""
        spec = decode_spec(entries[0].spec)
        await self.publish([record_of(entry, spec) for entry in entries])

    async def publish(self, records: Sequence[Record]) -> None:
        """Publish, in batches as large as a dispatcher's. Raises RuntimeError where a record is refused."""
        batches = [records[start : start + BATCH] for start in range(0, len(records), BATCH)]
        for outcomes in await asyncio.gather(*(self._publisher.publish(batch) for batch in batches)):
            if any(outcome is not Outcome.ACKED for outcome in outcomes):
                raise RuntimeError("the broker refused a record; the benchmark's figures would mean nothing")

    @contextlib.asynccontextmanager
    async def dispatcher(self, seen: Seen) -> AsyncIterator[Dispatcher]:
        """A running dispatcher that owns every range."""
        dispatcher = make_dispatcher(
            self.store,
            self._settings,
            _Shared(self._publisher),
            dispatcher_id=f"bench-{uuid.uuid4().hex[:8]}",
            observer=seen,
            timing=Timing(),
            clock=self.clock,
            new_id=herd.new_id,
        )
        running = asyncio.get_running_loop().create_task(dispatcher.run())
        try:
            yield dispatcher
        finally:
            dispatcher.stop()
            await running

    async def settled(self, dispatcher: Dispatcher, due: int) -> None:
        """Wait until every range's committed has passed this instant: the re-arms are acknowledged too."""
        while len(dispatcher.owners) < self._settings.shard_ranges or any(  # noqa: ASYNC110 — nobody tells
            owner.committed < due for owner in dispatcher.owners.values()
        ):
            await asyncio.sleep(0.02)


def resident_mib_max() -> int:
    """The most memory this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


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
