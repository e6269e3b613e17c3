"""A topic of any run, against what it must hold.

Where what must be there is known completely, from the file of a run, every other key of its schedules is unexpected.
From a store it is not (see expectation.py): then a record that nobody expects is judged only by what it says of itself,
and only within the stretch of time that is looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from tocsin.loadtest import figures
from tocsin.loadtest.figures import Figures, Findings, Window
from tocsin.loadtest.topic_reader import Arrived, TopicReader
from tocsin.loadtest.verdict import Judge
from tocsin.schema.instants import HOUR_MS, MINUTE_MS

#: A topic is read to its end once this many reads in a row found nothing.
EMPTY_READS: Final = 10


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at: dues in [start, end), ms UTC, and whether all of them are known."""

    start_ms: int
    end_ms: int
    hour_ms: int
    is_complete: bool


def verify_topic(reader: TopicReader, expected: Mapping[str, int], stretch: Stretch) -> Figures:
    """Read a topic to its end and judge it."""
    owed = dict(expected)
    judge = Judge(owed)
    known = {key.rpartition("@")[0] for key in owed}
    empty = 0
    while empty < EMPTY_READS:
        arrived = reader.read()
        empty = 0 if arrived else empty + 1
        within = [each for each in arrived if each.seen.key in owed or _is_of_interest(each, stretch, known)]
        if not stretch.is_complete:
            owed.update((each.seen.key, each.due) for each in within if each.seen.key not in owed)
        judge.hear(each.seen for each in within)
    window = Window(
        start_ms=stretch.start_ms // stretch.hour_ms * stretch.hour_ms,
        end_ms=stretch.end_ms,
        hour_ms=stretch.hour_ms,
        peaks=tuple(range(stretch.start_ms // stretch.hour_ms * stretch.hour_ms, stretch.end_ms, stretch.hour_ms)),
        peak_ms=MINUTE_MS * stretch.hour_ms // HOUR_MS,
    )
    return Figures(
        settings={"expected by": "the run that left it" if stretch.is_complete else "the schedules of the store"},
        findings=Findings.of(judge.verdict(), foreign=reader.foreign_count),
        lateness=figures.lateness_by_part(owed, judge.first, window),
        seconds=figures.seconds_of(owed, judge.first, window),
        heat=figures.heat_of(owed, judge.first, window),
        hour_ms=stretch.hour_ms,
        drains=figures.drains_of(owed, judge.first, window),
    )


def _is_of_interest(arrived: Arrived, stretch: Stretch, known: Collection[str]) -> bool:
    """A topic holds other hours, and other runs' schedules."""
    within = stretch.start_ms <= arrived.due < stretch.end_ms
    return within and (not stretch.is_complete or arrived.seen.key.rpartition("@")[0] in known)
