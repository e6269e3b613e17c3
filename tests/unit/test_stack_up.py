"""What `tocsin up` and `tocsin down` say and answer where nothing can be started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from command_line import tocsin

from tocsin.deploy import stack


@pytest.fixture(autouse=True)
def no_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "docker_answers", lambda: False)


def test_without_java_up_says_what_to_install_and_answers_six(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    result = tocsin("up", "--directory", str(tmp_path / "stack"))

    assert result.code == 6
    assert result.err.count("\n") == 1
    assert "Install Java 17" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = tocsin("up", "--cassandra-port", str(port), "--directory", str(tmp_path / "stack"))

    assert result.code == 1
    assert f"port {port} for Cassandra is already in use" in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")

    result = tocsin("up", "--directory", str(tmp_path))

    assert result.code == 1
    assert "holds other files" in result.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.txt"]


def test_two_nodes_are_a_wrong_use() -> None:
    assert tocsin("up", "--nodes", "2").code == 2


def test_a_topic_that_no_broker_takes_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = tocsin("up", "--topic", "two words", "--directory", str(tmp_path / "stack"))

    assert result.code == 1
    assert "topic" in result.err
    assert list(tmp_path.iterdir()) == []


def test_down_where_nothing_runs_says_so(tmp_path: Path) -> None:
    result = tocsin("down", "--directory", str(tmp_path / "stack"))

    assert result.code == 0
    assert "Nothing is running" in result.err
    assert list(tmp_path.iterdir()) == []
