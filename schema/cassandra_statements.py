"""Every CQL text Tocsin sends, each under its name, with its consistency and whether repeating it is harmless.

A statement that is conditional (IF) runs at the serial consistency and commits at a quorum; a serial read runs at the
serial consistency alone and completes whatever write of unknown outcome it meets; all else is a quorum. Whether these
are the cluster's or one data centre's is one setting (`cassandra_access.Consistency`).

No value bound here is ever null: a null is a tombstone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from tocsin.schema.levels import Level


class Guarantee(enum.Enum):
    """What a statement needs of the replicas."""

    #: A majority has it, or answers.
    QUORUM = "quorum"
    #: A conditional write: decided by Paxos, acknowledged when a majority has it.
    CONDITIONAL = "conditional"
    #: A read that settles what a conditional write of unknown outcome did.
    SERIAL = "serial"
    #: Whichever node is asked answers for itself.
    ONE_NODE = "one node"


class Statement(NamedTuple):
    """A CQL text and what running it means."""

    text: str
    guarantee: Guarantee
    #: Running it twice is as good as running it once.
    idempotent: bool
    writes: bool


def _write(text: str) -> Statement:
    return Statement(text, Guarantee.QUORUM, idempotent=True, writes=True)


def _read(text: str) -> Statement:
    return Statement(text, Guarantee.QUORUM, idempotent=True, writes=False)


def _serial_read(text: str) -> Statement:
    return Statement(text, Guarantee.SERIAL, idempotent=True, writes=False)


def _conditional(text: str) -> Statement:
    return Statement(text, Guarantee.CONDITIONAL, idempotent=False, writes=True)


SERVER_TIME = Statement(
    "SELECT to_unix_timestamp(now()) FROM system.local", Guarantee.ONE_NODE, idempotent=True, writes=False
)

# Packs and change markers. Their keys are fresh and their values a function of the keys, so a repeat writes the same.

WRITE_PACK = {
    Level.FAR: _write("INSERT INTO far (day, sub, due, pack_id, body) VALUES (?, ?, ?, ?, ?)"),
    Level.MINUTE: _write("INSERT INTO occurrences (minute, layout, sub, due, pack_id, body) VALUES (?, ?, ?, ?, ?, ?)"),
    Level.NEAR: _write("INSERT INTO near (slot, shard_range, position, pack_id, body) VALUES (?, ?, ?, ?, ?)"),
}
READ_PACKS = {
    Level.FAR: _read("SELECT due, pack_id, body FROM far WHERE day = ? AND sub = ? AND due > ? AND due <= ?"),
    Level.MINUTE: _read(
        "SELECT due, pack_id, body FROM occurrences "
        "WHERE minute = ? AND layout = ? AND sub = ? AND due > ? AND due <= ?"
    ),
    Level.NEAR: _read(
        "SELECT position, pack_id, body FROM near WHERE slot = ? AND shard_range = ? AND position > ? AND position <= ?"
    ),
}
#: What many ranges have in one slot; see cassandra_together.py.
READ_NEAR_OF = _read(
    "SELECT shard_range, position, pack_id, body FROM near "
    "WHERE slot = ? AND shard_range IN ? AND position > ? AND position <= ?"
)
READ_MARKERS_OF = _read(
    "SELECT shard_range, position, schedule_id, version, from_ms, until_ms, verify FROM changes "
    "WHERE hour = ? AND shard_range IN ? AND position > ? AND position <= ?"
)
WRITE_MARKER = _write(
    "INSERT INTO changes (hour, shard_range, position, schedule_id, version, from_ms, until_ms, verify) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
READ_MARKERS = _read(
    "SELECT position, schedule_id, version, from_ms, until_ms, verify FROM changes "
    "WHERE hour = ? AND shard_range = ? AND position > ? AND position <= ?"
)

# The frontier. The timestamp is the value, so that the highest value is the newest for every replica, for ever; these
# cells never meet a conditional write, a time to live or a delete. One statement for each register, because each has a
# timestamp of its own; together they are one batch of one partition, hence one mutation.

RAISE_REGISTER = {
    "sealed_far": _write("UPDATE frontier USING TIMESTAMP ? SET sealed_far = ? WHERE shard_range = ?"),
    "sealed_minute": _write("UPDATE frontier USING TIMESTAMP ? SET sealed_minute = ? WHERE shard_range = ?"),
    "sealed_near": _write("UPDATE frontier USING TIMESTAMP ? SET sealed_near = ? WHERE shard_range = ?"),
    "committed": _write("UPDATE frontier USING TIMESTAMP ? SET committed = ? WHERE shard_range = ?"),
    "committed_far": _write("UPDATE frontier USING TIMESTAMP ? SET committed_far = ? WHERE shard_range = ?"),
    "audited": _write("UPDATE frontier USING TIMESTAMP ? SET audited = ? WHERE shard_range = ?"),
}
READ_FRONTIER = _read(
    "SELECT sealed_far, sealed_minute, sealed_near, committed, committed_far, audited FROM frontier "
    "WHERE shard_range = ?"
)

READ_FRONTIERS = _read(
    "SELECT shard_range, sealed_far, sealed_minute, sealed_near, committed, committed_far, audited FROM frontier "
    "WHERE shard_range IN ?"
)

# Schedules. A row is written by conditional writes and read serially. The one exception is the first row of an id that
# was generated: a plain write, timestamped an hour ago. Paxos gives every later write a timestamp of its own that is
# near now, so that any of them wins, whatever the clocks say within the hour and whenever a copy of the first arrives.

_INSERT_SCHEDULE = """
    INSERT INTO schedules (schedule_id, version, "token", state, since, replaced, until, spec, payload, tenant, topic,
                           tags, created_at, updated_at, note)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT_SCHEDULES = """
    SELECT schedule_id, version, "token", state, since, replaced, until, spec, payload, tenant, topic, tags,
           created_at, updated_at, note
    FROM schedules
"""

INSERT_SCHEDULE = _conditional(f"{_INSERT_SCHEDULE} IF NOT EXISTS")
INSERT_FRESH_SCHEDULE = _write(f"{_INSERT_SCHEDULE} USING TIMESTAMP ?")
REPLACE_SCHEDULE = _conditional("""
    UPDATE schedules
    SET version = ?, "token" = ?, state = ?, since = ?, replaced = ?, until = ?, spec = ?, payload = ?, tenant = ?,
        topic = ?, tags = ?, created_at = ?, updated_at = ?, note = ?
    WHERE schedule_id = ? IF version = ?
""")
REMOVE_SCHEDULE = _conditional("DELETE FROM schedules WHERE schedule_id = ? IF version = ?")
READ_SCHEDULE = _serial_read(f"{_SELECT_SCHEDULES} WHERE schedule_id = ?")
WALK_SCHEDULES = _read("SELECT schedule_id FROM schedules WHERE token(schedule_id) > ? AND token(schedule_id) <= ?")
_FITS = {"tenant": "tenant = ?", "tag": "tags CONTAINS ?", "state": "state = ?", "topic": "topic = ?"}


def list_schedules(fields: Iterable[str]) -> Statement:
    """The statement that lists schedules restricted by these fields of a filter, in their order.

    It is not in `ALL`: a store prepares the few it needs when they are asked for.
    """
    conditions = " AND ".join(map(_FITS.__getitem__, fields))
    return _read(f"{_SELECT_SCHEDULES} WHERE {conditions}" if conditions else _SELECT_SCHEDULES)


# Requests: the first instant stays.

KEEP_REQUEST = _conditional("INSERT INTO requests (schedule_id, request_id, instant) VALUES (?, ?, ?) IF NOT EXISTS")
READ_REQUEST = _serial_read("SELECT instant FROM requests WHERE schedule_id = ? AND request_id = ?")

# Calendars: few, read all at once by every dispatcher.

READ_CALENDARS = _read('SELECT name, dates, version, "token" FROM calendars')
READ_CALENDAR = _serial_read('SELECT name, dates, version, "token" FROM calendars WHERE name = ?')
INSERT_CALENDAR = _conditional(
    'INSERT INTO calendars (name, dates, version, "token") VALUES (?, ?, ?, ?) IF NOT EXISTS'
)
REPLACE_CALENDAR = _conditional(
    'UPDATE calendars SET dates = ?, version = ?, "token" = ? WHERE name = ? IF version = ?'
)

# Leases: one partition each, so that two acquires never meet in Paxos unless they are for the same range. A quorum
# read sees every acquire that was acknowledged; all of them are one statement, which the coordinator fans out.

KEEP_LEASE = _conditional(
    """INSERT INTO leases (shard_range, owner, epoch, "token") VALUES (?, '', 0, 0x) IF NOT EXISTS"""
)
ACQUIRE_LEASE = _conditional('UPDATE leases SET owner = ?, epoch = ?, "token" = ? WHERE shard_range = ? IF epoch = ?')
READ_LEASES = _read('SELECT shard_range, owner, epoch, "token" FROM leases WHERE shard_range IN ?')
READ_LEASE = _serial_read('SELECT shard_range, owner, epoch, "token" FROM leases WHERE shard_range = ?')

# Dispatchers: one small partition, as there are few of them.

WRITE_HEARTBEAT = _write(
    "INSERT INTO dispatchers (cluster, dispatcher_id, number, address, release) VALUES ('all', ?, ?, ?, ?) USING TTL ?"
)
DELETE_HEARTBEAT = _write("DELETE FROM dispatchers WHERE cluster = 'all' AND dispatcher_id = ?")
READ_HEARTBEATS = _read("SELECT dispatcher_id, number, address, release FROM dispatchers WHERE cluster = 'all'")

WRITE_DEAD_LETTER = _write(
    "INSERT INTO dead_letters (day, shard_range, at, occurrence_key, reason, attempts, entry) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
READ_DEAD_LETTERS = _read(
    "SELECT shard_range, at, occurrence_key, reason, attempts, entry FROM dead_letters "
    "WHERE day = ? AND shard_range = ? AND at > ? AND at <= ?"
)

# An inbox: claims are taken, kept, recorded and released by conditional writes, each of which names its holder. A claim
# leaves by its time to live, and what names it as its holder is refused from then on.

TAKE_CLAIM = _conditional(
    "INSERT INTO inbox (subscription, purpose, name, holder, recorded) VALUES (?, ?, ?, ?, false) "
    "IF NOT EXISTS USING TTL ?"
)
KEEP_CLAIM = _conditional(
    "UPDATE inbox USING TTL ? SET holder = ?, recorded = false "
    "WHERE subscription = ? AND purpose = ? AND name = ? IF holder = ? AND recorded = false"
)
RECORD_CLAIM = _conditional(
    "UPDATE inbox USING TTL ? SET holder = ?, recorded = true "
    "WHERE subscription = ? AND purpose = ? AND name = ? IF holder = ?"
)
RELEASE_CLAIM = _conditional("DELETE FROM inbox WHERE subscription = ? AND purpose = ? AND name = ? IF holder = ?")
ASK_HOLDER = _conditional(
    "UPDATE inbox USING TTL ? SET successor = ? WHERE subscription = ? AND purpose = ? AND name = ? IF holder = ?"
)
READ_CLAIM = _serial_read(
    "SELECT holder, recorded, successor FROM inbox WHERE subscription = ? AND purpose = ? AND name = ?"
)
SET_ASIDE = _write(
    "INSERT INTO inbox_awaiting (subscription, definition, occurrence_key, body) VALUES (?, ?, ?, ?) USING TTL ?"
)
READ_AWAITING = _read("SELECT occurrence_key, body FROM inbox_awaiting WHERE subscription = ? AND definition = ?")
TAKE_UP = _write("DELETE FROM inbox_awaiting WHERE subscription = ? AND definition = ? AND occurrence_key = ?")

# Settings, and the lock under which tables are made and migrated. The lock leaves by its time to live should its owner
# die; every migration can be repeated, so what the owner was doing is done again.

READ_SETTINGS = _serial_read("SELECT value FROM settings WHERE name = 'settings'")
WRITE_SETTINGS = _conditional("INSERT INTO settings (name, value) VALUES ('settings', ?) IF NOT EXISTS")
REPLACE_SETTINGS = _conditional("UPDATE settings SET value = ? WHERE name = 'settings' IF value = ?")
TAKE_LOCK = _conditional("INSERT INTO settings (name, value) VALUES ('lock', ?) IF NOT EXISTS USING TTL 120")
READ_LOCK = _serial_read("SELECT value FROM settings WHERE name = 'lock'")
RELEASE_LOCK = _conditional("DELETE FROM settings WHERE name = 'lock' IF value = ?")

ALL: tuple[Statement, ...] = (
    SERVER_TIME,
    *WRITE_PACK.values(),
    *READ_PACKS.values(),
    WRITE_MARKER,
    READ_MARKERS,
    *RAISE_REGISTER.values(),
    READ_FRONTIER,
    READ_FRONTIERS,
    READ_NEAR_OF,
    READ_MARKERS_OF,
    INSERT_SCHEDULE,
    INSERT_FRESH_SCHEDULE,
    REPLACE_SCHEDULE,
    REMOVE_SCHEDULE,
    READ_SCHEDULE,
    WALK_SCHEDULES,
    KEEP_REQUEST,
    READ_REQUEST,
    READ_CALENDARS,
    READ_CALENDAR,
    INSERT_CALENDAR,
    REPLACE_CALENDAR,
    KEEP_LEASE,
    ACQUIRE_LEASE,
    READ_LEASES,
    READ_LEASE,
    WRITE_HEARTBEAT,
    DELETE_HEARTBEAT,
    READ_HEARTBEATS,
    WRITE_DEAD_LETTER,
    READ_DEAD_LETTERS,
)

#: What consumers run, who prepare nothing else.
INBOX: tuple[Statement, ...] = (
    TAKE_CLAIM,
    KEEP_CLAIM,
    RECORD_CLAIM,
    RELEASE_CLAIM,
    ASK_HOLDER,
    READ_CLAIM,
    SET_ASIDE,
    READ_AWAITING,
    TAKE_UP,
)
