"""Where an inbox keeps its claims: the few steps it is made of, each of them atomic.

A *place* is what is claimed: an occurrence of a subscription, or the turn of a schedule. It is free, held or recorded.

    free ──take──► held ──record──► recorded          a recorded place is remembered, then free again
      ▲             │ keep
      └── release ──┘   or nobody kept it for so long that it counts as abandoned

Every step names its *holder*, 16 fresh bytes that nobody else has. So a step whose outcome is not known is simply
repeated: the second time it finds its own name, or what others did since. A claim that has expired can be neither kept
nor recorded, whether somebody else has taken the place by then or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """What is claimed."""

    subscription: str
    #: `once` or `turn`: occurrences and schedules have names of their own.
    purpose: str
    name: str


class Claim(NamedTuple):
    """How a place stands."""

    #: Whose it is; empty for nobody any more.
    holder: bytes
    recorded: bool = False
    #: Who asks the holder to give the place up; empty: nobody does.
    successor: bytes = b""


class Awaiting(NamedTuple):
    """An occurrence that is set aside until a consumer of its definition comes."""

    key: str
    body: bytes


class Claims(Protocol):
    """Claims of any number of consumers. Every method may raise StoreUnavailable or StoreTimeout; durations are ms."""

    async def open(self) -> None:
        """Connect; raises NotInitialised where tables are missing that only `tocsin init` makes."""

    async def close(self) -> None:
        """Give back what `open` took; safe to call twice."""

    async def take(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Claim the place where it is free; the claim that stands then, one's own or another's."""
        ...

    async def keep(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Let one's own claim live so long from now on; the claim that stands then."""
        ...

    async def record(self, place: Place, holder: bytes, lifetime_ms: int) -> bool:
        """Record that the work is done, for so long; False: the claim is not one's own any more."""
        ...

    async def release(self, place: Place, holder: bytes) -> None:
        """Free the place where it is one's own."""

    async def ask(self, place: Place, holder: bytes, successor: bytes, lifetime_ms: int) -> None:
        """Ask this holder to give the place up; whoever asked last is the one that is heard."""

    async def recorded(self, place: Place) -> bool:
        """Whether the work of this place is done."""
        ...

    async def set_aside(self, subscription: str, definition: str, awaiting: Awaiting, lifetime_ms: int) -> None:
        """Keep an occurrence for a consumer of its definition. The same again is harmless."""

    def awaiting(self, subscription: str, definition: str) -> AsyncIterator[Sequence[Awaiting]]:
        """What is set aside for this definition, by key, page by page."""
        ...

    async def take_up(self, subscription: str, definition: str, key: str) -> None:
        """Forget an occurrence that was set aside."""
