"""The clocks of a simulated host: skewed, drifting, stepping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: The start of every run: midnight UTC, and the start of a scaled day too.
EPOCH_MS = 1_767_225_600_000


class HostClock:
    """Implements tocsin.schema.clock.Clock.

    Args:
        true_ms: the true time, ms UTC.
        skew_ms: how far the wall clock is off.
        drift: how much faster than true time this host counts; 0.00005 is 50 ppm.
        booted_ms: where its monotonic clock started.
    """

    def __init__(
        self, true_ms: Callable[[], float], *, skew_ms: float = 0, drift: float = 0, booted_ms: float = EPOCH_MS - 1_000
    ) -> None:
        self._true_ms = true_ms
        self._booted_ms = booted_ms
        self._rate = 1 + drift
        self.skew_ms = skew_ms

    def wall_ms(self) -> int:
        return int(EPOCH_MS + (self._true_ms() - EPOCH_MS) * self._rate + self.skew_ms)

    def monotonic_ms(self) -> int:
        return int((self._true_ms() - self._booted_ms) * self._rate)

    async def sleep_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(max(0, duration_ms) / 1000 / self._rate)
