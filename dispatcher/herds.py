"""How herds went: how long the last full hour took, and what a minute holds in the mean."""

from __future__ import annotations

from collections import Counter

from tocsin.schema.instants import HOUR_MS, MINUTE_MS, SECOND_MS


class Herds:
    """Counts what was dispatched by the minute in which it was due, for an hour."""

    def __init__(self) -> None:
        #: From the last full hour at which anything was due until all of it was out, as far as it has come; ms.
        self.drain_ms: int | None = None
        self._hour = 0
        self._minutes: Counter[int] = Counter()
        self._first: int | None = None

    def dispatched(self, due: int, count: int, now: int) -> None:
        """So many occurrences of one instant were acknowledged at `now`; ms UTC."""
        minute = due // MINUTE_MS
        self._minutes[minute] += count
        if self._first is None or minute < self._first:
            self._first = minute
        hour = due // HOUR_MS
        if due % HOUR_MS < SECOND_MS and hour >= self._hour:
            lasted = now - hour * HOUR_MS
            self.drain_ms = lasted if hour > self._hour or self.drain_ms is None else max(self.drain_ms, lasted)
            self._hour = hour

    def mean_of_a_minute(self, now: int) -> float | None:
        """Occurrences of a minute, over the whole minutes of the last hour; None before the first one is over."""
        end = now // MINUTE_MS
        if self._first is None or self._first >= end:
            return None
        start = max(self._first, end - HOUR_MS // MINUTE_MS)
        return sum(self._minutes[minute] for minute in range(start, end)) / (end - start)

    def forget(self, now: int) -> None:
        """Forget minutes older than an hour."""
        oldest = (now - HOUR_MS) // MINUTE_MS
        for minute in [minute for minute in self._minutes if minute < oldest]:
            del self._minutes[minute]
        if self._first is not None:
            self._first = max(self._first, oldest)
