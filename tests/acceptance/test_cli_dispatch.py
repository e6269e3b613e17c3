"""Dispatchers as processes: they dispatch, report, stop when told, and never run on unseen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import actions_until, start_tocsin, tocsin

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a store."""
    monkeypatch.chdir(tmp_path)
    assert tocsin("init").code == 0
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start the command; what still runs after the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        started.append(start_tocsin(*arguments, folder=folder))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_record_appears_and_a_planned_stop_frees_every_range(start: Start) -> None:
    dispatcher = start("dispatch", "--sink", "stdout:", "--log", "json")
    actions_until(dispatcher, "took_range")
    tocsin("create", "tea", "--every", "1s", "--topic", "kitchen", "--payload", "hot")

    assert dispatcher.stdout is not None
    record = dispatcher.stdout.readline().split()
    dispatcher.send_signal(signal.SIGTERM)
    dispatcher.communicate(timeout=30)

    assert record[1] == "kitchen"
    assert record[2].startswith("tea@")
    assert record[3] == "hot"
    assert dispatcher.returncode == 0
    assert {each["owner"] for each in tocsin("status", "-o", "json").objects()} == {None}


def test_a_line_a_second_tells_ranges_lag_and_what_was_dispatched(start: Start) -> None:
    dispatcher = start("dispatch", "--log", "json")

    status = actions_until(dispatcher, "status")[-1]

    assert status["ranges"] == 4
    assert status["lag_seconds"] >= 0
    assert status["event"].startswith("Ranges ")
    assert status.keys() >= {"ranges_owned", "unowned", "dispatched", "dispatched_now", "level", "timestamp"}


def test_metrics_and_probes_answer_on_loopback(start: Start) -> None:
    dispatcher = start("dispatch", "--log", "json", "--metrics", "127.0.0.1:0")
    told = actions_until(dispatcher, "metrics")[-1]["event"]
    address = told.partition("Metrics are on ")[2].removesuffix("/metrics.")
    actions_until(dispatcher, "status")

    assert b'tocsin_leases{state="owned"} 4.0' in fetch(f"{address}/metrics")
    assert b'tocsin_dispatch_lag_seconds{shard_range="3"}' in fetch(f"{address}/metrics")
    assert fetch(f"{address}/healthz") == fetch(f"{address}/readyz") == b"OK\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(f"{address}/nonsense")


def test_a_taken_or_malformed_metrics_address_is_refused(start: Start) -> None:
    taken = start("dispatch", "--log", "json")
    address = actions_until(taken, "metrics")[-1]["event"].partition("http://")[2].removesuffix("/metrics.")

    refused = start("dispatch", "--metrics", address)
    malformed = start("dispatch", "--metrics", "9464")

    assert "metrics cannot be served" in refused.communicate(timeout=30)[1]
    assert "is not an address for metrics" in malformed.communicate(timeout=30)[1]
    assert (refused.returncode, malformed.returncode) == (1, 1)


def test_nobody_is_greeted_and_then_refused(start: Start) -> None:
    for command in ("dispatch", "dev"):
        refused = start(command, "--sink", "jsonl:///tmp")
        out, err = refused.communicate(timeout=30)
        assert refused.returncode == 1
        assert out == ""
        assert err.startswith("✗ the sink /tmp cannot be opened")
        assert len(err.splitlines()) == 1


def test_several_processes_share_the_ranges_and_stop_together(start: Start) -> None:
    command = start("dispatch", "--processes", "2", "--log", "json", "--sink", "jsonl:///dev/null")
    owners: set[str | None] = {None}
    while owners & {None} or len(owners) < 2:
        actions_until(command, "took_range")
        owners = {each["owner"] for each in tocsin("status", "-o", "json").objects()}

    command.send_signal(signal.SIGINT)
    command.communicate(timeout=30)

    assert command.returncode == 0
    assert {each["owner"] for each in tocsin("status", "-o", "json").objects()} == {None}


def test_a_process_that_dies_ends_the_command_with_its_code(start: Start) -> None:
    command = start("dispatch", "--processes", "2", "--log", "json")
    actions_until(command, "took_range")
    owner = next(each["owner"] for each in tocsin("status", "-o", "json").objects() if each["owner"])

    os.kill(int(owner.split("-")[-2]), signal.SIGKILL)
    told = command.communicate(timeout=30)[1]

    assert command.returncode == 128 + signal.SIGKILL
    assert "dispatcher_ended" in {json.loads(line)["action"] for line in told.splitlines()}


def test_dispatchers_stop_when_whoever_started_them_is_killed(start: Start) -> None:
    command = start("dispatch", "--processes", "2", "--log", "json")
    actions_until(command, "took_range")

    command.kill()

    # Both outputs end only once the last process that holds them has ended.
    told = command.communicate(timeout=30)[1]
    actions = [json.loads(line)["action"] for line in told.splitlines()]
    assert actions.count("supervisor_gone") == 2
    assert actions.count("stopped") == 2


def test_dev_makes_its_store_says_what_to_type_and_shows_records(start: Start, folder: Path) -> None:
    dev = start("dev", "--store", "sqlite:///fresh.db")
    assert dev.stderr is not None
    told = ""
    while "Took shard range" not in told:
        told += dev.stderr.readline()
    line = next(line for line in told.splitlines() if "Scheduler(" in line)

    exec(f"from datetime import timedelta\nfrom tocsin import Every, Scheduler\n{line}", {})

    assert dev.stdout is not None
    assert "tea@" in dev.stdout.readline()
    dev.send_signal(signal.SIGINT)
    dev.communicate(timeout=30)
    assert dev.returncode == 0
    assert (folder / "fresh.db").exists()


def test_a_store_that_is_not_initialised_ends_dispatch_at_once(start: Start) -> None:
    command = start("dispatch", "--store", "sqlite:///none.db")

    out, told = command.communicate(timeout=30)

    assert (command.returncode, out) == (1, "")
    assert "run: tocsin init sqlite:///none.db" in told


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body
