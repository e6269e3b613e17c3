"""The sinks without Kafka: what a line holds, and when it counts as written."""

from __future__ import annotations

import base64
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatcher import publisher_lines
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.dispatcher.publisher_lines import JsonLinesPublisher, StdoutPublisher, json_line, readable_line
from tocsin.schema.errors import SettingsError

NOON_MS = 1_796_040_000_000


class FixedClock:
    def wall_ms(self) -> int:
        return NOON_MS

    def monotonic_ms(self) -> int:
        return 0

    async def sleep_ms(self, duration_ms: int) -> None:
        raise AssertionError("a sink never sleeps")


def record(value: bytes = b"hot", key: bytes = b"tea@2026-11-30T12:00:00.000Z", topic: str = "tea") -> Record:
    return Record(topic, key, value, [("ce_id", key)], b"tea")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_readable_line_shows_time_topic_key_and_value() -> None:
    assert readable_line(record(), NOON_MS) == b"2026-11-30T12:00:00.000Z  tea  tea@2026-11-30T12:00:00.000Z  hot\n"


def test_a_long_value_is_cut_and_says_so() -> None:
    line = readable_line(record(b"x" * 61), NOON_MS).decode()
    assert line.endswith("  " + "x" * 60 + "…\n")


@given(st.binary(max_size=200), st.text(max_size=20), st.binary(max_size=40))
def test_no_payload_key_or_topic_can_reach_the_terminal_with_a_control_character(
    value: bytes, topic: str, key: bytes
) -> None:
    line = readable_line(record(value, key, topic), NOON_MS).decode("utf-8")
    assert line.endswith("\n")
    assert line[:-1].isprintable()


@given(st.binary(max_size=200))
def test_a_json_line_gives_every_payload_back(value: bytes) -> None:
    line = json.loads(json_line(record(value), NOON_MS))
    if "value" in line:
        assert line["value"].encode() == value
    else:
        assert base64.b64decode(line["value_base64"]) == value


async def test_json_lines_are_appended_in_order_and_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for round_number in range(2):
        publisher = JsonLinesPublisher(path, FixedClock())
        await publisher.start()
        outcomes = await publisher.publish([record(b"%d-%d" % (round_number, run)) for run in range(3)])
        assert outcomes == [Outcome.ACKED] * 3
        await publisher.close(1_000)
    assert [line["value"] for line in lines_of(path)] == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]
    assert lines_of(path)[0] == {
        "time": "2026-11-30T12:00:00.000Z",
        "topic": "tea",
        "key": "tea@2026-11-30T12:00:00.000Z",
        "headers": [["ce_id", "tea@2026-11-30T12:00:00.000Z"]],
        "value": "0-0",
    }


async def test_a_json_line_is_on_disk_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "out.jsonl", []
    monkeypatch.setattr(os, "fdatasync", lambda _: synced.append(len(lines_of(path))))
    publisher = JsonLinesPublisher(path, FixedClock())
    await publisher.start()
    await publisher.publish([record(), record()])
    await publisher.close(1_000)
    assert synced == [2]


async def test_a_line_cut_off_by_a_killed_process_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"time": "20')
    publisher = JsonLinesPublisher(path, FixedClock())
    await publisher.start()
    assert await publisher.publish([record()]) == [Outcome.ACKED]
    await publisher.close(1_000)
    torn, whole = path.read_text().splitlines()
    assert torn == '{"time": "20'
    assert json.loads(whole)["value"] == "hot"


async def test_a_full_disk_is_a_broker_away_and_the_next_line_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    publisher = JsonLinesPublisher(path, FixedClock())
    await publisher.start()
    write, left = os.write, [5]

    def write_some(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[: left[0]])
        left[0] -= written
        return written

    with monkeypatch.context() as full:
        full.setattr(publisher_lines.os, "write", write_some)
        assert await publisher.publish([record(b"lost")]) == [Outcome.BROKER_AWAY]
    assert await publisher.publish([record(b"kept")]) == [Outcome.ACKED]
    await publisher.close(1_000)
    assert json.loads(path.read_text().splitlines()[1])["value"] == "kept"


async def test_a_file_that_cannot_be_opened_is_refused_at_start(tmp_path: Path) -> None:
    publisher = JsonLinesPublisher(tmp_path / "nowhere" / "out.jsonl", FixedClock())
    with pytest.raises(SettingsError, match="cannot be opened"):
        await publisher.start()
    await publisher.close(1_000)


async def test_standard_output_gets_one_line_per_record(capfd: pytest.CaptureFixture[str]) -> None:
    publisher = StdoutPublisher(FixedClock())
    await publisher.start()
    assert await publisher.publish([record(b"one"), record(b"\x1b[31mtwo")]) == [Outcome.ACKED] * 2
    await publisher.close(1_000)
    first, second = capfd.readouterr().out.splitlines()
    assert first.endswith("  one")
    assert second.endswith(r"  \x1b[31mtwo")
