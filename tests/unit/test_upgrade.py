"""Two releases on one store: tables expand before they contract, and packs are written for the oldest reader."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from command_line import tocsin
from unit.scripted_store import World, a_world

from tocsin.producer.upgrade import raise_oldest_reader
from tocsin.schema import entries, sqlite_tables
from tocsin.schema.entries import Entry, UnknownFormat, decode_pack, encode_pack
from tocsin.schema.errors import SettingsError
from tocsin.schema.migrations import Migration, require_readable
from tocsin.schema.store import SCHEMA_VERSION, Heartbeat, Settings


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def settings_of(world: World) -> Settings:
    return await world.store.inner.read_settings()


async def test_the_oldest_reader_rises_once_every_dispatcher_is_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "FORMAT", 2)
    store = world.store.inner
    old = Heartbeat(dispatcher_id="d1", number=1, address="", release="0.9")
    await store.write_heartbeat(old)
    with pytest.raises(SettingsError, match=r"another release are at work: d1 \(0\.9\)"):
        await raise_oldest_reader(store, await settings_of(world), 2, release="1.0")
    await store.delete_heartbeat("d1")
    await store.write_heartbeat(msgspec.structs.replace(old, release="1.0"))

    raised = await raise_oldest_reader(store, await settings_of(world), 2, release="1.0")

    assert raised.oldest_reader == (await settings_of(world)).oldest_reader == 2
    with pytest.raises(SettingsError, match="cannot fall again"):
        await raise_oldest_reader(store, raised, 1, release="1.0")
    with pytest.raises(SettingsError, match="finish the upgrade first"):
        await raise_oldest_reader(store, raised, 3, release="1.0")


async def test_two_operators_at_once_are_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "FORMAT", 2)
    stale = msgspec.structs.replace(await settings_of(world), genesis=1)
    with pytest.raises(SettingsError, match="at the same time"):
        await raise_oldest_reader(world.store.inner, stale, 2, release="1.0")


async def test_a_release_that_cannot_read_the_packs_opens_nothing(world: World) -> None:
    newer = msgspec.structs.replace(await settings_of(world), oldest_reader=entries.FORMAT + 1)
    with pytest.raises(SettingsError, match="use a newer release"):
        require_readable(newer, "sqlite:///a.db")


def test_entries_of_the_next_release_and_of_the_last_are_read_side_by_side() -> None:
    mine = Entry("tea", 1, 2, 3, payload=b"hot")
    fields = msgspec.msgpack.decode(encode_pack([mine])[1:])[0]
    longer, shorter = [*fields, "what the next release adds"], fields[:4]
    both = bytes((entries.FORMAT,)) + msgspec.msgpack.encode([longer, shorter])
    assert decode_pack(both) == [mine, Entry("tea", 1, 2, 3)]
    with pytest.raises(UnknownFormat):
        decode_pack(bytes((entries.FORMAT + 1,)) + both[1:])


NEXT = Migration(
    SCHEMA_VERSION + 1,
    expand=("ALTER TABLE schedules ADD COLUMN colour TEXT", "CREATE TABLE IF NOT EXISTS palette (name TEXT) STRICT"),
)


def test_this_release_works_on_the_tables_of_the_next(folder: Path) -> None:
    """The next release has run `init`; processes of this one go on until they are replaced."""
    tocsin("init")
    tocsin("create", "before", "--every", "1h", "--topic", "t")
    file = sqlite3.connect(folder / "tocsin.db")
    for statement in NEXT.expand:
        file.execute(statement)
    old, new = f'"schema_version":{SCHEMA_VERSION}', f'"schema_version":{NEXT.version}'
    assert file.execute("UPDATE settings SET value = replace(value, ?, ?)", (old, new)).rowcount == 1
    file.commit()

    lines = (
        ("init",),
        ("create", "after", "--every", "1h", "--topic", "t"),
        ("update", "before", "--every", "2h"),
        ("pause", "before"),
        ("resume", "before"),
        ("cancel", "after"),
        ("send", "--at", "+1h", "--topic", "t"),
        ("trigger", "before"),
        ("audit",),
        ("backup", "all.jsonl"),
        ("status",),
    )
    assert {line: tocsin(*line).code for line in lines} == dict.fromkeys(lines, 0)
    assert tocsin("layout", "set", "--sub-partitions", "32", "--from", "+2h").code == 1
    (text,) = file.execute("SELECT value FROM settings WHERE name = 'settings'").fetchone()
    file.close()
    assert new in text, "an older init must not take the tables back"


def test_the_tables_of_the_last_release_are_brought_up_and_keep_what_they_hold(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sqlite_tables.MIGRATIONS[:1]
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_tables, "MIGRATIONS", first)
        # What that release asked of the table of registers, which has grown since.
        patch.setattr(sqlite_tables, "WRITE_FRONTIER", LAST_WRITE_FRONTIER)
        assert tocsin("init").code == 0
    file = sqlite3.connect(folder / "tocsin.db")
    file.execute(
        "UPDATE settings SET value = replace(value, ?, '\"schema_version\":1')", (f'"schema_version":{SCHEMA_VERSION}',)
    )
    file.commit()
    file.close()

    refused = tocsin("create", "tea", "--every", "1h", "--topic", "t")
    upgraded = tocsin("init", "-o", "json")

    assert (refused.code, upgraded.code) == (1, 0)
    assert "run: tocsin init" in refused.err
    assert upgraded.objects()[0]["schema_version"] == SCHEMA_VERSION
    assert tocsin("create", "tea", "--every", "1h", "--topic", "t").code == 0


LAST_WRITE_FRONTIER = """
    INSERT INTO frontier (shard_range, sealed_far, sealed_minute, sealed_near, committed, committed_far)
    VALUES (:shard_range, :sealed_far, :sealed_minute, :sealed_near, :committed, :committed_far)
    ON CONFLICT DO NOTHING
"""
