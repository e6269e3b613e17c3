"""What did not go out at the first try, as far as this process has seen: parked occurrences, failing schedules.

Bounded: of more than `KEPT_MAX` at once, those beyond are not counted. What was not heard of for longer than a parked
occurrence may wait is forgotten: another process has its range now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tocsin.schema.entries import Entry, parse_occurrence_key
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.instants import MINUTE_MS

#: Occurrences and schedules remembered at once.
KEPT_MAX = 100_000
#: Twice the longest distance between two tries of a parked occurrence.
FORGOTTEN_AFTER_MS = 10 * MINUTE_MS


class Setbacks:
    """Keyed by occurrence and by schedule."""

    def __init__(self) -> None:
        self._parked: dict[tuple[str, int], tuple[str, int]] = {}
        self._failing: dict[str, int] = {}

    @property
    def failing_count(self) -> int:
        """Schedules and timers whose last occurrence was parked, or became a dead letter."""
        return len(self._failing)

    def parked_counts(self) -> Counter[str]:
        """Parked occurrences by topic."""
        return Counter(topic for topic, _ in list(self._parked.values()))

    def parked(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """These wait for their topic."""
        for entry in entries:
            occurrence = (entry.schedule_id, entry.scheduled_for)
            if occurrence in self._parked or len(self._parked) < KEPT_MAX:
                self._parked[occurrence] = topic, now
            self._fails(entry.schedule_id, now)

    def dead_lettered(self, key: str, now: int) -> None:
        """This one waits no longer, and its schedule failed; of a pack that cannot be read no schedule is known."""
        try:
            schedule_id, scheduled_for, _ = parse_occurrence_key(key)
        except InvalidSchedule:
            return
        self._fails(schedule_id, now)
        self._parked.pop((schedule_id, scheduled_for), None)

    def dispatched(self, entries: Sequence[Entry]) -> None:
        """These went out."""
        if not self._failing and not self._parked:
            return
        for entry in entries:
            self._failing.pop(entry.schedule_id, None)
            self._parked.pop((entry.schedule_id, entry.scheduled_for), None)

    def forget(self, now: int) -> None:
        """Forget what was not heard of for long."""
        oldest = now - FORGOTTEN_AFTER_MS
        self._parked = {key: kept for key, kept in self._parked.items() if kept[1] >= oldest}
        self._failing = {key: at for key, at in self._failing.items() if at >= oldest}

    def _fails(self, schedule_id: str, now: int) -> None:
        if schedule_id in self._failing or len(self._failing) < KEPT_MAX:
            self._failing[schedule_id] = now
