"""Cron: a rule of local times written as a cron expression.

The expression is parsed by `tocsin.schema.cron_fields` into plain sets, and the times of day are found in these sets.
Which dates match is found by croniter, see `tocsin.schema.cron_days`. Zones never reach it: `LocalTimes` joins the two.

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
- Clock changes are the same for wildcards as for single times: under the default overlap=first, `*/5` is silent in the
  second pass of a repeated hour, a hole of 65 minutes; overlap=both keeps its pace.
- `H` is hashed from the schedule id when the schedule is made (`bind`), per field, days 1 to 28.
"""

from __future__ import annotations

import functools
from datetime import date
from typing import Any, Final, NamedTuple, Self, get_args

import msgspec

from tocsin.schema import cron_fields
from tocsin.schema.cron_days import CronDates, FieldItems, first_value, listed, plain_day_fields
from tocsin.schema.cron_fields import DAY, QUARTZ_WEEKDAY, WEEKDAY, YEAR, DayMatch, Dialect
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.instants import SECOND_MS
from tocsin.schema.occurrence_rule import LocalRule, LocalTimes, require_occurrence

_PARSED_MAX: Final = 8_192
#: The fields that say on which days, together.
_DAY_FIELDS: Final = (DAY, WEEKDAY, QUARTZ_WEEKDAY)


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
            if minute in self.minutes and (later := first_value(self.seconds, second)) is not None:
                return _of_day_ms(hour, minute, later)
            if (later := first_value(self.minutes, minute + 1)) is not None:
                return _of_day_ms(hour, later, self.seconds[0])
        later = first_value(self.hours, hour + 1)
        return None if later is None else _of_day_ms(later, self.minutes[0], self.seconds[0])


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
        sets[field.name] = FieldItems(field, part, bound)
    values = {name: found.values(dialect) for name, found in sets.items() if found.field not in _DAY_FIELDS}
    times = CronTimes(values["hour"], values["minute"], values.get("second", (0,)))
    months = "*" if sets["month"].free else listed(values["month"])
    days = plain_day_fields(sets[DAY.name], sets[WEEKDAY.name], dialect, day_match)
    years = () if YEAR.name not in sets or sets[YEAR.name].free else values[YEAR.name]
    plain = dict.fromkeys(f"0 0 {day} {months} {weekday}" for day, weekday in days)
    dates = CronDates(tuple(plain), years)
    if not hashed and dates.first_from(date(1970, 1, 1).toordinal()) is None:
        sets[DAY.name].part.refuse("no date matches the day, month, weekday and year together", NeverOccurs)
    return ParsedCron(dates, times, hashed)


def _of_day_ms(hour: int, minute: int, second: int) -> int:
    return ((hour * 60 + minute) * 60 + second) * SECOND_MS
