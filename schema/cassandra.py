"""The real store: Cassandra 5, three replicas or more, any number of processes.

Which statement needs what of the replicas stands in `cassandra_statements`; why the tables look as they do, in
`cassandra_tables`; what an error means, in `cassandra_driver`. Here is only which rows are which records.

A conditional write that was not applied is read again, serially. Cassandra answers 'not applied' with the columns of
the condition only, and, when another coordinator finished our ballot for us, about our own row: its token tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import msgspec

from tocsin.schema import cassandra_statements as cql
from tocsin.schema.cassandra_access import Access
from tocsin.schema.cassandra_driver import Call, CassandraSession, Rows
from tocsin.schema.cassandra_initialise import initialise, open_settings, read_settings, replace_settings
from tocsin.schema.cassandra_packs import PackWriter
from tocsin.schema.cassandra_registers import Registers
from tocsin.schema.cassandra_rows import (
    calendar_of,
    calendar_values,
    dead_letter_of,
    lease_of,
    marker_of,
    schedule_of,
    schedule_values,
)
from tocsin.schema.cassandra_together import QuietReads, Window
from tocsin.schema.clock import Clock
from tocsin.schema.errors import NotInitialised, ScheduleNotFound, StoreUnavailable
from tocsin.schema.instants import DAY_MS, SECOND_MS
from tocsin.schema.levels import Bucket, Level
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.pages import Pages
from tocsin.schema.schedules import Calendar, Marker, ScheduleFilter, ScheduleRow
from tocsin.schema.store import (
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
#: Coordinators asked for their time.
CLOCKS_MAX = 3
#: Serial reads under way at once for one call: each is a round of Paxos.
SERIAL_READS_MAX = 32
#: How much older than its creation the first row of a generated id is written, in microseconds: an hour, far beyond
#: what any two clocks differ by.
FRESH_AGE_US = 3_600_000_000
_FIRST, _LAST = -(2**63), 2**63 - 1

Row = TypeVar("Row")
#: Where a page ended: in which slot of time, and where within it.
SlotPlace = tuple[int, bytes | None]


class CassandraStore:
    """The contract of `schema.store` on a Cassandra cluster.

    With `create`, opening makes the keyspace and the tables where they are missing.
    """

    def __init__(
        self,
        access: Access,
        *,
        timing: Timing,
        clock: Clock,
        create: Settings | None = None,
        replication: int = 3,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self.url = access.url
        self._access = access
        self._timing = timing
        self._clock = clock
        self._lifetimes = Lifetimes(timing)
        self._create = create
        self._replication = replication
        self._page_rows = page_rows
        self._opened: CassandraSession | None = None
        self._packs: PackWriter | None = None
        #: What the ranges of a process ask in each tick is asked together.
        self._registers = Registers(self._run, self._run_together)
        self._near = QuietReads(partial(self._first_page, cql.READ_NEAR_OF))
        self._markers = QuietReads(partial(self._first_page, cql.READ_MARKERS_OF))
        self._shard_ranges = 0

    # Opening

    async def initialise(self, settings: Settings) -> Settings:
        """Make keyspace, tables, leases and registers where they are missing; the store is open then."""
        return await self._start(
            lambda session: initialise(
                session, self._access, settings, self._lifetimes, self._clock, replication=self._replication
            )
        )

    async def open(self) -> Settings:
        """Connect and read the settings. Raises NotInitialised where tables are missing."""
        if self._create is not None:
            return await self.initialise(self._create)
        return await self._start(lambda session: open_settings(session, self._access))

    async def close(self) -> None:
        """Give back every connection; safe to call twice."""
        session, self._opened, self._packs = self._opened, None, None
        if session is not None:
            await session.close()

    async def read_settings(self) -> Settings:
        """The settings in force now, read serially."""
        return await read_settings(self._session, self._access)

    async def replace_settings(self, settings: Settings, expected: Settings) -> bool:
        """Write the settings where those in force are the expected ones."""
        return await replace_settings(self._session, settings, expected)

    async def server_times_ms(self) -> Sequence[int]:
        """The time of up to three coordinators."""
        return [rows.rows[0][0] for rows in await self._session.run_on_each(cql.SERVER_TIME, CLOCKS_MAX)]

    async def _start(self, begin: Callable[[CassandraSession], Awaitable[Settings]]) -> Settings:
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.close)
            if self._opened is None:
                self._opened = CassandraSession(self._access)
                self._packs = PackWriter(self._opened.run_together)
                await self._opened.connect()
            in_force = await begin(self._opened)
            self._shard_ranges = in_force.shard_ranges
            undo.pop_all()
        return in_force

    @property
    def _session(self) -> CassandraSession:
        if self._opened is None:
            raise StoreUnavailable(f"the store {self.url} is not open")
        return self._opened

    # Packs and change markers

    async def write_pack(self, bucket: Bucket, row: PackRow) -> None:
        """Write a pack. The same row again is harmless."""
        if self._packs is None:
            raise StoreUnavailable(f"the store {self.url} is not open")
        call = Call(cql.WRITE_PACK[bucket.level], (*_partition(bucket), *row))
        await self._packs.write(call, len(row.body))

    def read_packs(
        self, bucket: Bucket, after: int | None = None, through: int | None = None
    ) -> AsyncIterator[Sequence[PackRow]]:
        """Packs of one bucket with after < position <= through, by position, page by page."""
        after, through = _FIRST if after is None else after, _LAST if through is None else through
        window = Window(bucket.start, bucket.sub, after, through)
        shared = self._near if bucket.level is Level.NEAR else None

        async def read_page(place: bytes | None) -> tuple[Sequence[PackRow], bytes | None]:
            rows = await shared.rows(window) if shared and place is None else None
            if rows is not None:
                return [PackRow(*row) for row in rows], None
            found = await self._page(cql.READ_PACKS[bucket.level], (*_partition(bucket), after, through), place)
            if shared:
                shared.found(bucket.sub, len(found.rows))
            return [PackRow(*row) for row in found.rows], found.paging_state

        return Pages(read_page)

    async def write_marker(self, position: int, shard_range: int, marker: Marker) -> None:
        """Write a change marker at a position of a range."""
        slot = position // self._timing.changes_slot_ms
        values = (slot, shard_range, position, marker.schedule_id, marker.version)
        await self._session.run(cql.WRITE_MARKER, (*values, marker.from_ms, marker.until_ms, marker.verify))

    def read_markers(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[PlacedMarker]]:
        """Change markers of a range with after < position <= through, by position, page by page: a read an hour."""
        wanted = shard_range, after, through
        return self._slots(cql.READ_MARKERS, self._timing.changes_slot_ms, wanted, marker_of, self._markers)

    # The frontier

    async def write_frontier(self, shard_range: int, registers: Mapping[str, int]) -> None:
        """Raise registers to these values; a lower value than the one kept changes nothing. All in one mutation."""
        await self._registers.write(shard_range, registers)

    async def read_frontier(self, shard_range: int) -> Frontier:
        """The registers of a range. Raises NotInitialised where one is missing."""
        frontier = await self._registers.read(shard_range)
        if frontier is None:
            raise NotInitialised(self.url)
        return frontier

    async def _run(self, statement: cql.Statement, values: Sequence[Any]) -> Rows:
        return await self._session.run(statement, values)

    async def _first_page(self, statement: cql.Statement, values: Sequence[Any]) -> Rows:
        return await self._page(statement, values, None)

    async def _run_together(self, calls: Sequence[Call]) -> None:
        await self._session.run_together(calls)

    # Schedules

    async def read_schedules(self, schedule_ids: Sequence[str]) -> Mapping[str, ScheduleRow]:
        """The rows of these ids, each read serially, some at once."""
        turn = asyncio.Semaphore(SERIAL_READS_MAX)

        async def read(schedule_id: str) -> ScheduleRow | None:
            async with turn:
                return await self._read_schedule(schedule_id)

        found = await asyncio.gather(*map(read, dict.fromkeys(schedule_ids)))
        return {row.schedule_id: row for row in found if row is not None}

    async def insert_schedule(self, row: ScheduleRow) -> ScheduleRow | None:
        """Write the row where the id has none. None: applied; a row: not applied, it was there."""
        answer = await self._session.run(cql.INSERT_SCHEDULE, (row.schedule_id, *schedule_values(row)))
        return None if _applied(answer) else await self._not_applied(row)

    async def replace_schedule(self, row: ScheduleRow, expected_version: int) -> ScheduleRow | None:
        """Write the row where the id is at this version. None: applied; a row: not applied, it was there."""
        values = (*schedule_values(row), row.schedule_id, expected_version)
        answer = await self._session.run(cql.REPLACE_SCHEDULE, values)
        return None if _applied(answer) else await self._not_applied(row)

    async def remove_schedule(self, schedule_id: str, expected_version: int) -> bool:
        """Remove the row where the id is at this version. False: it is at another, or gone."""
        return _applied(await self._session.run(cql.REMOVE_SCHEDULE, (schedule_id, expected_version)))

    async def insert_fresh_schedule(self, row: ScheduleRow) -> None:
        """Write the first row of an id that was generated for it, older than any change that can follow."""
        timestamp = row.created_at * 1000 - FRESH_AGE_US
        await self._session.run(cql.INSERT_FRESH_SCHEDULE, (row.schedule_id, *schedule_values(row), timestamp))

    def list_schedules(self, wanted: ScheduleFilter) -> AsyncIterator[Sequence[ScheduleRow]]:
        """Every schedule that fits, by token, page by page."""
        fields = wanted.given()
        statement = cql.list_schedules(fields)

        async def read_page(place: bytes | None) -> tuple[Sequence[ScheduleRow], bytes | None]:
            await self._session.prepare([statement])
            found = await self._page(statement, tuple(fields.values()), place)
            return list(map(schedule_of, found.rows)), found.paging_state

        return Pages(read_page)

    def walk_schedules(self, segment: int, segments: int) -> AsyncIterator[Sequence[str]]:
        """The ids of one of so many segments of the token ring, by token, page by page."""
        after, through = (_FIRST + 2**64 * number // segments for number in (segment, segment + 1))
        values = (after, min(through, _LAST))

        async def read_page(place: bytes | None) -> tuple[Sequence[str], bytes | None]:
            found = await self._page(cql.WALK_SCHEDULES, values, place)
            return [schedule_id for (schedule_id,) in found.rows], found.paging_state

        return Pages(read_page)

    async def _not_applied(self, row: ScheduleRow) -> ScheduleRow | None:
        found = await self._read_schedule(row.schedule_id)
        if found is None:
            raise ScheduleNotFound(row.schedule_id)
        return None if found.token == row.token else found

    async def _read_schedule(self, schedule_id: str) -> ScheduleRow | None:
        found = await self._session.run(cql.READ_SCHEDULE, (schedule_id,))
        return schedule_of(found.rows[0]) if found.rows else None

    # Requests

    async def keep_request(self, schedule_id: str, request_id: str, instant: int) -> int:
        """The instant of a request: the first one given."""
        if _applied(await self._session.run(cql.KEEP_REQUEST, (schedule_id, request_id, instant))):
            return instant
        found = await self._session.run(cql.READ_REQUEST, (schedule_id, request_id))
        return int(found.rows[0][0])

    # Calendars

    async def read_calendars(self) -> Sequence[Calendar]:
        """Every calendar, by name."""
        found = await self._session.run(cql.READ_CALENDARS)
        return sorted(map(calendar_of, found.rows), key=lambda calendar: calendar.name)

    async def read_calendar(self, name: str) -> Calendar | None:
        """One calendar, read serially."""
        found = await self._session.run(cql.READ_CALENDAR, (name,))
        return calendar_of(found.rows[0]) if found.rows else None

    async def write_calendar(self, calendar: Calendar, expected_version: int) -> bool:
        """Write the calendar where its name is at this version; 0: where the name has none."""
        values = calendar_values(calendar)
        if expected_version:
            answer = await self._session.run(cql.REPLACE_CALENDAR, (*values, calendar.name, expected_version))
        else:
            answer = await self._session.run(cql.INSERT_CALENDAR, (calendar.name, *values))
        return _applied(answer) or await self.read_calendar(calendar.name) == calendar

    # Leases and dispatchers

    async def read_leases(self) -> Sequence[Lease]:
        """Every lease, by shard range."""
        found = await self._session.run(cql.READ_LEASES, (list(range(self._shard_ranges)),))
        return sorted((lease_of(row) for row in found.rows), key=lambda lease: lease.shard_range)

    async def read_lease(self, shard_range: int) -> Lease:
        """One lease, read serially."""
        found = await self._session.run(cql.READ_LEASE, (shard_range,))
        if not found.rows:
            raise NotInitialised(self.url)
        return lease_of(found.rows[0])

    async def acquire_lease(self, lease: Lease, expected_epoch: int) -> bool:
        """Write the lease where its range is at this epoch."""
        values = (lease.owner or "", lease.epoch, lease.token, lease.shard_range, expected_epoch)
        answer = await self._session.run(cql.ACQUIRE_LEASE, values)
        return _applied(answer) or await self.read_lease(lease.shard_range) == lease

    async def write_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Say that this dispatcher lives; it leaves by its time to live."""
        lifetime_seconds = self._lifetimes.heartbeat_ms // SECOND_MS
        await self._session.run(cql.WRITE_HEARTBEAT, (*msgspec.structs.astuple(heartbeat), lifetime_seconds))

    async def delete_heartbeat(self, dispatcher_id: str) -> None:
        """A planned stop: others need not wait for the time to live."""
        await self._session.run(cql.DELETE_HEARTBEAT, (dispatcher_id,))

    async def read_heartbeats(self) -> Sequence[Heartbeat]:
        """Every dispatcher that has not left."""
        found = await self._session.run(cql.READ_HEARTBEATS)
        return [Heartbeat(**dict(zip(Heartbeat.__struct_fields__, row, strict=True))) for row in found.rows]

    # Dead letters

    async def write_dead_letter(self, letter: DeadLetter) -> None:
        """Keep what will not be dispatched. The same letter again is harmless."""
        await self._session.run(cql.WRITE_DEAD_LETTER, (letter.at // DAY_MS, *msgspec.structs.astuple(letter)))

    def read_dead_letters(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[DeadLetter]]:
        """Dead letters of a range with after < at <= through, by instant, page by page: a read a day."""
        return self._slots(cql.READ_DEAD_LETTERS, DAY_MS, (shard_range, after, through), dead_letter_of)

    # Pages

    async def _page(self, statement: cql.Statement, values: Sequence[Any], paging_state: bytes | None) -> Rows:
        return await self._session.run(statement, values, page_rows=self._page_rows, paging_state=paging_state)

    def _slots(
        self,
        statement: cql.Statement,
        width: int,
        wanted: tuple[int, int, int],
        record_of: Callable[[Sequence[Any]], Row],
        shared: QuietReads | None = None,
    ) -> AsyncIterator[Sequence[Row]]:
        """Rows of (a range, after, through) that lie in partitions by time, one partition after the other."""
        shard_range, after, through = wanted

        async def read_page(place: SlotPlace | None) -> tuple[Sequence[Row], SlotPlace | None]:
            slot, paging_state = place or ((after + 1) // width, None)
            rows = await shared.rows(Window(slot, *wanted)) if shared and paging_state is None else None
            if rows is None:
                found = await self._page(statement, (slot, *wanted), paging_state)
                rows, paging_state = list(found.rows), found.paging_state
                if shared:
                    shared.found(shard_range, len(rows))
            following = (slot, paging_state) if paging_state else (slot + 1, None)
            return [record_of(row) for row in rows], following if following[0] <= through // width else None

        return Pages(read_page)


def _partition(bucket: Bucket) -> tuple[int, ...]:
    """The partition key in its level's table."""
    if bucket.level is Level.MINUTE:
        return bucket.start, bucket.layout, bucket.sub
    return bucket.start, bucket.sub


def _applied(answer: Rows) -> bool:
    return bool(answer.rows[0][0])
