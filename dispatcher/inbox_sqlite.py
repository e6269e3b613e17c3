"""Claims in a SQLite file: for the consumers of one host, any number of processes.

The file may be one of its own, or the one that holds the schedules: the tables do not meet. Made where missing.
Expiry is by the host's clock, which all its processes share. The thread, the group commit and the durability are those
of the embedded store (`schema/sqlite_thread.py`).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final

from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_claims import Awaiting, Claim, Place
from tocsin.schema.clock import Clock, SystemClock
from tocsin.schema.errors import StoreUnavailable
from tocsin.schema.open_store import sqlite_path
from tocsin.schema.pages import Pages
from tocsin.schema.sqlite_file import Source
from tocsin.schema.sqlite_thread import LOCK_POLL_MS, ConnectionThread

#: How long to wait for other processes' transactions.
BUSY_MS: Final = 5_000
#: Distance between two looks for what has expired, and rows of one table that one look deletes at most.
PURGE_INTERVAL_MS: Final = 60_000
PURGE_ROWS_MAX: Final = 1_000
#: Occurrences of one page.
PAGE_ROWS: Final = 100

_TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS inbox (
        subscription TEXT, purpose TEXT, name TEXT, holder BLOB, recorded INTEGER, successor BLOB, until INTEGER,
        UNIQUE (subscription, purpose, name)
    )
    """,
    "CREATE INDEX IF NOT EXISTS inbox_until ON inbox (until)",
    """
    CREATE TABLE IF NOT EXISTS inbox_awaiting (
        subscription TEXT, definition TEXT, key TEXT, body BLOB, until INTEGER, UNIQUE (subscription, definition, key)
    )
    """,
    "CREATE INDEX IF NOT EXISTS inbox_awaiting_until ON inbox_awaiting (until)",
)
_PLACE: Final = "subscription = :subscription AND purpose = :purpose AND name = :name"
_MINE: Final = f"{_PLACE} AND holder = :holder AND until > :now"
_TAKE: Final = """
    INSERT INTO inbox VALUES (:subscription, :purpose, :name, :holder, 0, x'', :until)
    ON CONFLICT DO UPDATE SET holder = :holder, recorded = 0, successor = x'', until = :until WHERE until <= :now
"""
_KEEP: Final = f"UPDATE inbox SET until = :until WHERE {_MINE} AND recorded = 0"  # noqa: S608 — built of the constants above
_RECORD: Final = f"UPDATE inbox SET recorded = 1, until = :until WHERE {_MINE}"  # noqa: S608 — the same
_RELEASE: Final = f"DELETE FROM inbox WHERE {_MINE}"  # noqa: S608 — the same
_ASK: Final = f"UPDATE inbox SET successor = :successor WHERE {_MINE}"  # noqa: S608 — the same
_READ: Final = f"SELECT holder, recorded, successor FROM inbox WHERE {_PLACE} AND until > :now"  # noqa: S608 — the same
_SET_ASIDE: Final = """
    INSERT INTO inbox_awaiting VALUES (:subscription, :definition, :key, :body, :until)
    ON CONFLICT DO UPDATE SET until = :until
"""
_AWAITING: Final = """
    SELECT key, body FROM inbox_awaiting
    WHERE subscription = :subscription AND definition = :definition AND key > :after AND until > :now
    ORDER BY key LIMIT :rows
"""
_TAKE_UP: Final = """
    DELETE FROM inbox_awaiting WHERE subscription = :subscription AND definition = :definition AND key = :key
"""
_PURGE: Final = (
    "DELETE FROM inbox WHERE rowid IN (SELECT rowid FROM inbox WHERE until <= :now LIMIT :rows)",
    "DELETE FROM inbox_awaiting WHERE rowid IN (SELECT rowid FROM inbox_awaiting WHERE until <= :now LIMIT :rows)",
)


class SqliteClaims:
    """The steps of `inbox_claims.Claims`, one statement each."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._source = Source(url, sqlite_path(url), BUSY_MS)
        self._clock = clock
        self._thread: ConnectionThread | None = None
        self._purged_at = clock.monotonic_ms()

    async def open(self) -> None:
        """Connect, and make the tables where they are missing; raises SettingsError where there is no such folder."""
        if self._thread is not None:
            return
        connect = partial(self._source.connect_writer, create=True)
        thread = ConnectionThread("tocsin-inbox", connect, lock_polls_max=BUSY_MS // LOCK_POLL_MS)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(thread.close)
            await thread.start()
            await thread.submit(_make_tables, writes=True)
            self._thread = thread
            undo.pop_all()

    async def close(self) -> None:
        """Give back the connection; safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.close()

    async def take(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Claim the place where it is free; the claim that stands then."""
        self._purge_now_and_then()
        _, claim = await self._step(_TAKE, place, holder, lifetime_ms)
        return claim

    async def keep(self, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
        """Let one's own claim live so long from now on; the claim that stands then."""
        _, claim = await self._step(_KEEP, place, holder, lifetime_ms)
        return claim

    async def record(self, place: Place, holder: bytes, lifetime_ms: int) -> bool:
        """Record that the work is done, for so long; False: the claim is not one's own any more."""
        changed, _ = await self._step(_RECORD, place, holder, lifetime_ms)
        return changed

    async def release(self, place: Place, holder: bytes) -> None:
        """Free the place where it is one's own."""
        await self._step(_RELEASE, place, holder, 0)

    async def ask(self, place: Place, holder: bytes, successor: bytes, lifetime_ms: int) -> None:
        """Ask this holder to give the place up."""
        await self._step(_ASK, place, holder, lifetime_ms, successor)

    async def recorded(self, place: Place) -> bool:
        """Whether the work of this place is done."""
        values = place._asdict() | {"now": self._clock.wall_ms()}
        rows = await self._execute(_READ, values)
        return bool(rows) and bool(rows[0][1])

    async def set_aside(self, subscription: str, definition: str, awaiting: Awaiting, lifetime_ms: int) -> None:
        """Keep an occurrence for a consumer of its definition. The same again is harmless."""
        until = self._clock.wall_ms() + lifetime_ms
        of = {"subscription": subscription, "definition": definition, "until": until}
        await self._execute(_SET_ASIDE, of | awaiting._asdict(), writes=True)

    def awaiting(self, subscription: str, definition: str) -> AsyncIterator[Sequence[Awaiting]]:
        """What is set aside for this definition, by key, page by page."""
        of = {"subscription": subscription, "definition": definition, "rows": PAGE_ROWS}

        async def read_page(place: str | None) -> tuple[Sequence[Awaiting], str | None]:
            found = await self._execute(_AWAITING, of | {"after": place or "", "now": self._clock.wall_ms()})
            rows = [Awaiting(*row) for row in found]
            return rows, rows[-1].key if len(rows) == PAGE_ROWS else None

        return Pages(read_page)

    async def take_up(self, subscription: str, definition: str, key: str) -> None:
        """Forget an occurrence that was set aside."""
        values = {"subscription": subscription, "definition": definition, "key": key}
        await self._execute(_TAKE_UP, values, writes=True)

    async def _step(
        self, statement: str, place: Place, holder: bytes, lifetime_ms: int, successor: bytes = b""
    ) -> tuple[bool, Claim]:
        """Run a statement; whether it changed the place, and how that stands in the same transaction."""
        now = self._clock.wall_ms()
        values = place._asdict() | {"holder": holder, "successor": successor, "now": now, "until": now + lifetime_ms}

        def work(connection: sqlite3.Connection) -> tuple[bool, Claim]:
            changed = connection.execute(statement, values).rowcount > 0
            row = connection.execute(_READ, values).fetchone()
            return changed, Claim(b"") if row is None else Claim(row[0], bool(row[1]), row[2])

        return await self._opened().submit(work, writes=True)

    async def _execute(self, statement: str, values: Mapping[str, Any], *, writes: bool = False) -> list[Any]:
        return await self._opened().submit(partial(_run, statement, values), writes=writes)

    def _purge_now_and_then(self) -> None:
        now = self._clock.monotonic_ms()
        if now - self._purged_at < PURGE_INTERVAL_MS:
            return
        self._purged_at = now
        values = {"now": self._clock.wall_ms(), "rows": PURGE_ROWS_MAX}
        for statement in _PURGE:
            # In the background: what it leaves over, or fails at, the next look takes.
            self._opened().submit(partial(_run, statement, values), writes=True).add_done_callback(_pass_over)

    def _opened(self) -> ConnectionThread:
        if self._thread is None:
            raise StoreUnavailable("the inbox is closed; open it again")
        return self._thread


def _run(statement: str, values: Mapping[str, Any], connection: sqlite3.Connection) -> list[Any]:
    return connection.execute(statement, values).fetchall()


def _pass_over(done: asyncio.Future[Any]) -> None:
    """Look at how it ended, so that nobody is told of it as forgotten."""
    if not done.cancelled():
        done.exception()


def _make_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)


class SqliteInbox(ClaimingInbox):
    """An inbox in a SQLite file, `sqlite:///inbox.db`; `terms` and `clock` as for ClaimingInbox.

    Raises:
        SettingsError: the URL names no file.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, **terms: Any) -> None:
        clock = clock or SystemClock()
        super().__init__(SqliteClaims(url, clock), clock=clock, **terms)
