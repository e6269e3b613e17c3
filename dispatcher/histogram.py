"""A histogram of durations for Prometheus that costs two additions an observation, and one per herd.

Prometheus' own counts one observation a call under a lock; here an observation may stand for a whole batch, and what a
scrape reads is built when somebody scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.core import HistogramMetricFamily


class Histogram:
    """Durations in milliseconds, counted by their upper bounds; slower than the last one counts as +Inf."""

    __slots__ = ("_bounds_ms", "_counts", "_sum_ms")

    def __init__(self, bounds_ms: Sequence[int]) -> None:
        self._bounds_ms = tuple(bounds_ms)
        self._counts = [0] * (len(self._bounds_ms) + 1)
        self._sum_ms = 0.0

    def observe(self, duration_ms: float, count: int = 1) -> None:
        """Count so many observations of one duration."""
        self._counts[bisect_left(self._bounds_ms, duration_ms)] += count
        self._sum_ms += duration_ms * count

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add what was counted to a family in seconds, as Prometheus has it: cumulative, by upper bound."""
        bounds = [str(bound / 1000) for bound in self._bounds_ms] + ["+Inf"]
        total = 0
        cumulative: list[tuple[str, float]] = []
        for bound, count in zip(bounds, list(self._counts), strict=True):
            total += count
            cumulative.append((bound, float(total)))
        family.add_metric(labels, cumulative, self._sum_ms / 1000)
