"""Recurrences as people type them: one option per kind, read into the same rules as in Python.

    "30 2 * * *"   --every 5s   --daily 09:00   --weekly "mon,fri 09:00"   --monthly "-1 09:00"   --yearly "02-29 09:00"

What cannot be read is Unreadable: it names the option and shows how it is written. What can be read and makes no rule,
a period of a hundred years and a day say, is refused by the rule itself.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from tocsin.schema import instants, zones
from tocsin.schema.calendar_rules import WEEKDAYS
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.recurrence import Cron, Daily, Every, Gap, Monthly, Once, Overlap, Weekly, Yearly

if TYPE_CHECKING:
    from tocsin.schema.cron_fields import DayMatch, Dialect
    from tocsin.schema.recurrence import AnyRecurrence

_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:ms|[smhdw]))+")
_DURATION_PART: Final = re.compile(r"([0-9]+)(ms|[smhdw])")


class Unreadable(InvalidSchedule):
    """A value is not what its option takes; write it as the option says."""


class Written(NamedTuple):
    """The options of one command that say when; exactly one of the first seven is given."""

    cron: str | None = None
    every: str | None = None
    daily: str | None = None
    weekly: str | None = None
    monthly: str | None = None
    yearly: str | None = None
    at: str | None = None
    tz: str = "UTC"
    gap: Gap = Gap.SKIP
    overlap: Overlap = Overlap.FIRST
    dialect: str = "unix"
    day_match: str = "either"

    @property
    def given(self) -> list[str]:
        """The names of the kinds that are given."""
        return [name for name in self._fields[:7] if getattr(self, name) is not None]

    def recurrence(self) -> AnyRecurrence:
        """The rule.

        Raises:
            Unreadable: it is none, or not exactly one.
            InvalidSchedule: it can be read, and is refused.
        """
        if len(self.given) != 1:
            given = ", ".join(f"--{name}" for name in self.given) or "none"
            kinds = "--at, --every, --daily, --weekly, --monthly, --yearly or --cron"
            raise Unreadable("recurrence", self.given, f"give exactly one rule, {kinds}; given: {given}")
        read_zone(self.tz)
        local: dict[str, Any] = {"tz": self.tz, "gap": self.gap, "overlap": self.overlap}
        if self.cron is not None:
            dialect, day_match = cast("Dialect", self.dialect), cast("DayMatch", self.day_match)
            try:
                return Cron(self.cron, dialect=dialect, day_match=day_match, **local)
            except NeverOccurs:
                raise
            except InvalidSchedule as error:
                raise Unreadable(error.field, error.value, error.reason) from error
        if self.every is not None:
            return Every(read_duration("every", self.every))
        if self.at is not None:
            return Once(read_instant("at", self.at))
        return self._calendar_rule(local)

    def _calendar_rule(self, local: dict[str, Any]) -> AnyRecurrence:
        if self.daily is not None:
            return Daily(_time("daily", self.daily, self.daily), **local)
        if self.weekly is not None:
            days, at = _two("weekly", self.weekly, '"mon,fri 09:00"')
            weekdays = tuple(day for day in WEEKDAYS if day in days.lower().split(","))
            if len(weekdays) != len(set(days.lower().split(","))):
                raise Unreadable("weekly", self.weekly, f"the weekdays are {', '.join(WEEKDAYS)}")
            return Weekly(weekdays, _time("weekly", self.weekly, at), **local)
        if self.monthly is not None:
            day, at = _two("monthly", self.monthly, '"31 09:00", or "-1 09:00" for the last day')
            return Monthly(_whole("monthly", self.monthly, day), _time("monthly", self.monthly, at), **local)
        yearly = self.yearly or ""
        date, at = _two("yearly", yearly, '"02-29 09:00"')
        month, _, day = date.partition("-")
        month_number, day_number = _whole("yearly", yearly, month), _whole("yearly", yearly, day)
        return Yearly(month_number, day_number, _time("yearly", yearly, at), **local)


def read_zone(name: str) -> str:
    """The name of a time zone, as it is."""
    try:
        zones.check_zone(name)
    except InvalidSchedule as error:
        raise Unreadable(error.field, error.value, error.reason) from error
    return name


def read_duration(option: str, text: str) -> timedelta:
    """A duration such as 5s, 90m, 1h30m, 2d; days are 24 hours."""
    if not _DURATION.fullmatch(text):
        raise Unreadable(option, text, "is no duration; write 500ms, 5s, 90m, 1h30m, 2d or 1w")
    parts = _DURATION_PART.findall(text)
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())


def read_instant(option: str, text: str) -> datetime:
    """An instant in ISO 8601 with its offset, such as 2026-12-24T18:00+01:00 or 2026-12-24T17:00Z."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = None
    if instant is None or instant.utcoffset() is None:
        raise Unreadable(option, text, "is no instant; write it with its offset: 2026-12-24T18:00+01:00 or …Z")
    instants.checked_ms(instant, field=option)
    return instant.astimezone(UTC)


def _two(option: str, text: str, example: str) -> list[str]:
    words = text.split()
    if len(words) != 2:
        raise Unreadable(option, text, f"is written {example}")
    return words


def _time(option: str, text: str, word: str) -> time:
    try:
        return time.fromisoformat(word)
    except ValueError:
        raise Unreadable(option, text, f"{word!r} is no time of day; write 09:00 or 09:00:30") from None


def _whole(option: str, text: str, word: str) -> int:
    if not re.fullmatch("-?[0-9]{1,4}", word):
        raise Unreadable(option, text, f"{word!r} is no whole number")
    return int(word)
