"""A real store in memory, whose calls a test can fail, or follow with what somebody else does meanwhile."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from unit.manual_clock import ManualClock

from tocsin.producer.change import Changes
from tocsin.producer.frontiers import Frontiers
from tocsin.producer.insert import Inserter
from tocsin.schema.clock import StoreClock
from tocsin.schema.entries import Entry, decode_pack
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.levels import Bucket, Level, Levels
from tocsin.schema.open_store import open_store
from tocsin.schema.store import PackRow, PlacedMarker, Store
from tocsin.schema.timing import Timing

#: Calls that change or ask for something, and so can fail.
CALLS = (
    "write_pack",
    "write_marker",
    "write_frontier",
    "read_frontier",
    "read_schedules",
    "insert_schedule",
    "replace_schedule",
    "server_times_ms",
    "read_settings",
    "replace_settings",
)


class ScriptedStore:
    """Passes every call on; what a test has laid down for its number or name happens around it."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        #: Names of the calls made so far.
        self.made: list[str] = []
        #: Packs by bucket, markers by range, each once for every time it was written.
        self.packs: list[tuple[Bucket, PackRow]] = []
        self.markers: list[PlacedMarker] = []
        self._afterwards: dict[tuple[str, int], Callable[[], Awaitable[object]]] = {}
        self._failures: dict[tuple[str, int], tuple[Exception, bool]] = {}
        self._counts: Counter[str] = Counter()
        #: From this call on (counting all) nothing answers; whether the first of them was still applied.
        self.dies_at: tuple[int, bool] | None = None
        #: How long each call takes.
        self.takes_ms: Callable[[str], int] = lambda _: 0
        self.clock: ManualClock | None = None

    def meanwhile(self, name: str, act: Callable[[], Awaitable[object]], *, nth: int = 0) -> None:
        """After the nth call of this name was applied, and before its caller hears of it."""
        self._afterwards[name, nth] = act

    def fail(self, name: str, *, nth: int = 0, applied: bool = False, error: Exception | None = None) -> None:
        """Let the nth call of this name time out, applied or not."""
        self._failures[name, nth] = (error or StoreTimeout()), applied

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if name not in CALLS:
            return attribute

        async def call(*arguments: Any) -> Any:
            return await self._call(name, attribute, arguments)

        return call

    async def _call(self, name: str, attribute: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> Any:
        number, nth = len(self.made), self._counts[name]
        self.made.append(name)
        self._counts[name] += 1
        if self.clock is not None:
            self.clock.turn(self.takes_ms(name))
        error, applied = self._failures.get((name, nth), (None, True))
        if self.dies_at is not None and number >= self.dies_at[0]:
            error, applied = StoreTimeout(), self.dies_at[1] and number == self.dies_at[0]
        if not applied:
            assert error is not None
            raise error
        answer = await attribute(*arguments)
        if name == "write_pack":
            self.packs.append((arguments[0], arguments[1]))
        elif name == "write_marker":
            self.markers.append(PlacedMarker(arguments[0], arguments[2]))
        if error is not None:
            raise error
        if (name, nth) in self._afterwards:
            await self._afterwards[name, nth]()
        return answer


class World(NamedTuple):
    """Everything a client is made of, by hand."""

    clock: ManualClock
    store: ScriptedStore
    levels: Levels
    store_clock: StoreClock
    frontiers: Frontiers
    new_id: Callable[[], bytes]

    def inserter(self, *, marks_late: bool = False, **options: Any) -> Inserter:
        return Inserter(
            self.store,
            self.levels,
            store_clock=self.store_clock,
            clock=self.clock,
            frontiers=self.frontiers,
            new_id=self.new_id,
            marks_late=marks_late,
            **options,
        )

    def changes(self) -> Changes:
        return Changes(
            self.store,
            self.levels,
            self.inserter(),
            store_clock=self.store_clock,
            clock=self.clock,
            new_token=self.new_id,
        )

    async def seal(self, schedule_id: str = "s", **registers: int) -> None:
        """What the owner of this id's range does, behind everybody's back."""
        await self.store.inner.write_frontier(self.levels.shard_range(schedule_id), registers)

    async def waiting(self, schedule_id: str = "s") -> list[tuple[Level, int, Entry]]:
        """What lies on the levels for an id, with the position of its pack."""
        found = []
        for bucket in dict.fromkeys(bucket for bucket, _ in self.store.packs):
            if self.levels.bucket(bucket.level, bucket.start, schedule_id) != bucket:
                continue
            async for page in self.store.inner.read_packs(bucket):
                entries = [(bucket.level, row.position, entry) for row in page for entry in decode_pack(row.body)]
                found += [each for each in entries if each[2].schedule_id == schedule_id]
        return found


@asynccontextmanager
async def a_world(timing: Timing | None = None) -> AsyncIterator[World]:
    """A fresh store, as `init` leaves it, at START_MS."""
    timing = timing or Timing()
    clock = ManualClock()
    inner = open_store("sqlite:///:memory:", timing=timing, clock=clock, create=True)
    settings = await inner.open()
    store = ScriptedStore(inner)
    store.clock = clock
    store_clock = StoreClock(store, clock, skew_ms_max=timing.skew_ms_max)
    clock.turn(1)  # the store's clock is read from below, one millisecond behind
    await store_clock.refresh()
    store.made.clear()
    numbers = itertools.count(1)
    yield World(
        clock=clock,
        store=store,
        levels=Levels(timing, settings.shard_ranges, settings.layouts),
        store_clock=store_clock,
        frontiers=Frontiers(store, clock, timing),
        new_id=lambda: next(numbers).to_bytes(16),
    )
    await inner.close()
