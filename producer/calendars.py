"""Calendars: dates on which schedules that name them do not run.

A calendar is a name and a set of dates, changed as a whole. Each schedule reads the dates on the clock of its own zone,
so one list of holidays serves everybody. Exclusion is decided when an occurrence is due, not when it is armed: a
holiday added this morning holds this afternoon. Nothing is ever deleted, so a name that was known stays known; an empty
calendar excludes nothing.

Whoever decides by calendars keeps them in memory and reads all of them again after a while: they are few and small.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any

from tocsin.producer.definition import check_name
from tocsin.producer.persistence import Persistence
from tocsin.schema import schedules
from tocsin.schema.clock import Clock
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, ScheduleNotFound, StoreTimeout, StoreUnavailable
from tocsin.schema.store import Store

#: Dates of one calendar at most: thirty years of every weekend and holiday.
DATES_MAX = 4_000


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """A calendar as it is stored now."""

    name: str
    dates: frozenset[date]
    #: 1, and one more with each change.
    version: int


class CalendarCache:
    """Every calendar, at most `fresh_ms` old where `keep_fresh` was awaited before."""

    def __init__(self, store: Store, clock: Clock, persistence: Persistence, *, fresh_ms: int) -> None:
        self._store = store
        self._clock = clock
        self._persistence = persistence
        self._fresh_ms = fresh_ms
        self._dates: dict[str, frozenset[date]] = {}
        self._unions: dict[tuple[str, ...], frozenset[date]] = {}
        self._read_at: int | None = None
        self._turn = asyncio.Lock()

    async def keep_fresh(self, *, deadline: int | None = None) -> None:
        """Read the calendars again where they were read too long ago.

        Raises:
            StoreUnavailable, StoreTimeout: the deadline passed; without one it is repeated until it is answered.
        """
        async with self._turn:  # Whoever comes while somebody reads waits for that answer, and has no need of its own.
            if self._read_at is None or self._clock.monotonic_ms() - self._read_at >= self._fresh_ms:
                await self.refresh(deadline=deadline)

    def expire(self) -> None:
        """What was read is old: a calendar was changed here."""
        self._read_at = None

    async def refresh(self, *, deadline: int | None = None) -> None:
        """Read the calendars again."""
        began = self._clock.monotonic_ms()
        found = await self._persistence.until_answered(self._store.read_calendars, deadline)
        self._dates = {calendar.name: calendar.dates for calendar in found}
        self._unions.clear()
        self._read_at = began

    def dates(self, names: tuple[str, ...]) -> frozenset[date]:
        """The dates of all these calendars together, as last read."""
        if names not in self._unions:
            self._unions[names] = frozenset().union(*(self._dates.get(name, ()) for name in names))
        return self._unions[names]

    async def require(self, names: Iterable[str], *, deadline: int | None = None) -> None:
        """Refuse names that no calendar has. Raises InvalidSchedule."""
        if set(names) <= self._dates.keys():
            return
        await self.refresh(deadline=deadline)
        for name in sorted(set(names) - self._dates.keys()):
            raise InvalidSchedule("exclude", name, f"there is no calendar {name!r}; make it: tocsin calendar set")


async def read_calendar(store: Store, persistence: Persistence, name: str, *, deadline: int) -> Calendar:
    """One calendar, as the last acknowledged change left it. Raises ScheduleNotFound for an unknown name."""
    check_name("calendar", name)
    found = await persistence.until_answered(partial(store.read_calendar, name), deadline)
    if found is None:
        raise ScheduleNotFound(name, what="calendar")
    return _public(found)


async def write_calendar(
    store: Store,
    persistence: Persistence,
    name: str,
    dates: Iterable[date],
    *,
    new_token: Callable[[], bytes],
    deadline: int,
) -> Calendar:
    """Make a calendar, or replace its dates; equal dates change nothing. Of two at once, the later one holds.

    Raises:
        InvalidSchedule: the name or a date is refused; nothing was written.
        OutcomeUnknown: the deadline passed; set it again.
    """
    check_name("calendar", name)
    wanted = check_dates(dates)
    mine: set[bytes] = set()
    try:
        while True:
            found = await persistence.until_answered(partial(store.read_calendar, name), deadline)
            if found is not None and (found.dates == wanted or found.token in mine):
                return _public(found)
            version = found.version if found is not None else 0
            calendar = schedules.Calendar(name=name, dates=wanted, version=version + 1, token=new_token())
            mine.add(calendar.token)
            if await _is_written(store, calendar, version):
                return _public(calendar)
    except (StoreTimeout, StoreUnavailable) as error:
        if not mine:
            raise StoreUnavailable(str(error)) from error
        raise OutcomeUnknown(name) from error


def check_dates(dates: Any) -> frozenset[date]:
    """A set of plain dates. Raises InvalidSchedule for anything else, an instant included."""
    if isinstance(dates, str | bytes) or not isinstance(dates, Iterable):
        raise InvalidSchedule("dates", dates, "must be a collection of dates")
    listed = list(itertools.islice(dates, 2 * DATES_MAX))
    for each in listed:
        if not isinstance(each, date) or isinstance(each, datetime):
            raise InvalidSchedule("dates", each, f"must be dates without a time, not {type(each).__name__}")
    wanted = frozenset(listed)
    if len(wanted) > DATES_MAX:
        raise InvalidSchedule("dates", None, f"are more than {DATES_MAX}")
    return wanted


async def _is_written(store: Store, calendar: schedules.Calendar, expected_version: int) -> bool:
    """True: for certain. False: it is to be read."""
    try:
        return await store.write_calendar(calendar, expected_version)
    except (StoreTimeout, StoreUnavailable):
        return False


def _public(calendar: schedules.Calendar) -> Calendar:
    return Calendar(name=calendar.name, dates=calendar.dates, version=calendar.version)
