"""The runbooks: every command in them can be typed and does its work, and everything they name exists."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import tocsin
from runbook_commands import FOLDER, RUNBOOKS, commands_of, follow
from typer.main import get_command

from tocsin.deploy.application import application
from tocsin.deploy.configuration import Configuration
from tocsin.schema.timing import Timing

ROOT = Path(__file__).parents[2]
EVERY = "".join(path.read_text() for path in RUNBOOKS)
SET = '[[schedule]]\nid = "declared"\nevery = "1h"\ntopic = "mail"\n'


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda path: path.stem)
def test_every_command_is_one_that_can_be_typed(runbook: Path) -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]
    assert commands_of(runbook)
    for program, name, *arguments in commands_of(runbook):
        assert program == "tocsin"
        commands[name].make_context(name, arguments)


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda path: path.stem)
def test_every_runbook_can_be_followed(runbook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.toml").write_text(SET)
    tocsin("init")
    tocsin("create", "tea", "--every", "1h", "--topic", "mail")
    soon = (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()
    for typed, answer in follow(runbook, folder=tmp_path, again="sqlite:///again.db", since=soon):
        # Doctor finds that nobody dispatches, which here is so.
        assert answer.code == (1 if typed[0] == "doctor" else 0), (typed, answer)


def test_every_runbook_is_in_the_index_and_in_the_site() -> None:
    index, site = (FOLDER / "index.md").read_text(), (ROOT / "mkdocs.yml").read_text()
    for runbook in RUNBOOKS:
        assert f"({runbook.name})" in index
        assert f"runbooks/{runbook.name}" in site


def test_every_link_between_them_leads_somewhere() -> None:
    for runbook in (*RUNBOOKS, FOLDER / "index.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", runbook.read_text()):
            assert (FOLDER / target).exists(), (runbook.name, target)


def test_runbooks_that_the_command_names_exist() -> None:
    named = {
        name
        for path in (ROOT / "deploy").glob("*.py")
        for name in re.findall(r"docs/(runbooks/\S+\.md)", path.read_text())
    }
    assert named
    for name in named:
        assert (ROOT / "docs" / name).exists(), name


def test_every_setting_and_metric_they_name_exists() -> None:
    for name in re.findall(r"timing\.(\w+)", EVERY):
        assert name in Timing.__struct_fields__, name
    for name in re.findall(r"\[(\w+)\]` in `tocsin\.toml|`(\w+)` in the settings", EVERY):
        assert "".join(name) in Configuration.model_fields, name
    exported = "".join(path.read_text() for path in (ROOT / "dispatcher").glob("*.py"))
    for name in set(re.findall(r"tocsin_(\w+)", EVERY)):
        assert f"tocsin_{name}" in exported, name
