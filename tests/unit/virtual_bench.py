"""Real store, protocol and dispatchers on virtual time: dispatchers come and go, and what they publish is kept."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tocsin.dispatcher.fleet import Dispatcher, make_dispatcher
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.virtual_loop import VirtualClock, VirtualLoop
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.entries import parse_occurrence_key
from tocsin.schema.instants import DAY_MS, to_datetime
from tocsin.schema.levels import Layout, Level, Levels
from tocsin.schema.sqlite import PURGE_INTERVAL_MS, SqliteStore
from tocsin.schema.store import Settings
from tocsin.schema.timing import Timing

START = datetime(2026, 12, 1, 8, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
RANGES = 2


class Heard:
    """A Publisher that keeps what it is given, and an Observer of troubles."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.troubles: list[tuple[Any, ...]] = []
        #: Occurrences passed over, by reason.
        self.skips: Counter[str] = Counter()

    async def start(self) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        self.records += records
        return [Outcome.ACKED] * len(records)

    def skipped(self, reason: str, count: int) -> None:
        self.skips[reason] += count

    def troubled(self, *what: Any) -> None:
        self.troubles.append(what)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None

    def nominal(self, schedule_id: str) -> list[datetime]:
        """When a schedule's records were nominal, in the order of their dispatch."""
        keys = [parse_occurrence_key(record.key.decode()) for record in self.records]
        return [to_datetime(at) for name, at, _ in keys if name == schedule_id]


class Bench:
    """A store, a client, and dispatchers that come and go."""

    def __init__(self, timing: Timing, *, audits_everything: bool = False) -> None:
        self.timing = timing
        self._audits_everything = audits_everything
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop, START_MS)
        self.settings = Settings(genesis=START_MS, shard_ranges=RANGES, layouts=(Layout(0, RANGES),))
        self.store = SqliteStore("sqlite:///:memory:", None, timing=timing, clock=self.clock, create=self.settings)
        numbers = itertools.count(1)
        self.new_id = lambda: next(numbers).to_bytes(16)
        self.scheduler = AsyncScheduler(self.store, timing=timing, clock=self.clock, new_id=self.new_id)
        self.heard = Heard()
        self.run(self.store.open())
        self._running: tuple[Dispatcher, Any] | None = None

    def run(self, work: Coroutine[Any, Any, Any] | Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def dispatch(self) -> None:
        dispatcher = make_dispatcher(
            self.store,
            self.settings,
            self.heard,
            dispatcher_id="d",
            observer=self.heard,  # type: ignore[arg-type]
            timing=self.timing,
            clock=self.clock,
            new_id=self.new_id,
            audits_everything=self._audits_everything,
        )
        self._running = dispatcher, self.loop.create_task(dispatcher.run())

    def stop(self) -> None:
        assert self._running is not None
        dispatcher, running = self._running
        dispatcher.stop()
        self.run(running)
        self._running = None

    def turn(self, duration: timedelta) -> None:
        self.run(self.clock.sleep_ms(duration // timedelta(milliseconds=1)))

    def purge(self) -> None:
        """Let the store forget what is old: it does with a write."""
        self.turn(timedelta(milliseconds=2 * PURGE_INTERVAL_MS))
        self.run(self.store.keep_request("nobody", "nothing", self.clock.wall_ms()))

    def packs(self) -> int:
        """How many packs lie on the minute and near levels, in any bucket of these days."""
        levels = Levels(self.timing, RANGES, self.settings.layouts)

        async def count() -> int:
            found = 0
            for level, shard_range in itertools.product((Level.MINUTE, Level.NEAR), range(RANGES)):
                for bucket in levels.buckets(level, shard_range, START_MS - DAY_MS, self.clock.wall_ms() + DAY_MS):
                    async for page in self.store.read_packs(bucket):
                        found += len(page)
            return found

        return int(self.run(count()))

    def close(self) -> None:
        if self._running is not None:
            self.stop()
        self.run(self.store.close())
        self.loop.close()
