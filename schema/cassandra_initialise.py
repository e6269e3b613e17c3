"""Making and migrating the tables of a Cassandra store, and recognising them.

Two `init` at once must not define the same table twice: nodes that learn of both would hold different tables under one
name. So the keyspace and the one table that holds the lock are made only where the cluster shows none, and everything
after under the lock, taken by a lightweight transaction. The lock expires should its owner die; all that is done under
it can be done again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tocsin.schema import cassandra_statements as cql
from tocsin.schema.cassandra_access import Access
from tocsin.schema.cassandra_driver import Call, CassandraSession
from tocsin.schema.cassandra_tables import CREATE_SETTINGS, TABLES, create_keyspace, migrations
from tocsin.schema.clock import Clock
from tocsin.schema.errors import NotInitialised, SettingsError, StoreTimeout, StoreUnavailable
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.migrations import pending, require_readable, require_schema_version
from tocsin.schema.store import SCHEMA_VERSION, Settings

#: Distance between two looks at a lock that another `init` holds.
LOCK_POLL_MS = 200
#: How long to wait for it: longer than it lives.
LOCK_WAIT_MS = 150_000

_LOCKING = (cql.TAKE_LOCK, cql.READ_LOCK, cql.RELEASE_LOCK, cql.READ_SETTINGS, cql.WRITE_SETTINGS, cql.REPLACE_SETTINGS)


async def read_settings(session: CassandraSession, access: Access) -> Settings:
    """The settings in force, read serially. Raises NotInitialised, or SettingsError for another schema version."""
    settings, _ = await _find_settings(session)
    if settings is None:
        raise NotInitialised(access.url)
    require_readable(settings, access.url)
    return settings


async def replace_settings(session: CassandraSession, settings: Settings, expected: Settings) -> bool:
    """Write settings where those in force are the expected ones; by their text, which another release may order so."""
    found, text = await _find_settings(session)
    if found != expected:
        return False
    written = await session.run(cql.REPLACE_SETTINGS, (msgspec.json.encode(settings).decode(), text))
    return bool(written.rows[0][0])


async def open_settings(session: CassandraSession, access: Access) -> Settings:
    """The settings in force, with every statement prepared.

    Raises:
        NotInitialised: there is no such keyspace, or a table or the settings are missing.
        SettingsError: the tables belong to another schema version.
    """
    if "settings" not in (session.tables() or ()):
        raise NotInitialised(access.url)
    await session.use_keyspace()
    await session.prepare(_LOCKING)
    settings = await read_settings(session, access)
    if not (session.tables() or frozenset()) >= TABLES:
        raise NotInitialised(access.url)
    await session.prepare(cql.ALL)
    return settings


async def initialise(
    session: CassandraSession,
    access: Access,
    settings: Settings,
    lifetimes: Lifetimes,
    clock: Clock,
    *,
    replication: int,
) -> Settings:
    """Make what is missing, and return the settings in force. Repeating it is harmless."""
    if session.tables() is None:
        _require_nodes(session, replication)
        await session.define(create_keyspace(access.keyspace, replication))
    await session.use_keyspace()
    if "settings" not in (session.tables() or ()):
        await session.define(CREATE_SETTINGS)
    await session.prepare(_LOCKING)
    async with _lock(session, clock):
        found, text = await _find_settings(session)
        # Where a table is missing, begin again: every statement leaves alone what is there.
        complete = found is not None and (session.tables() or frozenset()) >= TABLES
        await session.define(*pending(migrations(lifetimes), found.schema_version if found and complete else 0))
        reached = max(found.schema_version if found else 0, SCHEMA_VERSION)
        require_schema_version(reached, access.url)
        in_force = msgspec.structs.replace(found or settings, schema_version=reached)
        await session.prepare(cql.ALL)
        await _keep_ranges(session, in_force)
        await _write_settings(session, in_force, text)
    return in_force


@asynccontextmanager
async def _lock(session: CassandraSession, clock: Clock) -> AsyncIterator[None]:
    """Be the only one who makes tables."""
    owner = str(uuid.uuid4())
    patience_ends = clock.monotonic_ms() + LOCK_WAIT_MS
    while not await _take_lock(session, owner):
        if clock.monotonic_ms() > patience_ends:
            raise StoreUnavailable("another `init` holds the lock on this store's tables; try again when it is done.")
        await clock.sleep_ms(LOCK_POLL_MS)
    try:
        yield
    finally:
        await session.run(cql.RELEASE_LOCK, (owner,))


async def _take_lock(session: CassandraSession, owner: str) -> bool:
    try:
        return bool((await session.run(cql.TAKE_LOCK, (owner,))).rows[0][0])
    except StoreTimeout:
        # Whether it was taken, a serial read settles.
        return (await session.run(cql.READ_LOCK)).rows == [(owner,)]


async def _find_settings(session: CassandraSession) -> tuple[Settings | None, str]:
    """The settings, and the text they were read from."""
    found = (await session.run(cql.READ_SETTINGS)).rows
    return (msgspec.json.decode(found[0][0], type=Settings), found[0][0]) if found else (None, "")


async def _write_settings(session: CassandraSession, settings: Settings, replaced: str) -> None:
    """Settings come last: a store that has them has everything else."""
    text = msgspec.json.encode(settings).decode()
    if not replaced:
        await session.run(cql.WRITE_SETTINGS, (text,))
    elif text != replaced and settings.schema_version == SCHEMA_VERSION:
        # What a newer release wrote may say more than this one can read.
        await session.run(cql.REPLACE_SETTINGS, (text, replaced))


async def _keep_ranges(session: CassandraSession, settings: Settings) -> None:
    """A free lease and registers for every range that has none."""
    registers = settings.first_registers()

    async def keep(shard_range: int) -> None:
        await session.run_together(
            [Call(cql.RAISE_REGISTER[name], (at * 1000, at, shard_range)) for name, at in registers.items()]
        )
        await session.run(cql.KEEP_LEASE, (shard_range,))

    await asyncio.gather(*map(keep, range(settings.shard_ranges)))


def _require_nodes(session: CassandraSession, replication: int) -> None:
    for datacenter, nodes in session.nodes().items():
        if nodes < replication:
            raise SettingsError(
                f"replication {replication} needs as many nodes, data centre {datacenter} has {nodes}; "
                "start more, or ask for fewer replicas (a single one proves nothing about quorums)."
            )
