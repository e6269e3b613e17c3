"""Schedules that occur every second, and whether each of their occurrences has come: the pulse of a fleet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from acceptance.records import Topic

from tocsin import CatchUp, Every, NewSchedule, Scheduler
from tocsin.loadtest.verdict import Verdict, judge
from tocsin.schema.entries import occurrence_key
from tocsin.schema.instants import SECOND_MS, ceil_ms

PULSES = 24
PATIENCE_SECONDS = 90

#: A client of the store under test, with the store's timing.
OpenScheduler = Callable[[], Scheduler]


class Pulse:
    """Schedules that occur every second from an anchor on, and what has come of them.

    They catch up on everything: an outage makes an occurrence late, and none may be missing.
    """

    def __init__(self, scheduler: OpenScheduler, topic: Topic, count: int = PULSES) -> None:
        self.topic = topic
        self._scheduler = scheduler
        self._ids = [f"{topic.name}-{number}" for number in range(count)]
        self._anchor = datetime.now(UTC) + timedelta(seconds=2)

    def start(self) -> None:
        """Create them, and begin in two seconds."""
        self._anchor = datetime.now(UTC) + timedelta(seconds=2)
        rule = Every(timedelta(seconds=1), anchor=self._anchor)
        schedules = [
            NewSchedule(
                schedule_id=schedule_id,
                recurrence=rule,
                topic=self.topic.name,
                start=self._anchor,
                catch_up=CatchUp.ALL,
            )
            for schedule_id in self._ids
        ]
        with self._scheduler() as scheduler:
            failed = [result for result in scheduler.create_many(schedules) if result.error is not None]
        assert failed == []

    def stop(self) -> None:
        """Cancel them."""
        with self._scheduler() as scheduler:
            for schedule_id in self._ids:
                scheduler.cancel(schedule_id)

    def owed(self, due: float) -> dict[str, int]:
        """The due of every occurrence up to an instant, ms UTC."""
        instants = range(ceil_ms(self._anchor), int(due) + 1, SECOND_MS)
        return {occurrence_key(schedule_id, instant): instant for schedule_id in self._ids for instant in instants}

    def until_due(self, due: float) -> None:
        """Read on until all of them have come that are due by an instant, ms UTC."""
        owed = self.owed(due).keys()
        assert self.topic.until(lambda it: it.keys >= owed, seconds=PATIENCE_SECONDS), (
            f"missing: {sorted(owed - self.topic.keys)[:20]}"
        )

    def judged(self, first: float, last: float) -> Verdict:
        """What became of those due between two instants, ms UTC, once all of them have come."""
        self.until_due(last)
        owed = {key: due for key, due in self.owed(last).items() if due > first}
        verdict = judge(owed, [seen for seen in self.topic.seen if seen.key in owed])
        print(
            f"{self.topic.name}: {verdict.dispatched_count} keys, repeats {verdict.repeat_count}, "
            f"lateness p50 {verdict.lateness_ms_at(50)} ms, p99 {verdict.lateness_ms_at(99)} ms, "
            f"worst {verdict.lateness_ms_at(100)} ms"
        )
        return verdict
