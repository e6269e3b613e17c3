"""Claims in Cassandra: for consumers on any number of hosts.

Every step is a conditional write, decided by Paxos, and names its holder; what was not applied is read serially, which
also settles whatever write of unknown outcome it meets. A claim lives by its time to live, so no two hosts' clocks are
compared. `tocsin init` makes the tables, beside those of the store: consumers of one starting fleet must not all define
them at once.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_claims import Awaiting, Claim, Place
from tocsin.schema import cassandra_statements as cql
from tocsin.schema.cassandra_access import read_access
from tocsin.schema.cassandra_driver import CassandraSession, Rows
from tocsin.schema.clock import Clock
from tocsin.schema.errors import NotInitialised, StoreUnavailable
from tocsin.schema.instants import SECOND_MS
from tocsin.schema.pages import Pages

#: Occurrences of one page.
PAGE_ROWS = 100


class CassandraClaims:
    """The steps of `inbox_claims.Claims`, one conditional write each."""

    def __init__(self, url: str) -> None:
        self._access = read_access(url, os.environ)
        self._opened: CassandraSession | None = None

    async def open(self) -> None:
        """Connect. Raises NotInitialised where the tables are missing."""
        if self._opened is not None:
            return
        async with AsyncExitStack() as undo:
            session = CassandraSession(self._access)
            undo.push_async_callback(session.close)
            await session.connect()
            if not {"inbox", "inbox_awaiting"} <= (session.tables() or frozenset()):
                raise NotInitialised(self._access.url)
            await session.use_keyspace()
            await session.prepare(cql.INBOX)
            self._opened = session
            undo.pop_all()

    async def close(self) -> None:
        """Give back every connection; safe to call twice."""
        session, self._opened = self._opened, None
        if session is not None:
            await session.close()

    async def take(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Claim the place where it is free; the claim that stands then."""
        answer = await self._session.run(cql.TAKE_CLAIM, (*place, holder, lifetime_ms // SECOND_MS))
        return Claim(holder) if _applied(answer) else await self._read(place)

    async def keep(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Let one's own claim live so long from now on; the claim that stands then."""
        await self._session.run(cql.KEEP_CLAIM, (lifetime_ms // SECOND_MS, holder, *place, holder))
        return await self._read(place)

    async def record(self, place: Place, holder: bytes, lifetime_ms: int) -> bool:
        """Record that the work is done, for so long; False: the claim is not one's own any more."""
        return _applied(await self._session.run(cql.RECORD_CLAIM, (lifetime_ms // SECOND_MS, holder, *place, holder)))

    async def release(self, place: Place, holder: bytes) -> None:
        """Free the place where it is one's own."""
        await self._session.run(cql.RELEASE_CLAIM, (*place, holder))

    async def ask(self, place: Place, holder: bytes, successor: bytes, lifetime_ms: int) -> None:
        """Ask this holder to give the place up; the question leaves by its time to live, as the claim does."""
        await self._session.run(cql.ASK_HOLDER, (lifetime_ms // SECOND_MS, successor, *place, holder))

    async def recorded(self, place: Place) -> bool:
        """Whether the work of this place is done."""
        return (await self._read(place)).recorded

    async def set_aside(self, subscription: str, definition: str, awaiting: Awaiting, lifetime_ms: int) -> None:
        """Keep an occurrence for a consumer of its definition. The same again is harmless."""
        values = (subscription, definition, *awaiting, lifetime_ms // SECOND_MS)
        await self._session.run(cql.SET_ASIDE, values)

    def awaiting(self, subscription: str, definition: str) -> AsyncIterator[Sequence[Awaiting]]:
        """What is set aside for this definition, by key, page by page."""

        async def read_page(place: bytes | None) -> tuple[Sequence[Awaiting], bytes | None]:
            found = await self._session.run(
                cql.READ_AWAITING, (subscription, definition), page_rows=PAGE_ROWS, paging_state=place
            )
            return [Awaiting(*row) for row in found.rows], found.paging_state

        return Pages(read_page)

    async def take_up(self, subscription: str, definition: str, key: str) -> None:
        """Forget an occurrence that was set aside."""
        await self._session.run(cql.TAKE_UP, (subscription, definition, key))

    @property
    def _session(self) -> CassandraSession:
        if self._opened is None:
            raise StoreUnavailable("the inbox is closed; open it again")
        return self._opened

    async def _read(self, place: Place) -> Claim:
        rows = (await self._session.run(cql.READ_CLAIM, place)).rows
        if not rows:
            return Claim(b"")
        holder, recorded, successor = rows[0]
        return Claim(holder or b"", bool(recorded), successor or b"")


def _applied(answer: Rows) -> bool:
    return bool(answer.rows[0][0])


class CassandraInbox(ClaimingInbox):
    """An inbox in a keyspace that `tocsin init` made, `cassandra://host1,host2/keyspace`; `terms` as for ClaimingInbox.

    Raises:
        SettingsError: the URL is malformed or holds credentials; those come from the environment, as the store's do.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, **terms: Any) -> None:
        super().__init__(CassandraClaims(url), clock=clock, **terms)
