"""What the embedded store adds to the contract: files, locks, group commit, failures in the middle, purges."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tocsin.schema.clock import SystemClock
from tocsin.schema.errors import NotInitialised, SettingsError, StoreUnavailable, TocsinError
from tocsin.schema.instants import DAY_MS
from tocsin.schema.levels import Bucket, Layout, Level
from tocsin.schema.open_store import open_store
from tocsin.schema.schedules import Marker
from tocsin.schema.sqlite import PURGE_INTERVAL_MS, PURGE_ROWS_MAX, SqliteStore
from tocsin.schema.store import SCHEMA_VERSION, DeadLetter, PackRow, Settings, Store
from tocsin.schema.timing import Timing

GENESIS = 1_796_000_000_000
SETTINGS = Settings(genesis=GENESIS, shard_ranges=4, layouts=(Layout(0, 16),))
BUCKET = Bucket(Level.MINUTE, GENESIS, 16, 0)


class ManualClock(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = GENESIS

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def sqlite_store(path: Path | None, clock: SystemClock | None = None, busy_ms: int = 50) -> SqliteStore:
    return SqliteStore(f"sqlite:///{path}", path, timing=Timing(), clock=clock or SystemClock(), busy_ms=busy_ms)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = sqlite_store(path)
    await store.initialise(SETTINGS)
    yield store
    await store.close()


def row(number: int, body: bytes = b"body") -> PackRow:
    return PackRow(GENESIS + number, number.to_bytes(16, "big"), body)


async def numbers(store: Store) -> list[int]:
    return [found.position - GENESIS async for page in store.read_packs(BUCKET) for found in page]


# Files


def refuse(attempt: Coroutine[Any, Any, Settings], error: type[TocsinError], match: str) -> None:
    with pytest.raises(error, match=match):
        asyncio.run(attempt)


def test_opening_what_is_not_there_creates_no_file(tmp_path: Path) -> None:
    refuse(sqlite_store(tmp_path / "nothing.db").open(), NotInitialised, "run: tocsin init")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named_and_not_made(tmp_path: Path) -> None:
    store = sqlite_store(tmp_path / "no" / "store.db")
    refuse(store.initialise(SETTINGS), SettingsError, r"directory of .*no/store\.db does not exist; create it")
    refuse(store.open(), SettingsError, "does not exist")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    text = b"not a database, but long enough to look like one" * 50
    path.write_bytes(text)
    refuse(sqlite_store(path).open(), SettingsError, "not a SQLite database")
    refuse(sqlite_store(path).initialise(SETTINGS), SettingsError, "not a SQLite database")
    assert path.read_bytes() == text


def test_another_programs_database_is_not_initialised_and_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (a)")
    other.close()
    before = path.read_bytes()
    refuse(sqlite_store(path).open(), NotInitialised, "not initialised")
    assert path.read_bytes() == before


def test_a_path_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    refuse(sqlite_store(tmp_path).initialise(SETTINGS), StoreUnavailable, "unable to open")


async def test_a_store_of_another_schema_version_is_refused_with_what_to_do(path: Path, store: SqliteStore) -> None:
    other = sqlite3.connect(path)
    other.execute(
        "UPDATE settings SET value = replace(value, ?, '\"schema_version\":99')",
        (f'"schema_version":{SCHEMA_VERSION}',),
    )
    other.commit()
    other.close()
    for attempt in (sqlite_store(path).open(), sqlite_store(path).initialise(SETTINGS)):
        with pytest.raises(SettingsError, match=r"schema version 99.*use a newer release"):
            await attempt


async def test_several_inits_at_once_agree(path: Path) -> None:
    stores = [sqlite_store(path, busy_ms=5_000) for _ in range(6)]
    settings = [Settings(genesis=GENESIS + number, shard_ranges=4, layouts=(Layout(0, 16),)) for number in range(6)]
    in_force = await asyncio.gather(*(one.initialise(wanted) for one, wanted in zip(stores, settings, strict=True)))
    assert len({each.genesis for each in in_force}) == 1
    assert (await stores[0].read_frontier(3)).committed == in_force[0].genesis
    for one in stores:
        await one.close()


async def test_acknowledged_means_on_disk(store: SqliteStore) -> None:
    writer = store._writer
    assert writer is not None
    pragma = [
        await writer.submit(
            lambda connection, name=name: connection.execute(f"PRAGMA {name}").fetchone()[0], writes=False
        )
        for name in ("journal_mode", "synchronous")
    ]
    assert pragma == ["wal", 2]


KILLED = """
import asyncio, sys
from tocsin.schema.levels import Bucket, Level
from tocsin.schema.open_store import open_store
from tocsin.schema.store import PackRow

async def write(url, start):
    store = open_store(url)
    await store.open()
    async def writer(first):
        for number in range(first, 1_000_000, 20):
            await store.write_pack(Bucket(Level.MINUTE, start, 16, 0), PackRow(start + number, b"id", b"body" * 100))
            print(number, flush=True)
    await asyncio.gather(*map(writer, range(20)))

asyncio.run(write(sys.argv[1], int(sys.argv[2])))
"""


async def test_what_was_acknowledged_survives_a_kill(path: Path, store: SqliteStore) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, store.url, str(GENESIS), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged = [int(await process.stdout.readline()) for _ in range(500)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) async for line in process.stdout if line.endswith(b"\n")]
    await process.wait()
    assert set(acknowledged) <= set(await numbers(store))


# Locks


async def test_a_lock_held_elsewhere_makes_writes_unavailable_and_leaves_reads_alone(
    path: Path, store: SqliteStore
) -> None:
    await store.write_pack(BUCKET, row(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers = await asyncio.gather(*(store.write_pack(BUCKET, row(2)) for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert await numbers(store) == [1]
    assert await store.read_schedules(["a"]) == {}
    other.execute("ROLLBACK")
    other.close()
    await store.write_pack(BUCKET, row(3))
    assert await numbers(store) == [1, 3]


async def test_a_write_waits_for_a_lock_that_is_given_up_in_time(path: Path, store: SqliteStore) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    patient = sqlite_store(path, busy_ms=30_000)
    await patient.open()
    write = asyncio.ensure_future(patient.write_pack(BUCKET, row(1)))
    for _ in range(3):  # Its thread has met the lock by then, or meets it later: both ways it must wait.
        assert await store.read_heartbeats() == []
    assert not write.done()
    other.execute("COMMIT")
    other.close()
    await write
    await patient.close()


async def test_reads_do_not_wait_for_a_write_under_way(store: SqliteStore) -> None:
    writer = store._writer
    assert writer is not None
    under_way, go_on = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO dispatchers VALUES ('half', 1, '', '', 9999999999999)")
        under_way.set()
        assert go_on.wait(30)

    written = writer.submit(slow, writes=True)
    await asyncio.to_thread(under_way.wait)
    assert await store.read_heartbeats() == []
    go_on.set()
    await written
    assert [beat.dispatcher_id for beat in await store.read_heartbeats()] == ["half"]


# Purges


async def test_old_rows_leave_in_bounded_portions_and_young_ones_stay(path: Path) -> None:
    clock = ManualClock()
    store = sqlite_store(path, clock)
    await store.initialise(SETTINGS)
    later = GENESIS + 40 * DAY_MS
    old_count = PURGE_ROWS_MAX + 10
    await asyncio.gather(*(store.write_pack(BUCKET, row(number)) for number in range(old_count)))
    young = Bucket(Level.MINUTE, later, 16, 0)
    await store.write_pack(young, PackRow(later, b"id", b"body"))
    marker = Marker(schedule_id="s", version=1, from_ms=0, until_ms=0, verify=False)
    letter = DeadLetter(shard_range=1, at=later, occurrence_key="k", reason="r", attempts=1, entry=b"")
    for position in (GENESIS, later):
        await store.write_marker(position, 1, marker)
    await store.write_dead_letter(letter)

    clock.now_ms = later
    await store.write_pack(young, PackRow(later + 1, b"id", b"body"))
    assert len(await numbers(store)) == old_count - PURGE_ROWS_MAX
    await store.write_pack(young, PackRow(later + 2, b"id", b"body"))
    assert len(await numbers(store)) == old_count - PURGE_ROWS_MAX  # Not again so soon.
    clock.now_ms += PURGE_INTERVAL_MS
    await store.write_pack(young, PackRow(later + 3, b"id", b"body"))
    assert await numbers(store) == []
    assert len([found async for page in store.read_packs(young) for found in page]) == 4
    markers = [placed async for page in store.read_markers(1, 0, later) for placed in page]
    assert [placed.position for placed in markers] == [later]
    assert [found async for page in store.read_dead_letters(1, 0, later) for found in page] == [letter]
    await store.close()


# In memory


async def test_a_store_in_memory_keeps_the_contract_on_one_connection() -> None:
    store = open_store("sqlite:///:memory:", create=True)
    settings = await store.open()
    assert settings.shard_ranges == 4
    await asyncio.gather(*(store.write_pack(BUCKET, row(number)) for number in range(250)))
    assert await numbers(store) == list(range(250))
    assert (await store.read_frontier(0)).committed == settings.genesis
    await store.close()
    await store.close()


async def test_a_store_in_memory_that_nobody_made_is_not_initialised() -> None:
    with pytest.raises(NotInitialised):
        await open_store("sqlite:///:memory:").open()


async def test_create_makes_the_file_once_and_opens_it_ever_after(path: Path) -> None:
    first = open_store(f"sqlite:///{path}", create=True)
    settings = await first.open()
    await first.close()
    again = open_store(f"sqlite:///{path}", create=True)
    assert await again.open() == settings
    await again.close()
