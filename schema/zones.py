"""Time zones from the pinned tzdata package, and what their clock changes do to local times.

Zone rules decide when things run, so they are part of a release, never of a host: `zoneinfo` would look at the host's
files and at PYTHONTZPATH first, so we open the package's own files and hand them over. `zone_data_version`
names the rules; metrics, `doctor` and stored pointers carry it.

A zone is read as a sequence of *spans*: stretches of UTC during which the offset does not change. Inside a span local
time and UTC differ by a constant, so every question about gaps and repeats becomes plain arithmetic on the two offsets
at a span's edges, whatever the reason of a change was (summer time, negative summer time, a country moving its base
offset, a skipped day). `dst()` is never asked.

- clock forward by g at instant T: local times of length g do not exist. Under `shift` they run at the instant they
  would have had without the change (RFC 5545, section 3.3.5): UTC [T, T + g).
- clock back by g at instant T: local times of length g occur twice, at UTC [T − g, T) and again at [T, T + g).

Spans are found by asking the zone for its offset every few hours and bisecting where two answers differ; nothing is
assumed about how its rules are written. A window of half a year is searched at a time and kept.
"""

from __future__ import annotations

import difflib
import enum
import functools
import itertools
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import tzdata

from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.instants import HOUR_MS, SECOND_MS, to_datetime

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Spans are searched for in windows of 2**34 ms, about 199 days.
_WINDOW_BITS: Final = 34
#: Two changes of one zone that undo each other never lie closer than this; a test reads all of tzdata to hold it.
PROBE_MS: Final = 24 * HOUR_MS
#: No change moves a clock by more: changes this far outside a window cannot touch local times inside it.
CHANGE_MS_MAX: Final = 26 * HOUR_MS


class Gap(enum.StrEnum):
    """What becomes of a local time that does not exist because the clock went forward."""

    #: It does not run.
    SKIP = "skip"
    #: It runs as if the clock had not changed yet: 02:30 runs when the clock shows 03:30 (RFC 5545, section 3.3.5).
    SHIFT = "shift"


class Overlap(enum.StrEnum):
    """What becomes of a local time that occurs twice because the clock went back."""

    #: It runs once, the first time; rules with wildcards are silent during the second pass.
    FIRST = "first"
    #: It runs once, the second time; rules with wildcards are silent during the first pass.
    LAST = "last"
    #: It runs both times.
    BOTH = "both"


class Span(NamedTuple):
    """A stretch of UTC, [start_ms, end_ms), with one offset: local = UTC + offset_ms.

    The other instants say which part of it is special; where nothing is, they make empty stretches.
    """

    start_ms: int
    end_ms: int
    offset_ms: int
    #: UTC in [start_ms, repeated_until_ms) shows local times for the second time.
    repeated_until_ms: int
    #: UTC in [repeats_from_ms, end_ms) shows local times that will come once more.
    repeats_from_ms: int
    #: UTC in [shifted_from_ms, shifted_until_ms) is where skipped local times run under `shift`; the difference between
    #: the two is the length of the gap.
    shifted_from_ms: int
    shifted_until_ms: int
    #: The offset before the span, which skipped local times are read with.
    offset_before_ms: int


def zone_data_version() -> str:
    """The IANA release of the zone rules in use, for example "2026f"."""
    return str(tzdata.IANA_VERSION)


@functools.cache
def zone_names() -> frozenset[str]:
    """Every zone name of the tzdata package, old link names included."""
    return frozenset(resources.files(tzdata).joinpath("zones").read_text("utf-8").split())


def check_zone(name: Any) -> None:
    """Raise InvalidSchedule, with the names that come near, unless this is a zone of the tzdata package."""
    if not isinstance(name, str):
        raise InvalidSchedule("tz", name, f"must be the name of a zone, not {type(name).__name__}")
    if name in zone_names():
        return
    near = difflib.get_close_matches(name[:64], zone_names(), n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "names look like Europe/London or UTC"
    raise InvalidSchedule("tz", name, f"{name[:64]!a} is no zone of tzdata {zone_data_version()}; {hint}")


@functools.cache
def zone(name: str) -> ZoneInfo:
    """The zone, from the tzdata package only. Raises InvalidSchedule where there is none of this name."""
    check_zone(name)
    with resources.files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_ms(name: str, instant_ms: int) -> int:
    """How far the zone's clock is ahead of UTC at an instant, in milliseconds."""
    offset = datetime.fromtimestamp(instant_ms // SECOND_MS, tz=zone(name)).utcoffset()
    return 0 if offset is None else (offset.days * 86_400 + offset.seconds) * SECOND_MS


def span_at(name: str, instant_ms: int) -> Span:
    """The span of the zone that holds the instant."""
    spans = _window_spans(name, instant_ms >> _WINDOW_BITS)
    return next(span for span in reversed(spans) if span.start_ms <= instant_ms)


def local_time(name: str, instant_ms: int) -> datetime:
    """The zone's local time at an instant, as an aware datetime."""
    return to_datetime(instant_ms).astimezone(zone(name))


@functools.lru_cache(maxsize=16_384)
def _window_spans(name: str, window: int) -> tuple[Span, ...]:
    """The spans of one window, clipped to it."""
    start, end = window << _WINDOW_BITS, (window + 1) << _WINDOW_BITS
    changes = list(_changes(name, start - 2 * CHANGE_MS_MAX, end + 2 * CHANGE_MS_MAX))
    edges = [start - 2 * CHANGE_MS_MAX, *changes, end + 2 * CHANGE_MS_MAX]
    spans = (_span(name, *edge) for edge in itertools.pairwise(edges))
    return tuple(
        span._replace(start_ms=max(span.start_ms, start), end_ms=min(span.end_ms, end))
        for span in spans
        if span.end_ms > start and span.start_ms < end
    )


def _span(name: str, start_ms: int, end_ms: int) -> Span:
    before, offset, after = (offset_ms(name, at) for at in (start_ms - SECOND_MS, start_ms, end_ms))
    return Span(
        start_ms=start_ms,
        end_ms=end_ms,
        offset_ms=offset,
        repeated_until_ms=start_ms + max(0, before - offset),
        repeats_from_ms=end_ms - max(0, offset - after),
        shifted_from_ms=start_ms,
        shifted_until_ms=start_ms + max(0, offset - before),
        offset_before_ms=before,
    )


def _changes(name: str, start_ms: int, end_ms: int) -> Iterator[int]:
    """Instants in (start_ms, end_ms] from which the offset is another one."""
    known = offset_ms(name, start_ms)
    for probe_ms in range(start_ms + PROBE_MS, end_ms + PROBE_MS, PROBE_MS):
        offset = offset_ms(name, probe_ms)
        if offset != known:
            yield _bisect_change(name, probe_ms - PROBE_MS, probe_ms)
            known = offset


def _bisect_change(name: str, before_ms: int, after_ms: int) -> int:
    """The second at which the offset changes, between two instants where it differs."""
    low, high, known = before_ms // SECOND_MS, after_ms // SECOND_MS, offset_ms(name, before_ms)
    while high - low > 1:
        middle = (low + high) // 2
        if offset_ms(name, middle * SECOND_MS) == known:
            low = middle
        else:
            high = middle
    return high * SECOND_MS
