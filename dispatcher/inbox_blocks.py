"""The blocks an inbox guards: once for each occurrence, and one turn at a time for each schedule.

Both are entered by `with` and by `async with`. The claim is renewed beside the block: on the caller's event loop, or
for code without one on the inbox's own thread, so that a handler may block for as long as it likes.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tocsin.dispatcher.inbox_claims import Awaiting, Place
from tocsin.dispatcher.inbox_hold import Hold, Means
from tocsin.dispatcher.received import Received
from tocsin.schema.errors import ClaimHeld, ClaimLost

#: Distance between two looks at a place that somebody else holds, in ms.
LOOK_MS = 250

Entered = TypeVar("Entered")
Result = TypeVar("Result")


class Host(Protocol):
    """The inbox, as a block needs it."""

    async def ready(self) -> Means:
        """What to work with, connected."""
        ...

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a call on the inbox's own thread and wait for it."""
        ...


class Block(ABC, Generic[Entered]):
    """A context manager of both kinds."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @abstractmethod
    async def _enter(self, means: Means) -> Entered: ...

    @abstractmethod
    async def _leave(self, error: BaseException | None) -> None: ...

    async def __aenter__(self) -> Entered:
        return await self._enter(await self._host.ready())

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self._leave(error)

    def __enter__(self) -> Entered:
        return self._host.run(self.__aenter__())

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._host.run(self._leave(error))


class Once(Block[bool]):
    """Yields True where the work is to be done, False where it was done before; recorded when the block succeeds.

    Raises:
        ClaimHeld: another consumer is at work on it, and patience ended.
        ClaimLost: on leaving; the claim expired meanwhile.
        StoreUnavailable, StoreTimeout: the claims cannot be reached; on leaving, the block is not recorded.
    """

    def __init__(self, host: Host, place: Place, unfit: Received | None = None) -> None:
        super().__init__(host)
        self._place = place
        #: What is for a consumer of another definition.
        self._unfit = unfit
        self._hold: Hold | None = None

    async def _enter(self, means: Means) -> bool:
        if self._unfit is not None:
            await _set_aside(means, self._place.subscription, self._unfit)
            return False
        hold, deadline = Hold(means, self._place), means.deadline()
        while True:
            claim = await hold.take()
            if claim.holder == hold.holder:
                self._hold = hold
                return True
            if claim.recorded:
                return False
            if means.clock.monotonic_ms() >= deadline:
                raise ClaimHeld(self._place.subscription, self._place.name)
            await means.clock.sleep_ms(LOOK_MS)

    async def _leave(self, error: BaseException | None) -> None:
        hold, self._hold = self._hold, None
        if hold is None:
            return
        if error is not None:
            await hold.release()
        elif not await hold.record():
            raise ClaimLost(self._place.subscription, self._place.name)


class Concurrency(enum.Enum):
    """What happens when an occurrence comes while an earlier one of its schedule is still being worked on."""

    #: Both run.
    ALLOW = "allow"
    #: The one that comes is passed over.
    FORBID = "forbid"
    #: The earlier one is told to stop, see `Turn.replaced`; the one that comes begins once it has.
    REPLACE = "replace"


class Turn:
    """Whether an occurrence may run now; true or false in an `if`."""

    def __init__(self, hold: Hold | None, *, runs: bool) -> None:
        self._hold = hold
        self._runs = runs

    def __bool__(self) -> bool:
        return self._runs

    @property
    def replaced(self) -> bool:
        """Whether the handler should stop: a later occurrence asks for its turn, or has it already.

        Known within a third of `abandoned_after`; look at it between two steps of the work.
        """
        return self._hold is not None and (self._hold.wanted or self._hold.lost)


class Guard(Block[Turn]):
    """Yields the turn of one occurrence among those of its schedule.

    Raises:
        ClaimHeld: with `replace`: the earlier one did not stop, and patience ended.
        StoreUnavailable, StoreTimeout: the claims cannot be reached.
    """

    def __init__(self, host: Host, place: Place, concurrency: Concurrency) -> None:
        super().__init__(host)
        self._place = place
        self._concurrency = concurrency
        self._hold: Hold | None = None

    async def _enter(self, means: Means) -> Turn:
        if self._concurrency is Concurrency.ALLOW:
            return Turn(None, runs=True)
        hold, deadline = Hold(means, self._place), means.deadline()
        asked = b""
        while True:
            claim = await hold.take()
            if claim.holder == hold.holder:
                self._hold = hold
                return Turn(hold, runs=True)
            if self._concurrency is Concurrency.FORBID or _overtaken(asked, claim.holder, claim.successor, hold.holder):
                return Turn(None, runs=False)
            if means.clock.monotonic_ms() >= deadline:
                raise ClaimHeld(self._place.subscription, self._place.name)
            if claim.holder and claim.holder != asked:
                asked = claim.holder
                await hold.ask(asked)
            await means.clock.sleep_ms(LOOK_MS)

    async def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002 — a turn ends in any case
        hold, self._hold = self._hold, None
        if hold is not None:
            await hold.release()


def _overtaken(asked: bytes, holder: bytes, successor: bytes, own: bytes) -> bool:
    """Whether we asked this holder for its place, and a later one has asked after us."""
    return asked == holder != b"" and successor != own


async def _set_aside(means: Means, subscription: str, received: Received) -> None:
    awaiting = Awaiting(received.key, msgspec.msgpack.encode(received))
    definition, lifetime_ms = received.definition or "", means.terms.memory_ms
    await means.persistence.until_answered(
        lambda: means.claims.set_aside(subscription, definition, awaiting, lifetime_ms), means.deadline()
    )
