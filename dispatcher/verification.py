"""What `schedules` says of a marked entry or marker: it counts, it is undecided, or it is dropped.

    counts      its version is current and the schedule active; or its version stands in `replaced`, the schedule is
                active, and it is nominal before that version's end
    undecided   no row yet, or an older version there: its commit may still be under way
    dropped     all else. A dropped entry is not re-armed: the old chain ends there

The row must have been read serially, after the entry was read.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from tocsin.dispatcher.waiting import NO_END
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.schedules import Marker, ScheduleRow, State

#: What a caller asked for explicitly runs although the rule is paused.
_RUN_WHILE_PAUSED = frozenset({Kind.TRIGGER, Kind.BACKFILL})


class Answer(enum.Enum):
    """What becomes of it; the value is the label of the metric."""

    COUNTS = "counts"
    UNDECIDED = "undecided"
    DROPPED = "dropped"


class Verdict(NamedTuple):
    """The answer for an entry, and up to which nominal time its version owns."""

    answer: Answer
    end: int = NO_END


def judge_entry(entry: Entry, row: ScheduleRow | None) -> Verdict:
    """Whether a marked entry counts."""
    if row is None or row.version < entry.version:
        return Verdict(Answer.UNDECIDED)
    if row.state is not State.ACTIVE and not (row.state is State.PAUSED and entry.kind in _RUN_WHILE_PAUSED):
        return Verdict(Answer.DROPPED)
    if row.version == entry.version:
        return Verdict(Answer.COUNTS)
    end = row.end_of(entry.version)
    if end is not None and entry.scheduled_for < end and entry.spec:
        return Verdict(Answer.COUNTS, end)
    return Verdict(Answer.DROPPED)


def judge_marker(marker: Marker, row: ScheduleRow | None) -> Answer:
    """Whether a marked change marker counts: its change holds, or was replaced by a later one that remembers it."""
    if row is None or row.version < marker.version:
        return Answer.UNDECIDED
    if row.version == marker.version or row.end_of(marker.version) is not None:
        return Answer.COUNTS
    return Answer.DROPPED
