"""Recurrences: the rules that yield nominal times. All are frozen, comparable, hashable, and pure.

`Once` and `Every` speak of elapsed time in UTC; `Daily`, `Weekly`, `Monthly`, `Yearly` and `Cron` of local times in a
zone. Each encodes directly inside a spec; `AnyRecurrence` is the tagged union to decode.

Schedules hold resolved rules: `resolve(schedule_id, start_ms)` settles what a rule left open (the anchor of an Every,
the H of a Cron). From then on an occurrence is a function of rule and instant alone.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

import msgspec

from tocsin.schema import instants, zones
from tocsin.schema.calendar_rules import Daily, Monthly, Weekday, Weekly, Yearly
from tocsin.schema.cron import Cron
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.occurrence_rule import OccurrenceRule, require_occurrence
from tocsin.schema.zones import Gap, Overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = [
    "AnyRecurrence",
    "Cron",
    "Daily",
    "Every",
    "Gap",
    "Monthly",
    "Once",
    "Overlap",
    "Recurrence",
    "Weekday",
    "Weekly",
    "Yearly",
    "excluded",
    "jitter_ms",
    "until_for_max_runs",
]

PERIOD_MIN: Final = timedelta(seconds=1)
PERIOD_MAX: Final = timedelta(days=36_525)
#: max_runs is counted out when a schedule is made, so it is bounded; an Every is computed, so it is not.
MAX_RUNS: Final = 10_000


class Recurrence(Protocol):
    """A rule that yields nominal times."""

    def after(self, instant: datetime) -> datetime | None:
        """The first nominal time strictly after the instant, in UTC."""
        ...

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The nominal times in [start, end), in UTC."""
        ...

    def after_ms(self, instant_ms: int) -> int | None:
        """`after` in milliseconds UTC."""
        ...

    def resolve(self, schedule_id: str, start_ms: int) -> Self:
        """The concrete rule of a schedule."""
        ...

    @property
    def zone_name(self) -> str:
        """The zone whose dates it speaks of."""
        ...


class Once(OccurrenceRule, frozen=True, omit_defaults=True):
    """One instant.

    A datetime in a zone is the instant its own tzinfo says; `fold` decides a local time that occurs twice. One that
    does not exist, because the clock skips it, is refused. Instants finer than a millisecond are rounded up.
    """

    at: datetime

    def __post_init__(self) -> None:
        at_ms = instants.checked_ms(self.at, field="at")
        local = self.at.astimezone(UTC).astimezone(self.at.tzinfo)
        if local.replace(tzinfo=None) != self.at.replace(tzinfo=None):
            reason = f"{self.at.replace(tzinfo=None)} does not exist there: the clock skips it. Choose another time"
            raise InvalidSchedule("at", self.at, reason)
        msgspec.structs.force_setattr(self, "at", instants.to_datetime(at_ms))

    @property
    def at_ms(self) -> int:
        """The instant in ms UTC."""
        return instants.floor_ms(self.at)

    def after_ms(self, instant_ms: int) -> int | None:
        """The instant, if it is still to come."""
        return self.at_ms if self.at_ms > instant_ms else None


class Every(OccurrenceRule, frozen=True, omit_defaults=True):
    """Elapsed time: anchor, anchor + period, anchor + 2 periods …; nothing before the anchor.

    A day is 24 hours here, whatever clocks do; for local time use Daily. The anchor defaults to the schedule's start.
    """

    period: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.period, timedelta):
            raise InvalidSchedule("period", self.period, f"must be a timedelta, not {type(self.period).__name__}")
        if not PERIOD_MIN <= self.period <= PERIOD_MAX:
            raise InvalidSchedule("period", self.period, "must lie between 1 second and 100 years")
        if self.period % timedelta(milliseconds=1):
            raise InvalidSchedule("period", self.period, "must be whole milliseconds")
        if self.anchor is not None:
            anchor_ms = instants.checked_ms(self.anchor, field="anchor")
            msgspec.structs.force_setattr(self, "anchor", instants.to_datetime(anchor_ms))

    def resolve(self, schedule_id: str, start_ms: int) -> Self:  # noqa: ARG002 - the id decides nothing here
        """With the start as its anchor, unless it has one."""
        rule = self
        if self.anchor is None:
            rule = msgspec.structs.replace(self, anchor=instants.to_datetime(start_ms))
        require_occurrence(rule, start_ms)
        return rule

    def after_ms(self, instant_ms: int) -> int | None:
        """The next multiple of the period from the anchor."""
        anchor_ms, period_ms = self._grid()
        if instant_ms < anchor_ms:
            return anchor_ms
        found = anchor_ms + ((instant_ms - anchor_ms) // period_ms + 1) * period_ms
        return found if found < instants.END_INSTANT_MS else None

    def _grid(self) -> tuple[int, int]:
        """Anchor and period in milliseconds."""
        if self.anchor is None:
            raise InvalidSchedule("anchor", None, "is open: it is the schedule's start; call resolve, or give one")
        return instants.floor_ms(self.anchor), self.period // timedelta(milliseconds=1)


AnyRecurrence: TypeAlias = Once | Every | Daily | Weekly | Monthly | Yearly | Cron


def jitter_ms(schedule_id: str, scheduled_for_ms: int, jitter_ms_max: int, gap_to_next_ms: int | None) -> int:
    """How much later than nominal an occurrence is due: stable, never early, in [0, min(jitter, gap to the next)).

    A hash of id and nominal time, so that every host answers the same and neighbours spread evenly.
    """
    width = jitter_ms_max if gap_to_next_ms is None else min(jitter_ms_max, gap_to_next_ms)
    if width <= 0:
        return 0
    digest = hashlib.blake2b(f"{scheduled_for_ms}@{schedule_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % width


def until_for_max_runs(rule: Recurrence, start_ms: int, max_runs: int) -> int:
    """The nominal time of the last of `max_runs` runs at or after the start, ms UTC: `max_runs` stated as `until`.

    Raises InvalidSchedule for a number that cannot be counted out, NeverOccurs where there is no run at all. A rule
    that ends earlier gives its last time.
    """
    if type(max_runs) is not int or max_runs < 1:
        raise InvalidSchedule("max_runs", max_runs, "must be a whole number from 1")
    first = rule.after_ms(start_ms - 1)
    if first is None:
        raise NeverOccurs("recurrence", rule, "has no occurrence at or after the start")
    if isinstance(rule, Every):
        return min(first + (max_runs - 1) * (rule.period // timedelta(milliseconds=1)), instants.END_INSTANT_MS)
    if max_runs > MAX_RUNS:
        raise InvalidSchedule("max_runs", max_runs, f"must not exceed {MAX_RUNS}; give `until` for a longer schedule")
    last = first
    for _ in range(max_runs - 1):
        following = rule.after_ms(last)
        if following is None:
            break
        last = following
    return last


def excluded(dates: Collection[date], instant_ms: int, tz: str) -> bool:
    """Whether an instant falls on one of a calendar's dates, by the local date in the zone (a rule's `zone_name`)."""
    return zones.local_time(tz, instant_ms).date() in dates
