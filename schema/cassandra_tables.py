"""The tables of a Cassandra store, as numbered migrations.

What waits is inserted once, never updated, never deleted, and leaves by a time to live that is constant per table. So:

* TimeWindowCompactionStrategy with 20 to 30 windows over the lifetime: a file holds one window and is dropped whole
  (Cassandra documentation, "Time Window CompactionStrategy"). The far level waits for a year, unevenly, and schedules
  are updated: UnifiedCompactionStrategy.
* gc_grace_seconds = 3 h, the window of hints: expired rows need no tombstone for longer, since nothing is deleted.
* read_repair NONE where rows are immutable: what a majority acknowledged every quorum read sees; repairing the rest in
  the foreground would write old rows into new windows. BLOCKING (the default) where rows change.
* speculative_retry stays at the default 99p: a slow replica is covered by the third.

Collections are frozen, since an insert of an unfrozen one writes a range tombstone first; but for `tags`, because only
the values of an unfrozen one can be indexed.

Schedules are listed by storage-attached indexes. A conditional write commits by the same path as any other, so it is in
the index as soon as it is acknowledged, and what it replaced is not: the contract suite holds that on real nodes.
"""

from __future__ import annotations

from tocsin.schema.instants import HOUR_MS, SECOND_MS
from tocsin.schema.levels import Level
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.migrations import Migration

#: Made before the first migration: the migrations' lock lives in it.
CREATE_SETTINGS = """
    CREATE TABLE IF NOT EXISTS settings (name text PRIMARY KEY, value text)
    WITH comment = 'what init fixed, and the lock of migrations'
"""
TABLES = frozenset(
    {
        "calendars",
        "changes",
        "dead_letters",
        "dispatchers",
        "far",
        "frontier",
        "inbox",
        "inbox_awaiting",
        "leases",
        "near",
        "occurrences",
        "requests",
        "schedules",
        "settings",
    }
)
#: Columns of `schedules` with an index each.
INDEXED = ("state", "tags", "tenant", "topic")
_UNIFIED = "compaction = {'class': 'UnifiedCompactionStrategy'}"
#: Windows over a table's lifetime; the documentation advises 20 to 30.
_WINDOWS = 24


def create_keyspace(keyspace: str, replication: int) -> str:
    """Replicated so often in every data centre there is; the name was checked when the URL was read."""
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {replication}}}"
    )


def migrations(lifetimes: Lifetimes) -> tuple[Migration, ...]:
    """Every version of the tables there has been, oldest first."""
    return (
        Migration(1, expand=_first(lifetimes)),
        # How far the slow audit is, so that the next owner of a range goes on where the last one stopped.
        Migration(2, expand=("ALTER TABLE frontier ADD IF NOT EXISTS audited bigint",)),
    )


def _first(lifetimes: Lifetimes) -> tuple[str, ...]:
    return (*_said(lifetimes), *_waiting(lifetimes), *_dispatching(lifetimes), *_consuming())


def _said(lifetimes: Lifetimes) -> tuple[str, ...]:
    """What users said."""
    remembered = f"default_time_to_live = {max(1, lifetimes.packs_ms(Level.MINUTE) // SECOND_MS)}"
    return (
        f"""
        CREATE TABLE IF NOT EXISTS schedules (
            schedule_id text PRIMARY KEY, version bigint, "token" blob, state text, since bigint,
            replaced frozen<list<frozen<tuple<bigint, bigint>>>>, until bigint, spec text, payload blob,
            tenant text, topic text, tags set<text>, created_at bigint, updated_at bigint, note text
        ) WITH {_UNIFIED}
        """,
        *(f"CREATE INDEX IF NOT EXISTS schedules_{column} ON schedules ({column}) USING 'sai'" for column in INDEXED),
        f"""
        CREATE TABLE IF NOT EXISTS calendars (
            name text PRIMARY KEY, dates frozen<set<text>>, version bigint, "token" blob
        ) WITH {_UNIFIED}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS requests (
            schedule_id text, request_id text, instant bigint,
            PRIMARY KEY ((schedule_id, request_id))
        ) WITH {_UNIFIED} AND {remembered}
        """,
    )


def _waiting(lifetimes: Lifetimes) -> tuple[str, ...]:
    """The levels, and the changes of what lies on them."""
    minute = _immutable(lifetimes.packs_ms(Level.MINUTE), lifetimes, windows=True)
    near = _immutable(lifetimes.packs_ms(Level.NEAR), lifetimes, windows=True)
    far = _immutable(lifetimes.packs_ms(Level.FAR), lifetimes, windows=False)
    changes = _immutable(lifetimes.markers_ms, lifetimes, windows=True)
    return (
        f"""
        CREATE TABLE IF NOT EXISTS far (
            day bigint, sub int, due bigint, pack_id blob, body blob, PRIMARY KEY ((day, sub), due, pack_id)
        ) WITH {far}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS occurrences (
            minute bigint, layout int, sub int, due bigint, pack_id blob, body blob,
            PRIMARY KEY ((minute, layout, sub), due, pack_id)
        ) WITH {minute}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS near (
            slot bigint, shard_range int, position bigint, pack_id blob, body blob,
            PRIMARY KEY ((slot, shard_range), position, pack_id)
        ) WITH {near}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS changes (
            hour bigint, shard_range int, position bigint, schedule_id text, version bigint,
            from_ms bigint, until_ms bigint, verify boolean,
            PRIMARY KEY ((hour, shard_range), position, schedule_id, version)
        ) WITH {changes}
        """,
    )


def _dispatching(lifetimes: Lifetimes) -> tuple[str, ...]:
    """How far dispatchers are, who they are, and what they could not dispatch."""
    dead_letters = _immutable(lifetimes.dead_letters_ms, lifetimes, windows=True)
    grace = f"gc_grace_seconds = {lifetimes.grace_ms // SECOND_MS}"
    return (
        f"""
        CREATE TABLE IF NOT EXISTS frontier (
            shard_range int PRIMARY KEY, sealed_far bigint, sealed_minute bigint, sealed_near bigint,
            committed bigint, committed_far bigint
        ) WITH {_UNIFIED}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS leases (
            shard_range int PRIMARY KEY, owner text, epoch bigint, "token" blob
        ) WITH {_UNIFIED}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS dispatchers (
            cluster text, dispatcher_id text, number bigint, address text, release text,
            PRIMARY KEY (cluster, dispatcher_id)
        ) WITH {_UNIFIED} AND {grace}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS dead_letters (
            day bigint, shard_range int, at bigint, occurrence_key text, reason text, attempts int, entry blob,
            PRIMARY KEY ((day, shard_range), at, occurrence_key)
        ) WITH {dead_letters}
        """,
    )


def _consuming() -> tuple[str, ...]:
    """What consumers remember; each row brings its own time to live."""
    return (
        f"""
        CREATE TABLE IF NOT EXISTS inbox (
            subscription text, purpose text, name text, holder blob, recorded boolean, successor blob,
            PRIMARY KEY ((subscription, purpose, name))
        ) WITH {_UNIFIED}
        """,
        f"""
        CREATE TABLE IF NOT EXISTS inbox_awaiting (
            subscription text, definition text, occurrence_key text, body blob,
            PRIMARY KEY ((subscription, definition), occurrence_key)
        ) WITH {_UNIFIED}
        """,
    )


def _immutable(lifetime_ms: int, lifetimes: Lifetimes, *, windows: bool) -> str:
    hours = max(1, round(lifetime_ms / HOUR_MS / _WINDOWS))
    compaction = (
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', "
        f"'compaction_window_size': {hours}}}"
        if windows
        else _UNIFIED
    )
    return (
        f"{compaction} AND default_time_to_live = {max(1, lifetime_ms // SECOND_MS)} "
        f"AND gc_grace_seconds = {lifetimes.grace_ms // SECOND_MS} AND read_repair = 'NONE'"
    )
