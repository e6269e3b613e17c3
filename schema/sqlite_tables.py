"""The SQL of the embedded store, each statement under its name, and the way between rows and records.

STRICT tables refuse a value of the wrong type. Rows leave when they are old: a pack or a marker by its position, a
heartbeat by `expires_at`; the writer purges a bounded number of them now and then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any

import msgspec

from tocsin.schema.levels import Level
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.migrations import Migration
from tocsin.schema.schedules import Calendar, Marker, ScheduleRow, State
from tocsin.schema.store import DeadLetter, Heartbeat, Lease, PlacedMarker

#: Raised to 3.37 by STRICT.
SQLITE_VERSION_MIN = (3, 37, 0)

_CREATE_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS settings (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS packs (
        level TEXT NOT NULL,
        start INTEGER NOT NULL,
        layout INTEGER NOT NULL,
        sub INTEGER NOT NULL,
        position INTEGER NOT NULL,
        pack_id BLOB NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (level, start, layout, sub, position, pack_id)
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS changes (
        shard_range INTEGER NOT NULL,
        position INTEGER NOT NULL,
        schedule_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        from_ms INTEGER NOT NULL,
        until_ms INTEGER NOT NULL,
        verify INTEGER NOT NULL,
        PRIMARY KEY (shard_range, position, schedule_id, version)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS frontier (
        shard_range INTEGER PRIMARY KEY,
        sealed_far INTEGER,
        sealed_minute INTEGER,
        sealed_near INTEGER,
        committed INTEGER,
        committed_far INTEGER
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS schedules (
        place INTEGER PRIMARY KEY,
        schedule_id TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        token BLOB NOT NULL,
        state TEXT NOT NULL,
        since INTEGER NOT NULL,
        replaced TEXT NOT NULL,
        until INTEGER NOT NULL,
        spec TEXT NOT NULL,
        payload BLOB NOT NULL,
        tenant TEXT NOT NULL,
        topic TEXT NOT NULL,
        tags TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        note TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX IF NOT EXISTS schedules_by_tenant ON schedules (tenant, schedule_id)",
    "CREATE INDEX IF NOT EXISTS schedules_by_topic ON schedules (topic, schedule_id)",
    "CREATE INDEX IF NOT EXISTS schedules_by_state ON schedules (state, schedule_id)",
    """
    CREATE TABLE IF NOT EXISTS schedule_tags (
        tag TEXT NOT NULL,
        schedule_id TEXT NOT NULL,
        PRIMARY KEY (tag, schedule_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TRIGGER IF NOT EXISTS tags_of_a_new_schedule AFTER INSERT ON schedules
    BEGIN
        INSERT INTO schedule_tags (tag, schedule_id) SELECT value, NEW.schedule_id FROM json_each(NEW.tags);
    END
    """,
    """
    CREATE TRIGGER IF NOT EXISTS tags_of_a_changed_schedule AFTER UPDATE OF tags ON schedules
    WHEN NEW.tags <> OLD.tags
    BEGIN
        DELETE FROM schedule_tags
        WHERE schedule_id = OLD.schedule_id AND tag IN (SELECT value FROM json_each(OLD.tags));
        INSERT INTO schedule_tags (tag, schedule_id) SELECT value, NEW.schedule_id FROM json_each(NEW.tags);
    END
    """,
    """
    CREATE TABLE IF NOT EXISTS calendars (
        name TEXT PRIMARY KEY,
        dates TEXT NOT NULL,
        version INTEGER NOT NULL,
        token BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS requests (
        schedule_id TEXT NOT NULL,
        request_id TEXT NOT NULL,
        instant INTEGER NOT NULL,
        PRIMARY KEY (schedule_id, request_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE IF NOT EXISTS leases (
        shard_range INTEGER PRIMARY KEY,
        owner TEXT,
        epoch INTEGER NOT NULL,
        token BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS dispatchers (
        dispatcher_id TEXT PRIMARY KEY,
        number INTEGER NOT NULL,
        address TEXT NOT NULL,
        release TEXT NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS dead_letters (
        shard_range INTEGER NOT NULL,
        at INTEGER NOT NULL,
        occurrence_key TEXT NOT NULL,
        reason TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        entry BLOB NOT NULL,
        PRIMARY KEY (shard_range, at, occurrence_key)
    ) STRICT
    """,
)

MIGRATIONS = (
    Migration(1, expand=_CREATE_TABLES),
    # How far the slow audit is, so that the next owner of a range goes on where the last one stopped; and what becomes
    # of the tags of a schedule that leaves.
    Migration(
        2,
        expand=(
            "ALTER TABLE frontier ADD COLUMN audited INTEGER",
            """
            CREATE TRIGGER IF NOT EXISTS tags_of_a_removed_schedule AFTER DELETE ON schedules
            BEGIN
                DELETE FROM schedule_tags WHERE schedule_id = OLD.schedule_id;
            END
            """,
        ),
    ),
)

HAS_TABLES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'settings'"
READ_SETTINGS = "SELECT value FROM settings WHERE name = 'settings'"
WRITE_SETTINGS = "INSERT OR REPLACE INTO settings (name, value) VALUES ('settings', ?)"
KEEP_LEASE = "INSERT INTO leases (shard_range, owner, epoch, token) VALUES (?, NULL, 0, x'') ON CONFLICT DO NOTHING"

WRITE_PACK = """
    INSERT INTO packs (level, start, layout, sub, position, pack_id, body) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
READ_PACKS = """
    SELECT position, pack_id, body FROM packs
    WHERE level = ? AND start = ? AND layout = ? AND sub = ? AND (position, pack_id) > (?, ?) AND position <= ?
    ORDER BY position, pack_id LIMIT ?
"""
WRITE_MARKER = """
    INSERT INTO changes (shard_range, position, schedule_id, version, from_ms, until_ms, verify)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE
    SET from_ms = excluded.from_ms, until_ms = excluded.until_ms, verify = excluded.verify
"""
READ_MARKERS = """
    SELECT position, schedule_id, version, from_ms, until_ms, verify FROM changes
    WHERE shard_range = ? AND (position, schedule_id, version) > (?, ?, ?) AND position <= ?
    ORDER BY position, schedule_id, version LIMIT ?
"""
REMOVE_SCHEDULE = "DELETE FROM schedules WHERE schedule_id = ? AND version = ?"
#: A register not named stays as it is: its new value is NULL, and the old one takes its place.
WRITE_FRONTIER = """
    INSERT INTO frontier (shard_range, sealed_far, sealed_minute, sealed_near, committed, committed_far, audited)
    VALUES (:shard_range, :sealed_far, :sealed_minute, :sealed_near, :committed, :committed_far, :audited)
    ON CONFLICT DO UPDATE SET
        sealed_far = max(coalesce(sealed_far, excluded.sealed_far), coalesce(excluded.sealed_far, sealed_far)),
        sealed_minute =
            max(coalesce(sealed_minute, excluded.sealed_minute), coalesce(excluded.sealed_minute, sealed_minute)),
        sealed_near = max(coalesce(sealed_near, excluded.sealed_near), coalesce(excluded.sealed_near, sealed_near)),
        committed = max(coalesce(committed, excluded.committed), coalesce(excluded.committed, committed)),
        committed_far =
            max(coalesce(committed_far, excluded.committed_far), coalesce(excluded.committed_far, committed_far)),
        audited = max(coalesce(audited, excluded.audited), coalesce(excluded.audited, audited))
"""
READ_FRONTIER = """
    SELECT sealed_far, sealed_minute, sealed_near, committed, committed_far, audited FROM frontier
    WHERE shard_range = ?
"""

INSERT_SCHEDULE = """
    INSERT INTO schedules (schedule_id, version, token, state, since, replaced, until, spec, payload, tenant, topic,
                           tags, created_at, updated_at, note)
    VALUES (:schedule_id, :version, :token, :state, :since, :replaced, :until, :spec, :payload, :tenant, :topic,
            :tags, :created_at, :updated_at, :note)
    ON CONFLICT DO NOTHING
"""
REPLACE_SCHEDULE = """
    UPDATE schedules
    SET version = :version, token = :token, state = :state, since = :since, replaced = :replaced, until = :until,
        spec = :spec, payload = :payload, tenant = :tenant, topic = :topic, tags = :tags, created_at = :created_at,
        updated_at = :updated_at, note = :note
    WHERE schedule_id = :schedule_id AND version = :expected_version
"""
READ_SCHEDULE = """
    SELECT schedule_id, version, token, state, since, replaced, until, spec, payload, tenant, topic, tags,
           created_at, updated_at, note
    FROM schedules WHERE schedule_id = ?
"""
#: A row keeps its place for ever, so the remainder of it names the row's segment.
WALK_SCHEDULES = """
    SELECT place, schedule_id FROM schedules WHERE place % ? = ? AND place > ? ORDER BY place LIMIT ?
"""

KEEP_REQUEST = """
    INSERT INTO requests (schedule_id, request_id, instant) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET instant = instant RETURNING instant
"""

READ_CALENDARS = "SELECT name, dates, version, token FROM calendars ORDER BY name"
READ_CALENDAR = "SELECT name, dates, version, token FROM calendars WHERE name = ?"
WRITE_CALENDAR = """
    INSERT INTO calendars (name, dates, version, token)
    SELECT :name, :dates, :version, :token
    WHERE :expected_version = 0 OR EXISTS (SELECT 1 FROM calendars WHERE name = :name)
    ON CONFLICT DO UPDATE SET dates = excluded.dates, version = excluded.version, token = excluded.token
    WHERE calendars.version = :expected_version
"""

READ_LEASES = "SELECT shard_range, owner, epoch, token FROM leases ORDER BY shard_range"
READ_LEASE = "SELECT shard_range, owner, epoch, token FROM leases WHERE shard_range = ?"
ACQUIRE_LEASE = "UPDATE leases SET owner = ?, epoch = ?, token = ? WHERE shard_range = ? AND epoch = ?"

WRITE_HEARTBEAT = """
    INSERT INTO dispatchers (dispatcher_id, number, address, release, expires_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        number = excluded.number, address = excluded.address, release = excluded.release,
        expires_at = excluded.expires_at
"""
DELETE_HEARTBEAT = "DELETE FROM dispatchers WHERE dispatcher_id = ?"
READ_HEARTBEATS = """
    SELECT dispatcher_id, number, address, release FROM dispatchers WHERE expires_at > ? ORDER BY dispatcher_id
"""
WRITE_DEAD_LETTER = """
    INSERT INTO dead_letters (shard_range, at, occurrence_key, reason, attempts, entry) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING
"""
READ_DEAD_LETTERS = """
    SELECT shard_range, at, occurrence_key, reason, attempts, entry FROM dead_letters
    WHERE shard_range = ? AND (at, occurrence_key) > (?, ?) AND at <= ?
    ORDER BY at, occurrence_key LIMIT ?
"""

PURGE_PACKS = """
    DELETE FROM packs
    WHERE rowid IN (SELECT rowid FROM packs WHERE level = :level AND start < :before LIMIT :rows_max)
"""
PURGE_CHANGES = """
    DELETE FROM changes
    WHERE (shard_range, position, schedule_id, version) IN (
        SELECT shard_range, position, schedule_id, version FROM changes
        WHERE shard_range = :shard_range AND position < :before LIMIT :rows_max
    )
"""
PURGE_REQUESTS = "DELETE FROM requests WHERE instant < :before"
PURGE_HEARTBEATS = "DELETE FROM dispatchers WHERE expires_at < :before"
PURGE_DEAD_LETTERS = """
    DELETE FROM dead_letters
    WHERE rowid IN (
        SELECT rowid FROM dead_letters WHERE shard_range = :shard_range AND at < :before LIMIT :rows_max
    )
"""


#: What each field of a filter asks of a row.
_FITS = {
    "tenant": "tenant = ?",
    "tag": "schedule_id IN (SELECT schedule_id FROM schedule_tags WHERE tag = ?)",
    "state": "state = ?",
    "topic": "topic = ?",
}


def list_schedules(fields: Iterable[str]) -> str:
    """The statement that lists schedules restricted by these fields of a filter, in their order, after an id."""
    conditions = " AND ".join([*map(_FITS.__getitem__, fields), "schedule_id > ?"])
    columns = ", ".join(ScheduleRow.__struct_fields__)
    # Made of the texts of this module; every value is bound.
    return f"SELECT {columns} FROM schedules WHERE {conditions} ORDER BY schedule_id LIMIT ?"  # noqa: S608


def schedule_parameters(row: ScheduleRow) -> dict[str, Any]:
    """What INSERT_SCHEDULE and REPLACE_SCHEDULE bind."""
    return msgspec.structs.asdict(row) | {
        "state": row.state.value,
        "replaced": msgspec.json.encode(row.replaced).decode(),
        "spec": row.spec.decode(),
        "tags": msgspec.json.encode(sorted(row.tags)).decode(),
    }


def schedule_of(row: Sequence[Any]) -> ScheduleRow:
    """The record of a row of `schedules`."""
    fields = dict(zip(ScheduleRow.__struct_fields__, row, strict=True))
    fields |= {
        "state": State(fields["state"]),
        "replaced": msgspec.json.decode(fields["replaced"], type=tuple[tuple[int, int], ...]),
        "spec": fields["spec"].encode(),
        "tags": msgspec.json.decode(fields["tags"], type=frozenset[str]),
    }
    return ScheduleRow(**fields)


def calendar_parameters(calendar: Calendar) -> dict[str, Any]:
    """What WRITE_CALENDAR binds, besides the version expected."""
    return msgspec.structs.asdict(calendar) | {"dates": msgspec.json.encode(sorted(calendar.dates)).decode()}


def calendar_of(row: Sequence[Any]) -> Calendar:
    """The record of a row of `calendars`."""
    name, dates, version, token = row
    days = msgspec.json.decode(dates, type=frozenset[date])
    return Calendar(name=name, dates=days, version=version, token=token)


def marker_of(row: Sequence[Any]) -> PlacedMarker:
    """The record of a row of `changes`."""
    position, schedule_id, version, from_ms, until_ms, verify = row
    marker = Marker(schedule_id=schedule_id, version=version, from_ms=from_ms, until_ms=until_ms, verify=bool(verify))
    return PlacedMarker(position, marker)


def lease_of(row: Sequence[Any]) -> Lease:
    """The record of a row of `leases`."""
    return Lease(**dict(zip(Lease.__struct_fields__, row, strict=True)))


def heartbeat_of(row: Sequence[Any]) -> Heartbeat:
    """The record of a row of `dispatchers`."""
    return Heartbeat(**dict(zip(Heartbeat.__struct_fields__, row, strict=True)))


def dead_letter_of(row: Sequence[Any]) -> DeadLetter:
    """The record of a row of `dead_letters`."""
    return DeadLetter(**dict(zip(DeadLetter.__struct_fields__, row, strict=True)))


def purge(connection: sqlite3.Connection, lifetimes: Lifetimes, now: int, shard_ranges: int, rows_max: int) -> None:
    """Take out at most `rows_max` expired rows of each kind; `now` is in ms UTC."""
    for level in Level:
        # A pointer written a year ahead lives by its position here, so it needs no longer than what waits near by.
        before = now - lifetimes.packs_ms(Level.MINUTE)
        connection.execute(PURGE_PACKS, {"level": level.value, "before": before, "rows_max": rows_max})
    for shard_range in range(shard_ranges):
        place = {"shard_range": shard_range, "rows_max": rows_max // shard_ranges}
        connection.execute(PURGE_CHANGES, place | {"before": now - lifetimes.markers_ms})
        connection.execute(PURGE_DEAD_LETTERS, place | {"before": now - lifetimes.dead_letters_ms})
    connection.execute(PURGE_REQUESTS, {"before": now - lifetimes.packs_ms(Level.MINUTE)})
    connection.execute(PURGE_HEARTBEATS, {"before": now})
