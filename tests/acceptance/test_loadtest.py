"""A load test as it is run before a launch, on one file: a peak, a dispatcher killed in it, every key accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command_line import Answer, tocsin

from tocsin.loadtest.figures import Figures
from tocsin.schema.instants import to_datetime

HOUR = "10s"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loadtest")


@pytest.fixture(scope="module")
def places(folder: Path) -> tuple[str, ...]:
    return (
        "--store",
        f"sqlite:///{folder / 'load.db'}",
        "--sink",
        f"jsonl://{folder / 'topic.jsonl'}",
        "--topic",
        "load",
    )


@pytest.fixture(scope="module")
def told(folder: Path, places: tuple[str, ...]) -> dict[str, Any]:
    """One run, and its answer for programs."""
    assert tocsin("init", places[1]).code == 0
    answer = tocsin(
        *("loadtest", "run", "--profile", "hourly-peak", "--minutes", "0.35", "--hour", HOUR, "--scale", "0.03"),
        *("--warmup", "3s", "--dispatchers", "2", "--kill-dispatcher-at", "0.17", *places),
        *("--report", str(folder / "run.html"), "--slo-max", "15s", "-o", "json"),
    )
    assert answer.code == 0, answer.err
    (found,) = answer.objects()
    return found


def test_every_occurrence_is_there_although_a_dispatcher_was_killed_in_a_peak(told: dict[str, Any]) -> None:
    assert told["findings"]["expected"] == told["findings"]["dispatched"] == 700
    assert [told["findings"][kind] for kind in ("lost", "early", "unexpected", "out_of_order")] == [0, 0, 0, 0]
    assert [drain["count"] for drain in told["drains"]] == [100, 100, 100]


def test_what_lies_beside_the_report_tells_of_all_parts_and_of_the_kill(told: dict[str, Any], folder: Path) -> None:
    figures = msgspec.json.decode((folder / "run.json").read_bytes(), type=Figures)
    assert [event.what for event in figures.events] == ["dispatcher killed"]
    assert {"dispatcher 1", "dispatcher 2", "load test"} <= set(figures.samples[-1].parts)
    assert max(sample.lag or 0 for sample in figures.samples) > 1, (
        "nobody owned the ranges of the killed one for a while"
    )
    assert figures.metrics["tocsin_leases{state=owned}"] == 4
    assert sum(map(sum, figures.heat)) == 700
    assert (folder / "run.html").stat().st_size > 1_000_000
    assert len((folder / "run.expected.jsonl").read_text().splitlines()) == told["findings"]["expected"]


def verify(places: tuple[str, ...], *options: str) -> Answer:
    return tocsin("loadtest", "verify", *places, *options, "-o", "json")


@pytest.fixture
def stretch(told: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """The options that name the dues of the run."""
    dues = [json.loads(line)["due"] for line in (folder / "run.expected.jsonl").read_text().splitlines()]
    first, end = (to_datetime(instant).isoformat() for instant in (min(dues), max(dues) + 1))
    return ("--from", first, "--to", end)


def test_the_topic_can_be_verified_afterwards_by_the_file_and_by_the_store(
    told: dict[str, Any], folder: Path, places: tuple[str, ...], stretch: tuple[str, ...]
) -> None:
    by_file = verify(places, "--expected", str(folder / "run.expected.jsonl"), "--hour", HOUR)
    by_store = verify(places, *stretch)
    for answer in (by_file, by_store):
        assert answer.code == 0, answer.err
        (found,) = answer.objects()
        assert found["findings"]["dispatched"] == told["findings"]["expected"]
        assert found["findings"]["lost"] == found["findings"]["early"] == 0


def test_a_record_that_is_taken_away_is_missed_by_both(
    folder: Path, places: tuple[str, ...], stretch: tuple[str, ...]
) -> None:
    lines = (folder / "topic.jsonl").read_text().splitlines(keepends=True)
    keys = [json.loads(line)["key"] for line in lines]
    alone = next(number for number, key in enumerate(keys) if keys.count(key) == 1)
    (folder / "less.jsonl").write_text("".join(lines[:alone] + lines[alone + 1 :]))
    less = (places[0], places[1], "--sink", f"jsonl://{folder / 'less.jsonl'}", "--topic", "load")
    for answer in (
        verify(less, *stretch),
        verify(less, "--expected", str(folder / "run.expected.jsonl"), "--hour", HOUR),
    ):
        assert answer.code == 1
        assert answer.objects()[0]["findings"]["examples"]["lost"] == [keys[alone]]
