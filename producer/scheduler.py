"""The client: AsyncScheduler, and Scheduler, which runs one on a thread of its own.

Both are context managers, carry no state that matters, and may be used from many tasks (Scheduler: threads) at once.
Repeating any call is safe; after OutcomeUnknown it is the way to learn what became of it.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from tocsin.producer.change import Changes, Committed, Wish
from tocsin.producer.definition import NewSchedule, check_schedule_id, instant_of
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.insert import Inserter
from tocsin.producer.persistence import Persistence
from tocsin.producer.results import Change, ChangeOutcome, Recall, Schedule, schedule_of
from tocsin.producer.timers import NewTimer, SendResult, Timers
from tocsin.producer.wishes import Cancel, Create, Pause, Resume, Update
from tocsin.schema.clock import Clock, StoreClock, SystemClock
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, ScheduleNotFound, StoreTimeout, StoreUnavailable
from tocsin.schema.fresh_ids import FreshIds
from tocsin.schema.levels import Levels
from tocsin.schema.open_store import open_store
from tocsin.schema.recurrence import AnyRecurrence
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing

Result = TypeVar("Result")

#: Timers of one insert: enough for full packs in every sub-partition, few enough to wait for.
SEND_MAX = 10_000


class AsyncScheduler:
    """Creates and changes schedules.

    Args:
        store: a URL (`sqlite:///path.db`, `cassandra://host1,host2/keyspace`), or a store that the caller opens and
            closes.
        timeout: how long a call may take; past it the outcome is unknown.
        timing: the durations of the protocol.
        clock: the host's clock.
        new_id: makes fresh ids; uuid4 by default.

    Raises:
        InvalidSchedule: an argument is refused; nothing was written.
        NotInitialised, StoreUnavailable: on entering.
    """

    def __init__(
        self,
        store: str | Store = "sqlite:///tocsin.db",
        *,
        timeout: timedelta = timedelta(seconds=10),
        timing: Timing | None = None,
        clock: Clock | None = None,
        new_id: Any = None,
    ) -> None:
        self._timing = timing or Timing()
        self._clock = clock or SystemClock()
        self._owns_store = isinstance(store, str)
        self._store = open_store(store, timing=self._timing, clock=self._clock) if isinstance(store, str) else store
        self._timeout_ms = int(timeout / timedelta(milliseconds=1))
        self._new_id = new_id or FreshIds()
        self._store_clock = StoreClock(self._store, self._clock, skew_ms_max=self._timing.skew_ms_max)
        self._clock_read_at = 0
        self._changes: Changes | None = None
        self._timers: Timers | None = None

    async def __aenter__(self) -> Self:
        settings = await self._store.open()
        levels = Levels(self._timing, settings.shard_ranges, settings.layouts)
        frontiers = Frontiers(self._store, self._clock, self._timing)
        inserter = Inserter(
            self._store,
            levels,
            store_clock=self._store_clock,
            clock=self._clock,
            frontiers=frontiers,
            new_id=self._new_id,
            marks_late=False,
        )
        self._timers = Timers(levels, inserter, self._store_clock)
        self._changes = Changes(
            self._store,
            levels,
            inserter,
            store_clock=self._store_clock,
            clock=self._clock,
            new_token=self._new_id,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the store's connections."""
        self._changes = None
        if self._owns_store:
            await self._store.close()

    async def create(
        self, schedule_id: str | None, recurrence: AnyRecurrence, *, topic: str, **definition: Any
    ) -> Schedule:
        """Create a schedule; the further arguments are the fields of NewSchedule.

        Repeating it with equal content is harmless and returns the schedule.

        Args:
            schedule_id: 1–255 printable characters; None: a fresh one is made.
            recurrence: when it occurs.
            topic: where its occurrences go.
            **definition: see NewSchedule.

        Raises:
            InvalidSchedule: a field is refused; nothing was written.
            ScheduleExists: the id is taken by other content.
            OutcomeUnknown: repeat the same call (with the same id).
        """
        if schedule_id is None:
            schedule_id = str(uuid.UUID(bytes=self._new_id(), version=4))
        try:
            schedule = NewSchedule(schedule_id=schedule_id, recurrence=recurrence, topic=topic, **definition)
        except TypeError as error:
            raise InvalidSchedule("definition", sorted(definition), str(error)) from error
        committed, _ = await self._make(schedule_id, Create(schedule, self._timing.misfire_grace_ms))
        return schedule_of(committed.row, self._store_clock.now_ms())

    async def get(self, schedule_id: str) -> Schedule:
        """The schedule, with the next due derived from it.

        Raises:
            ScheduleNotFound: there is none.
        """
        check_schedule_id(schedule_id)
        changes, deadline = await self._ready()
        row = await changes.read(schedule_id, deadline=deadline)
        if row is None:
            raise ScheduleNotFound(schedule_id)
        return schedule_of(row, self._store_clock.now_ms())

    async def update(self, schedule_id: str, *, expected_version: int | None = None, **changes: Any) -> Change:
        """Change some fields of a schedule; what is not named stays.

        The new version owns nominal times from now on; what was nominal before still runs, once.

        Args:
            schedule_id: whose.
            expected_version: refuse where the schedule is at another one.
            **changes: fields of NewSchedule.

        Raises:
            VersionConflict: somebody else changed it first.
        """
        check_schedule_id(schedule_id)
        wish = Update(schedule_id, changes, grace_ms=self._timing.misfire_grace_ms, expected_version=expected_version)
        return await self._change(schedule_id, wish)

    async def pause(self, schedule_id: str, *, note: str = "") -> Change:
        """Stop a schedule until it is resumed; everything pending is dropped."""
        check_schedule_id(schedule_id)
        return await self._change(schedule_id, Pause(schedule_id, note))

    async def resume(self, schedule_id: str, *, resume_from: datetime | None = None) -> Change:
        """Go on with a paused schedule.

        Args:
            schedule_id: whose.
            resume_from: its first nominal time lies at or after it, timezone-aware; what lies in the past is missed,
                and the catch-up policy decides. Default: now, nothing missed.
        """
        check_schedule_id(schedule_id)
        wish = Resume(schedule_id, instant_of("resume_from", resume_from), self._timing.misfire_grace_ms)
        return await self._change(schedule_id, wish)

    async def cancel(self, schedule_id: str) -> Change:
        """End a schedule for good; the row stays for audit. Cancelling it again is harmless."""
        check_schedule_id(schedule_id)
        return await self._change(schedule_id, Cancel(schedule_id))

    async def send_at(
        self, topic: str, payload: bytes = b"", *, at: datetime, timer_id: str | None = None, **definition: Any
    ) -> str:
        """Send one record at an instant: a timer, one write. Returns its occurrence key, which `recall` takes.

        Args:
            topic: where it goes.
            payload: at most 64 KiB.
            at: when; timezone-aware.
            timer_id: like a schedule id; None: a fresh one. The same id and instant twice is one occurrence.
            **definition: further fields of NewTimer.

        Raises:
            InvalidSchedule: an argument is refused; nothing was written.
            OutcomeUnknown: send the same again, with the same id.
        """
        if timer_id is None:
            timer_id = str(uuid.UUID(bytes=self._new_id(), version=4))
        try:
            timer = NewTimer(timer_id=timer_id, topic=topic, payload=payload, at=at, **definition)
        except TypeError as error:
            raise InvalidSchedule("definition", sorted(definition), str(error)) from error
        async for result in self.send_many([timer]):
            if result.error is not None:
                raise result.error
            if result.key is not None:
                return result.key
        raise OutcomeUnknown(timer_id)

    async def send_many(self, timers: Iterable[NewTimer]) -> AsyncIterator[SendResult]:
        """Send many timers in packs; a key or an error for each, in order. The iterable is read a little ahead."""
        remaining = iter(timers)
        while part := list(itertools.islice(remaining, SEND_MAX)):
            _, deadline = await self._ready()
            for result in await self._sender().send_each(part, deadline=deadline):
                yield result

    async def recall(self, key: str) -> Recall:
        """Take a timer back by its occurrence key. Recalling it again is harmless.

        Raises:
            InvalidSchedule: it is not an occurrence key.
            OutcomeUnknown: recall it again.
        """
        _, deadline = await self._ready()
        try:
            prevented = await self._sender().recall(key, deadline=deadline)
        except (StoreTimeout, StoreUnavailable) as error:
            raise OutcomeUnknown(key) from error
        outcome = ChangeOutcome.PREVENTED if prevented else ChangeOutcome.POSSIBLY_DISPATCHED
        return Recall(outcome=outcome, uncertain=() if prevented else (key,))

    def _sender(self) -> Timers:
        assert self._timers is not None  # noqa: S101 — set by __aenter__, which _ready awaits
        return self._timers

    async def _change(self, schedule_id: str, wish: Wish) -> Change:
        committed, now = await self._make(schedule_id, wish)
        prevented = committed.uncertain == ()
        return Change(
            schedule=schedule_of(committed.row, now),
            outcome=ChangeOutcome.PREVENTED if prevented else ChangeOutcome.POSSIBLY_DISPATCHED,
            uncertain=committed.uncertain or (),
        )

    async def _make(self, schedule_id: str, wish: Wish) -> tuple[Committed, int]:
        changes, deadline = await self._ready()
        committed = await changes.make(schedule_id, wish, deadline=deadline)
        return committed, self._store_clock.now_ms()

    async def _ready(self) -> tuple[Changes, int]:
        """The procedure and this call's deadline, with a clock that was read lately."""
        if self._changes is None:
            await self.__aenter__()
        assert self._changes is not None  # noqa: S101 — set by __aenter__
        now = self._clock.monotonic_ms()
        deadline = now + self._timeout_ms
        if not self._clock_read_at or now - self._clock_read_at > self._timing.clock_refresh_ms:
            persistence = Persistence(self._clock, self._timing)
            await persistence.until_answered(self._store_clock.refresh, deadline)
            self._clock_read_at = self._clock.monotonic_ms()
        return self._changes, deadline


class Scheduler:
    """AsyncScheduler for code without an event loop; same arguments, same methods, same errors."""

    def __init__(self, store: str | Store = "sqlite:///tocsin.db", **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tocsin-scheduler", daemon=True)
        self._scheduler = AsyncScheduler(store, **options)
        self._thread.start()

    def __enter__(self) -> Self:
        try:
            self._run(self._scheduler.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the store's connections and end the thread."""
        if not self._loop.is_closed():
            try:
                self._run(self._scheduler.close())
            finally:
                self._stop()

    def create(self, schedule_id: str | None, recurrence: AnyRecurrence, *, topic: str, **definition: Any) -> Schedule:
        """See AsyncScheduler.create."""
        return self._run(self._scheduler.create(schedule_id, recurrence, topic=topic, **definition))

    def get(self, schedule_id: str) -> Schedule:
        """See AsyncScheduler.get."""
        return self._run(self._scheduler.get(schedule_id))

    def update(self, schedule_id: str, *, expected_version: int | None = None, **changes: Any) -> Change:
        """See AsyncScheduler.update."""
        return self._run(self._scheduler.update(schedule_id, expected_version=expected_version, **changes))

    def pause(self, schedule_id: str, *, note: str = "") -> Change:
        """See AsyncScheduler.pause."""
        return self._run(self._scheduler.pause(schedule_id, note=note))

    def resume(self, schedule_id: str, *, resume_from: datetime | None = None) -> Change:
        """See AsyncScheduler.resume."""
        return self._run(self._scheduler.resume(schedule_id, resume_from=resume_from))

    def cancel(self, schedule_id: str) -> Change:
        """See AsyncScheduler.cancel."""
        return self._run(self._scheduler.cancel(schedule_id))

    def send_at(
        self, topic: str, payload: bytes = b"", *, at: datetime, timer_id: str | None = None, **definition: Any
    ) -> str:
        """See AsyncScheduler.send_at."""
        return self._run(self._scheduler.send_at(topic, payload, at=at, timer_id=timer_id, **definition))

    def send_many(self, timers: Iterable[NewTimer]) -> Iterator[SendResult]:
        """See AsyncScheduler.send_many."""
        results = self._scheduler.send_many(timers)
        while (result := self._run(anext(results, None))) is not None:
            yield result

    def recall(self, key: str) -> Recall:
        """See AsyncScheduler.recall."""
        return self._run(self._scheduler.recall(key))

    def _run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
