"""Instants: int milliseconds UTC inside, timezone-aware `datetime` at public edges.

Every occurrence lies on a whole millisecond, so a finer instant is rounded in the direction that keeps the question's
meaning: up for "at or after", down for "strictly after". All arithmetic is on integers; a float of seconds would lose
milliseconds, and aware + timedelta would count wall time.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from tocsin.schema.errors import InvalidSchedule

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The ordinal of 1970-01-01 (`date.toordinal`), so that days and milliseconds convert by one addition.
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MILLISECOND: Final = timedelta(milliseconds=1)

#: Rules answer from here …
FIRST_INSTANT_MS: Final = (date(1900, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY_MS
#: … up to here, exclusive: far enough from the ends of `datetime` that no date on the way to an answer overflows.
END_INSTANT_MS: Final = (date(9900, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY_MS


def floor_ms(instant: datetime, *, field: str = "instant") -> int:
    """Milliseconds since 1970-01-01 UTC, rounded down. Raises InvalidSchedule for a naive or foreign value."""
    return (_aware(instant, field) - EPOCH) // _MILLISECOND


def ceil_ms(instant: datetime, *, field: str = "instant") -> int:
    """Milliseconds since 1970-01-01 UTC, rounded up. Raises InvalidSchedule for a naive or foreign value."""
    return -((EPOCH - _aware(instant, field)) // _MILLISECOND)


def checked_ms(instant: datetime, *, field: str) -> int:
    """`ceil_ms` of an instant that a rule is made of; raises InvalidSchedule outside the years rules answer for."""
    instant_ms = ceil_ms(instant, field=field)
    if not FIRST_INSTANT_MS <= instant_ms < END_INSTANT_MS:
        raise InvalidSchedule(field, instant, "must lie in the years 1900 to 9899")
    return instant_ms


def to_datetime(instant_ms: int) -> datetime:
    """The instant as an aware datetime in UTC."""
    return EPOCH + timedelta(milliseconds=instant_ms)


def _aware(instant: Any, field: str) -> datetime:
    if not isinstance(instant, datetime):
        raise InvalidSchedule(field, instant, f"must be a datetime, not {type(instant).__name__}")
    if instant.utcoffset() is None:
        raise InvalidSchedule(field, instant, "has no time zone; give an aware datetime, for example with tzinfo=UTC")
    return instant
