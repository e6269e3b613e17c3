"""Was anything lost, early or too much? Judged from the sink alone, against keys that the recurrences yield."""

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
    #: Records beyond the first of an occurrence: at least once, so consumers dedupe on the key.
    repeat_count: int
    #: First record − due of each dispatched occurrence, ascending, in ms.
    lateness_ms: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether the promise was kept: nothing lost, nothing early, nothing that should not be."""
        return not (self.lost or self.early or self.unexpected)

    def lateness_ms_at(self, percent: int) -> int | None:
        """The lateness that so many percent of the occurrences stay within; None where there were none."""
        if not self.lateness_ms:
            return None
        rank = -(-percent * len(self.lateness_ms) // 100)
        return self.lateness_ms[max(rank, 1) - 1]


def judge(expected: Mapping[str, int], records: Iterable[Seen], *, tolerated: Collection[str] = ()) -> Verdict:
    """Compare what a sink has with what it should have.

    Args:
        expected: the due of every occurrence key that has to be there, ms UTC.
        records: everything the sink has, in any order.
        tolerated: keys that may be there or not: a cancel called them possibly dispatched.
    """
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    early: dict[str, None] = {}
    for key, at_ms in records:
        counts[key] += 1
        first[key] = min(first.get(key, at_ms), at_ms)
        if key in expected and at_ms < expected[key]:
            early[key] = None
    there = [key for key in expected if key in counts]
    return Verdict(
        expected_count=len(expected),
        dispatched_count=len(there),
        lost=tuple(key for key in expected if key not in counts),
        early=tuple(early),
        unexpected=tuple(key for key in counts if key not in expected and key not in tolerated),
        repeat_count=sum(counts.values()) - len(counts),
        lateness_ms=tuple(sorted(first[key] - expected[key] for key in there)),
    )
