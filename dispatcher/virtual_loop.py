"""An event loop whose time is turned, not waited for.

Time stands still while anything can be done, a callback that is ready or a file that is readable. Then it jumps to the
next timer. So code that waits for an hour takes as long as what it does in that hour. Threads are not waited for: what
they do takes no virtual time, or any.

A long stretch of time may be turned in strides: every timer is late by up to a stride, as on a host that is slow, and
whoever looks around once a second is asked less often.
"""

from __future__ import annotations

import asyncio
import selectors


class _TurningSelector(selectors.DefaultSelector):
    """Lets time pass instead of waiting."""

    now = 0.0
    #: While time is turned in strides: how long they are, and until when.
    stride = 0.0
    strides_until = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        if timeout is None:  # Nothing is timed: somebody outside will have to speak.
            return super().select(None)
        self.now += max(timeout, min(self.stride, self.strides_until - self.now))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, from 0 on."""

    def __init__(self) -> None:
        self._turning = _TurningSelector()
        super().__init__(self._turning)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._turning.now

    def stride(self, stride: float, until: float) -> None:
        """Let time pass in strides, in seconds, until so many seconds since the loop was made."""
        self._turning.stride, self._turning.strides_until = stride, until


class VirtualClock:
    """A Clock that shows a loop's time."""

    def __init__(self, loop: VirtualLoop, start_ms: int) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self._start_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds since the loop was made."""
        return int(self._loop.time() * 1000)

    async def sleep_ms(self, duration_ms: int) -> None:
        """Wait that long, in virtual time."""
        await asyncio.sleep(max(0, duration_ms) / 1000)
