"""Connecting to a SQLite file as a store: what is created, and what is refused before anything is created."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

import msgspec

from tocsin.schema import sqlite_tables as sql
from tocsin.schema.errors import NotInitialised, SettingsError, StoreUnavailable
from tocsin.schema.migrations import pending, require_readable, require_schema_version
from tocsin.schema.sqlite_thread import LOCK_POLL_MS
from tocsin.schema.store import SCHEMA_VERSION, Settings


class Source(NamedTuple):
    """Which file (None: memory), under which name, and how long to wait for other processes' locks."""

    url: str
    path: Path | None
    busy_ms: int

    def connect(self, *, create: bool) -> sqlite3.Connection:
        """A connection in autocommit mode whose commits are durable.

        Raises:
            NotInitialised: there is no such file, and `create` was not asked for; nothing is created.
            SettingsError: the directory is missing, or the file is no database.
            StoreUnavailable: the file cannot be opened, or another process keeps it locked.
        """
        self._check(create=create)
        name = ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        connection: sqlite3.Connection | None = None
        try:
            connection = sqlite3.connect(name, timeout=self.busy_ms / 1000, isolation_level=None, uri=True)
            connection.execute("PRAGMA schema_version")
            if create:
                self._use_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise SettingsError(f"{self.path} is not a SQLite database; choose another file.") from error
            raise StoreUnavailable(f"{self.path}: {error}; nothing was changed.") from error
        return connection

    def connect_writer(self, *, create: bool) -> sqlite3.Connection:
        """A connection whose transactions are begun in a loop, see `sqlite_thread`."""
        connection = self.connect(create=create)
        connection.execute(f"PRAGMA busy_timeout = {LOCK_POLL_MS}")
        return connection

    def connect_reader(self) -> sqlite3.Connection:
        """A second connection to a file that is open, which cannot write."""
        connection = self.connect(create=False)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def initialise(self, connection: sqlite3.Connection, settings: Settings) -> Settings:
        """Make tables, leases and registers where they are missing; run within a transaction that writes."""
        found = self._find_settings(connection)
        for statement in pending(sql.MIGRATIONS, found.schema_version if found else 0):
            connection.execute(statement)
        if found is None or found.schema_version < SCHEMA_VERSION:
            found = msgspec.structs.replace(found or settings, schema_version=SCHEMA_VERSION)
            connection.execute(sql.WRITE_SETTINGS, (msgspec.json.encode(found).decode(),))
        require_schema_version(found.schema_version, self.url)
        registers = found.first_registers()
        for shard_range in range(found.shard_ranges):
            connection.execute(sql.WRITE_FRONTIER, registers | {"shard_range": shard_range})
            connection.execute(sql.KEEP_LEASE, (shard_range,))
        return found

    def read_settings(self, connection: sqlite3.Connection) -> Settings:
        """The settings in force. Raises NotInitialised, or SettingsError for another schema version."""
        settings = self._find_settings(connection)
        if settings is None:
            raise NotInitialised(self.url)
        require_readable(settings, self.url)
        return settings

    def replace_settings(self, connection: sqlite3.Connection, settings: Settings, expected: Settings) -> bool:
        """Write settings where those in force are the expected ones; run within a transaction that writes."""
        if self.read_settings(connection) != expected:
            return False
        connection.execute(sql.WRITE_SETTINGS, (msgspec.json.encode(settings).decode(),))
        return True

    def _check(self, *, create: bool) -> None:
        if sqlite3.sqlite_version_info < sql.SQLITE_VERSION_MIN:
            needed = ".".join(map(str, sql.SQLITE_VERSION_MIN))
            raise SettingsError(f"SQLite {sqlite3.sqlite_version} is too old, {needed} or newer is needed.")
        if self.path is None:
            return
        if not self.path.absolute().parent.is_dir():
            raise SettingsError(f"the directory of {self.path} does not exist; create it, or choose another file.")
        if not create and not self.path.exists():
            raise NotInitialised(self.url)

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != ("memory" if self.path is None else "wal"):
            raise sqlite3.OperationalError("no write-ahead log here; put the file on a local file system")

    def _find_settings(self, connection: sqlite3.Connection) -> Settings | None:
        (tables,) = connection.execute(sql.HAS_TABLES).fetchone()
        row = connection.execute(sql.READ_SETTINGS).fetchone() if tables else None
        return None if row is None else msgspec.json.decode(row[0], type=Settings)
