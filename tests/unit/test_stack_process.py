"""A service's process: found by its identity, and by nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tocsin.deploy import stack_child
from tocsin.deploy.stack_errors import ServiceFailed
from tocsin.deploy.stack_process import ProcessService

Begin = Callable[[list[list[str]]], ProcessService]

WAIT = [[sys.executable, "-S", "-c", "import signal; signal.pause()"]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    made: list[ProcessService] = []

    def make(commands: list[list[str]]) -> ProcessService:
        service = ProcessService("service", tmp_path / "service", lambda: commands)
        made.append(service)
        service.start()
        return service

    yield make
    for service in made:
        service.stop(gently=False)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_started_program_runs_in_a_session_of_its_own(begin: Begin) -> None:
    service = begin(WAIT)

    assert service.pid is not None
    assert os.getsid(service.pid) == service.pid != os.getsid(0)


def test_another_handle_on_the_same_directory_finds_and_stops_it(begin: Begin, tmp_path: Path) -> None:
    begun = begin(WAIT)
    found = ProcessService("service", tmp_path / "service", list)

    assert found.pid == begun.pid
    found.stop(gently=False)

    assert not begun.running


def test_a_paused_program_runs_and_does_nothing_until_resumed(begin: Begin) -> None:
    service = begin(WAIT)
    pid = service.pid
    assert pid is not None

    service.pause()
    assert service.running
    # The kernel stops a process soon after the signal, not with it.
    while state_of(pid) != "T":
        os.sched_yield()
    service.resume()
    while state_of(pid) == "T":
        os.sched_yield()

    assert service.running


def test_a_paused_program_is_stopped_gently_too(begin: Begin) -> None:
    service = begin(WAIT)
    service.pause()

    service.stop(gently=True)

    assert not service.running


def test_a_stranger_that_got_the_process_id_is_never_signalled(begin: Begin, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (tmp_path / "service.process.json").write_text(json.dumps({"pid": stranger.pid, "birth": "another boot/1"}))
        service = ProcessService("service", tmp_path / "service", list)

        assert not service.running
        service.stop(gently=False)
        service.stop(gently=True)

        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert stranger.returncode == 0


def test_the_birth_of_a_process_is_its_own_and_stays() -> None:
    assert stack_child.process_birth(os.getpid()) == stack_child.process_birth(os.getpid())
    assert stack_child.process_birth(os.getpid()) != stack_child.process_birth(1)


def test_a_process_that_ended_has_no_birth_even_before_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert stack_child.process_birth(ended.pid) is None


def test_a_program_that_does_not_exist_is_a_failed_service(begin: Begin) -> None:
    with pytest.raises(ServiceFailed, match="No such file"):
        begin([["/nowhere/java"]])


def test_a_preparation_that_fails_shows_the_end_of_its_output(begin: Begin) -> None:
    with pytest.raises(ServiceFailed, match="the disk is full") as failure:
        begin([[sys.executable, "-c", "import sys; sys.exit('the disk is full')"], *WAIT])

    assert failure.value.service == "service"


def test_a_child_born_while_the_stack_is_removed_ends_itself(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / stack_child.STOPPING).touch()

    with pytest.raises(ServiceFailed, match="being stopped"):
        begin(WAIT)


def test_remove_leaves_neither_data_nor_identity(begin: Begin, tmp_path: Path) -> None:
    service = begin(WAIT)
    service.stop(gently=False)
    service.remove()

    assert list(tmp_path.iterdir()) == []
