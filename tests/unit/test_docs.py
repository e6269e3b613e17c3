"""The documentation: it builds without a warning, the tutorial runs as printed, and what it names exists."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from datetime import UTC, date, datetime, time, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer

import tocsin
from tocsin import MemoryInbox, Workbench
from tocsin.deploy.application import application
from tocsin.schema.open_store import open_store

ROOT = Path(__file__).parents[2]
#: Pages written by hand, here; what is linked from elsewhere is held by test_prose.py.
PAGES = sorted(path for path in (ROOT / "docs").glob("*.md") if not path.is_symlink())
SNIPPET = re.compile(r'--8<-- "([^":]+):(\d+):(\d+)"')


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_site_builds_and_no_link_leads_nowhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    reference = (tmp_path / "site" / "reference.html").read_text()
    assert "async def consume" in re.sub("<[^>]+>", "", (tmp_path / "site" / "how-to.html").read_text())
    named = ("AsyncScheduler.create", "AsyncScheduler.is_current", "Cron", "Received.due", "Workbench.advance")
    assert [name for name in named if f'id="tocsin.{name}"' not in reference] == []


def test_the_tutorial_runs_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def initialise() -> None:
        store = open_store("sqlite:///tocsin.db", create=True)
        await store.open()
        await store.close()

    asyncio.run(initialise())
    names: dict[str, Any] = {}
    said = StringIO()
    with redirect_stdout(said):
        for block in blocks("tutorial.md", "python"):
            exec(compile(block, "tutorial.md", "exec"), names)
        with Workbench(start=names["datetime"](2026, 12, 1, tzinfo=names["UTC"])) as bench, MemoryInbox() as inbox:
            bench.scheduler.create("tea", names["Once"](bench.now + names["timedelta"](hours=1)), topic="kitchen")
            bench.advance(names["timedelta"](hours=1))
            for record in bench._heard.records * 2:
                names["handle"](record, inbox)
    names["scheduler"].close()
    assert said.getvalue().startswith("ChangeOutcome.PREVENTED\n")
    assert said.getvalue().count("served tea@2026-12-01T01:00:0") == 1


def test_what_is_shown_with_a_scheduler_works() -> None:
    shown = [block for block in blocks("how-to.md", "python") if re.search(r"\bscheduler\.", block)]
    assert len(shown) >= 4
    with Workbench(start=datetime.now(UTC)) as bench:
        bench.scheduler.create("digest-42", tocsin.Daily(time(9), tz="Europe/Berlin"), topic="mail")
        names = vars(tocsin) | {"scheduler": bench.scheduler, "UTC": UTC}
        names |= {"date": date, "datetime": datetime, "timedelta": timedelta}
        with redirect_stdout(StringIO()) as said:
            for block in shown:
                exec(compile(block, "how-to.md", "exec"), names)
        assert re.match("[678] occurrences in ", said.getvalue())
        assert names["failed"] == []
        assert bench.scheduler.get("digest-42").exclude == ("holidays",)


def test_the_first_page_s_schedule_is_accepted() -> None:
    (shown,) = blocks("index.md", "python")
    compile(shown, "index.md", "exec")
    imported = {
        alias.name for node in ast.walk(ast.parse(shown)) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported - {"time"} <= set(tocsin.__all__)


def test_every_command_and_target_that_is_shown_exists() -> None:
    text = "".join(page.read_text() for page in PAGES)
    commands = set(getattr(typer.main.get_command(application()), "commands", {}))
    assert set(re.findall(r"(?:\$ |`)tocsin ([a-z][a-z-]*)", text)) <= commands
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:\$ |`)make ([a-z]+)", text)) <= targets
    for file in re.findall(r"`((?:examples|tests)/[\w./]+)`", text):
        assert (ROOT / file).exists(), file


def test_what_is_shown_of_a_file_is_whole() -> None:
    shown = SNIPPET.findall("".join(page.read_text() for page in PAGES))
    assert len(shown) >= 3
    for name, first, last in shown:
        lines = (ROOT / name).read_text().splitlines()[int(first) - 1 : int(last)]
        nodes = ast.parse("\n".join(lines)).body
        assert nodes
        assert lines[0].strip(), f"{name}:{first} is empty"
        assert lines[-1].strip(), f"{name}:{last} is empty"


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_drawn_well_says_what_it_shows_and_loads_nothing(picture: Path) -> None:
    root = ET.parse(picture).getroot()
    assert root.attrib["aria-label"] == root.findtext("{http://www.w3.org/2000/svg}title")
    assert "href" not in picture.read_text()
    _, _, width, height = map(int, root.attrib["viewBox"].split())
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(element.attrib["x"]) <= width
        assert 0 <= float(element.attrib["y"]) <= height
