"""A clock that a test turns by hand."""

from __future__ import annotations

import asyncio

#: Some instant: 2026-11-30 10:00 UTC, a full minute and a full hour.
START_MS = 1_796_032_800_000


class ManualClock:
    """Both clocks of a host; sleeping turns them on at once."""

    def __init__(self, wall_ms: int = START_MS, monotonic_ms: int = 1_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self.slept_ms: list[int] = []

    def turn(self, duration_ms: int) -> None:
        """Let time pass."""
        self._wall_ms += duration_ms
        self._monotonic_ms += duration_ms

    def step(self, by_ms: int) -> None:
        """Move the wall clock only, as an operator or NTP would."""
        self._wall_ms += by_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    async def sleep_ms(self, duration_ms: int) -> None:
        self.slept_ms.append(duration_ms)
        self.turn(max(0, duration_ms))
        await asyncio.sleep(0)
