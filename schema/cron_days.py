"""Which dates a cron expression names: its day, month, weekday and year fields, and croniter's walk through them.

croniter knows the calendar, and is given nothing to interpret: only plain values, only days, only naive dates. A rule
becomes one or several *plain expressions* whose matches are joined by OR. In each, the day and the weekday field both
have to match, which is the one reading of them that croniter computes right in every combination:

    0 0 15 * 5      either: "15 * *" or "* * 5"           both: "15 * 5"
    0 0 L,15W * *   "L * *" or "15W * *"                  (W stands alone in croniter)
    0 0 * * 1,5#3   "* * 1" or "* * 5#3"                  (# does not mix with plain weekdays in croniter)
    0 0 LW * *      "31W * *", which croniter moves to the last day of a short month, then back to its last weekday
"""

from __future__ import annotations

import copy
import functools
import itertools
from bisect import bisect_left
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

from croniter import CroniterBadDateError, croniter

from tocsin.schema import cron_fields
from tocsin.schema.cron_fields import DAY, Field, Part

#: The Gregorian calendar brings a weekday back to 29 February after 40 years at the latest (across 2100, say).
_YEARS_WITHOUT_MATCH: Final = 41
_EVERY_DAY: Final = "0 0 * * *"
_EXPRESSIONS_MAX: Final = 8_192
_DATES_MAX: Final = 65_536


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
            year = first_value(self.years, asked.year)
            if year is None:
                return None
            found = self._first_of_any_year(max(found, date(year, 1, 1).toordinal()))
            if found is not None and date.fromordinal(found).year == year:
                return found
        return None

    def _first_of_any_year(self, ordinal: int) -> int | None:
        found = (_first_date(expression, ordinal) for expression in self.expressions)
        return min((day for day in found if day is not None), default=None)


class FieldItems(NamedTuple):
    """A field with its items, each H among them replaced by a value."""

    field: Field
    part: Part
    items: list[Part]

    @property
    def free(self) -> bool:
        """Whether it is a bare star, or Quartz's question mark: no restriction."""
        return self.part.text in {"*", "?"}

    @property
    def stepped_star(self) -> bool:
        """Whether a star with a step is among the items."""
        return any(item.text.startswith("*/") for item in self.items)

    def values(self, dialect: str) -> tuple[int, ...]:
        """The values of all items, sorted."""
        return tuple(sorted({v for item in self.items for v in cron_fields.item_values(self.field, item, dialect)}))


def plain_day_fields(days: FieldItems, weekdays: FieldItems, dialect: str, day_match: str) -> list[tuple[str, str]]:
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


def _check_both(days: FieldItems, weekdays: FieldItems, dialect: str, day_match: str) -> None:
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


def _day_sides(days: FieldItems, dialect: str) -> list[str]:
    plain: set[int] = set()
    sides, last = [], False
    for item in days.items:
        if item.text == "L":
            last = True
        elif item.text == "LW":
            sides.append("31W")
        elif item.text.endswith("W") and item.text[:-1].isdigit():
            sides.append(f"{_nearest_day(item)}W")
        elif item.text.startswith("L-"):
            item.refuse("days before the last are not read; use Monthly(-2, …) for the last but one")
        else:
            plain.update(cron_fields.item_values(DAY, item, dialect))
    if plain or last:
        sides.append(listed(sorted(plain), *(["L"] if last else [])))
    return sides


def _nearest_day(item: Part) -> int:
    day = DAY.value(item.text[:-1], item)
    if day > cron_fields.HASHED_DAY_MAX:
        item.refuse(f"day {day} is missing in some months; write LW for the last weekday of the month")
    return day


def _weekday_sides(weekdays: FieldItems, dialect: str) -> list[str]:
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
    sides = [listed(sorted(plain))] if plain else []
    return [*sides, ",".join(special)] if special else sides


def _sunday_is_zero(field: Field, weekday: int) -> int:
    return (weekday - field.low) % 7


def listed(values: tuple[int, ...] | list[int], *more: str) -> str:
    """Values as croniter reads them."""
    return ",".join([*map(str, values), *more])


def first_value(values: tuple[int, ...], value: int) -> int | None:
    """The first of some sorted values at or after one."""
    place = bisect_left(values, value)
    return values[place] if place < len(values) else None


@functools.lru_cache(maxsize=_EXPRESSIONS_MAX)
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
