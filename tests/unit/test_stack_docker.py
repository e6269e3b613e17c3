"""What the stack asks of Docker, seen by a docker command that keeps its containers in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.deploy.stack_docker import CASSANDRA_IMAGE, KAFKA_IMAGE, DockerEngine, docker_answers
from tocsin.deploy.stack_errors import ServiceFailed
from tocsin.deploy.stack_plan import StackPlan, make_plan

#: Notes every call; a container is a file that holds `true` or `false` (running), an image is there once pulled.
DOCKER = """#!/bin/bash
echo "$*" >> "$DOCKER_STATE/calls"
last="${@: -1}"
case "$1 $2" in
  "version --format") [ ! -e "$DOCKER_STATE/no-engine" ] ;;
  "image inspect") [ -e "$DOCKER_STATE/${3//\\//_}" ] ;;
  "pull --quiet") touch "$DOCKER_STATE/${3//\\//_}" ;;
  "network inspect") [ -e "$DOCKER_STATE/$3" ] ;;
  "network create") touch "$DOCKER_STATE/$3" ;;
  "network rm") rm "$DOCKER_STATE/$3" ;;
  "container inspect") cat "$DOCKER_STATE/$last" ;;
  "run --detach")
    [ -e "$DOCKER_STATE/full" ] && { echo "no space left" >&2; exit 125; }
    echo true > "$DOCKER_STATE/$4" ;;
  start*) echo true > "$DOCKER_STATE/$2" ;;
  stop*) echo false > "$DOCKER_STATE/$last" ;;
  rm*) rm "$DOCKER_STATE/$last" ;;
esac
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    state.mkdir()
    command = tmp_path / "bin" / "docker"
    command.parent.mkdir()
    command.write_text(DOCKER)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_STATE", str(state))
    return state


@pytest.fixture
def plan() -> StackPlan:
    return make_plan(
        stack_id="00ff", engine="docker", nodes=3, cassandra_port=21_042, kafka_port=21_092, short_lived=True
    )


def quiet(what: str, done: int, total: int) -> None:
    pass


def test_docker_counts_only_where_its_engine_answers(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert docker_answers()

    (state / "no-engine").touch()
    assert not docker_answers()

    monkeypatch.setenv("PATH", "/nowhere")
    assert not docker_answers()


def test_images_are_pulled_once(state: Path, plan: StackPlan, tmp_path: Path) -> None:
    engine = DockerEngine(plan, tmp_path)
    engine.fetch(quiet)
    engine.fetch(quiet)

    pulled = [call for call in (state / "calls").read_text().splitlines() if call.startswith("pull")]
    assert pulled == [f"pull --quiet {CASSANDRA_IMAGE}", f"pull --quiet {KAFKA_IMAGE}"]


def test_every_published_port_is_bound_to_loopback(state: Path, plan: StackPlan, tmp_path: Path) -> None:
    for service in DockerEngine(plan, tmp_path).services():
        service.start()

    published = [word for word in (state / "calls").read_text().split() if word.startswith("--publish=")]
    assert published == [
        "--publish=127.0.0.1:21042:21042",
        "--publish=127.0.0.2:21042:21042",
        "--publish=127.0.0.3:21042:21042",
        "--publish=127.0.0.1:21092:21092",
    ]


def test_nodes_give_drivers_the_address_on_which_they_are_published(
    state: Path, plan: StackPlan, tmp_path: Path
) -> None:
    DockerEngine(plan, tmp_path).services()[1].start()

    config = (tmp_path / "cassandra-2" / "cassandra.yaml").read_text()
    assert "\nbroadcast_rpc_address: 127.0.0.2\n" in config
    assert "\nnative_transport_port: 21042\n" in config
    assert f'- seeds: "tocsin-00ff-cassandra-1:{plan.storage_port},' in config


def test_a_stopped_container_is_started_again_on_its_data(state: Path, plan: StackPlan, tmp_path: Path) -> None:
    kafka = DockerEngine(plan, tmp_path).services()[-1]
    kafka.start()
    kafka.stop(gently=True)
    assert not kafka.running

    kafka.start()

    assert kafka.running
    calls = (state / "calls").read_text()
    assert calls.count("run --detach") == 1
    assert "\nstart tocsin-00ff-kafka\n" in calls


def test_what_the_engine_refuses_is_a_failed_service(state: Path, plan: StackPlan, tmp_path: Path) -> None:
    (state / "full").touch()

    with pytest.raises(ServiceFailed, match="no space left"):
        DockerEngine(plan, tmp_path).services()[0].start()


def test_removing_leaves_neither_container_nor_network_nor_files(state: Path, plan: StackPlan, tmp_path: Path) -> None:
    engine = DockerEngine(plan, tmp_path / "stack")
    engine.fetch(quiet)
    for service in engine.services():
        service.start()
        service.stop(gently=False)
        service.remove()
    engine.remove()

    assert not [entry.name for entry in state.iterdir() if entry.name.startswith("tocsin")]
    assert list((tmp_path / "stack").iterdir()) == []
