"""Clocks: the host's, and the store's as a lower bound.

Never early rests on the store's clock. A reply carries the server's time when it was made; that, plus the host's
boot-time clock since the reply was *received*, is never ahead of the server. Over several coordinators the minimum
counts, after outliers beyond the allowed skew were discarded, so one fast server cannot make anything early and one
slow server cannot hold everything back. No two hosts' wall clocks are ever compared for correctness; the host's wall
clock only raises the alarm, and where it differs too far nothing is sealed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median_low
from typing import Protocol

from tocsin.schema.errors import ClockSkew


class Clock(Protocol):
    """A host's clocks, in milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may step."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some start; never steps, and goes on while the host is suspended."""
        ...

    async def sleep_ms(self, duration_ms: int) -> None:
        """Wait that long."""
        ...


class SystemClock:
    """The clocks of this host; the monotonic one counts suspended time too where the system has such a clock."""

    _boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since boot."""
        return time.clock_gettime_ns(self._boot) // 1_000_000

    async def sleep_ms(self, duration_ms: int) -> None:
        """Wait that long; zero and less lets others run once."""
        await asyncio.sleep(max(0, duration_ms) / 1000)


class ServerClock(Protocol):
    """The part of a store that StoreClock reads."""

    async def server_times_ms(self) -> Sequence[int]:
        """One reading per coordinator asked, ms UTC."""
        ...


#: A host's monotonic clock and a server's clock drift apart by less than this, in parts per million.
DRIFT_PPM = 500


class StoreClock:
    """The store's time from below, in ms UTC, between two readings carried on by the host's monotonic clock.

    A reply that we hear of late, because the event loop was busy or the network slow, gives a bound that is too low by
    as much. The bound carried on from the readings before is kept instead where it is better, less what the clocks may
    have drifted apart since; unless the reply shows that the store's clock was set back.
    """

    def __init__(self, store: ServerClock, clock: Clock, *, skew_ms_max: int) -> None:
        self._store = store
        self._clock = clock
        self._skew_ms_max = skew_ms_max
        self._base: int | None = None
        self._base_at = 0
        #: Store − host at the last reading, for the metric and the alarm: 0 where the reply's travel explains it all.
        self.skew_ms = 0

    async def refresh(self) -> None:
        """Ask the store for its time. Raises StoreUnavailable or StoreTimeout, and then the last reading stands."""
        sent, wall_sent = self._clock.monotonic_ms(), self._clock.wall_ms()
        reading = lowest_credible(await self._store.server_times_ms(), self._skew_ms_max)
        received, wall_received = self._clock.monotonic_ms(), self._clock.wall_ms()
        # All clocks are cut to whole milliseconds; one less, and the sum of two cuts never leads.
        base = reading - received - 1
        if self._base is not None:
            carried = self._base - -(-(received - self._base_at) * DRIFT_PPM // 1_000_000)
            if reading >= carried + sent:
                base = max(base, carried)
        self._base, self._base_at = base, received
        least, most = reading - wall_received, reading - wall_sent
        self.skew_ms = 0 if least <= 0 <= most else min(least, most, key=abs)

    def now_ms(self) -> int:
        """A lower bound of the store's time. Call `refresh` first."""
        if self._base is None:
            raise RuntimeError("StoreClock.refresh was never called")
        return self._base + self._clock.monotonic_ms()

    def require_agreement(self) -> None:
        """Raise ClockSkew where host and store differ by more than allowed: nothing may be sealed then."""
        if abs(self.skew_ms) > self._skew_ms_max:
            raise ClockSkew(self.skew_ms, self._skew_ms_max)


def lowest_credible(readings: Sequence[int], skew_ms_max: int) -> int:
    """The minimum of the readings that lie within the allowed skew of their median."""
    middle = median_low(readings)
    return min(reading for reading in readings if abs(reading - middle) <= skew_ms_max)
