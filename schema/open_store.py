"""From a URL to a store.

`sqlite:///path.db` (three slashes and a relative path, four and an absolute one), `sqlite:///:memory:`, and
`cassandra://host1:port,host2/keyspace`. Nothing is connected here; `open` or `initialise` does that.

Credentials never stand in a URL, where logs and process lists would show them; Cassandra's come from the environment
(see `cassandra_access`).
"""

from __future__ import annotations

import os
from pathlib import Path

from tocsin.schema.clock import Clock, SystemClock
from tocsin.schema.errors import SettingsError
from tocsin.schema.levels import Layout
from tocsin.schema.sqlite import SqliteStore
from tocsin.schema.store import Settings, Store
from tocsin.schema.timing import Timing

_SQLITE = "sqlite:///"
_CASSANDRA = "cassandra://"
_FORMS = "sqlite:///path.db or cassandra://host1,host2/keyspace"


def open_store(
    url: str,
    *,
    timing: Timing | None = None,
    clock: Clock | None = None,
    create: bool = False,
    replication: int = 3,
) -> Store:
    """The store of this URL, not connected yet.

    Args:
        url: where the store is.
        timing: the durations of the protocol, from which rows' times to live follow.
        clock: the host's clocks; only the embedded store takes its time from them.
        create: `open` makes the tables where they are missing, with `default_settings`.
        replication: in how many nodes of each data centre Cassandra keeps each row, should the keyspace be made.

    Raises:
        SettingsError: the URL is malformed, or holds credentials.
    """
    timing = timing or Timing()
    clock = clock or SystemClock()
    settings = default_settings(url, clock.wall_ms()) if create else None
    if url.startswith(_SQLITE):
        return SqliteStore(url, sqlite_path(url), timing=timing, clock=clock, create=settings)
    if url.startswith(_CASSANDRA):
        # The driver takes a third of a second to import: the embedded store does not wait for it.
        from tocsin.schema.cassandra import CassandraStore
        from tocsin.schema.cassandra_access import read_access

        access = read_access(url, os.environ)
        return CassandraStore(access, timing=timing, clock=clock, create=settings, replication=replication)
    raise SettingsError(f"{url!r} is not a store; expected {_FORMS}")


def default_settings(url: str, genesis: int) -> Settings:
    """The settings of a new store: fewer ranges and sub-partitions where one host does all. `genesis` is in ms UTC."""
    shard_ranges, sub_partitions = (64, 256) if url.startswith(_CASSANDRA) else (4, 16)
    timing = Timing()
    return Settings(
        genesis=genesis,
        shard_ranges=shard_ranges,
        layouts=(Layout(0, sub_partitions),),
        far_sealed=((genesis + timing.far_seal_ms) // timing.day_ms + 1) * timing.day_ms,
    )


def sqlite_path(url: str) -> Path | None:
    """The file that a URL names; None: memory. Raises SettingsError where it names none."""
    path = url.removeprefix(_SQLITE)
    if not url.startswith(_SQLITE) or not path or path.endswith("/") or "?" in path or "\0" in path:
        raise SettingsError(f"{url!r} names no file; expected sqlite:///path.db, or sqlite:////absolute/path.db")
    return None if path == ":memory:" else Path(path)
