"""What `schedules` says of a marked entry or marker: it counts, it is undecided, or it is dropped.

    counts      its version is current and the schedule active; or its version stands in `replaced`, the schedule is
                active, and it is nominal before that version's end
    undecided   no row yet, or an older version there: its commit may still be under way
    dropped     all else. A dropped entry is not re-armed: the old chain ends there

The row must have been read serially, after the entry was read.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tocsin.dispatcher.services import Services
from tocsin.dispatcher.waiting import NO_END, Item, Status, Waiting
from tocsin.producer.insert import Placement
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.levels import Level
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


class Verifier:
    """Asks `schedules` about marked entries and markers of one range, until it knows.

    Args:
        services: store and insert rule.
        waiting: the owner's memory.
        release: called when something may have become due.
        goes_on: whether the range is still owned.
    """

    def __init__(
        self, services: Services, waiting: Waiting, *, release: Callable[[], None], goes_on: Callable[[], bool]
    ) -> None:
        self._services = services
        self._timing = services.timing
        self._waiting = waiting
        self._release = release
        self._goes_on = goes_on

    async def entries(self, items: Sequence[Item]) -> None:
        """Let items count, drop them, or move them back to near, to be asked about again later."""
        while items:
            rows = await self._rows({item.entry.schedule_id for item in items})
            moving = [item for item in items if self._is_undecided(item, rows.get(item.entry.schedule_id))]
            self._release()
            items = await self._move(moving)

    async def markers(self, markers: Sequence[Marker]) -> None:
        """Ask about marked markers each second until their changes are decided; the first answer frees a schedule."""
        first = True
        for _ in range(self._timing.undecided_ms_max // self._timing.undecided_ms):
            rows = await self._rows({marker.schedule_id for marker in markers})
            undecided = [
                marker for marker in markers if self._is_marker_undecided(marker, rows.get(marker.schedule_id))
            ]
            if first:
                first = False
                for marker in markers:
                    self._waiting.answered(marker.schedule_id)
                self._release()
            markers = undecided
            if not markers or not self._goes_on():
                return
            await self._services.clock.sleep_ms(self._timing.undecided_ms)

    def _is_marker_undecided(self, marker: Marker, row: ScheduleRow | None) -> bool:
        """Apply a marker that counts; True: it is undecided."""
        answer = judge_marker(marker, row)
        self._services.observer.verified(answer.value)
        if answer is Answer.COUNTS:
            self._waiting.apply(marker)
        return answer is Answer.UNDECIDED

    def _is_undecided(self, item: Item, row: ScheduleRow | None) -> bool:
        if item.status is not Status.VERIFYING:
            return False
        verdict = judge_entry(item.entry, row)
        self._services.observer.verified(verdict.answer.value)
        if verdict.answer is Answer.COUNTS and row is not None:
            if not item.entry.spec:
                self._waiting.fill(item, row.spec, row.payload)
            item.end = verdict.end
            self._waiting.let_count(item)
            return False
        if verdict.answer is Answer.UNDECIDED and item.entry.tries < self._timing.undecided_tries_max:
            item.status = Status.MOVING
            return True
        self._waiting.drop(item)
        return False

    async def _move(self, items: Sequence[Item]) -> list[Item]:
        """Back to near; those of which a copy was read meanwhile."""
        if not items:
            return []
        await self._services.inserter.insert(
            [
                Placement(
                    item.entry.marked(tries=item.entry.tries + 1),
                    source=item.source,
                    delay_ms=self._timing.undecided_ms << item.entry.tries,
                    level=Level.NEAR,
                )
                for item in items
            ]
        )
        return [item for item in items if self._waiting.moved(item, Status.MOVING)]

    async def _rows(self, schedule_ids: Iterable[str]) -> dict[str, ScheduleRow]:
        ids = sorted(schedule_ids)
        return dict(await self._services.persistence.until_answered(lambda: self._services.store.read_schedules(ids)))
