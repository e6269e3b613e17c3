"""What all ranges of one process carry together: memory, and what is under way to the sink.

Memory is bounded by bytes. Reading ahead stops at the bound, and what was not read streams as room comes free.

Re-arming is off the lateness path. While a herd is on its way to the sink, what follows those that have arrived can
wait: each re-arm costs as much processor time as a publish, and would be paid for by the occurrences behind it. It
waits no longer than `REARM_WAITS_MS_MAX`, for a schedule of short period is due again soon; and not at all once reading
waits for memory, which only re-arms give back, or a range is to be handed over, for which they must be finished.
"""

from __future__ import annotations

import asyncio

from tocsin.dispatcher.turns import Turns

#: Bytes in memory, over all ranges, beyond which the minute level is read no further until some are dispatched.
WAITING_BYTES_MAX = 160 * 1024 * 1024
#: So many occurrences under way to the sink at once are a herd.
HERD_COUNT = 5_000
#: How long a re-arm waits at most for a herd to be published.
REARM_WAITS_MS_MAX = 2_000


class Load:
    """Shared by the ranges of one process."""

    def __init__(self) -> None:
        #: Entries, records and their places in memory; an estimate, see waiting.py.
        self.size_bytes = 0
        #: What takes milliseconds and comes in hundreds: preparing what was read, computing what follows a batch.
        self.turns = Turns()
        self._publishing = 0
        self._calm = asyncio.Event()
        self._calm.set()

    @property
    def has_room(self) -> bool:
        """Whether more may be read ahead."""
        return self.size_bytes <= WAITING_BYTES_MAX

    def rearm_now(self) -> None:
        """Reading waits for memory, or a range is to be handed over: re-arms must not wait for anything."""
        self._calm.set()

    def publishing(self, count: int) -> None:
        """So many occurrences are handed to the publisher; negative: it has answered for them."""
        self._publishing += count
        if self._publishing < HERD_COUNT:
            self._calm.set()
        elif self.has_room:
            self._calm.clear()

    async def herd_is_out(self) -> None:
        """Wait while a herd is under way, for a limited time."""
        if self._calm.is_set():
            return
        try:
            async with asyncio.timeout(REARM_WAITS_MS_MAX / 1000):
                await self._calm.wait()
        except TimeoutError:
            return
