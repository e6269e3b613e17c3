"""The inboxes that the suite runs on, and a clock that moves when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_cassandra import CassandraInbox
from tocsin.dispatcher.inbox_claims import Claims
from tocsin.dispatcher.inbox_memory import MemoryClaims, MemoryInbox
from tocsin.dispatcher.inbox_sqlite import SqliteInbox
from tocsin.schema.clock import SystemClock


class TurnedClock(SystemClock):
    """Stands still until it is turned; who sleeps on it is woken then."""

    def __init__(self) -> None:
        self._now = 1_796_032_800_000
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self._came = asyncio.Event()

    def wall_ms(self) -> int:
        return self._now

    def monotonic_ms(self) -> int:
        return self._now

    async def sleep_ms(self, duration_ms: int) -> None:
        woken = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + duration_ms, woken))
        self._came.set()
        await woken

    async def asleep(self, count: int) -> None:
        """Wait until so many sleep."""
        while sum(not woken.done() for _, woken in self._sleepers) < count:
            self._came.clear()
            await self._came.wait()

    def turn(self, duration_ms: int) -> None:
        """Let time pass, and wake whom it is time for."""
        self._now += duration_ms
        for due, woken in self._sleepers:
            if due <= self._now and not woken.done():
                woken.set_result(None)
        self._sleepers = [(due, woken) for due, woken in self._sleepers if not woken.done()]


class InboxSubject(NamedTuple):
    """A kind of inbox, as the suite uses it. Claims are abandoned after `abandoned_after` seconds."""

    #: One more inbox on the claims of this test.
    another: Callable[..., ClaimingInbox]
    #: Wait until so many sleep, and let so many seconds pass.
    pass_seconds: Callable[[int, float], Awaitable[None]]
    abandoned_after: int
    remembered_for: int

    def claims(self) -> Claims:
        """One more way to the claims, for a consumer that dies."""
        return self.another()._means.claims


def memory(_: pytest.FixtureRequest) -> InboxSubject:
    clock = TurnedClock()
    claims = MemoryClaims(clock)
    assert isinstance(MemoryInbox(clock=clock), ClaimingInbox)
    return InboxSubject(lambda **terms: ClaimingInbox(claims, clock=clock, **terms), _turning(clock), 30, 86_400)


def sqlite(request: pytest.FixtureRequest) -> InboxSubject:
    clock = TurnedClock()
    url = f"sqlite:///{request.getfixturevalue('tmp_path')}/inbox.db"
    return InboxSubject(lambda **terms: SqliteInbox(url, clock=clock, **terms), _turning(clock), 30, 86_400)


def cassandra(request: pytest.FixtureRequest) -> InboxSubject:
    url = request.getfixturevalue("cassandra_url")

    async def pass_seconds(_: int, seconds: float) -> None:
        # A real cluster's time to live: there is no clock to turn, and nothing that tells when it is over.
        await asyncio.sleep(seconds)

    def another(**terms: Any) -> ClaimingInbox:
        return CassandraInbox(url, **terms)

    return InboxSubject(another, pass_seconds, 3, 4)


def _turning(clock: TurnedClock) -> Callable[[int, float], Awaitable[None]]:
    async def pass_seconds(sleepers: int, seconds: float) -> None:
        await clock.asleep(sleepers)
        clock.turn(round(seconds * 1000))

    return pass_seconds
