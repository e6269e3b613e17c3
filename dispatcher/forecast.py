"""What the next minutes and the next full hour hold, as it was seen at the last look at each shard range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tocsin.schema.instants import HOUR_MS, MINUTE_MS

#: Minutes that are looked ahead: always as far as the next full hour.
MINUTES_AHEAD = 60


class Forecast:
    """What was seen at the last look at each range; those seen stand for all that are owned, until each was seen."""

    def __init__(self) -> None:
        self._owned_count = 0
        self._ranges: dict[int, tuple[Mapping[int, float], Mapping[int, float]]] = {}

    def saw(self, shard_range: int, minutes: Mapping[int, float], herds: Mapping[int, float]) -> None:
        """Take one look: occurrences by minute, and the forecast of full hours, by their instants, ms UTC."""
        self._ranges[shard_range] = minutes, herds

    def keep_only(self, shard_ranges: Iterable[int]) -> None:
        """Forget ranges that another process serves now."""
        kept = set(shard_ranges)
        self._owned_count = len(kept)
        self._ranges = {number: seen for number, seen in self._ranges.items() if number in kept}

    def waiting(self, now: int) -> list[int]:
        """Occurrences in the buckets of the next minutes, the one that begins next first."""
        start = next_minute(now)
        scale = self._scale()
        return [
            round(scale * sum(minutes.get(start + ahead * MINUTE_MS, 0) for minutes, _ in self._ranges.values()))
            for ahead in range(MINUTES_AHEAD)
        ]

    def herd(self, now: int) -> int | None:
        """Occurrences of the first minute of the next hour; None before the first look."""
        if not self._ranges:
            return None
        hour = next_hour(now)
        return round(self._scale() * sum(herds.get(hour, 0.0) for _, herds in self._ranges.values()))

    def _scale(self) -> float:
        return max(1.0, self._owned_count / max(1, len(self._ranges)))


def next_minute(now: int) -> int:
    """The start of the next minute, ms UTC."""
    return (now // MINUTE_MS + 1) * MINUTE_MS


def next_hour(now: int) -> int:
    """The next full hour, ms UTC."""
    return (now // HOUR_MS + 1) * HOUR_MS
