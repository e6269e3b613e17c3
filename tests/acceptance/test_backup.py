"""Backup and restore as the command does them: on one file, and on three nodes under load with two dispatchers."""

from __future__ import annotations

import asyncio
import gzip
import json
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from acceptance.conftest import OpenTopic
from acceptance.processes import Processes
from acceptance.records import Received
from command_line import tocsin

from tocsin.deploy.stack import LocalStack
from tocsin.producer.definition import NewSchedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.entries import parse_occurrence_key
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import CatchUp
from tocsin.schema.timing import Timing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parts_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]


def test_what_users_said_survives_the_loss_of_the_file(folder: Path) -> None:
    tocsin("init")
    tocsin("calendar", "set", "holidays", "2026-12-25")
    tocsin("create", "tea", "--every", "1h", "--topic", "kitchen", "--payload", "hot", "--exclude", "holidays")
    tocsin("create", "later", "--at", "2036-12-24T18:00Z", "--topic", "mail")
    tocsin("create", "gone", "--every", "1d", "--topic", "mail")
    tocsin("cancel", "gone")
    before = tocsin("list", "-o", "json").objects()

    saved = tocsin("backup", "all.jsonl.gz", "-o", "json")
    for file in folder.glob("tocsin.db*"):
        file.unlink()
    restored = tocsin("restore", "all.jsonl.gz", "-o", "json")
    again = tocsin("restore", "all.jsonl.gz")

    assert (saved.code, restored.code, again.code) == (0, 0, 0)
    assert saved.objects()[0]["schedules"] == 3
    assert restored.objects()[0]["armed"] == 2
    assert tocsin("list", "-o", "json").objects() == before
    assert tocsin("calendar", "show", "holidays", "-o", "json").objects()[0]["dates"] == ["2026-12-25"]
    assert tocsin("pause", "tea").code == 0
    assert (folder / "all.jsonl.gz").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ["cut", "foreign", "changed", "empty"])
def test_a_damaged_file_makes_nothing(folder: Path, damage: str) -> None:
    tocsin("init")
    tocsin("create", "tea", "--every", "1h", "--topic", "kitchen")
    tocsin("backup", "all.jsonl")
    lines = (folder / "all.jsonl").read_text().splitlines(keepends=True)
    texts = {"cut": lines[:-1], "foreign": ["{}\n"], "changed": [lines[0], *lines[1:-1] * 2, lines[-1]], "empty": []}
    (folder / "damaged.jsonl").write_text("".join(texts[damage]))

    refused = tocsin("restore", "damaged.jsonl", "--store", "sqlite:///new.db")

    assert refused.code == 1
    assert "use another" in refused.err
    assert not (folder / "new.db").exists()


def test_a_store_that_is_there_is_left_alone(folder: Path) -> None:
    tocsin("init")
    tocsin("create", "tea", "--every", "1h", "--topic", "kitchen")
    assert tocsin("backup", "all.jsonl").code == 0
    tocsin("init", "sqlite:///other.db")

    taken = tocsin("restore", "all.jsonl", "--store", "sqlite:///other.db")
    second = tocsin("backup", "all.jsonl")
    early = tocsin("restore", "all.jsonl", "--store", "sqlite:///new.db", "--since", "2020-01-01T00:00Z")

    assert (taken.code, second.code, early.code) == (1, 1, 1)
    assert "holds a store already" in taken.err
    assert "exists already" in second.err
    assert "--since must lie between" in early.err


SCHEDULES = 120
PATIENCE_SECONDS = 60.0
PERIOD = timedelta(seconds=2)


@pytest.mark.cassandra
@pytest.mark.kafka
def test_every_schedule_of_a_lost_keyspace_lives_on(
    cassandra_stack: LocalStack, folder: Path, open_topic: OpenTopic
) -> None:
    topic = open_topic()
    old, new = (cassandra_stack.store_url(f"backup_{secrets.token_hex(3)}") for _ in range(2))
    assert tocsin("init", old, "--shard-ranges", "8", "--sub-partitions", "16").code == 0
    asyncio.run(create(old, topic.name, range(SCHEDULES)))
    dispatcher = Processes(folder, old, cassandra_stack.sink_url)
    try:
        dispatcher.dispatcher()
        assert topic.until(lambda at: len(names(at.records)) == SCHEDULES, seconds=PATIENCE_SECONDS)
        saved = tocsin("backup", "all.jsonl.gz", "--store", old, "-o", "json")
        asyncio.run(create(old, topic.name, range(SCHEDULES, SCHEDULES + 5)))
        assert topic.until(lambda at: len(names(at.records)) == SCHEDULES + 5, seconds=PATIENCE_SECONDS)
    finally:
        dispatcher.reap()
    lost_at = datetime.now(UTC)
    taken = len(topic.records)

    restored = tocsin("restore", "all.jsonl.gz", "--store", new, "--replication", "3", "-o", "json")
    successor = Processes(folder, new, cassandra_stack.sink_url)
    try:
        successor.dispatcher()
        assert topic.until(lambda at: caught_up(at.records[taken:], lost_at), seconds=PATIENCE_SECONDS)
    finally:
        successor.reap()

    assert (saved.code, restored.code) == (0, 0)
    assert restored.objects()[0]["armed"] == SCHEDULES
    since = datetime.fromisoformat(str(restored.objects()[0]["since"]))
    grace = timedelta(milliseconds=Timing().misfire_grace_ms)
    for name in (f"s{number}" for number in range(SCHEDULES)):
        times = sorted({at for who, at in map(occurrence, topic.records) if who == name})
        assert times == [times[0] + number * PERIOD for number in range(len(times))], f"{name} has a hole"
        again = [at for who, at in map(occurrence, topic.records[taken:]) if who == name]
        assert min(again) > since - grace, "what was dispatched long before is dispatched again"


async def create(url: str, topic: str, numbers: range) -> None:
    async with AsyncScheduler(url) as scheduler:
        wanted = (
            NewSchedule(
                schedule_id=f"s{number}",
                recurrence=Every(PERIOD),
                topic=topic,
                catch_up=CatchUp.ALL,
            )
            for number in numbers
        )
        async for result in scheduler.create_many(wanted):
            assert result.error is None, result.error


def occurrence(record: Received) -> tuple[str, datetime]:
    name, at, _ = parse_occurrence_key(record.key)
    return name, datetime.fromtimestamp(at / 1000, UTC)


def names(records: Sequence[Received]) -> set[str]:
    return {occurrence(record)[0] for record in records}


def caught_up(records: Sequence[Received], lost_at: datetime) -> bool:
    """Whether each schedule of the backup has been dispatched on time again."""
    newest: dict[str, datetime] = {}
    for name, at in map(occurrence, records):
        newest[name] = max(at, newest.get(name, at))
    wanted = {f"s{number}" for number in range(SCHEDULES)}
    return wanted <= newest.keys() and all(newest[name] > lost_at + timedelta(seconds=5) for name in wanted)
