"""Claims in the memory of this process: for tests, and for consumers that may forget when they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_claims import Awaiting, Claim, Place
from tocsin.schema.clock import Clock, SystemClock
from tocsin.schema.pages import Pages

#: Expired places are swept out when so many more have come.
SWEEP_EVERY = 10_000
#: Occurrences of one page.
PAGE_ROWS = 100


class MemoryClaims:
    """A dict of places. One event loop at a time, so each method is one step by itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._places: dict[Place, tuple[Claim, int]] = {}
        self._sweep_at = SWEEP_EVERY
        self._awaiting: dict[tuple[str, str], dict[str, bytes]] = {}

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """What was recorded stays with the inbox."""

    async def take(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Claim the place where it is free; the claim that stands then."""
        standing = self._standing(place)
        if standing is not None:
            return standing
        return self._put(place, Claim(holder), lifetime_ms)

    async def keep(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Let one's own claim live so long from now on; the claim that stands then."""
        standing = self._standing(place)
        if standing is None or standing.holder != holder or standing.recorded:
            return standing or Claim(b"")
        return self._put(place, standing, lifetime_ms)

    async def record(self, place: Place, holder: bytes, lifetime_ms: int) -> bool:
        """Record that the work is done, for so long; False: the claim is not one's own any more."""
        standing = self._standing(place)
        if standing is None or standing.holder != holder:
            return False
        self._put(place, Claim(holder, recorded=True), lifetime_ms)
        return True

    async def release(self, place: Place, holder: bytes) -> None:
        """Free the place where it is one's own."""
        standing = self._standing(place)
        if standing is not None and standing.holder == holder:
            del self._places[place]

    async def ask(
        self,
        place: Place,
        holder: bytes,
        successor: bytes,
        lifetime_ms: int,  # noqa: ARG002 — the question leaves with the claim
    ) -> None:
        """Ask this holder to give the place up."""
        standing = self._standing(place)
        if standing is not None and standing.holder == holder:
            self._places[place] = (standing._replace(successor=successor), self._places[place][1])

    async def recorded(self, place: Place) -> bool:
        """Whether the work of this place is done."""
        standing = self._standing(place)
        return standing is not None and standing.recorded

    async def set_aside(
        self,
        subscription: str,
        definition: str,
        awaiting: Awaiting,
        lifetime_ms: int,  # noqa: ARG002 — a process is not asked to remember for days
    ) -> None:
        """Keep an occurrence for a consumer of its definition, as long as this process lives."""
        self._awaiting.setdefault((subscription, definition), {})[awaiting.key] = awaiting.body

    def awaiting(self, subscription: str, definition: str) -> AsyncIterator[Sequence[Awaiting]]:
        """What is set aside for this definition, by key, page by page."""

        async def read_page(place: str | None) -> tuple[Sequence[Awaiting], str | None]:
            waiting = self._awaiting.get((subscription, definition), {})
            rows = [Awaiting(key, waiting[key]) for key in sorted(waiting) if place is None or key > place][:PAGE_ROWS]
            return rows, rows[-1].key if len(rows) == PAGE_ROWS else None

        return Pages(read_page)

    async def take_up(self, subscription: str, definition: str, key: str) -> None:
        """Forget an occurrence that was set aside."""
        self._awaiting.get((subscription, definition), {}).pop(key, None)

    def _standing(self, place: Place) -> Claim | None:
        claim, until = self._places.get(place, (None, 0))
        return claim if until > self._clock.wall_ms() else None

    def _put(self, place: Place, claim: Claim, lifetime_ms: int) -> Claim:
        now = self._clock.wall_ms()
        if len(self._places) >= self._sweep_at:
            self._places = {each: kept for each, kept in self._places.items() if kept[1] > now}
            self._sweep_at = len(self._places) + SWEEP_EVERY
        self._places[place] = (claim, now + lifetime_ms)
        return claim


class MemoryInbox(ClaimingInbox):
    """An inbox that lives as long as this object; `terms` and `clock` as for ClaimingInbox."""

    def __init__(self, *, clock: Clock | None = None, **terms: Any) -> None:
        clock = clock or SystemClock()
        super().__init__(MemoryClaims(clock), clock=clock, **terms)
