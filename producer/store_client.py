"""What every call of a client works with: an open store, its clock, and the procedures on it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Self

from tocsin.producer.allowed_topics import AllowedTopics
from tocsin.producer.calendars import CalendarCache
from tocsin.producer.change import Changes
from tocsin.producer.extra_runs import ExtraRuns
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.gathering import GatheringInserter
from tocsin.producer.persistence import PersistenceOfCaller
from tocsin.producer.quotas import Quotas
from tocsin.producer.timers import Timers
from tocsin.schema.clock import Clock, StoreClock, SystemClock
from tocsin.schema.fresh_ids import FreshIds
from tocsin.schema.levels import Levels
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Store
from tocsin.schema.timing import Timing

#: A client looks at calendars again after this, in ms: what a listing shows may be as old.
CALENDARS_FRESH_MS = 1_000


class StoreClient:
    """Opens a store when it is needed, and closes it where it opened it.

    Args:
        store: a URL (`sqlite:///path.db`, `cassandra://host1,host2/keyspace`), or a store that the caller opens and
            closes.
        timeout: how long a call may take; past it the outcome is unknown.
        timing: the durations of the protocol.
        clock: the host's clock.
        new_id: makes fresh ids of 16 bytes; random by default.
        allowed_topics: the topics that may be named, with `*` and `?`; empty: every topic. What would end as a dead
            letter of a dispatcher with the same list is refused at once.
        creates_per_second: how many schedules a second this client creates for a tenant, by its name; `*`: for every
            other. See quotas.py.

    Raises:
        SettingsError: the URL is malformed.
        NotInitialised, StoreUnavailable: on entering.
    """

    def __init__(
        self,
        store: str | Store = "sqlite:///tocsin.db",
        *,
        timeout: timedelta = timedelta(seconds=10),
        timing: Timing | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], bytes] | None = None,
        creates_per_second: Mapping[str, int] | None = None,
        allowed_topics: Sequence[str] = (),
    ) -> None:
        self._timing = timing or Timing()
        self._clock = clock or SystemClock()
        self._owns_store = isinstance(store, str)
        self._store = open_store(store, timing=self._timing, clock=self._clock) if isinstance(store, str) else store
        self._timeout_ms = int(timeout / timedelta(milliseconds=1))
        self._new_id = new_id or FreshIds()
        self._topics = AllowedTopics(allowed_topics)
        self._quotas = Quotas(creates_per_second or {}, self._clock)
        self._store_clock = StoreClock(self._store, self._clock, skew_ms_max=self._timing.skew_ms_max)
        self._clock_read_at = 0
        self._clock_turn = asyncio.Lock()
        self._levels_known: Levels | None = None
        self._changes: Changes | None = None
        self._timers: Timers | None = None
        self._extra_runs: ExtraRuns | None = None
        self._persistence = PersistenceOfCaller(self._clock, self._timing)
        self._calendars = CalendarCache(self._store, self._clock, self._persistence, fresh_ms=CALENDARS_FRESH_MS)

    async def __aenter__(self) -> Self:
        settings = await self._store.open()
        levels = self._levels_known = Levels(self._timing, settings.shard_ranges, settings.layouts)
        frontiers = Frontiers(self._store, self._clock, self._timing)
        inserter = GatheringInserter(
            self._store,
            levels,
            store_clock=self._store_clock,
            clock=self._clock,
            frontiers=frontiers,
            new_id=self._new_id,
            marks_late=False,
        )
        self._timers = Timers(levels, inserter, self._store_clock, self._topics)
        self._extra_runs = ExtraRuns(self._store, inserter, self._store_clock, self._persistence)
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

    async def _ready(self) -> tuple[Changes, int]:
        """The procedure and this call's deadline, with a clock that was read lately."""
        if self._changes is None:
            await self.__aenter__()
        assert self._changes is not None  # noqa: S101 — set by __aenter__
        deadline = self._clock.monotonic_ms() + self._timeout_ms
        if self._clock_is_old():
            async with self._clock_turn:  # Who comes while it is being read needs no reading of its own.
                if self._clock_is_old():
                    await self._persistence.until_answered(self._store_clock.refresh, deadline)
                    self._clock_read_at = self._clock.monotonic_ms()
        return self._changes, deadline

    def _levels(self) -> Levels:
        assert self._levels_known is not None  # noqa: S101 — set by __aenter__, which _ready awaits
        return self._levels_known

    def _sender(self) -> Timers:
        assert self._timers is not None  # noqa: S101 — set by __aenter__, which _ready awaits
        return self._timers

    def _runner(self) -> ExtraRuns:
        assert self._extra_runs is not None  # noqa: S101 — set by __aenter__, which _ready awaits
        return self._extra_runs

    def _generated_id(self) -> str:
        """An id that nobody else has."""
        return str(uuid.UUID(bytes=self._new_id(), version=4))

    def _clock_is_old(self) -> bool:
        age_ms = self._clock.monotonic_ms() - self._clock_read_at
        return not self._clock_read_at or age_ms > self._timing.clock_refresh_ms
