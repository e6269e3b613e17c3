"""One claim while its block runs: taken, kept alive, and in the end recorded or released.

A claim that nobody renews counts as abandoned after a while, so that work is not lost with the consumer that began it.
Whoever is at work therefore renews it, three times in that span, and each time until the store has answered. We trust
our claim for as long as it lives, counted on our own monotonic clock from before the last renewal that was acknowledged
was sent: that is never longer than the store does, and no two hosts' clocks are compared. Past that, or where a renewal
finds another holder, the claim is *lost*: others may be at work on the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from tocsin.dispatcher.inbox_claims import Claim, Claims, Place
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock
from tocsin.schema.errors import SettingsError, StoreTimeout, StoreUnavailable

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How long things last in an inbox.

    Raises:
        SettingsError: a duration is too short, or contradicts another one.
    """

    #: A claim that was not renewed for so long is free for others; whole seconds.
    abandoned_after: timedelta = timedelta(seconds=30)
    #: How long to wait for another consumer that is at work on the same, and for a store that does not answer.
    patience: timedelta = timedelta(seconds=60)
    #: How long what was recorded is remembered: longer than any copy of a record can come late.
    remembered_for: timedelta = timedelta(days=14)

    def __post_init__(self) -> None:
        if self.abandoned_after < timedelta(seconds=1) or self.abandoned_after % timedelta(seconds=1):
            raise SettingsError(f"abandoned_after is {self.abandoned_after}; it must be whole seconds, at least one.")
        if self.remembered_for < self.abandoned_after:
            raise SettingsError(f"remembered_for is {self.remembered_for}; it must not be below abandoned_after.")

    @property
    def claim_ms(self) -> int:
        """How long a claim lives without being renewed."""
        return self.abandoned_after // _MILLISECOND

    @property
    def patience_ms(self) -> int:
        """How long to wait."""
        return self.patience // _MILLISECOND

    @property
    def memory_ms(self) -> int:
        """How long what was recorded is remembered."""
        return self.remembered_for // _MILLISECOND


class Means(NamedTuple):
    """What an inbox works with."""

    claims: Claims
    terms: Terms
    clock: Clock
    new_id: Callable[[], bytes]
    persistence: Persistence

    def deadline(self) -> int:
        """When patience ends that begins now, on the monotonic clock in ms."""
        return self.clock.monotonic_ms() + self.terms.patience_ms


class Hold:
    """An attempt to claim a place, and the claim where it succeeds."""

    def __init__(self, means: Means, place: Place) -> None:
        self._means = means
        self.place = place
        #: Tells this claim from every other.
        self.holder = means.new_id()
        #: Whether it expired, and somebody else may have the place.
        self.lost = False
        #: Whether somebody asks for the place.
        self.wanted = False
        self._keeping: asyncio.Task[None] | None = None
        self._trusted_until = 0

    async def take(self) -> Claim:
        """Claim the place where it is free, and keep it from then on; the claim that stands."""
        means = self._means
        self._trusted_until = means.clock.monotonic_ms() + means.terms.claim_ms
        claim = await means.persistence.until_answered(
            lambda: means.claims.take(self.place, self.holder, means.terms.claim_ms), means.deadline()
        )
        if claim.holder == self.holder:
            self._keeping = asyncio.create_task(self._keep())
        return claim

    async def record(self) -> bool:
        """End the claim with its work done; False: it was lost meanwhile."""
        await self._stop()
        means = self._means
        return await means.persistence.until_answered(
            lambda: means.claims.record(self.place, self.holder, means.terms.memory_ms), means.deadline()
        )

    async def release(self) -> None:
        """End the claim with its work not done: others need not wait until it expires."""
        await self._stop()
        with suppress(StoreUnavailable, StoreTimeout):  # Then they do wait.
            await self._means.claims.release(self.place, self.holder)

    async def ask(self, holder: bytes) -> None:
        """Ask whoever has the place to leave it to us."""
        means = self._means
        await means.persistence.until_answered(
            lambda: means.claims.ask(self.place, holder, self.holder, means.terms.claim_ms), means.deadline()
        )

    async def _keep(self) -> None:
        means = self._means
        while not self.lost:
            await means.clock.sleep_ms(means.terms.claim_ms // 3)
            sent_at = means.clock.monotonic_ms()
            with suppress(StoreUnavailable, StoreTimeout):
                claim = await means.persistence.until_answered(self._renew, self._trusted_until)
                self._trusted_until = sent_at + means.terms.claim_ms
                self.wanted = claim.successor not in {b"", self.holder}
                self.lost = claim.holder != self.holder
            self.lost = self.lost or means.clock.monotonic_ms() >= self._trusted_until

    async def _renew(self) -> Claim:
        return await self._means.claims.keep(self.place, self.holder, self._means.terms.claim_ms)

    async def _stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
