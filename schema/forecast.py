"""What a rule will do, told to a person: its next occurrences, and what clock changes and short months do to them.

`forecast` gives a row per occurrence and, between them, a row per stretch of local times that no clock shows, so that
what does *not* run is as visible as what does.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tocsin.schema import zones
from tocsin.schema.calendar_rules import Monthly, Yearly
from tocsin.schema.instants import DAY_MS, to_datetime
from tocsin.schema.occurrence_rule import LocalRule, LocalTimes
from tocsin.schema.zones import Gap, Overlap, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tocsin.schema.recurrence import AnyRecurrence

Change = Literal["", "skipped", "shifted", "repeated", "clamped"]

#: Skipped times are counted up to here: a rule of seconds loses 86,400 on a skipped day.
_COUNTED_MAX: Final = 1_000
#: Where a rule has no further occurrence, skipped times are looked for this far.
_LOOK_AHEAD_MS: Final = 800 * DAY_MS


class Forecast(NamedTuple):
    """One row: an occurrence, or local times that are skipped."""

    #: None where the row tells of times that do not run.
    at_ms: int | None
    #: The zone's clock: aware at an occurrence, naive where no such time exists.
    local: datetime
    change: Change
    #: A sentence for the eye, empty where nothing is unusual.
    note: str


def forecast(rule: AnyRecurrence, tz: str, from_ms: int, count: int) -> Iterator[Forecast]:
    """The next `count` occurrences at or after an instant, shown on the clock of `tz`, and the times skipped between.

    A rule of local times is shown in its own zone.
    """
    position = from_ms - 1
    for _ in range(count):
        found = rule.after_ms(position)
        if isinstance(rule, LocalRule):
            yield from _skipped(rule, position, position + _LOOK_AHEAD_MS if found is None else found)
        if found is None:
            return
        yield _occurrence(rule, found) if isinstance(rule, LocalRule) else _plain(tz, found)
        position = found


def _plain(tz: str, at_ms: int) -> Forecast:
    return Forecast(at_ms, zones.local_time(tz, at_ms), "", "")


def _occurrence(rule: LocalRule, at_ms: int) -> Forecast:
    row, span = _plain(rule.tz, at_ms), zones.span_at(rule.tz, at_ms)
    if rule.gap is Gap.SHIFT and at_ms < span.shifted_until_ms:
        asked_ms = at_ms + span.offset_before_ms
        if rule.local_times().local_from(asked_ms) == asked_ms:
            return row._replace(change="shifted", note=f"shifted: {_clock(_naive(asked_ms), row.local)} does not exist")
    if at_ms < span.repeated_until_ms or at_ms >= span.repeats_from_ms:
        which = "second" if at_ms < span.repeated_until_ms else "first"
        runs = "" if rule.overlap is Overlap.BOTH else ", runs once"
        return row._replace(change="repeated", note=f"{which} {_of_day(row.local)} of two{runs}")
    if isinstance(rule, Monthly | Yearly) and rule.day > row.local.day:
        return row._replace(change="clamped", note=f"clamped: {row.local:%b %Y} has {row.local.day} days")
    return row


def _skipped(rule: LocalRule, after_ms: int, until_ms: int) -> Iterator[Forecast]:
    """A row for each clock change in (after, until] that swallows local times of the rule."""
    if rule.gap is Gap.SHIFT:
        return
    local_times, position = rule.local_times(), after_ms
    while position < until_ms:
        span = zones.span_at(rule.tz, position + 1)
        if after_ms < span.shifted_from_ms < span.shifted_until_ms and span.shifted_from_ms <= until_ms:
            yield from _swallowed(local_times, span)
        position = span.end_ms - 1


def _swallowed(local_times: LocalTimes, span: Span) -> Iterator[Forecast]:
    start = span.shifted_from_ms + span.offset_before_ms
    end = span.shifted_until_ms + span.offset_before_ms
    lost = list(itertools.islice(_local_walk(local_times, start, end), _COUNTED_MAX))
    if not lost:
        return
    first, last, more = _naive(lost[0]), _naive(lost[-1]), "+" if len(lost) == _COUNTED_MAX else ""
    if len(lost) == 1:
        note = f"skipped: {_of_day(first)} does not exist"
    else:
        note = f"skipped: {len(lost)}{more} times, {_of_day(first)} to {_clock(last, first)}"
    yield Forecast(None, first, "skipped", note)


def _local_walk(local_times: LocalTimes, start: int, end: int) -> Iterator[int]:
    local = local_times.local_from(start)
    while local is not None and local < end:
        yield local
        local = local_times.local_from(local + 1)


def _naive(local_ms: int) -> datetime:
    return to_datetime(local_ms).replace(tzinfo=None)


def _of_day(local: datetime) -> str:
    """The time of day, as short as it can be said."""
    spec = "microseconds" if local.microsecond else "seconds" if local.second else "minutes"
    return local.time().isoformat(spec)[:12]


def _clock(local: datetime, beside: datetime) -> str:
    """The time of day, with its date where that is not the one beside it."""
    return _of_day(local) if local.date() == beside.date() else f"{local.date()} {_of_day(local)}"
