"""The bound on records handed over and not yet answered: by count, by bytes, and no topic with more than half of it.

Without the half a topic whose partitions lost their leader would fill the room within a second, and every other topic
would wait for its time-outs. An empty share takes any one parcel, so nothing can be too big to ever be let in.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Share:
    """What one topic holds of the room."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0


class Room:
    """Un-acked records, bounded; who finds no room waits, first come first served among those their share admits."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._all = Share()
        self._waiting: deque[tuple[Share, int, int, asyncio.Future[None]]] = deque()

    @property
    def count(self) -> int:
        """Records inside."""
        return self._all.count

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return self._all.size_bytes

    async def take(self, share: Share, count: int, size_bytes: int) -> None:
        """Wait until that much fits and take it."""
        if not self._waiting and self._fits(share, count, size_bytes):
            self._enter(share, count, size_bytes)
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((share, count, size_bytes, admitted))
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.give_back(share, count, size_bytes)
            raise

    def give_back(self, share: Share, count: int, size_bytes: int) -> None:
        """Leave, and let in who waits."""
        self._enter(share, -count, -size_bytes)
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        still_waiting: deque[tuple[Share, int, int, asyncio.Future[None]]] = deque()
        while self._waiting:
            share, count, size_bytes, admitted = waiter = self._waiting.popleft()
            if admitted.done():
                continue  # cancelled while it waited
            if self._fits(share, count, size_bytes):
                self._enter(share, count, size_bytes)
                admitted.set_result(None)
                continue
            still_waiting.append(waiter)
            if self._fits_share(share, count, size_bytes):
                break  # its share admits it and the room does not: whoever came later must not starve it
        self._waiting.extendleft(reversed(still_waiting))

    def _fits(self, share: Share, count: int, size_bytes: int) -> bool:
        inside = self._all
        return self._fits_share(share, count, size_bytes) and (
            inside.count == 0
            or (inside.count + count <= self._count_max and inside.size_bytes + size_bytes <= self._bytes_max)
        )

    def _fits_share(self, share: Share, count: int, size_bytes: int) -> bool:
        return share.count == 0 or (
            2 * (share.count + count) <= self._count_max and 2 * (share.size_bytes + size_bytes) <= self._bytes_max
        )

    def _enter(self, share: Share, count: int, size_bytes: int) -> None:
        share.count += count
        share.size_bytes += size_bytes
        self._all.count += count
        self._all.size_bytes += size_bytes
