"""An event loop on a thread of its own, for callers that have none: they hand a call over and wait for its answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class LoopThread:
    """Runs from the moment it is made until it is closed.

    Args:
        owner: whose it is; named to a caller who comes too late.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"tocsin-{owner.lower()}", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._loop.is_closed()

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a call on the loop and wait for its answer, from any thread but its own.

        Raises:
            RuntimeError: the thread is closed.
        """
        if self._loop.is_closed():
            call.close()
            message = f"this {self._owner} is closed; make a new one"
            raise RuntimeError(message)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """End the loop and its thread; safe to call twice."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
