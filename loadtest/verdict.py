"""Was anything lost, early, repeated or out of order? Judged from the sink alone, against keys that must be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Seen(NamedTuple):
    """One record as the sink has it."""

    key: str
    #: When the sink took it; ms UTC.
    at_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of a set of occurrences."""

    expected_count: int
    #: Expected occurrences that the sink has, each counted once.
    dispatched_count: int
    #: Expected, but not there.
    lost: tuple[str, ...]
    #: There before they were due.
    early: tuple[str, ...]
    #: There, but not expected: cancelled in time, or of no recurrence.
    unexpected: tuple[str, ...]
    #: There for the first time after a later occurrence of their schedule.
    out_of_order: tuple[str, ...]
    #: There more than once: at least once is what is promised, so consumers dedupe on the key.
    repeated: tuple[str, ...]
    #: Records beyond the first of an occurrence.
    repeat_count: int
    #: First record − due of each dispatched occurrence, ascending, in ms.
    lateness_ms: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether the promise was kept: nothing lost, nothing early, nothing that should not be."""
        return not (self.lost or self.early or self.unexpected)

    def lateness_ms_at(self, percent: float) -> int | None:
        """The lateness that so many percent of the occurrences stay within; None where there were none."""
        return percentile(self.lateness_ms, percent)


class Judge:
    """Hears records as they come, in the order in which each partition has them.

    Args:
        expected: the due of every occurrence key that has to be there, ms UTC; it may grow while records come.
    """

    def __init__(self, expected: Mapping[str, int]) -> None:
        self._expected = expected
        self._counts: Counter[str] = Counter()
        #: When each occurrence key came first, ms UTC.
        self.first: dict[str, int] = {}
        self._latest: dict[str, str] = {}
        self._out_of_order: list[str] = []
        self.record_count = 0

    def hear(self, records: Iterable[Seen]) -> None:
        """Take in records; of one schedule in the order in which they came."""
        for key, at_ms in records:
            self.record_count += 1
            self._counts[key] += 1
            known = self.first.get(key)
            self.first[key] = at_ms if known is None else min(known, at_ms)
            if known is None:
                # Instants of one format: as texts they are in the order of time.
                schedule_id, _, instant = key.rpartition("@")
                latest = self._latest.get(schedule_id, "")
                if instant < latest and "!" not in instant:
                    self._out_of_order.append(key)
                else:
                    self._latest[schedule_id] = instant

    def missing_count(self) -> int:
        """How many expected occurrences have not come yet."""
        return sum(key not in self.first for key in self._expected)

    def verdict(self, *, tolerated: Collection[str] = ()) -> Verdict:
        """What became of it all.

        Args:
            tolerated: keys that may be there or not: a cancel called them possibly dispatched.
        """
        expected, first = self._expected, self.first
        there = [key for key in expected if key in first]
        return Verdict(
            expected_count=len(expected),
            dispatched_count=len(there),
            lost=tuple(key for key in expected if key not in first),
            early=tuple(key for key in there if first[key] < expected[key]),
            unexpected=tuple(key for key in first if key not in expected and key not in tolerated),
            out_of_order=tuple(self._out_of_order),
            repeated=tuple(key for key, count in self._counts.items() if count > 1),
            repeat_count=self.record_count - len(first),
            lateness_ms=tuple(sorted(first[key] - expected[key] for key in there)),
        )


def judge(expected: Mapping[str, int], records: Iterable[Seen], *, tolerated: Collection[str] = ()) -> Verdict:
    """Compare what a sink has with what it should have.

    Args:
        expected: the due of every occurrence key that has to be there, ms UTC.
        records: everything the sink has, of each schedule in the order in which it came.
        tolerated: keys that may be there or not: a cancel called them possibly dispatched.
    """
    court = Judge(expected)
    court.hear(records)
    return court.verdict(tolerated=tolerated)


def percentile(ascending: tuple[int, ...] | list[int], percent: float) -> int | None:
    """The smallest value that at least so many percent are not above (nearest rank); None of nothing."""
    if not ascending:
        return None
    rank = -int(-percent * len(ascending) // 100)
    return ascending[min(max(rank, 1), len(ascending)) - 1]
