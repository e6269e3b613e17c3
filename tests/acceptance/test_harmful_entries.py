"""What no dispatcher may do, or can: forbidden topics, damaged packs, packs of a newer release. Each harms itself only.

Dispatchers are processes, on an embedded store.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.processes import Running
from command_line import start_tocsin, tocsin

from tocsin.schema.clock import SystemClock
from tocsin.schema.entries import UnknownFormat
from tocsin.schema.levels import Level, Levels
from tocsin.schema.open_store import default_settings, open_store
from tocsin.schema.store import PackRow
from tocsin.schema.timing import Timing

STORE = "sqlite:///tocsin.db"
LEVELS = Levels(Timing(), default_settings(STORE, 0).shard_ranges, default_settings(STORE, 0).layouts)
#: A format byte of no release so far, and something that is none of this release's packs.
NEWER, DAMAGED = b"\xf0rest", b"\x01\xc1\xc1"

Start = Callable[..., Running]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a store."""
    monkeypatch.chdir(tmp_path)
    assert tocsin("init", STORE).code == 0
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start a dispatcher that writes into a file."""
    started: list[Running] = []

    def start(**environment: str) -> Running:
        words = ("--sink", f"jsonl://{folder}/sink.jsonl", "--log", "json", "--metrics", "off")
        process = start_tocsin("dispatch", *words, folder=folder, environment=environment)
        started.append(Running(f"dispatcher {process.pid}", process))
        return started[-1]

    yield start
    for running in started:
        running.reap()


def records(folder: Path) -> list[dict[str, Any]]:
    path = folder / "sink.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def id_in(shard_range: int) -> str:
    return next(each for each in map("tea-{}".format, itertools.count()) if LEVELS.shard_range(each) == shard_range)


def create(schedule_id: str, topic: str = "tea", *options: str) -> str:
    """A single occurrence in a moment; its key."""
    answer = tocsin("create", schedule_id, "--at", "+1s", "--topic", topic, *options, "-o", "json")
    assert answer.code == 0, answer.err
    return f"{schedule_id}@"


def plant(schedule_id: str, body: bytes) -> None:
    """A pack on near that no client of ours would write, to be read in a moment."""

    async def write() -> None:
        store = open_store(STORE)
        await store.open()
        position = SystemClock().wall_ms() + 3_000
        bucket = LEVELS.bucket(Level.NEAR, position, schedule_id)
        await store.write_pack(bucket, PackRow(position, secrets.token_bytes(16), body))
        await store.close()

    asyncio.run(write())


def until_came(running: Running, folder: Path, *keys: str) -> None:
    """Return once each of these has a record; its second of a status line is the beat by which it is asked."""
    running.until(lambda _: all(any(each["key"].startswith(key) for each in records(folder)) for key in keys))


def stop(running: Running) -> None:
    running.send(signal.SIGTERM)
    assert running.ended() == 0, str(running)


def test_a_topic_that_is_not_allowed_is_a_dead_letter_that_can_be_replayed_once_it_is(
    start: Start, folder: Path
) -> None:
    limited = start(TOCSIN_ALLOWED_TOPICS='["tea*"]')
    allowed, forbidden = create("good"), create("bad", "secret", "--payload", "a-payload-nobody-logs")
    (said, *_) = [line for line in limited.until_action("dead_letter") if line["action"] == "dead_letter"]
    until_came(limited, folder, allowed)
    stop(limited)

    assert (said["key"].startswith(forbidden), said["reason"]) == (True, "not_allowed")
    assert "a-payload-nobody-logs" not in str(limited.said)
    assert [each["key"] for each in records(folder) if each["topic"] == "secret"] == []
    (letter,) = tocsin("dead-letters", "list", "--reason", "not_allowed", "-o", "json").objects()
    assert letter["key"] == said["key"]
    assert tocsin("dead-letters", "replay", "--reason", "too_large").out.strip() == "no dead letters"
    misspelt = tocsin("dead-letters", "replay", "--reason", "not_alowed")
    assert (misspelt.code, "not_allowed" in misspelt.err) == (2, True)
    (replayed,) = tocsin("dead-letters", "replay", "--reason", "not_allowed", "-o", "json").objects()
    free = start()
    until_came(free, folder, forbidden)
    stop(free)
    assert replayed["replayed"] is True
    assert [each["key"] for each in records(folder) if each["topic"] == "secret"] == [said["key"]]


def test_a_damaged_pack_is_a_dead_letter_and_a_newer_one_gives_its_range_back(start: Start, folder: Path) -> None:
    damaged, newer, *others = (id_in(shard_range) for shard_range in range(LEVELS.shard_ranges))
    dispatcher = start()
    dispatcher.until_action("took_range", LEVELS.shard_ranges)
    plant(damaged, DAMAGED)
    plant(newer, NEWER)
    dispatcher.until_action("range_failed")
    keys = [create(each) for each in (damaged, *others)]
    until_came(dispatcher, folder, *keys)
    held_back = create(newer)
    # Given up by us, it comes back to us, for nobody else is there; a newer release would take it.
    said = dispatcher.until_action("range_failed", 2)
    stop(dispatcher)

    (letter,) = tocsin("dead-letters", "list", "-o", "json").objects()
    assert letter["reason"] == "undecodable"
    (replayed,) = tocsin("dead-letters", "replay", "-o", "json").objects()
    assert replayed["replayed"] is False
    failed = [line for line in said if line["action"] == "range_failed"]
    assert str(UnknownFormat(NEWER[0])) in failed[0]["event"]
    assert {line["error"] for line in failed} == {"UnknownFormat"}
    assert not [each for each in records(folder) if each["key"].startswith(held_back)]
    status = tocsin("status", "-o", "json").objects()
    behind = {each["shard_range"] for each in status if each["lag_seconds"] > 5}
    assert LEVELS.shard_range(newer) in behind
