"""A made-up topic with one record too few, too early, too often or out of order is told; an honest one passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from command_line import Answer, tocsin

from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.publisher_lines import json_line
from tocsin.dispatcher.record import record_of
from tocsin.loadtest.figures import Figures
from tocsin.loadtest.topic_reader import open_topics
from tocsin.loadtest.topic_verification import Stretch, verify_topic
from tocsin.schema.entries import Entry
from tocsin.schema.instants import SECOND_MS, to_datetime
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import Spec

START = 1_796_032_800_000
SPEC = Spec(recurrence=Once(to_datetime(START)), topic="t")
Lines = list[tuple[Entry, int]]


def honest() -> Lines:
    """Two schedules, ten occurrences each, every record 20 ms after its due."""
    entries = [
        Entry(f"s{schedule}", START + number * SECOND_MS, START + number * SECOND_MS, 1)
        for number in range(10)
        for schedule in range(2)
    ]
    return [(entry, entry.due + 20) for entry in entries]


def lose(lines: Lines) -> Lines:
    return [line for number, line in enumerate(lines) if number != 7]


def hurry(lines: Lines) -> Lines:
    return [(entry, entry.due - 1 if number == 7 else at) for number, (entry, at) in enumerate(lines)]


def repeat(lines: Lines) -> Lines:
    return [*lines, (lines[7][0], lines[7][1] + 5_000)]


def disorder(lines: Lines) -> Lines:
    """The second schedule's fourth and fifth change places."""
    lines = list(lines)
    (fourth, _), (fifth, later) = lines[7], lines[9]
    lines[7], lines[9] = (fifth, later), (fourth, later + 1)
    return lines


def invent(lines: Lines) -> Lines:
    return [*lines, (Entry("s1", START + 500, START + 500, 1), START + 600)]


def nothing(lines: Lines) -> Lines:
    return lines


def of_others(lines: Lines) -> Lines:
    """Another run's records on the same topic are nobody's business."""
    return [*lines, (Entry("other", START, START, 1), START + 90_000)]


def write(folder: Path, lines: Lines) -> tuple[Path, Path]:
    topic, expected = folder / "topic.jsonl", folder / "run.expected.jsonl"
    topic.write_bytes(b"".join(json_line(record_of(entry, SPEC), at) for entry, at in lines))
    expected.write_text("".join(json.dumps({"key": entry.key, "due": entry.due}) + "\n" for entry, _ in honest()))
    return topic, expected


def verified(topic: Path) -> Figures:
    expected = {entry.key: entry.due for entry, _ in honest()}
    reader = open_topics(f"jsonl://{topic}", ["t"], KafkaSecurity())
    return verify_topic(
        reader, expected, Stretch(start_ms=START, end_ms=START + 60_000, hour_ms=60_000, is_complete=True)
    )


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (nothing, {}),
        (of_others, {}),
        (lose, {"lost": 1}),
        (hurry, {"early": 1}),
        (repeat, {"repeated": 1}),
        (disorder, {"out_of_order": 1}),
        (invent, {"unexpected": 1, "out_of_order": 1}),
    ],
)
def test_each_fault_is_told_and_nothing_else(
    tmp_path: Path, change: Callable[[Lines], Lines], found: dict[str, int]
) -> None:
    topic, _ = write(tmp_path, change(honest()))
    counted = msgspec.structs.asdict(verified(topic).findings)
    kinds = ("lost", "early", "unexpected", "out_of_order", "repeated", "foreign")
    assert {kind: counted[kind] for kind in kinds if counted[kind]} == found


@pytest.mark.parametrize(
    ("change", "code"), [(nothing, 0), (repeat, 0), (lose, 1), (hurry, 1), (disorder, 1), (invent, 1)]
)
def test_the_exit_code_says_whether_the_objectives_hold(
    tmp_path: Path, change: Callable[[Lines], Lines], code: int
) -> None:
    assert run(tmp_path, change).code == code


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (("--slo-p99", "20ms"), 0),
        (("--slo-p99", "19ms"), 1),
        (("--slo-max", "5s"), 0),
        (("--slo-max", "10ms"), 1),
        (("--slo-repeated", "0"), 1),
        (("--slo-repeated", "1"), 0),
    ],
)
def test_objectives_are_what_the_options_say(tmp_path: Path, option: tuple[str, str], code: int) -> None:
    assert run(tmp_path, repeat, *option).code == code


def test_a_lost_occurrence_may_be_allowed(tmp_path: Path) -> None:
    assert run(tmp_path, lose, "--slo-lost", "1").code == 0


def test_the_answer_for_programs_names_the_keys_and_the_report_lies_beside_its_json(tmp_path: Path) -> None:
    report = tmp_path / "verified.html"
    told = json.loads(run(tmp_path, lose, "-o", "json", "--report", str(report)).out)
    assert told["findings"]["examples"] == {"lost": [honest()[7][0].key]}
    assert told["lateness"]["all"] == {
        "count": 19,
        "p50_ms": 20,
        "p90_ms": 20,
        "p99_ms": 20,
        "p99_9_ms": 20,
        "max_ms": 20,
    }
    assert "Not kept: 19 of 20 dispatched, 1 lost." in report.read_text()
    assert msgspec.json.decode(report.with_suffix(".json").read_bytes(), type=Figures).findings.lost == 1


def test_records_that_are_not_ours_are_counted_and_passed_over(tmp_path: Path) -> None:
    topic, _ = write(tmp_path, honest())
    with topic.open("ab") as lines:
        lines.write(b'{"hello": "world"}\n{"key": "half a li')
    findings = verified(topic).findings
    assert (findings.foreign, findings.lost) == (1, 0)


def test_a_file_that_no_run_left_is_refused_by_its_line(tmp_path: Path) -> None:
    topic, expected = write(tmp_path, honest())
    with expected.open("a") as lines:
        lines.write("{}\n")
    outcome = tocsin("loadtest", "verify", "--topic", "t", "--sink", f"jsonl://{topic}", "--expected", str(expected))
    assert outcome.code == 1
    assert "line 21" in outcome.err


def run(folder: Path, change: Callable[[Lines], Lines], *options: str) -> Answer:
    topic, expected = write(folder, change(honest()))
    words = ("loadtest", "verify", "--topic", "t", "--sink", f"jsonl://{topic}", "--expected", str(expected))
    return tocsin(*words, *options)
