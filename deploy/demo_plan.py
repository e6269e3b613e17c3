"""What the demo schedules, and the occurrences that must come of it, computed from the recurrences alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tocsin.producer.definition import NewSchedule
from tocsin.schema.entries import occurrence_key
from tocsin.schema.instants import floor_ms
from tocsin.schema.recurrence import Cron, Every, Once

#: One-shots fall due this often.
ONCE_EVERY: Final = timedelta(milliseconds=100)
HEARTBEAT_EVERY: Final = timedelta(seconds=2)
#: Five-field cron knows no seconds; with seconds first this is every fifth second.
REPORT_CRON: Final = "*/5 * * * * *"
REGRET_ID: Final = "regret"
TOPIC: Final = "demo"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything falls due within [start, until]."""

    start: datetime
    until: datetime

    @property
    def duration(self) -> timedelta:
        """From the first due to the last possible one."""
        return self.until - self.start

    def schedules(self) -> Iterator[NewSchedule]:
        """One-shots all along, an Every, a Cron, and one that will be cancelled."""
        for number in range(self.once_count):
            yield self._schedule(f"reminder-{number:03}", Once(self.start + number * ONCE_EVERY))
        yield self._schedule("heartbeat", Every(HEARTBEAT_EVERY, anchor=self.start))
        yield self._schedule("report", Cron(REPORT_CRON, dialect="seconds-first"))
        yield self._schedule(REGRET_ID, Once(self.start + self.duration * 0.8))

    @property
    def once_count(self) -> int:
        """How many one-shots there are."""
        return self.duration // ONCE_EVERY

    def expected(self) -> dict[str, int]:
        """The due of every occurrence key that has to be dispatched; ms UTC."""
        return {
            occurrence_key(str(schedule.schedule_id), floor_ms(at)): floor_ms(at)
            for schedule in self.schedules()
            if schedule.schedule_id != REGRET_ID
            for at in schedule.recurrence.between(self.start, self.until + timedelta(milliseconds=1))
        }

    def _schedule(self, schedule_id: str, recurrence: Once | Every | Cron) -> NewSchedule:
        return NewSchedule(
            schedule_id=schedule_id,
            recurrence=recurrence,
            topic=TOPIC,
            payload=schedule_id.encode(),
            start=self.start,
            until=self.until,
        )
