"""The image, compose file and manifests ask for no more than they need, and name what exists."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tocsin.deploy.application import application
from tocsin.deploy.configuration import Configuration
from tocsin.deploy.stack_docker import CASSANDRA_IMAGE, KAFKA_IMAGE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"])


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, comments and blank lines aside."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def pods(manifests: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for kind in ("Job", "Deployment"):
        yield manifests[kind]["spec"]["template"]["spec"]


def test_the_image_runs_as_nobody_in_particular() -> None:
    found = instructions()
    last_stage = found[max(index for index, (word, _) in enumerate(found) if word == "FROM") :]
    assert [rest for word, rest in last_stage if word == "USER"] == ["10001:10001"]
    assert all("pip" not in rest for word, rest in last_stage if word == "RUN"), "the image builds nothing"
    assert ("STOPSIGNAL", "SIGTERM") in last_stage


def test_the_image_holds_every_room() -> None:
    copied = {rest.split()[0] for word, rest in instructions() if word == "COPY" and "--from" not in rest}
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms <= copied


def test_every_command_line_is_one_that_the_command_takes(manifests: dict[str, Any], services: dict[str, Any]) -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]
    lines = [service["command"] for service in services.values() if "command" in service]
    lines += [pod["containers"][0]["args"][2:] for pod in pods(manifests)]
    (default,) = (rest for word, rest in instructions() if word == "CMD")
    lines.append(yaml.safe_load(default))
    assert len(lines) == 5
    for name, *arguments in lines:
        commands[name].make_context(name, list(map(str, arguments)))


def test_containers_may_do_nothing_but_run(manifests: dict[str, Any], services: dict[str, Any]) -> None:
    for pod in pods(manifests):
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    for name in ("init", "dispatcher"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert "ports" not in services[name]


def test_settings_of_the_manifests_are_settings(manifests: dict[str, Any], services: dict[str, Any]) -> None:
    settings = tomllib.loads(manifests["ConfigMap"]["data"]["tocsin.toml"])
    Configuration(**settings)
    for name in services["dispatcher"]["environment"]:
        assert name.removeprefix("TOCSIN_").lower() in Configuration.model_fields


def test_no_manifest_holds_a_secret(manifests: dict[str, Any]) -> None:
    assert manifests["Secret"]["stringData"] == {}
    text = "".join((DEPLOY / name).read_text() for name in ("compose.yaml", "kubernetes.yaml", "Dockerfile"))
    assert not re.search(r"(?i)password\s*[:=]\s*\S", text)


def test_compose_starts_what_the_local_stack_starts(services: dict[str, Any]) -> None:
    assert services["cassandra-1"]["image"] == CASSANDRA_IMAGE
    assert services["kafka"]["image"] == KAFKA_IMAGE
    assert [name for name in services if name.startswith("cassandra")] == ["cassandra-1", "cassandra-2", "cassandra-3"]


def advisories(tmp_path: Path, found: str | None) -> subprocess.CompletedProcess[str]:
    """Run the check in a tree whose pip-audit finds this; None: it reaches nobody."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "advisories").write_text((ROOT / ".ci" / "advisories").read_text())
    bins = {"bin/python": f'exec {shlex.quote(sys.executable)} "$@"'}
    report = tmp_path / "report"
    report.write_text(found or "")
    write = f'while [ "$1" != --output ]; do shift; done; cp {shlex.quote(str(report))} "$2"; exit 1'
    bins["advisories/bin/pip-audit"] = write if found is not None else "echo ConnectionError >&2; exit 1"
    for name, text in bins.items():
        file = tmp_path / ".venv" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(stat.S_IRWXU)
    command = ["bash", str(tmp_path / ".ci" / "advisories")]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))


def test_a_known_weakness_fails_the_build_and_nobody_to_ask_does_not(tmp_path: Path) -> None:
    weak = '{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}'
    clean, skipped = '{"name": "b", "version": "1", "vulns": []}', '{"name": "c", "skip_reason": "unknown"}'
    cases = {
        "weak": (f'{{"dependencies": [{weak}, {clean}]}}', 1, "a 1: PYSEC-1, fixed in 2"),
        "clean": (f'{{"dependencies": [{clean}, {skipped}]}}', 0, "none for 1 packages, 1 could not be asked about"),
        "mirror": (f'{{"dependencies": [{skipped}]}}', 0, "nothing was checked"),
        "offline": (None, 0, "nothing was checked: the advisory database cannot be reached"),
    }
    for name, (found, code, said) in cases.items():
        (tmp_path / name).mkdir()
        answer = advisories(tmp_path / name, found)
        assert (answer.returncode, said in answer.stdout) == (code, True), (name, answer)
