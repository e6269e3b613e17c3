"""What a client can ask: one schedule, a listing, what is due next, and what became of it. Nothing here writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeAlias

from tocsin.producer.calendars import Calendar, read_calendar
from tocsin.producer.definition import check_schedule_id, instant_of, schedule_filter
from tocsin.producer.evidence import EvidenceReader
from tocsin.producer.failing import FailingSchedules
from tocsin.producer.occurrences import OccurrenceStatus, derive
from tocsin.producer.results import Schedule, due_times, schedule_of
from tocsin.producer.store_client import StoreClient
from tocsin.schema.errors import InvalidSchedule, ScheduleNotFound
from tocsin.schema.instants import HOUR_MS, to_datetime
from tocsin.schema.pages import next_page
from tocsin.schema.schedules import ScheduleRow, State, decode_spec

#: Instants of one forecast at most.
UPCOMING_MAX = 10_000
#: How far `occurrences` looks back unless it is told, in ms.
LOOK_BACK_MS = HOUR_MS
#: In the class below `list` is a method.
Instants: TypeAlias = list[datetime]


class Inquiries(StoreClient):
    """The half of AsyncScheduler that only reads."""

    async def get(self, schedule_id: str) -> Schedule:
        """The schedule, with the next due derived from it.

        Raises:
            ScheduleNotFound: there is none.
        """
        check_schedule_id(schedule_id)
        return await self._shown(await self._row(schedule_id))

    async def list(
        self,
        *,
        tenant: str | None = None,
        tag: str | None = None,
        state: State | None = None,
        topic: str | None = None,
        failing: bool = False,
    ) -> AsyncIterator[Schedule]:
        """Every schedule that fits all that is given, in the store's own order, read page by page as they are taken.

        Each is as it stood when its page was read. One that is changed meanwhile may be in the listing or not.

        Args:
            tenant: whose.
            tag: one of their tags.
            state: what they are doing.
            topic: where their occurrences go.
            failing: only those of which an occurrence became a dead letter within a day, or waits for another try.

        Raises:
            InvalidSchedule: a filter is of the wrong type.
        """
        wanted = schedule_filter(tenant=tenant, tag=tag, state=state, topic=topic)
        if not isinstance(failing, bool):
            raise InvalidSchedule("failing", failing, "must be True or False")
        _, deadline = await self._ready()
        if failing:
            found = FailingSchedules(self._store, self._levels(), self._persistence, self._fresh_deadline)
            async for row in found.rows(wanted, self._store_clock.now_ms()):
                yield await self._shown(row)
            return
        pages = self._store.list_schedules(wanted)
        while page := await self._persistence.until_answered(partial(next_page, pages), deadline):
            for row in page:
                yield await self._shown(row)
            _, deadline = await self._ready()

    async def upcoming(self, schedule_id: str, count: int = 10) -> Instants:
        """When a schedule is due next, UTC, jitter included and excluded dates passed over; none while it is paused.

        Args:
            schedule_id: whose.
            count: how many instants, at most 10,000; fewer where the schedule ends before.

        Raises:
            ScheduleNotFound: there is none.
        """
        check_schedule_id(schedule_id)
        if type(count) is not int or not 1 <= count <= UPCOMING_MAX:
            raise InvalidSchedule("count", count, f"must be a whole number from 1 to {UPCOMING_MAX}")
        row = await self._row(schedule_id)
        times = due_times(row, self._store_clock.now_ms(), await self._excluded(row))
        return [to_datetime(due) for due in islice(times, count)]

    async def occurrences(
        self, schedule_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> AsyncIterator[OccurrenceStatus]:
        """What became of a schedule's occurrences, and what is to come of them, in order: see `producer.occurrences`.

        Derived from what is stored; nothing is claimed that it does not say. Triggers are among them, backfills are
        not. One answer reads every minute and every ten seconds of the window up to now: ask for days where it matters.

        Args:
            schedule_id: whose.
            since: the first nominal time, timezone-aware; at most as far back as entries are kept, seven days.
                Default: an hour ago.
            until: exclusive, timezone-aware. Default: past the next one to come.

        Raises:
            ScheduleNotFound: there is none.
        """
        check_schedule_id(schedule_id)
        start, end = instant_of("since", since), instant_of("until", until)
        row = await self._row(schedule_id)
        now = self._store_clock.now_ms()
        oldest = now - self._timing.retention_ms
        start = max(oldest, now - LOOK_BACK_MS) if start is None else start
        if start < oldest:
            days = timedelta(milliseconds=self._timing.retention_ms)
            raise InvalidSchedule("since", since, f"lies further back than entries are kept, {days}")
        if end is None:
            following = decode_spec(row.spec).first_from(max(start, now + 1))
            end = max(start, now if following is None else following) + 1
        if end <= start:
            raise InvalidSchedule("until", until, "must lie after since")

        reader = EvidenceReader(self._store, self._levels(), self._persistence, self._fresh_deadline)
        for status in derive(await reader.read(row, await self._excluded(row), start, now), start, end):
            yield status

    async def get_calendar(self, name: str) -> Calendar:
        """A calendar and its dates. Raises ScheduleNotFound where there is none of this name."""
        _, deadline = await self._ready()
        return await read_calendar(self._store, self._persistence, name, deadline=deadline)

    async def _fresh_deadline(self) -> int:
        """That of one more read of many: a long answer takes as long as it takes, no read of it does."""
        return (await self._ready())[1]

    async def _row(self, schedule_id: str) -> ScheduleRow:
        row = await self._row_if_any(schedule_id)
        if row is None:
            raise ScheduleNotFound(schedule_id)
        return row

    async def _row_if_any(self, schedule_id: str) -> ScheduleRow | None:
        """The row, read serially."""
        _, deadline = await self._ready()
        ask = partial(self._store.read_schedules, [schedule_id])
        return (await self._persistence.until_answered(ask, deadline)).get(schedule_id)

    async def _shown(self, row: ScheduleRow) -> Schedule:
        return schedule_of(row, self._store_clock.now_ms(), await self._excluded(row))

    async def _excluded(self, row: ScheduleRow) -> frozenset[date]:
        """The dates on which a schedule does not run."""
        names = decode_spec(row.spec).exclude
        if not names:
            return frozenset()
        await self._calendars.keep_fresh(deadline=self._clock.monotonic_ms() + self._timeout_ms)
        return self._calendars.dates(names)
