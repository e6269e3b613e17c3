"""The contract every store keeps, in terms of one quorum.

A *write* returns only after a majority has it; StoreTimeout says that it may hold or not, StoreUnavailable that it was
not attempted. A *read* begun after a write was acknowledged sees it (two majorities intersect). A *register* keeps the
highest value ever written, whoever wrote it and in whatever order the writes arrived. A *conditional write* is
linearisable; after StoreTimeout it may have been applied, be applied later, or never, and only a serial read settles
which. Nothing the protocol relies on is deleted or updated; rows leave by their time to live.

The store knows nothing of recurrence, levels' rules or leases' trust: it keeps rows. One suite, tests/contract, holds
every implementation to this text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from tocsin.schema.levels import Bucket, Layout, Level
from tocsin.schema.schedules import Calendar, Marker, ScheduleFilter, ScheduleRow

#: The layout of tables that this release writes and reads.
SCHEMA_VERSION = 2


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `init` fixed for this store, and what later releases changed."""

    #: ms UTC; no occurrence before it was ever owed.
    genesis: int
    #: For ever.
    shard_ranges: int
    #: Oldest first.
    layouts: tuple[Layout, ...]
    schema_version: int = SCHEMA_VERSION
    #: The newest body format that every release at work can read: nobody writes a newer one.
    oldest_reader: int = 1
    #: Far days that end at or before it are sealed from the beginning: the first owner of a range reads none of them.
    far_sealed: int = 0

    def first_registers(self) -> dict[str, int]:
        """Where the registers of every range start."""
        far = max(self.genesis, self.far_sealed)
        return dict.fromkeys(REGISTERS, self.genesis) | {"sealed_far": far, "committed_far": far, "audited": 0}


class Frontier(msgspec.Struct, frozen=True, kw_only=True):
    """The registers of one shard range, ms UTC but for the last. A missing register is an error, never 'open'."""

    sealed_far: int
    sealed_minute: int
    sealed_near: int
    committed: int
    committed_far: int
    #: How many pieces of the range's part of the slow audit have been walked, over all rounds.
    audited: int = 0

    def sealed(self, level: Level) -> int:
        """Up to where this level may have been read already."""
        if level is Level.NEAR:
            return self.sealed_near
        return self.sealed_minute if level is Level.MINUTE else self.sealed_far


#: The names of the registers, as `write_frontier` takes them.
REGISTERS: tuple[str, ...] = Frontier.__struct_fields__


class PackRow(NamedTuple):
    """A pack as stored."""

    position: int
    pack_id: bytes
    body: bytes


class PlacedMarker(NamedTuple):
    """A change marker and where it was written."""

    position: int
    marker: Marker


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns a shard range. The epoch grows with each owner and each release; owner None: free."""

    shard_range: int
    owner: str | None
    epoch: int
    token: bytes


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """A dispatcher's sign of life: the number rises with each beat."""

    dispatcher_id: str
    number: int
    address: str
    release: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that will not be dispatched, and why."""

    shard_range: int
    #: ms UTC.
    at: int
    occurrence_key: str
    reason: str
    attempts: int
    #: The entry, or the undecodable body of its pack.
    entry: bytes


class Store(Protocol):
    """Where schedules and waiting occurrences are kept. Every method may raise StoreUnavailable or StoreTimeout."""

    url: str

    async def initialise(self, settings: Settings) -> Settings:
        """Make tables, leases and registers where they are missing, and return the settings in force; it is open then.

        The registers of every range start at `Settings.first_registers`. Repeating it is harmless: settings that exist
        win.
        """

    async def open(self) -> Settings:
        """Connect and read the settings.

        Raises:
            NotInitialised: there are no tables, or a part of them is missing.
            SettingsError: the tables belong to another schema version.
        """

    async def close(self) -> None:
        """Give back every connection; safe to call twice."""

    async def read_settings(self) -> Settings:
        """The settings in force now, read serially: a change of unknown outcome is settled by it."""

    async def replace_settings(self, settings: Settings, expected: Settings) -> bool:
        """Write the settings where those in force are the expected ones; a conditional write."""

    async def server_times_ms(self) -> Sequence[int]:
        """The server's time in its reply, one reading per coordinator asked (three where there are), ms UTC."""

    # Packs and change markers

    async def write_pack(self, bucket: Bucket, row: PackRow) -> None:
        """Write a pack. The same row again is harmless."""

    def read_packs(
        self, bucket: Bucket, after: int | None = None, through: int | None = None
    ) -> AsyncIterator[Sequence[PackRow]]:
        """Packs of one bucket with after < position <= through, by position, page by page.

        Each page is read when it is asked for, never ahead. A page that failed is not passed over: after the error the
        next `anext` asks for the same page again (see `pages.Pages`; an async generator would end instead).
        """

    async def write_marker(self, position: int, shard_range: int, marker: Marker) -> None:
        """Write a change marker at a position of a range."""

    def read_markers(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[PlacedMarker]]:
        """Change markers of a range with after < position <= through, by position, page by page."""

    # The frontier

    async def write_frontier(self, shard_range: int, registers: Mapping[str, int]) -> None:
        """Raise registers to these values; a lower value than the one kept changes nothing. All in one mutation."""

    async def read_frontier(self, shard_range: int) -> Frontier:
        """The registers of a range. Raises NotInitialised where one is missing."""

    # Schedules

    async def read_schedules(self, schedule_ids: Sequence[str]) -> Mapping[str, ScheduleRow]:
        """The rows of these ids, each read serially: an earlier conditional write of unknown outcome is settled by it.

        An id without a row is missing in the answer.
        """

    async def insert_schedule(self, row: ScheduleRow) -> ScheduleRow | None:
        """Write the row where the id has none. None: applied; a row: not applied, it was there."""

    async def replace_schedule(self, row: ScheduleRow, expected_version: int) -> ScheduleRow | None:
        """Write the row where the id is at this version. None: applied; a row: not applied, it was there.

        Raises:
            ScheduleNotFound: the id has no row.
        """

    async def remove_schedule(self, schedule_id: str, expected_version: int) -> bool:
        """Remove the row where the id is at this version; a conditional write. False: it is at another, or gone."""

    async def insert_fresh_schedule(self, row: ScheduleRow) -> None:
        """Write the first row of an id that was generated for it, so that nobody else can ever have written one.

        A conditional write decides between writers, and here there is one: a plain write serves, and may be repeated.
        It must be older than every change that can follow, whatever the clocks of hosts and nodes say, so that a later
        conditional write is not undone by a repeat of this one that arrives after it.
        """

    def list_schedules(self, wanted: ScheduleFilter) -> AsyncIterator[Sequence[ScheduleRow]]:
        """Every schedule that fits, in the store's own order, page by page.

        A row is at least as new as any change acknowledged before its page was asked for. One that begins or ceases to
        fit while the listing goes on may be in it or not.
        """

    def walk_schedules(self, segment: int, segments: int) -> AsyncIterator[Sequence[str]]:
        """The ids of one of so many segments of about equal size, numbered from 0, page by page.

        An id lies in one segment, and in the same one for ever, so segments can be walked apart and in any order. One
        that is created after the walk began may be in it or not.
        """

    # Calendars

    async def read_calendars(self) -> Sequence[Calendar]:
        """Every calendar, each at least as new as any change acknowledged before."""

    async def read_calendar(self, name: str) -> Calendar | None:
        """One calendar, read serially: it settles a write of unknown outcome by its token."""

    async def write_calendar(self, calendar: Calendar, expected_version: int) -> bool:
        """Write the calendar where its name is at this version; 0: where the name has none."""

    # Requests

    async def keep_request(self, schedule_id: str, request_id: str, instant: int) -> int:
        """The instant of a request, ms UTC: the first call keeps the one given, each later call returns that one.

        A conditional write. It is kept for as long as entries of the minute level are.
        """

    # Leases and dispatchers

    async def read_leases(self) -> Sequence[Lease]:
        """Every lease, one per shard range, each at least as new as any acquire acknowledged before."""

    async def read_lease(self, shard_range: int) -> Lease:
        """One lease, read serially: it settles an acquire of unknown outcome by its token."""

    async def acquire_lease(self, lease: Lease, expected_epoch: int) -> bool:
        """Write the lease where its range is at this epoch; also how a range is released, with owner None."""

    async def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Say that this dispatcher lives; it leaves by its time to live."""

    async def delete_heartbeat(self, dispatcher_id: str) -> None:
        """A planned stop: others need not wait for the time to live."""

    async def read_heartbeats(self) -> Sequence[Heartbeat]:
        """Every dispatcher that has not left."""

    # Dead letters

    async def write_dead_letter(self, letter: DeadLetter) -> None:
        """Keep what will not be dispatched. The same letter again is harmless."""

    def read_dead_letters(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[DeadLetter]]:
        """Dead letters of a range with after < at <= through, by instant, page by page."""
