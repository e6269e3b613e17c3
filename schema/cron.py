"""Cron: a rule of local times written as a cron expression.

The expression is parsed by `tocsin.schema.cron_fields` into plain sets, and the times of day are found in these sets.
Which *dates* match is croniter's part: it is asked for dates only, in expressions made of plain values in which it has
nothing to interpret, and only about naive local days. Zones never reach it.

Readings chosen where crons differ
----------------------------------
- Day of month and weekday both restricted: `day_match="either"` (the default, as in Vixie cron and POSIX) runs where
  one matches, `"both"` where both do. Restricted means: not `*`.
- A stepped star such as `*/2` in one of the two, beside a restricted other, is AND in one tradition and OR in the
  other: refused under "either"; write 1-31/2, or say day_match="both".
- Ranges may run past the end: FRI-MON, 22-2, NOV-FEB. JAN-JAN is January. 0 and 7 are Sunday; in Quartz 1 is Sunday.
- Steps start at the first value of their range and start anew with each day, hour, month. A step that leaves only the
  first value (`*/90`) is refused. A step without a range (`5/15`) is refused in unix cron and open-ended elsewhere.
- `L` last day, `15W` the weekday nearest to the 15th within its month, `LW` last weekday, `5L` or `L5` last Friday,
  `5#3` third Friday; all may stand in lists. 29W to 31W are refused: those days are missing in some months.
- A month without the day has no run: `0 0 31 * *` runs seven times a year. For a clamped day use Monthly(31).
- `H` is hashed from the schedule id when the schedule is made (`bind`), per field, days 1 to 28.
"""

from __future__ import annotations

import copy
import functools
import itertools
from bisect import bisect_left
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple, Self, get_args

import msgspec
from croniter import CroniterBadDateError, croniter

from tocsin.schema import cron_fields
from tocsin.schema.cron_fields import DAY, QUARTZ_WEEKDAY, WEEKDAY, YEAR, DayMatch, Dialect, Field, Part
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.instants import SECOND_MS
from tocsin.schema.occurrence_rule import LocalRule, LocalTimes, require_occurrence

#: The Gregorian calendar repeats a weekday on 29 February at the latest after 40 years (across 2100, say).
_YEARS_WITHOUT_MATCH: Final = 41
_EVERY_DAY: Final = "0 0 * * *"
_PARSED_MAX: Final = 8_192
_DATES_MAX: Final = 65_536


class CronOptions(LocalRule, frozen=True, kw_only=True, omit_defaults=True):
    """What a Cron says beside its expression."""

    tz: str = "UTC"
    dialect: Dialect = "unix"
    day_match: DayMatch = "either"


class Cron(CronOptions, frozen=True, omit_defaults=True):
    """Local times given by a cron expression; five fields unless `dialect` says otherwise.

    Raises InvalidSchedule, with a caret under the wrong part, and NeverOccurs where no date matches (30 February).
    """

    expression: str

    def __post_init__(self) -> None:
        self.check_zone()
        expression: Any = self.expression
        if not isinstance(expression, str):
            raise InvalidSchedule("expression", expression, f"must be a string, not {type(expression).__name__}")
        if self.dialect not in get_args(Dialect):
            raise InvalidSchedule("dialect", self.dialect, f"must be one of {', '.join(get_args(Dialect))}")
        if self.day_match not in get_args(DayMatch):
            raise InvalidSchedule("day_match", self.day_match, f"must be one of {', '.join(get_args(DayMatch))}")
        parse(self.expression, self.dialect, self.day_match)

    def bind(self, schedule_id: str) -> Self:
        """The concrete rule of this schedule: each H replaced by its value, the same on every host."""
        if not parse(self.expression, self.dialect, self.day_match).hashed:
            return self
        text = cron_fields.bound_text(self.expression, self.dialect, schedule_id)
        return msgspec.structs.replace(self, expression=text)

    def resolve(self, schedule_id: str, start_ms: int) -> Self:
        """The rule bound to its schedule id. Raises NeverOccurs where nothing lies at or after the start."""
        rule = self.bind(schedule_id)
        require_occurrence(rule, start_ms)
        return rule

    def local_times(self) -> LocalTimes:
        """The matching dates and times of day. Raises InvalidSchedule while an H is not bound."""
        parsed = parse(self.expression, self.dialect, self.day_match)
        if parsed.hashed:
            reason = "H is hashed from the schedule id; call bind(schedule_id) first"
            raise InvalidSchedule("expression", self.expression, reason)
        return LocalTimes(parsed.dates, parsed.times, self.tz, self.gap, self.overlap)


class CronTimes(NamedTuple):
    """Times of day: every combination of these sorted values."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]

    @property
    def first(self) -> int:
        """The earliest, in milliseconds of the day."""
        return _of_day_ms(self.hours[0], self.minutes[0], self.seconds[0])

    def first_from(self, of_day_ms: int) -> int | None:
        """The first at or after this one, in milliseconds of the day."""
        minute_of_day, second = divmod(-(-of_day_ms // SECOND_MS), 60)
        hour, minute = divmod(minute_of_day, 60)
        if hour in self.hours:
            if minute in self.minutes and (later := _first_from(self.seconds, second)) is not None:
                return _of_day_ms(hour, minute, later)
            if (later := _first_from(self.minutes, minute + 1)) is not None:
                return _of_day_ms(hour, later, self.seconds[0])
        later = _first_from(self.hours, hour + 1)
        return None if later is None else _of_day_ms(later, self.minutes[0], self.seconds[0])


class CronDates(NamedTuple):
    """Dates that match any of some plain croniter expressions, within years where years are given."""

    expressions: tuple[str, ...]
    years: tuple[int, ...] = ()

    def first_from(self, ordinal: int) -> int | None:
        """The first matching date at or after this one."""
        if not self.years:
            return self._first_of_any_year(ordinal)
        found: int | None = ordinal
        while found is not None:
            asked = date.fromordinal(found)
            year = _first_from(self.years, asked.year)
            if year is None:
                return None
            found = self._first_of_any_year(max(found, date(year, 1, 1).toordinal()))
            if found is not None and date.fromordinal(found).year == year:
                return found
        return None

    def _first_of_any_year(self, ordinal: int) -> int | None:
        found = (_first_date(expression, ordinal) for expression in self.expressions)
        return min((day for day in found if day is not None), default=None)


class ParsedCron(NamedTuple):
    """What an expression means."""

    dates: CronDates
    times: CronTimes
    #: Whether it has an H that is not bound to a schedule id.
    hashed: bool


@functools.lru_cache(maxsize=_PARSED_MAX)
def parse(expression: str, dialect: Dialect, day_match: DayMatch) -> ParsedCron:
    """Read an expression; raises InvalidSchedule or NeverOccurs with a caret."""
    fields = cron_fields.split_fields(expression, dialect)
    sets, hashed = {}, False
    for field, part in fields:
        items = cron_fields.items(field, part)
        bound = [cron_fields.bound_item(field, item, "") for item in items]
        hashed = hashed or bound != items
        sets[field.name] = _FieldItems(field, part, bound)
    values = {name: found.values(dialect) for name, found in sets.items() if found.field not in _DAY_FIELDS}
    times = CronTimes(values["hour"], values["minute"], values.get("second", (0,)))
    months = "*" if sets["month"].free else _listed(values["month"])
    days = _day_expressions(sets[DAY.name], sets[WEEKDAY.name], dialect, day_match)
    years = () if YEAR.name not in sets or sets[YEAR.name].free else values[YEAR.name]
    dates = CronDates(tuple(f"0 0 {day} {months} {weekday}" for day, weekday in days), years)
    if not hashed and dates.first_from(date(1970, 1, 1).toordinal()) is None:
        _refuse_never(sets[DAY.name].part)
    return ParsedCron(dates, times, hashed)


_DAY_FIELDS: Final = (DAY, WEEKDAY, QUARTZ_WEEKDAY)


class _FieldItems(NamedTuple):
    field: Field
    part: Part
    items: list[Part]

    @property
    def free(self) -> bool:
        """Whether it is a bare star, or Quartz's question mark: no restriction."""
        return self.part.text in {"*", "?"}

    @property
    def stepped_star(self) -> bool:
        return any(item.text.startswith("*/") for item in self.items)

    def values(self, dialect: str) -> tuple[int, ...]:
        return tuple(sorted({v for item in self.items for v in cron_fields.item_values(self.field, item, dialect)}))


def _day_expressions(days: _FieldItems, weekdays: _FieldItems, dialect: str, day_match: str) -> list[tuple[str, str]]:
    """Pairs of croniter day and weekday fields; a date matches where it matches both sides of any pair."""
    for found in (days, weekdays):
        if found.part.text == "?" and dialect != "quartz":
            found.part.refuse("? means something else in each cron; write * for any day, H for one spread by the id")
    if days.free and weekdays.free:
        return [("*", "*")]
    day_sides = [] if days.free else _day_sides(days, dialect)
    weekday_sides = [] if weekdays.free else _weekday_sides(weekdays, dialect)
    if day_sides and weekday_sides:
        _check_both(days, weekdays, dialect, day_match)
        if day_match == "both":
            return list(itertools.product(day_sides, weekday_sides))
    return [(side, "*") for side in day_sides] + [("*", side) for side in weekday_sides]


def _check_both(days: _FieldItems, weekdays: _FieldItems, dialect: str, day_match: str) -> None:
    """Refuse what has no single reading where both day fields restrict."""
    if dialect == "quartz":
        weekdays.part.refuse("Quartz leaves one of the two day fields open; write ? in the other")
    if day_match == "either":
        for found in (days, weekdays):
            if found.stepped_star:
                spelled = found.part.text.replace("*", f"{found.field.low}-{found.field.last}")
                found.part.refuse(
                    f"beside the other day field, crons read {found.part.text} as AND or as OR; "
                    f"write {spelled} for OR, or day_match='both' for AND"
                )
    elif any(item.text.endswith("W") for item in days.items):
        days.part.refuse("W moves the day to a weekday already; leave the weekday field *")


def _day_sides(days: _FieldItems, dialect: str) -> list[str]:
    plain: set[int] = set()
    sides, last = [], False
    for item in days.items:
        if item.text == "L":
            last = True
        elif item.text == "LW":
            # croniter moves 31W to the last day of a short month, then to the nearest weekday before it.
            sides.append("31W")
        elif item.text.endswith("W") and item.text[:-1].isdigit():
            sides.append(f"{_nearest_day(item)}W")
        elif item.text.startswith("L-"):
            item.refuse("days before the last are not read; use Monthly(-2, …) for the last but one")
        else:
            plain.update(cron_fields.item_values(DAY, item, dialect))
    if plain or last:
        sides.append(_listed(sorted(plain), *(["L"] if last else [])))
    return sides


def _nearest_day(item: Part) -> int:
    day = DAY.value(item.text[:-1], item)
    if day > cron_fields.HASHED_DAY_MAX:
        item.refuse(f"day {day} is missing in some months; write LW for the last weekday of the month")
    return day


def _weekday_sides(weekdays: _FieldItems, dialect: str) -> list[str]:
    field = weekdays.field
    plain: set[int] = set()
    special = []
    for item in weekdays.items:
        token, sign, number = item.text.partition("#")
        if sign:
            if number not in {"1", "2", "3", "4", "5"}:
                item.refuse("# is followed by 1 to 5: which of the month's such weekdays")
            special.append(f"{_sunday_is_zero(field, field.value(token, item))}#{number}")
        elif item.text == "L":
            item.refuse("L needs a weekday here: FRIL is the last Friday of the month")
        elif "L" in {item.text[0], item.text[-1]}:
            token = item.text[1:] if item.text[0] == "L" else item.text[:-1]
            special.append(f"L{_sunday_is_zero(field, field.value(token, item))}")
        else:
            plain.update(_sunday_is_zero(field, value) for value in cron_fields.item_values(field, item, dialect))
    sides = [_listed(sorted(plain))] if plain else []
    return [*sides, ",".join(special)] if special else sides


def _sunday_is_zero(field: Field, weekday: int) -> int:
    return (weekday - field.low) % 7


def _refuse_never(part: Part) -> None:
    try:
        part.refuse("no date matches the day, month, weekday and year together")
    except InvalidSchedule as refused:
        raise NeverOccurs(refused.field, refused.value, refused.reason) from None


def _listed(values: tuple[int, ...] | list[int], *more: str) -> str:
    return ",".join([*map(str, values), *more])


def _first_from(values: tuple[int, ...], value: int) -> int | None:
    place = bisect_left(values, value)
    return values[place] if place < len(values) else None


def _of_day_ms(hour: int, minute: int, second: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * SECOND_MS


@functools.lru_cache(maxsize=_PARSED_MAX)
def _walker(expression: str) -> croniter:
    return croniter(expression, day_or=False, max_years_between_matches=_YEARS_WITHOUT_MATCH)


@functools.lru_cache(maxsize=_DATES_MAX)
def _first_date(expression: str, ordinal: int) -> int | None:
    """The first date at or after this one that croniter finds."""
    if expression == _EVERY_DAY:
        return ordinal
    # croniter keeps its position in itself; a copy per question leaves the shared parse without state.
    walker = copy.copy(_walker(expression))
    midnight = datetime.fromordinal(ordinal)
    try:
        found: datetime = walker.get_next(datetime, start_time=midnight - timedelta(minutes=1))
    except CroniterBadDateError:
        return None
    return found.toordinal()
