"""From the driver's threads to the event loop, with one wake-up for many answers.

`call_soon_threadsafe` writes a byte to a pipe under a lock; done for each of thousands of answers a second it costs
more than they do. Answers are put into a queue instead, and the loop is woken only where it is not already about to
look: the flag is taken down before the queue is emptied, so an answer that meets the flag up is in the queue in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Answers(Generic[Result]):
    """Futures of one event loop that other threads resolve. Make it within the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Callable[[], None]] = deque()
        self._woken = False

    def expect(self) -> asyncio.Future[Result]:
        """A future to be resolved by `put`."""
        return self._loop.create_future()

    def put(self, resolve: Callable[[], None]) -> None:
        """From any thread: resolve a future, within the event loop."""
        self._arrived.append(resolve)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # The event loop is closed: nobody waits any more.
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._woken = False
        while self._arrived:
            self._arrived.popleft()()
