"""A workbench for tests of code that schedules: all of Tocsin in memory, with a clock that is turned by hand.

    with Workbench(start=datetime(2026, 12, 1, 8, tzinfo=UTC)) as bench:
        subscribe(bench.scheduler, customer=42)               # the code under test creates a schedule
        records = bench.advance(timedelta(days=1))            # a day passes, in a moment
        assert [record.schedule_id for record in records] == ["digest-42"]

It is the real thing: the shipped scheduler, store, protocol and dispatcher, on SQLite in memory and on an event loop
whose time is virtual. Nothing is waited for, and no clock of the host is asked.

The dispatcher needs time for its own work, so each turn of the clock takes up to `SETTLE_MS` more than was asked for.
What falls due only then is kept for the next turn, so records are always those due up to the instant asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self, TypeVar

from tocsin.dispatcher.fleet import make_dispatcher
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.received import Received
from tocsin.dispatcher.virtual_loop import VirtualClock, VirtualLoop
from tocsin.producer.blocking import Scheduler
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.instants import HOUR_MS, MINUTE_MS, SECOND_MS, ceil_ms, to_datetime
from tocsin.schema.levels import Layout
from tocsin.schema.sqlite import SqliteStore
from tocsin.schema.store import Settings
from tocsin.schema.timing import Timing

#: A dispatcher that looks once a second, and meets no other one.
_TIMING: Final = Timing(
    tick_ms=SECOND_MS,
    near_slot_ms=HOUR_MS,
    far_check_ms=10 * MINUTE_MS,
    heartbeat_ms=10 * MINUTE_MS,
    lease_ttl_ms=100 * MINUTE_MS,
    lease_margin_ms=10 * MINUTE_MS,
    frontier_reread_ms=10 * MINUTE_MS,
    clock_refresh_ms=10 * MINUTE_MS,
)
#: Much time is turned in strides, far shorter than it takes for what is late to count as missed …
STRIDE_SECONDS: Final = 45.0
#: … but for the end, which is looked at closely.
CLOSELY_SECONDS: Final = 120.0
#: How much longer than asked for a turn of the clock may take: two looks, and the margin of an entry placed just now.
SETTLE_MS: Final = 3 * SECOND_MS
#: Turned further at once, the dispatcher's work would take minutes of real time; turn it in parts then.
ADVANCE_MAX: Final = timedelta(days=31)

Result = TypeVar("Result")


class _Heard:
    """A Publisher that keeps what it is given, and an Observer that hears nothing."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    async def start(self) -> None:
        """Ready at once."""

    async def close(self, timeout_ms: int) -> None:
        """Nothing is under way."""

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Keep them all."""
        self.records += records
        return [Outcome.ACKED] * len(records)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class _BenchScheduler(Scheduler):
    """A Scheduler whose calls run on the bench's loop, while the caller waits."""

    def __init__(self, loop: VirtualLoop, asynchronous: AsyncScheduler) -> None:
        self._loop = loop
        self.asynchronous = asynchronous

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """The bench closes it."""

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a call until it is answered."""
        return self._loop.run_until_complete(call)


class Workbench:
    """Tocsin in memory, with a clock turned by hand. A context manager, for one thread and one test.

    Args:
        start: where the clock begins; timezone-aware.
    """

    def __init__(self, *, start: datetime) -> None:
        start_ms = ceil_ms(start, field="start")
        self._loop = VirtualLoop()
        self._clock = VirtualClock(self._loop, start_ms)
        settings = Settings(genesis=start_ms, shard_ranges=1, layouts=(Layout(0, 1),))
        self._store = SqliteStore("sqlite:///:memory:", None, timing=_TIMING, clock=self._clock, create=settings)
        numbers = itertools.count(1)
        self._new_id = lambda: next(numbers).to_bytes(16)
        #: For code that awaits; run it by `run`.
        self.asynchronous = AsyncScheduler(self._store, timing=_TIMING, clock=self._clock, new_id=self._new_id)
        #: For code that does not.
        self.scheduler: Scheduler = _BenchScheduler(self._loop, self.asynchronous)
        self._heard = _Heard()
        self._taken = 0
        self._kept: list[Received] = []

    def __enter__(self) -> Self:
        settings = self._loop.run_until_complete(self._store.open())
        self._dispatcher = make_dispatcher(
            self._store,
            settings,
            self._heard,
            dispatcher_id="workbench",
            observer=self._heard,
            timing=_TIMING,
            clock=self._clock,
            new_id=self._new_id,
        )
        self._running = self._loop.create_task(self._dispatcher.run())
        self.dispatch_due()
        return self

    def __exit__(self, *_: object) -> None:
        self._dispatcher.stop()
        self._loop.run_until_complete(self._running)
        self._loop.run_until_complete(self._store.close())
        self._loop.close()

    @property
    def now(self) -> datetime:
        """What the clock shows, UTC."""
        return to_datetime(self._clock.wall_ms())

    def advance(self, duration: timedelta) -> list[Received]:
        """Let so much time pass, and dispatch what falls due on the way; what a consumer would get, in order of due.

        Raises:
            InvalidSchedule: the duration is negative or longer than 31 days.
        """
        if not timedelta(0) <= duration <= ADVANCE_MAX:
            raise InvalidSchedule("duration", duration, f"must lie between 0 and {ADVANCE_MAX}; turn it in parts")
        return self.run(self._advance_to(self._clock.wall_ms() + duration // timedelta(milliseconds=1)))

    def dispatch_due(self) -> list[Received]:
        """Dispatch what is due by now; what a consumer would get, in order of due."""
        return self.advance(timedelta(0))

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run code that awaits within the bench's time: it may sleep for days."""
        return self._loop.run_until_complete(call)

    async def _advance_to(self, target: int) -> list[Received]:
        duration_ms = target - self._clock.wall_ms()
        self._loop.stride(STRIDE_SECONDS, until=self._loop.time() + duration_ms / SECOND_MS - CLOSELY_SECONDS)
        await self._clock.sleep_ms(duration_ms)
        while (await self._store.read_frontier(0)).committed < target + SETTLE_MS - _TIMING.tick_ms:
            if self._running.done():
                await self._running  # It has failed, and says why.
            await self._clock.sleep_ms(_TIMING.tick_ms // 10)
        heard, self._taken = self._heard.records[self._taken :], len(self._heard.records)
        records = sorted([*self._kept, *map(Received.from_record, heard)], key=lambda record: record.due)
        due = to_datetime(target)
        self._kept = [record for record in records if record.due > due]
        return [record for record in records if record.due <= due]
