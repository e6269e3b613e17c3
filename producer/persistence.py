"""Repeating a store call until it is answered.

A failed read is never taken for an answer, and a write that timed out is written again until it is acknowledged: only
then may the next step begin. A client gives up at its deadline; a dispatcher has none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tocsin.schema.clock import Clock
from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.timing import Timing

Answer = TypeVar("Answer")


class Persistence:
    """Repeats calls with a growing pause between them."""

    def __init__(self, clock: Clock, timing: Timing) -> None:
        self._clock = clock
        self._timing = timing

    async def until_answered(self, ask: Callable[[], Awaitable[Answer]], deadline: int | None = None) -> Answer:
        """The answer of the first call that has one.

        Args:
            ask: makes the call; it is made again and again, so it must be harmless to repeat.
            deadline: on the monotonic clock, in ms; no call begins after it. None: never give up.

        Raises:
            StoreUnavailable, StoreTimeout: what the last call before the deadline raised.
        """
        pause_ms = self._timing.retry_ms
        while True:
            if deadline is not None and self._clock.monotonic_ms() > deadline:
                # A host that stood still for hours must not write what others have long replaced.
                raise StoreTimeout("the deadline passed before the store was asked; repeat the call.")
            try:
                return await ask()
            except (StoreUnavailable, StoreTimeout):
                if deadline is not None and self._clock.monotonic_ms() + pause_ms > deadline:
                    raise
            await self._clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, self._timing.retry_ms_max)


class PersistenceOfCaller(Persistence):
    """What a caller sees of calls that change nothing, or whose failure says by itself that all is open.

    StoreTimeout is between a store and the protocol. Nobody who asked for a row needs to tell it from StoreUnavailable.
    """

    async def until_answered(self, ask: Callable[[], Awaitable[Answer]], deadline: int | None = None) -> Answer:
        """See Persistence; raises StoreUnavailable only."""
        try:
            return await super().until_answered(ask, deadline)
        except StoreTimeout as error:
            raise StoreUnavailable("the store did not answer in time; nothing was changed. Try again later.") from error
