"""The local stack as containers, where a Docker engine answers.

Every published port is bound to a loopback address of this machine. Nodes talk to each other on a network of their own;
clients reach node i on 127.0.0.i, which is also the address the node gives to drivers.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tocsin.deploy.maven import Report
from tocsin.deploy.stack_config import initial_token, write_config
from tocsin.deploy.stack_errors import ServiceFailed
from tocsin.deploy.stack_plan import StackPlan
from tocsin.deploy.stack_service import Service

CASSANDRA_IMAGE = "cassandra:5.0.6"
KAFKA_IMAGE = "apache/kafka:4.0.0"
#: Where a container sees its configuration.
CONFIG_FOLDER = "/tocsin"
GENTLE_STOP_SECONDS = 30


def docker_answers() -> bool:
    """Whether a Docker engine, not only its command, is there."""
    if shutil.which("docker") is None:
        return False
    return _docker("version", "--format", "{{.Server.Version}}").returncode == 0


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)  # noqa: S603, S607 - the user's docker, our arguments


class ContainerService:
    """One container, found again by its name, which holds the id of its stack.

    `options` is asked at the first start for everything behind `docker run --detach --name NAME`.
    """

    def __init__(self, name: str, container: str, options: Callable[[], list[str]]) -> None:
        self.name = name
        self._container = container
        self._options = options

    def start(self) -> None:
        """Begin; raises ServiceFailed where the engine refuses."""
        if _docker("container", "inspect", self._container).returncode == 0:
            done = _docker("start", self._container)
        else:
            done = _docker("run", "--detach", "--name", self._container, *self._options())
        if done.returncode != 0:
            raise ServiceFailed(self.name, done.stderr.strip(), self.log_tail())

    def stop(self, *, gently: bool) -> None:
        """End the container; its data stays until it is removed."""
        _docker("unpause", self._container)
        _docker("stop", "-t", str(GENTLE_STOP_SECONDS if gently else 0), self._container)

    def pause(self) -> None:
        """Freeze all its processes."""
        _docker("pause", self._container)

    def resume(self) -> None:
        """Let them go on."""
        _docker("unpause", self._container)

    def remove(self) -> None:
        """Delete the container and its volumes."""
        _docker("rm", "--force", "--volumes", self._container)

    @property
    def running(self) -> bool:
        """Whether it runs, paused or not."""
        return (
            _docker("container", "inspect", "--format", "{{.State.Running}}", self._container).stdout.strip() == "true"
        )

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of its output."""
        said = _docker("logs", "--tail", str(lines), self._container)
        return (said.stdout + said.stderr).strip()


class DockerEngine:
    """Makes the services of a plan as containers."""

    def __init__(self, plan: StackPlan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._network = f"tocsin-{plan.stack_id}"

    def fetch(self, report: Report) -> None:
        """Pull the images that are missing.

        Raises:
            ServiceFailed: an image cannot be pulled, or the network cannot be made.
        """
        images = (CASSANDRA_IMAGE, KAFKA_IMAGE)
        for done, image in enumerate(images):
            report("Fetching images", done, len(images))
            if _docker("image", "inspect", image).returncode != 0:
                _require(image, _docker("pull", "--quiet", image))
        report("Fetching images", len(images), len(images))
        if _docker("network", "inspect", self._network).returncode != 0:
            _require("the network", _docker("network", "create", self._network))

    def services(self) -> Sequence[Service]:
        """Return the handles of all services, Cassandra's nodes first and Kafka last, whether they run or not."""
        nodes = [
            ContainerService(f"cassandra-{node}", self._container(f"cassandra-{node}"), partial(self._cassandra, node))
            for node in range(1, self._plan.nodes + 1)
        ]
        return [*nodes, ContainerService("kafka", self._container("kafka"), self._kafka)]

    def remove(self) -> None:
        """Delete the network and the configuration files."""
        _docker("network", "rm", self._network)
        for service in self.services():
            shutil.rmtree(self._directory / service.name, ignore_errors=True)

    def _container(self, service: str) -> str:
        return f"{self._network}-{service}"

    def _cassandra(self, node: int) -> list[str]:
        plan = self._plan
        address = plan.cassandra_addresses[node - 1]
        folder = self._directory / f"cassandra-{node}"
        write_config(
            folder / "cassandra.yaml",
            directory="/var/lib/cassandra",
            initial_token=initial_token(node - 1, plan.nodes),
            seeds=",".join(
                f"{self._container(f'cassandra-{seed}')}:{plan.storage_port}" for seed in range(1, plan.nodes + 1)
            ),
            listen_address="",  # the container's own
            storage_port=plan.storage_port,
            rpc_address="0.0.0.0",  # inside the container; published on loopback only
            broadcast_rpc_address=address,
            native_transport_port=plan.cassandra_port,
            security="",
        )
        java_options = [
            f"-Dcassandra.config=file://{CONFIG_FOLDER}/cassandra.yaml",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.ring_delay_ms=0",
        ]
        heap_mb = 1024 if plan.nodes == 1 else 768
        return [
            *self._shared(folder, f"{address}:{plan.cassandra_port}:{plan.cassandra_port}"),
            f"--env=MAX_HEAP_SIZE={heap_mb}M",
            f"--env=HEAP_NEWSIZE={heap_mb // 4}M",
            f"--env=JVM_EXTRA_OPTS={' '.join(java_options)}",
            CASSANDRA_IMAGE,
        ]

    def _kafka(self) -> list[str]:
        plan = self._plan
        folder = self._directory / "kafka"
        write_config(
            folder / "kraft.properties",
            directory="/tmp/kafka",  # noqa: S108 - inside the container, which has no other user
            listen_address="0.0.0.0",
            kafka_port=plan.kafka_port,
            controller_port=plan.controller_port,
            protocol="PLAINTEXT",
            security="",
        )
        config = f"{CONFIG_FOLDER}/kraft.properties"
        run = (
            f"/opt/kafka/bin/kafka-storage.sh format --ignore-formatted --cluster-id {plan.stack_id} --config {config}"
            f" && exec /opt/kafka/bin/kafka-server-start.sh {config}"
        )
        return [
            *self._shared(folder, f"127.0.0.1:{plan.kafka_port}:{plan.kafka_port}"),
            "--env=KAFKA_HEAP_OPTS=-Xms256m -Xmx512m",
            "--entrypoint=/bin/sh",
            KAFKA_IMAGE,
            "-c",
            run,
        ]

    def _shared(self, folder: Path, published: str) -> list[str]:
        return [f"--network={self._network}", f"--publish={published}", f"--volume={folder}:{CONFIG_FOLDER}:ro"]


def _require(what: str, done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode != 0:
        raise ServiceFailed(what, done.stderr.strip(), "")
