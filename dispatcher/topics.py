"""What this process knows of topics: which fail, since when one is unknown, and whether the broker is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tocsin.schema.timing import Timing


class Topics:
    """Shared by every range of a process; times are on the monotonic clock, in ms."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._failures: Counter[str] = Counter()
        self._unknown_since: dict[str, int] = {}
        self._unanswered = 0

    def acked(self, topic: str) -> None:
        """A record of this topic was acknowledged: it works."""
        if topic in self._failures or topic in self._unknown_since:
            self._failures.pop(topic, None)
            self._unknown_since.pop(topic, None)

    def failed(self, topic: str) -> int:
        """A batch of this topic failed; for how long its occurrences are parked, in ms."""
        delay_ms = self._timing.park_ms << min(self._failures[topic], 16)
        self._failures[topic] += 1
        return min(delay_ms, self._timing.park_ms_max)

    def is_given_up(self, topic: str, now: int) -> bool:
        """The topic is unknown, once more; True: it has been for longer than it is waited for."""
        return now - self._unknown_since.setdefault(topic, now) >= self._timing.unknown_topic_ms

    @contextmanager
    def broker_away(self) -> Iterator[None]:
        """Somebody holds records that nobody answers for, and tries again: reading stops meanwhile."""
        self._unanswered += 1
        try:
            yield
        finally:
            self._unanswered -= 1

    @property
    def is_broker_away(self) -> bool:
        """Whether reading should stop."""
        return self._unanswered > 0

    @property
    def failing(self) -> frozenset[str]:
        """Topics that fail now."""
        return frozenset(self._failures)
