"""The demo is true: it passes as a process of its own, and a broken promise ends it with exit code 1."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import tocsin

from tocsin.deploy import demo
from tocsin.loadtest.verdict import Seen, Verdict, judge


def test_the_demo_loses_nothing_although_its_dispatcher_is_killed(tmp_path: Path) -> None:
    story = subprocess.run(
        [sys.executable, "-m", "tocsin.deploy.main", "demo", "--seconds", "8"],
        env={"TMPDIR": str(tmp_path), "TERM": "dumb", "COLUMNS": "80", "TOCSIN_TIMING__LEASE_TTL_MS": "1"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert story.returncode == 0, story.stdout + story.stderr
    assert story.stderr == ""
    figures = dict(re.findall(r"^(\w[\w ]*?) {2,}(\S+)", story.stdout, re.MULTILINE))
    # 80 one-shots, an Every of 2 s and a Cron of 5 s, both ends included.
    assert int(figures["dispatched"]) in {80 + 5 + 1, 80 + 5 + 2}
    assert (figures["lost"], figures["early"], figures["unexpected"]) == ("0", "0", "0")
    assert "lateness p50" in figures
    assert "lateness p99" in figures
    assert "kill -9" in story.stdout
    assert "cancelled regret: prevented" in story.stdout
    assert max(len(line) for line in story.stdout.splitlines() if str(tmp_path) not in line) <= 80
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("records", [[], [Seen("a", 999)], [Seen("a", 1_000), Seen("cancelled", 1_000)]])
def test_a_broken_promise_ends_the_demo_with_one_and_keeps_the_evidence(
    records: list[Seen], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(_: demo.Demo) -> Verdict:
        return judge({"a": 1_000}, records)

    monkeypatch.setattr(demo.Demo, "run", run)
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda **_: str(tmp_path))

    answer = tocsin("demo", columns=200)

    assert answer.code == 1
    assert "The promise was broken." in answer.out
    assert f"kept in {tmp_path}" in answer.out
    assert tmp_path.is_dir()


def test_a_dispatcher_that_ends_by_itself_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.deploy.demo_dispatcher.TIMING", demo.TIMING | {"lease_ttl_ms": 1})
    monkeypatch.setattr(demo.tempfile, "mkdtemp", lambda **_: str(tmp_path))

    answer = tocsin("demo")

    assert answer.code == 1
    assert "the demo's dispatcher ended by itself with code 1" in answer.err
    assert "lease_ttl_ms must exceed three heartbeat_ms" in answer.err


def test_an_interrupt_ends_the_demo_and_leaves_nothing_behind(tmp_path: Path) -> None:
    story = subprocess.Popen(
        [sys.executable, "-m", "tocsin.deploy.main", "demo"],
        env={"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert story.stdout is not None
    while "Scheduled" not in story.stdout.readline():
        assert story.poll() is None
    story.send_signal(signal.SIGINT)

    told = story.communicate(timeout=30)[1]

    assert (story.returncode, told) == (130, "")
    assert list(tmp_path.iterdir()) == []
