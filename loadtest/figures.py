"""What a load test measured, as one record: the JSON beside the report, and what the report is drawn from.

Every series is bounded by the length of the run in seconds, never by the number of occurrences. Percentiles are exact,
by nearest rank over all occurrences. Lateness is the record's time on the topic minus its due.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tocsin.loadtest.verdict import Verdict, percentile
from tocsin.schema.instants import SECOND_MS

#: Upper bounds of the heat map's rows, ms; what is slower is in the last row.
HEAT_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
#: Columns of the heat map: parts of the hour.
HEAT_COLUMNS: Final = 60
#: Points of a distribution curve.
CURVE_POINTS: Final = 200
#: Keys of each kind that a report names.
EXAMPLES_MAX: Final = 20
#: The percentiles that are told.
PERCENTS: Final = (50.0, 90.0, 99.0, 99.9, 100.0)


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of some occurrences, in ms; None of nothing."""

    count: int
    p50_ms: int | None
    p90_ms: int | None
    p99_ms: int | None
    p99_9_ms: int | None
    max_ms: int | None
    #: (lateness in ms, share of the occurrences that are not later).
    curve: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, lateness_ms: Iterable[int]) -> Distribution:
        """The distribution of these, in any order."""
        ascending = sorted(lateness_ms)
        p50, p90, p99, p99_9, most = (percentile(ascending, percent) for percent in PERCENTS)
        ranks = sorted({round(rank * (len(ascending) - 1) / CURVE_POINTS) for rank in range(CURVE_POINTS + 1)})
        curve = tuple((ascending[rank], (rank + 1) / len(ascending)) for rank in ranks if ascending)
        return cls(count=len(ascending), p50_ms=p50, p90_ms=p90, p99_ms=p99, p99_9_ms=p99_9, max_ms=most, curve=curve)


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """One second of the run."""

    #: From the start of the window, in seconds.
    at: int
    #: Occurrences that fell due in it, and that were dispatched in it for the first time.
    due: int
    dispatched: int
    #: Due by its end and not dispatched.
    outstanding: int


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """How one peak went out."""

    #: When it began, in seconds from the start of the window.
    at: float
    count: int
    #: Until the last of it was dispatched; None: it never was.
    seconds: float | None
    #: (seconds from its beginning, occurrences not dispatched yet).
    curve: tuple[tuple[float, int], ...]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at the running parts showed."""

    #: From the start of the window, in seconds.
    at: float
    #: The largest over all shard ranges, in seconds; None: the store did not answer.
    lag: float | None
    unowned: int | None
    #: By part: share of one processor, and resident bytes.
    parts: dict[str, tuple[float, int]]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done to the system."""

    at: float
    what: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict in numbers, with some of the keys."""

    expected: int
    dispatched: int
    lost: int
    early: int
    unexpected: int
    out_of_order: int
    repeated: int
    #: Records of others on the topic.
    foreign: int = 0
    #: Calls of the run that the store did not answer as it should.
    failed_calls: int = 0
    #: Some keys of each kind.
    examples: dict[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, verdict: Verdict, *, foreign: int = 0, failed_calls: int = 0) -> Findings:
        """The numbers of a verdict."""
        kinds = {
            "lost": verdict.lost,
            "early": verdict.early,
            "unexpected": verdict.unexpected,
            "out of order": verdict.out_of_order,
            "repeated": verdict.repeated,
        }
        return cls(
            expected=verdict.expected_count,
            dispatched=verdict.dispatched_count,
            lost=len(verdict.lost),
            early=len(verdict.early),
            unexpected=len(verdict.unexpected),
            out_of_order=len(verdict.out_of_order),
            repeated=verdict.repeat_count,
            foreign=foreign,
            failed_calls=failed_calls,
            examples={name: keys[:EXAMPLES_MAX] for name, keys in kinds.items() if keys},
        )


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One load test, or one verification of a topic."""

    #: What was run, by name: profile, scale, store, …
    settings: dict[str, str]
    findings: Findings
    #: Lateness of all, of peaks, and of everything beside them.
    lateness: dict[str, Distribution]
    seconds: tuple[Second, ...]
    #: Occurrences by row (lateness, see HEAT_BOUNDS_MS, one more for the rest) and column (part of the hour).
    heat: tuple[tuple[int, ...], ...]
    hour_ms: int
    drains: tuple[Drain, ...] = ()
    samples: tuple[Sample, ...] = ()
    events: tuple[Event, ...] = ()
    #: Metrics of all dispatchers as they read at the end, by name and labels.
    metrics: dict[str, float] = {}


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which time is looked at, and what in it is a peak; ms UTC."""

    start_ms: int
    end_ms: int
    hour_ms: int
    peaks: tuple[int, ...] = ()
    peak_ms: int = SECOND_MS

    def is_peak(self, due: int) -> bool:
        """Whether an occurrence belongs to a peak."""
        after = bisect_left(self.peaks, due + 1)
        return after > 0 and due - self.peaks[after - 1] < self.peak_ms


def lateness_by_part(expected: Mapping[str, int], first: Mapping[str, int], window: Window) -> dict[str, Distribution]:
    """Lateness of all, of peaks, and of the rest."""
    parts: dict[str, list[int]] = {"all": [], "peak": [], "rest": []}
    for key, due in expected.items():
        at_ms = first.get(key)
        if at_ms is not None:
            parts["all"].append(at_ms - due)
            parts["peak" if window.is_peak(due) else "rest"].append(at_ms - due)
    return {name: Distribution.of(lateness_ms) for name, lateness_ms in parts.items() if lateness_ms or name == "all"}


def seconds_of(expected: Mapping[str, int], first: Mapping[str, int], window: Window) -> tuple[Second, ...]:
    """Second by second what fell due, what went out, and what was outstanding."""
    start = window.start_ms
    due = Counter((at - start) // SECOND_MS for at in expected.values())
    went_out = Counter((first[key] - start) // SECOND_MS for key in expected if key in first)
    seconds = []
    outstanding = 0
    for at in range(min([0, *due]), max([*due, *went_out], default=-1) + 1):
        outstanding += due[at] - went_out[at]
        seconds.append(Second(at=at, due=due[at], dispatched=went_out[at], outstanding=outstanding))
    return tuple(seconds)


def heat_of(expected: Mapping[str, int], first: Mapping[str, int], window: Window) -> tuple[tuple[int, ...], ...]:
    """Lateness over the hour: every hour of the run laid on top of the others."""
    rows = [[0] * HEAT_COLUMNS for _ in range(len(HEAT_BOUNDS_MS) + 1)]
    for key, due in expected.items():
        at_ms = first.get(key)
        if at_ms is not None:
            column = (due - window.start_ms) % window.hour_ms * HEAT_COLUMNS // window.hour_ms
            rows[bisect_left(HEAT_BOUNDS_MS, at_ms - due)][column] += 1
    return tuple(map(tuple, rows))


def drains_of(expected: Mapping[str, int], first: Mapping[str, int], window: Window) -> tuple[Drain, ...]:
    """How each peak went out."""
    went_out: dict[int, list[int]] = {peak: [] for peak in window.peaks}
    counts: Counter[int] = Counter()
    for key, due in expected.items():
        if window.is_peak(due):
            peak = window.peaks[bisect_left(window.peaks, due + 1) - 1]
            counts[peak] += 1
            if key in first:
                went_out[peak].append(first[key])
    return tuple(_drain(peak, counts[peak], sorted(went_out[peak]), window) for peak in window.peaks if counts[peak])


def _drain(peak: int, count: int, went_out: Sequence[int], window: Window) -> Drain:
    ranks = sorted({round(rank * (len(went_out) - 1) / CURVE_POINTS) for rank in range(CURVE_POINTS + 1)})
    curve = [((went_out[rank] - peak) / 1000, count - rank - 1) for rank in ranks if went_out]
    is_out = len(went_out) == count
    return Drain(
        at=(peak - window.start_ms) / 1000,
        count=count,
        seconds=(went_out[-1] - peak) / 1000 if is_out else None,
        curve=((0.0, count), *curve),
    )
