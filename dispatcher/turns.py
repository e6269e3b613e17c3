"""Long stretches of work take turns, so that the event loop serves whoever else is ready between two of them.

A herd makes hundreds of tasks ready in the same moment, and asyncio runs all of them before it looks at sockets and
timers again: a lone occurrence of another topic would wait behind a hundred thousand. Work that takes milliseconds and
comes in hundreds is done within a turn; there is one turn in each pass of the loop, first come first served.
"""

from __future__ import annotations

import asyncio


class Turns:
    """`async with turns:` around a stretch of work that does not await; whoever is alone waits for nobody."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            self._lock.release()
