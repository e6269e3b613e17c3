"""What all recurrences share: the public edge, and the walk of local times through a zone's spans.

A local rule says which *dates* it runs on and at which *times of day*; both are plain local quantities that know
nothing of zones. `LocalTimes` joins them with a zone and its policies. It walks forward span by span (see
`tocsin.schema.zones`): inside a span, the first matching local time at or after a bound is found by the two local
questions alone, and its instant is that local time minus the span's offset. Each policy only moves the bounds:

- overlap=first starts a span after its repeated stretch, overlap=last ends it before its repeating one;
- gap=shift also reads the span's first stretch with the offset from before the change.

So an answer is never early, never one that exists on no clock, and the walk cannot turn back.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple, Protocol, Self

import msgspec

from tocsin.schema import instants, zones
from tocsin.schema.errors import InvalidSchedule, NeverOccurs
from tocsin.schema.instants import DAY_MS, END_INSTANT_MS, EPOCH_ORDINAL, FIRST_INSTANT_MS, HOUR_MS, MINUTE_MS
from tocsin.schema.zones import CHANGE_MS_MAX, Gap, Overlap, Span

#: No zone is further from UTC.
_OFFSET_MS_MAX: Final = 26 * HOUR_MS
#: Dates tried in vain before a rule counts as one that never occurs: 02:30 on the very day the clock skips it, say.
_SPANS_MAX: Final = 64
#: Answers kept, per process: a herd of many schedules has few distinct rules, and they share one answer.
_ANSWERS_MAX: Final = 32_768


class Dates(Protocol):
    """The dates a rule runs on, as ordinals (`date.toordinal`)."""

    def first_from(self, ordinal: int) -> int | None:
        """The first matching date at or after this one."""
        ...


class Times(Protocol):
    """The times of day a rule runs at, as milliseconds of the local day."""

    @property
    def first(self) -> int:
        """The earliest."""
        ...

    def first_from(self, of_day_ms: int) -> int | None:
        """The first at or after this one."""
        ...


class LocalTimes(NamedTuple):
    """Dates × times of day, read in a zone under its policies."""

    dates: Dates
    times: Times
    tz: str
    gap: Gap
    overlap: Overlap

    def first_from(self, instant_ms: int) -> int | None:
        """The first occurrence at or after the instant, ms UTC."""
        position = max(instant_ms, FIRST_INSTANT_MS)
        for _ in range(_SPANS_MAX):
            if position >= END_INSTANT_MS:
                return None
            span = zones.span_at(self.tz, position)
            start = max(position, span.repeated_until_ms) if self.overlap is Overlap.FIRST else position
            local = self.local_from(start + span.offset_ms)
            found = self._in_span(span, position, local)
            if found is not None:
                return found if found < END_INSTANT_MS else None
            # Whatever comes later shows a local time at or after this one, and lies no further from it than an offset.
            lowest = span.end_ms + span.offset_ms - CHANGE_MS_MAX
            if start + span.offset_ms > lowest:
                local = self.local_from(lowest)
            if local is None:
                return None
            position = max(span.end_ms, local - _OFFSET_MS_MAX)
        return None

    def local_from(self, local_ms: int) -> int | None:
        """The first matching local time at or after this one; both as ms since 1970-01-01 00:00 local."""
        day, of_day_ms = divmod(local_ms, DAY_MS)
        of_day = self.times.first_from(of_day_ms)
        asked = day + EPOCH_ORDINAL if of_day is not None else day + EPOCH_ORDINAL + 1
        date = self.dates.first_from(asked)
        if date is None:
            return None
        if of_day is None or date > asked:
            of_day = self.times.first
        return (date - EPOCH_ORDINAL) * DAY_MS + of_day

    def _in_span(self, span: Span, position: int, local: int | None) -> int | None:
        """The first occurrence in a span, given its first matching local time under the span's own offset."""
        end = min(span.end_ms, span.repeats_from_ms) if self.overlap is Overlap.LAST else span.end_ms
        found = local - span.offset_ms if local is not None and local - span.offset_ms < end else None
        if self.gap is Gap.SHIFT and position < span.shifted_until_ms:
            skipped = self.local_from(position + span.offset_before_ms)
            shifted_end = (
                min(span.shifted_until_ms, span.end_ms) if found is None else min(span.shifted_until_ms, found)
            )
            if skipped is not None and skipped - span.offset_before_ms < shifted_end:
                return skipped - span.offset_before_ms
        return found


class OccurrenceRule(
    msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True, tag_field="kind", tag=str.lower
):
    """A recurrence: frozen, comparable, hashable, with a JSON form; pure, without clock or store."""

    def after_ms(self, instant_ms: int) -> int | None:
        """The first occurrence strictly after the instant, both in ms UTC; None where there is none."""
        raise NotImplementedError

    def resolve(self, schedule_id: str, start_ms: int) -> Self:  # noqa: ARG002 - kinds that need them override
        """The concrete rule of a schedule: what was left open is settled by its id and its start.

        Raises NeverOccurs where nothing lies at or after the start.
        """
        return self

    @property
    def zone_name(self) -> str:
        """The zone whose dates this rule speaks of; UTC for a rule of elapsed time."""
        return "UTC"

    def after(self, instant: datetime) -> datetime | None:
        """The first occurrence strictly after the instant, in UTC; None where there is none.

        Raises InvalidSchedule for a naive instant, or where the rule still has something open (see `resolve`).
        """
        found = self.after_ms(instants.floor_ms(instant))
        return None if found is None else instants.to_datetime(found)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The occurrences in [start, end), in order, in UTC."""
        found = self.after_ms(instants.ceil_ms(start, field="start") - 1)
        end_ms = instants.ceil_ms(end, field="end")
        while found is not None and found < end_ms:
            yield instants.to_datetime(found)
            found = self.after_ms(found)


class LocalRule(OccurrenceRule, frozen=True, kw_only=True, omit_defaults=True):
    """A rule of local times in a zone."""

    tz: str
    gap: Gap = Gap.SKIP
    overlap: Overlap = Overlap.FIRST

    def check_zone(self) -> None:
        """Raise InvalidSchedule where the zone or a policy is none."""
        zones.check_zone(self.tz)
        for field, value, kind in (("gap", self.gap, Gap), ("overlap", self.overlap, Overlap)):
            if not isinstance(value, kind):
                names = ", ".join(f"{kind.__name__}.{policy.name}" for policy in kind)
                raise InvalidSchedule(field, value, f"must be one of {names}")

    def local_times(self) -> LocalTimes:
        """The rule as dates and times of day in its zone."""
        raise NotImplementedError

    def after_ms(self, instant_ms: int) -> int | None:
        """The first occurrence strictly after the instant, in ms UTC; equal rules share one answer."""
        found = _after_minute(self, instant_ms // MINUTE_MS)
        if found is None or found > instant_ms:
            return found
        # Within the minute asked about: a rule of seconds, or a zone whose offset has seconds.
        return self.local_times().first_from(instant_ms + 1)

    @property
    def zone_name(self) -> str:
        """The rule's zone."""
        return self.tz


@functools.lru_cache(maxsize=_ANSWERS_MAX)
def _after_minute(rule: LocalRule, minute: int) -> int | None:
    """The first occurrence after the start of a minute since 1970."""
    return rule.local_times().first_from(minute * MINUTE_MS + 1)


def require_occurrence(rule: OccurrenceRule, start_ms: int) -> None:
    """Raise NeverOccurs unless something lies at or after the start."""
    if rule.after_ms(start_ms - 1) is None:
        start = instants.to_datetime(start_ms).isoformat(timespec="seconds")
        reason = f"has no occurrence from {start} on: it is over, or the clock skips all of its times (see gap)"
        raise NeverOccurs("recurrence", rule, reason)
