"""What the prose says exists: modules, commands, links, and a first schedule that runs as printed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.unit.manual_clock import START_MS
from tocsin import Every, NewSchedule
from tocsin.deploy.application import application
from tocsin.deploy.declaration import read_set
from tocsin.dispatcher.record import record_of
from tocsin.schema.entries import Entry
from tocsin.schema.open_store import open_store

ROOT = Path(__file__).parents[2]
ROOMS = ("schema", "producer", "dispatcher", "loadtest", "deploy", "tocsin")
PROSE = ("README.md", "ARCHITECTURE.md", "GLOSSARY.md", "CHANGELOG.md")


def prose(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("name", PROSE)
def test_every_module_that_is_named_exists(name: str) -> None:
    for module in re.findall(r"`((?:\w+/)?\w+\.py)`", prose(name)):
        places = [ROOT / module] if "/" in module else [ROOT / room / module for room in ROOMS]
        assert any(place.is_file() for place in places), module


@pytest.mark.parametrize("name", PROSE)
def test_every_link_within_the_repository_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose(name)):
        assert (ROOT / target).exists(), target


def test_every_command_that_is_shown_exists() -> None:
    group = typer.main.get_command(application())
    shown = set(re.findall(r"(?:\$ |`)tocsin ([a-z][a-z-]*)", "".join(map(prose, PROSE))))
    assert shown >= {"dev", "create", "next"}
    assert shown <= set(getattr(group, "commands", {}))


def test_every_target_of_make_that_is_shown_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:\$ |`)make ([a-z]+)", "".join(map(prose, PROSE)))) <= targets


def test_every_word_has_one_line_in_the_glossary() -> None:
    words = [
        word.strip()
        for line in prose("GLOSSARY.md").splitlines()
        if line.startswith("| ") and not line.startswith("| word ")
        for word in line.split("|")[1].split(",")
    ]
    assert len(words) > 80
    assert sorted(word for word in words if words.count(word) > 1) == []


def test_the_first_schedule_runs_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    async def initialise() -> None:
        store = open_store("sqlite:///tocsin.db", create=True)
        await store.open()
        await store.close()

    asyncio.run(initialise())
    first, *_ = re.findall(r"```python\n(.*?)```", prose("README.md"), re.DOTALL)
    for _ in range(2):  # What a newcomer runs is run again.
        exec(compile(first, "README.md", "exec"), {})
        assert capsys.readouterr().out == "ChangeOutcome.PREVENTED\n"


def test_the_test_that_is_shown_passes() -> None:
    _, shown, _ = re.findall(r"```python\n(.*?)```", prose("README.md"), re.DOTALL)
    names: dict[str, Callable[[], None]] = {}
    exec(compile(shown, "README.md", "exec"), names)
    names["test_a_subscriber_gets_a_digest_in_the_morning"]()


def test_the_consumer_that_is_shown_consumes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    *_, shown = re.findall(r"```python\n(.*?)```", prose("README.md"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(shown, "README.md", "exec"), names)
    rule = Every(timedelta(minutes=5))
    spec = NewSchedule(schedule_id="digest-42", recurrence=rule, topic="mail").spec(START_MS)
    record = record_of(Entry("digest-42", START_MS, START_MS, 1), spec)
    for _ in range(2):
        names["consume"](record)
    names["inbox"].close()
    assert capsys.readouterr().out == "sending digest-42@2026-11-30T10:00:00.000Z\n"


def test_the_set_that_is_shown_is_accepted(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", prose("README.md"), re.DOTALL)
    (tmp_path / "schedules.toml").write_text(shown)
    (brief,) = read_set(tmp_path / "schedules.toml")
    assert (brief.schedule_id, brief.topic, brief.exclude) == ("brief", "mail", {"holidays"})
