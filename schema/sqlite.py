"""The embedded store: one SQLite file, for one host and any number of processes.

A quorum of one. Durable (WAL, synchronous=FULL: acknowledged is on disk), linearisable (one writer at a time, across
processes), and the full contract of `schema.store`, so that what was learnt on it holds on Cassandra.

One thread writes, in groups (see `sqlite_thread`); another reads, on a connection of its own, so that it sees committed
data only and never waits for an fsync. Reads that must settle what an earlier conditional write did go through the
writer, behind it. In memory there is one connection and no thread at all.

The server's time is the host's: the injected clock.
"""

from __future__ import annotations

import asyncio
import operator
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tocsin.schema import sqlite_tables as sql
from tocsin.schema.clock import Clock
from tocsin.schema.errors import NotInitialised, ScheduleNotFound, StoreUnavailable
from tocsin.schema.levels import Bucket
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.pages import Pages
from tocsin.schema.schedules import Calendar, Marker, ScheduleFilter, ScheduleRow
from tocsin.schema.sqlite_file import Source
from tocsin.schema.sqlite_thread import LOCK_POLL_MS, ConnectionInLoop, ConnectionThread
from tocsin.schema.store import (
    REGISTERS,
    DeadLetter,
    Frontier,
    Heartbeat,
    Lease,
    PackRow,
    PlacedMarker,
    Settings,
)
from tocsin.schema.timing import Timing

#: Rows of one page; with the largest usual packs, 3 MiB.
PAGE_ROWS = 100
#: How long a writer waits for other processes' transactions.
BUSY_MS = 5_000
#: Distance between two purges, and how many rows of one table one purge takes at most.
PURGE_INTERVAL_MS = 10_000
PURGE_ROWS_MAX = 1_000
#: Pages read in one snapshot at most: the first caller of a group waits for the last.
READ_GROUP_MAX = 16
#: Positions before all and after all.
_FIRST, _LAST = -(2**63), 2**63 - 1

#: Where work is done.
SqliteConnection = ConnectionThread | ConnectionInLoop

Result = TypeVar("Result")
Record = TypeVar("Record")


class SqliteStore:
    """The contract of `schema.store` on one file, or in memory where `path` is None.

    With `create`, opening makes the tables where they are missing.
    """

    def __init__(
        self,
        url: str,
        path: Path | None,
        *,
        timing: Timing,
        clock: Clock,
        create: Settings | None = None,
        page_rows: int = PAGE_ROWS,
        busy_ms: int = BUSY_MS,
    ) -> None:
        self.url = url
        self._source = Source(url, path, busy_ms)
        self._clock = clock
        self._lifetimes = Lifetimes(timing)
        self._create = create
        self._page_rows = page_rows
        self._writer: SqliteConnection | None = None
        self._reader: SqliteConnection | None = None
        self._purged_at = clock.monotonic_ms()
        self._shard_ranges = 0

    # Opening

    async def initialise(self, settings: Settings) -> Settings:
        """Make tables, leases and registers where they are missing; the store is open then."""
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            writer = await self._start_writer(create=True)
            in_force = await writer.submit(
                lambda connection: self._source.initialise(connection, settings), writes=True
            )
            await self._start_reader(writer)
            self._shard_ranges = in_force.shard_ranges
            undo.pop_all()
        return in_force

    async def open(self) -> Settings:
        """Connect and read the settings. Raises NotInitialised, and then nothing was created."""
        if self._create is not None:
            return await self.initialise(self._create)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            writer = await self._start_writer(create=False)
            in_force = await writer.submit(self._source.read_settings, writes=False)
            await self._start_reader(writer)
            self._shard_ranges = in_force.shard_ranges
            undo.pop_all()
        return in_force

    async def close(self) -> None:
        """Give back both connections; safe to call twice."""
        threads = {self._reader, self._writer}
        self._writer = self._reader = None
        for thread in threads:
            if thread is not None:
                await thread.close()

    async def read_settings(self) -> Settings:
        """The settings in force now."""
        return await self._submit(self._source.read_settings, writes=False)

    async def replace_settings(self, settings: Settings, expected: Settings) -> bool:
        """Write the settings where those in force are the expected ones."""
        return await self._submit(lambda at: self._source.replace_settings(at, settings, expected), writes=True)

    async def server_times_ms(self) -> Sequence[int]:
        """The host's time: there is one coordinator, this process."""
        return (self._clock.wall_ms(),)

    # Packs and change markers

    async def write_pack(self, bucket: Bucket, row: PackRow) -> None:
        """Write a pack. The same row again is harmless."""
        values = (bucket.level.value, *bucket[1:], *row)
        await self._execute(sql.WRITE_PACK, values)

    def read_packs(
        self, bucket: Bucket, after: int | None = None, through: int | None = None
    ) -> AsyncIterator[Sequence[PackRow]]:
        """Packs of one bucket with after < position <= through, by position, page by page."""
        key = (bucket.level.value, *bucket[1:])
        start = (_FIRST if after is None else after + 1, b"")
        end = _LAST if through is None else through

        return self._pages(sql.READ_PACKS, lambda place: (*key, *(place or start), end), PackRow._make, 2)

    async def write_marker(self, position: int, shard_range: int, marker: Marker) -> None:
        """Write a change marker at a position of a range."""
        values = (
            shard_range,
            position,
            marker.schedule_id,
            marker.version,
            marker.from_ms,
            marker.until_ms,
            marker.verify,
        )
        await self._execute(sql.WRITE_MARKER, values)

    def read_markers(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[PlacedMarker]]:
        """Change markers of a range with after < position <= through, by position, page by page."""
        start = (after + 1, "", _FIRST)
        return self._pages(
            sql.READ_MARKERS, lambda place: (shard_range, *(place or start), through), sql.marker_of, len(start)
        )

    # The frontier

    async def write_frontier(self, shard_range: int, registers: Mapping[str, int]) -> None:
        """Raise registers to these values; a lower value than the one kept changes nothing."""
        values = dict.fromkeys(REGISTERS) | {"shard_range": shard_range} | dict(registers)
        if len(values) != len(REGISTERS) + 1:
            raise ValueError(f"registers are {', '.join(REGISTERS)}; got {', '.join(registers)}")
        await self._execute(sql.WRITE_FRONTIER, values)

    async def read_frontier(self, shard_range: int) -> Frontier:
        """The registers of a range. Raises NotInitialised where one is missing."""
        rows = await self._fetch(sql.READ_FRONTIER, (shard_range,))
        if not rows or None in rows[0]:
            raise NotInitialised(self.url)
        return Frontier(**dict(zip(REGISTERS, rows[0], strict=True)))

    # Schedules

    async def read_schedules(self, schedule_ids: Sequence[str]) -> Mapping[str, ScheduleRow]:
        """The rows of these ids, read behind every write submitted before."""

        def work(connection: sqlite3.Connection) -> dict[str, ScheduleRow]:
            found = (_read_schedule(connection, schedule_id) for schedule_id in schedule_ids)
            return {row.schedule_id: row for row in found if row is not None}

        return await self._submit(work, writes=False)

    async def insert_schedule(self, row: ScheduleRow) -> ScheduleRow | None:
        """Write the row where the id has none. None: applied; a row: not applied, it was there."""
        values = sql.schedule_parameters(row)

        def work(connection: sqlite3.Connection) -> ScheduleRow | None:
            if connection.execute(sql.INSERT_SCHEDULE, values).rowcount:
                return None
            return _read_schedule(connection, row.schedule_id)

        return await self._submit(work, writes=True)

    async def replace_schedule(self, row: ScheduleRow, expected_version: int) -> ScheduleRow | None:
        """Write the row where the id is at this version. None: applied; a row: not applied, it was there."""
        values = sql.schedule_parameters(row) | {"expected_version": expected_version}

        def work(connection: sqlite3.Connection) -> ScheduleRow | None:
            if connection.execute(sql.REPLACE_SCHEDULE, values).rowcount:
                return None
            found = _read_schedule(connection, row.schedule_id)
            if found is None:
                raise ScheduleNotFound(row.schedule_id)
            return found

        return await self._submit(work, writes=True)

    async def remove_schedule(self, schedule_id: str, expected_version: int) -> bool:
        """Remove the row where the id is at this version. False: it is at another, or gone."""
        return bool(await self._execute(sql.REMOVE_SCHEDULE, (schedule_id, expected_version)))

    async def insert_fresh_schedule(self, row: ScheduleRow) -> None:
        """Write the first row of an id that was generated for it. Its repeat changes nothing, whatever came between."""
        await self._execute(sql.INSERT_SCHEDULE, sql.schedule_parameters(row))

    def list_schedules(self, wanted: ScheduleFilter) -> AsyncIterator[Sequence[ScheduleRow]]:
        """Every schedule that fits, by id, page by page."""
        fields = wanted.given()
        statement = sql.list_schedules(fields)
        return self._pages(statement, lambda place: (*fields.values(), *(place or ("",))), sql.schedule_of, 1)

    def walk_schedules(self, segment: int, segments: int) -> AsyncIterator[Sequence[str]]:
        """The ids of one of so many segments, oldest first, page by page."""
        return self._pages(
            sql.WALK_SCHEDULES, lambda place: (segments, segment, *(place or (0,))), operator.itemgetter(1), 1
        )

    # Requests

    async def keep_request(self, schedule_id: str, request_id: str, instant: int) -> int:
        """The instant of a request: the first one given."""
        values = (schedule_id, request_id, instant)
        return int((await self._submit(lambda at: at.execute(sql.KEEP_REQUEST, values).fetchone(), writes=True))[0])

    # Calendars

    async def read_calendars(self) -> Sequence[Calendar]:
        """Every calendar, by name."""
        return [sql.calendar_of(row) for row in await self._fetch(sql.READ_CALENDARS, ())]

    async def read_calendar(self, name: str) -> Calendar | None:
        """One calendar, read behind every write submitted before."""
        row = await self._submit(lambda at: at.execute(sql.READ_CALENDAR, (name,)).fetchone(), writes=False)
        return None if row is None else sql.calendar_of(row)

    async def write_calendar(self, calendar: Calendar, expected_version: int) -> bool:
        """Write the calendar where its name is at this version; 0: where the name has none."""
        values = sql.calendar_parameters(calendar) | {"expected_version": expected_version}
        return bool(await self._execute(sql.WRITE_CALENDAR, values))

    # Leases and dispatchers

    async def read_leases(self) -> Sequence[Lease]:
        """Every lease, by shard range."""
        return [sql.lease_of(row) for row in await self._fetch(sql.READ_LEASES, ())]

    async def read_lease(self, shard_range: int) -> Lease:
        """One lease, read behind every write submitted before."""
        row = await self._submit(lambda at: at.execute(sql.READ_LEASE, (shard_range,)).fetchone(), writes=False)
        if row is None:
            raise NotInitialised(self.url)
        return sql.lease_of(row)

    async def acquire_lease(self, lease: Lease, expected_epoch: int) -> bool:
        """Write the lease where its range is at this epoch."""
        values = (lease.owner, lease.epoch, lease.token, lease.shard_range, expected_epoch)
        return bool(await self._execute(sql.ACQUIRE_LEASE, values))

    async def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Say that this dispatcher lives; it leaves by its time to live."""
        expires_at = self._clock.wall_ms() + self._lifetimes.heartbeat_ms
        values = (*msgspec.structs.astuple(heartbeat), expires_at)
        await self._execute(sql.WRITE_HEARTBEAT, values)

    async def delete_heartbeat(self, dispatcher_id: str) -> None:
        """A planned stop: others need not wait for the time to live."""
        await self._execute(sql.DELETE_HEARTBEAT, (dispatcher_id,))

    async def read_heartbeats(self) -> Sequence[Heartbeat]:
        """Every dispatcher that has not left."""
        rows = await self._fetch(sql.READ_HEARTBEATS, (self._clock.wall_ms(),))
        return [sql.heartbeat_of(row) for row in rows]

    # Dead letters

    async def write_dead_letter(self, letter: DeadLetter) -> None:
        """Keep what will not be dispatched. The same letter again is harmless."""
        values = msgspec.structs.astuple(letter)
        await self._execute(sql.WRITE_DEAD_LETTER, values)

    def read_dead_letters(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[DeadLetter]]:
        """Dead letters of a range with after < at <= through, by instant, page by page."""
        start = (after + 1, "")
        return self._pages(
            sql.READ_DEAD_LETTERS, lambda place: (shard_range, *(place or start), through), sql.dead_letter_of, 2
        )

    # Threads

    async def _start_writer(self, *, create: bool) -> SqliteConnection:
        if self._writer is None and self._source.path is None:
            self._writer = ConnectionInLoop(lambda: self._source.connect_writer(create=create))
            await self._writer.start()
        elif self._writer is None:
            self._writer = ConnectionThread(
                "tocsin-sqlite-writer",
                lambda: self._source.connect_writer(create=create),
                lock_polls_max=max(1, self._source.busy_ms // LOCK_POLL_MS),
            )
            await self._writer.start()
        return self._writer

    async def _start_reader(self, writer: SqliteConnection) -> None:
        if self._reader is None:
            self._reader = writer
            if self._source.path is not None:
                self._reader = ConnectionThread(
                    "tocsin-sqlite-reader", self._source.connect_reader, group_max=READ_GROUP_MAX
                )
                await self._reader.start()

    async def _submit(self, work: Callable[[sqlite3.Connection], Result], *, writes: bool) -> Result:
        """Do work on the writer's connection, behind all work submitted before."""
        if self._writer is None:
            raise StoreUnavailable(f"the store {self.url} is not open")
        if writes and self._clock.monotonic_ms() - self._purged_at >= PURGE_INTERVAL_MS:
            self._purge(self._writer)
        return await self._writer.submit(work, writes=writes)

    async def _execute(self, statement: str, values: tuple[Any, ...] | dict[str, Any]) -> int:
        """Execute one statement that writes; how many rows it changed."""
        return await self._submit(lambda connection: connection.execute(statement, values).rowcount, writes=True)

    async def _fetch(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        """Rows as they are committed now."""
        if self._reader is None:
            raise StoreUnavailable(f"the store {self.url} is not open")
        return await self._reader.submit(
            lambda connection: connection.execute(statement, values).fetchall(), writes=False
        )

    def _pages(
        self,
        statement: str,
        values_at: Callable[[tuple[Any, ...] | None], tuple[Any, ...]],
        record_of: Callable[[tuple[Any, ...]], Record],
        key_columns: int,
    ) -> AsyncIterator[Sequence[Record]]:
        """Rows by a key, their first columns; `values_at` binds where the page before ended (None: the start)."""

        async def read_page(
            place: tuple[Any, ...] | None,
        ) -> tuple[Sequence[Record], tuple[Any, ...] | None]:
            rows = await self._fetch(statement, (*values_at(place), self._page_rows))
            return list(map(record_of, rows)), rows[-1][:key_columns] if len(rows) == self._page_rows else None

        return Pages(read_page)

    def _purge(self, writer: SqliteConnection) -> None:
        """Take out some rows that have expired, in the transaction of the writes that follow."""
        self._purged_at = self._clock.monotonic_ms()
        now = self._clock.wall_ms()

        def work(connection: sqlite3.Connection) -> None:
            sql.purge(connection, self._lifetimes, now, self._shard_ranges, PURGE_ROWS_MAX)

        # Nobody waits for it: what it fails with, the writes beside it fail with too.
        writer.submit(work, writes=True).add_done_callback(_forget)


def _forget(purged: asyncio.Future[None]) -> None:
    if not purged.cancelled():
        purged.exception()


def _read_schedule(connection: sqlite3.Connection, schedule_id: str) -> ScheduleRow | None:
    row = connection.execute(sql.READ_SCHEDULE, (schedule_id,)).fetchone()
    return None if row is None else sql.schedule_of(row)
