"""Daily, Weekly, Monthly, Yearly: one local time of day on dates a person would name.

They keep local time across clock changes. `every` counts days, weeks (from Monday, ISO 8601), months or years from the
date `anchor`, which is where the rule begins; without one, the local date of the schedule's start is taken when the
schedule is made. A day past the end of a month is clamped to its last day, from the anchor each time, so that the 31st
comes back after February; -1 is the last day itself.
"""

from __future__ import annotations

import calendar
from datetime import date, time
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import msgspec

from tocsin.schema import zones
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.instants import HOUR_MS, MINUTE_MS, SECOND_MS
from tocsin.schema.occurrence_rule import Dates, LocalRule, LocalTimes, require_occurrence

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: Final[tuple[Weekday, ...]] = get_args(Weekday)

#: `every` goes no further: a rule that rests longer is better stated as single instants.
EVERY_MAX: Final = 1_000
EVERY_YEARS_MAX: Final = 50
#: The years rules answer for.
_ANCHOR_YEARS: Final = range(1900, 9900)
#: The days of each month at their most: a 29 February exists.
_MONTH_DAYS_MAX: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CalendarRule(LocalRule, frozen=True, kw_only=True, omit_defaults=True):
    """A time of day on every n-th day, week, month or year."""

    every: int = 1
    anchor: date | None = None

    def resolve(self, schedule_id: str, start_ms: int) -> Self:  # noqa: ARG002 - the id decides nothing here
        """With `anchor` settled where `every` needs one: the local date of the start."""
        rule = self
        if self.every > 1 and self.anchor is None:
            rule = msgspec.structs.replace(self, anchor=zones.local_time(self.tz, start_ms).date())
        require_occurrence(rule, start_ms)
        return rule

    def _check(self, at: time, every_max: int = EVERY_MAX) -> None:
        self.check_zone()
        check_time_of_day(at)
        check_int("every", self.every, 1, every_max)
        if self.anchor is not None:
            # A datetime is a date too, but one whose zone nobody has named.
            if type(self.anchor) is not date:
                raise InvalidSchedule("anchor", self.anchor, "must be a date, the local one from which `every` counts")
            if self.anchor.year not in _ANCHOR_YEARS:
                raise InvalidSchedule("anchor", self.anchor, "must lie in the years 1900 to 9899")

    def _first_ordinal(self) -> int:
        """The date from which `every` counts."""
        if self.anchor is not None:
            return self.anchor.toordinal()
        if self.every > 1:
            raise InvalidSchedule("anchor", None, f"is needed: every={self.every} counts from a date")
        return 1

    def _local_times(self, dates: Dates, at: time) -> LocalTimes:
        return LocalTimes(dates, TimeOfDay(time_of_day_ms(at)), self.tz, self.gap, self.overlap)


class Daily(CalendarRule, frozen=True, omit_defaults=True):
    """Each day, or each n-th, at a local time."""

    at: time

    def __post_init__(self) -> None:
        self._check(self.at)

    def local_times(self) -> LocalTimes:
        """Every n-th date from the anchor on."""
        return self._local_times(DayDates(self._first_ordinal(), self.every), self.at)


class Weekly(CalendarRule, frozen=True, omit_defaults=True):
    """Some weekdays of each week, or of each n-th, at a local time."""

    days: tuple[Weekday, ...]
    at: time

    def __post_init__(self) -> None:
        self._check(self.at)
        days: Any = self.days
        if isinstance(days, str) or not isinstance(days, tuple | list | set | frozenset) or not days:
            raise InvalidSchedule("days", days, "must be a tuple of weekdays, for example ('mon', 'fri')")
        for day in days:
            if day not in WEEKDAYS:
                raise InvalidSchedule("days", days, f"{day!r} is no weekday; they are {', '.join(WEEKDAYS)}")
        msgspec.structs.force_setattr(self, "days", tuple(day for day in WEEKDAYS if day in days))

    def local_times(self) -> LocalTimes:
        """The named weekdays of every n-th week, counted from the anchor's."""
        weekdays = tuple(WEEKDAYS.index(day) for day in self.days)
        return self._local_times(WeekDates(self._first_ordinal(), self.every, weekdays), self.at)


class Monthly(CalendarRule, frozen=True, omit_defaults=True):
    """One day of each month, or of each n-th, at a local time: 31 is clamped to the last day, -1 is the last day."""

    day: int
    at: time

    def __post_init__(self) -> None:
        self._check(self.at)
        check_day(self.day, 31)

    def local_times(self) -> LocalTimes:
        """The day in every n-th month, counted from the anchor's."""
        return self._local_times(MonthDates(self._first_ordinal(), None, self.every, self.day), self.at)


class Yearly(CalendarRule, frozen=True, omit_defaults=True):
    """One date of each year, or of each n-th, at a local time: 29 February is clamped to the 28th in common years."""

    month: int
    day: int
    at: time

    def __post_init__(self) -> None:
        self._check(self.at, EVERY_YEARS_MAX)
        check_int("month", self.month, 1, 12)
        check_day(self.day, _MONTH_DAYS_MAX[self.month - 1])

    def local_times(self) -> LocalTimes:
        """The date in every n-th year, counted from the anchor's."""
        return self._local_times(MonthDates(self._first_ordinal(), self.month, 12 * self.every, self.day), self.at)


class TimeOfDay(NamedTuple):
    """One time of day, in milliseconds."""

    first: int

    def first_from(self, of_day_ms: int) -> int | None:
        """It, unless it is over."""
        return self.first if of_day_ms <= self.first else None


class DayDates(NamedTuple):
    """Every n-th day from a first one on."""

    start: int
    every: int

    def first_from(self, ordinal: int) -> int:
        """The first such day at or after this one."""
        return self.start + -(-max(0, ordinal - self.start) // self.every) * self.every


class WeekDates(NamedTuple):
    """Weekdays, 0 = Monday, in every n-th week from the week of a first day on; none before that day."""

    start: int
    every: int
    weekdays: tuple[int, ...]

    def first_from(self, ordinal: int) -> int:
        """The first such day at or after this one."""
        ordinal = max(ordinal, self.start)
        monday = self.start - (self.start - 1) % 7
        weeks = (ordinal - monday) // 7
        if weeks % self.every == 0:
            for weekday in self.weekdays:
                if monday + 7 * weeks + weekday >= ordinal:
                    return monday + 7 * weeks + weekday
            weeks += 1
        return monday + 7 * -(-weeks // self.every) * self.every + self.weekdays[0]


class MonthDates(NamedTuple):
    """One day in every n-th month from a first day on; its month, or in that day's year the named one, is the first."""

    start: int
    month: int | None
    every: int
    day: int

    def first_from(self, ordinal: int) -> int:
        """The first such day at or after this one."""
        ordinal = max(ordinal, self.start)
        first, asked = date.fromordinal(self.start), date.fromordinal(ordinal)
        first_month = first.year * 12 + (self.month or first.month) - 1
        steps = max(0, -(-(asked.year * 12 + asked.month - 1 - first_month) // self.every))
        found = clamped(first_month + steps * self.every, self.day)
        return found if found >= ordinal else clamped(first_month + (steps + 1) * self.every, self.day)


def clamped(month_index: int, day: int) -> int:
    """The ordinal of a day in a month counted from year 0: past its end the last one; -1 is the last."""
    year, month = divmod(month_index, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return date(year, month + 1, last + 1 + day if day < 0 else min(day, last)).toordinal()


def time_of_day_ms(at: time) -> int:
    """A time of day as milliseconds since local midnight."""
    return at.hour * HOUR_MS + at.minute * MINUTE_MS + at.second * SECOND_MS + at.microsecond // 1000


def check_time_of_day(at: Any) -> None:
    """Raise InvalidSchedule unless this is a naive time of whole milliseconds."""
    if not isinstance(at, time):
        raise InvalidSchedule("at", at, f"must be a datetime.time, not {type(at).__name__}")
    if at.tzinfo is not None:
        raise InvalidSchedule("at", at, "must be a time without a zone; the zone is given by `tz`")
    if at.microsecond % 1000:
        raise InvalidSchedule("at", at, "must be whole milliseconds")


def check_int(field: str, value: Any, least: int, most: int) -> None:
    """Raise InvalidSchedule unless this is a whole number in [least, most]."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidSchedule(field, value, f"must be a whole number from {least} to {most}, not {value!r}")


def check_day(day: Any, last: int) -> None:
    """Raise InvalidSchedule unless this is a day of the month: 1 to its last, or -1 to -28 from its end."""
    if type(day) is not int or not (1 <= day <= last or -28 <= day <= -1):
        raise InvalidSchedule("day", day, f"must be a day from 1 to {last}, or from -1 (the last day) to -28")
