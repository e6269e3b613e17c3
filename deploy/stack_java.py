"""The local stack as Java processes, from jars that Maven fetched."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tocsin.deploy.maven import Library, Report, fetch_jars, jar_folder
from tocsin.deploy.stack_config import initial_token, write_config
from tocsin.deploy.stack_errors import StackUnavailable
from tocsin.deploy.stack_plan import StackPlan
from tocsin.deploy.stack_process import ProcessService
from tocsin.deploy.stack_security import PROTOCOL, StackSecurity
from tocsin.deploy.stack_service import Service

#: Cassandra 5.0 and Kafka 4 need 17; Cassandra installs a security manager, which Java 24 no longer has (JEP 486).
JAVA_OLDEST = 17
JAVA_NEWEST = 23

KAFKA_HEAP_MB = 512

#: What Cassandra reaches into, from the jvm17-server.options of its distribution.
EXPORTED = [
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.unsupported/sun.misc",
]
OPENED = [
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
]

CASSANDRA_OPTIONS = [
    *(f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTED),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
    "-Djava.security.manager=allow",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dcassandra-foreground=yes",
    # All nodes are here and start together: nobody has to be waited for.
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=0",
    "-Dcassandra.superuser_setup_delay_ms=0",
]


def find_java() -> Path:
    """Return a Java that Cassandra and Kafka run on: JAVA_HOME first, then PATH.

    Raises:
        StackUnavailable: none is installed, or it is too old or too new.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java")
    wanted = f"Install Java {JAVA_OLDEST} (Debian: openjdk-17-jre-headless, macOS: brew install openjdk@17), or Docker."
    if found is None:
        raise StackUnavailable(f"Java is missing. {wanted}")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 - a found program
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or not JAVA_OLDEST <= int(version[1]) <= JAVA_NEWEST:
        is_version = version[1] if version else "of an unknown version"
        raise StackUnavailable(
            f"{found} is Java {is_version}, Cassandra needs {JAVA_OLDEST} to {JAVA_NEWEST}. {wanted}"
        )
    return Path(found)


class JavaEngine:
    """Makes the services of a plan as processes."""

    def __init__(self, plan: StackPlan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._security = StackSecurity(directory) if plan.secure else None

    def fetch(self, report: Report) -> None:
        """Fetch and verify what the services run.

        Raises:
            StackUnavailable: Java or Maven is missing, or Maven cannot fetch the jars.
        """
        java = find_java()
        fetch_jars(report)
        if self._security is not None:
            self._security.make(java, self._plan.cassandra_addresses)

    def services(self) -> Sequence[Service]:
        """Return the handles of all services, Cassandra's nodes first and Kafka last, whether they run or not."""
        nodes = [
            ProcessService(f"cassandra-{node}", self._directory / f"cassandra-{node}", partial(self._cassandra, node))
            for node in range(1, self._plan.nodes + 1)
        ]
        return [*nodes, ProcessService("kafka", self._directory / "kafka", self._kafka)]

    def remove(self) -> None:
        """Delete certificate and password, where there are any."""
        if self._security is not None:
            self._security.remove()

    def _cassandra(self, node: int) -> list[list[str]]:
        plan = self._plan
        directory = self._directory / f"cassandra-{node}"
        address = plan.cassandra_addresses[node - 1]
        config = write_config(
            directory / "cassandra.yaml",
            directory=directory,
            initial_token=initial_token(node - 1, plan.nodes),
            seeds=",".join(f"{seed}:{plan.storage_port}" for seed in plan.cassandra_addresses),
            listen_address=address,
            storage_port=plan.storage_port,
            rpc_address=address,
            broadcast_rpc_address=address,
            native_transport_port=plan.cassandra_port,
            security=self._security.cassandra_settings() if self._security else "",
        )
        heap_mb = 1024 if plan.nodes == 1 else 768
        options = [
            *CASSANDRA_OPTIONS,
            f"-Dcassandra.config={config.as_uri()}",
            f"-Dcassandra.storagedir={directory}",
            f"-Dcassandra.logdir={directory}",
        ]
        return [self._java("cassandra", directory, heap_mb, [*options, "org.apache.cassandra.service.CassandraDaemon"])]

    def _kafka(self) -> list[list[str]]:
        plan = self._plan
        directory = self._directory / "kafka"
        config = write_config(
            directory / "kraft.properties",
            directory=directory,
            listen_address="127.0.0.1",
            kafka_port=plan.kafka_port,
            controller_port=plan.controller_port,
            protocol=PROTOCOL if self._security else "PLAINTEXT",
            security=self._security.kafka_settings() if self._security else "",
        )
        format_storage = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "--cluster-id", plan.stack_id]
        if self._security is not None:
            format_storage += ["--add-scram", self._security.kafka_user()]
        return [
            self._java("kafka", directory, KAFKA_HEAP_MB, [*format_storage, "--config", str(config)]),
            self._java("kafka", directory, KAFKA_HEAP_MB, ["kafka.Kafka", str(config)]),
        ]

    def _java(self, library: Library, directory: Path, heap_mb: int, rest: list[str]) -> list[str]:
        """Return a command line: bounded heap, no files outside the directory, no listener for management."""
        logging = write_config(directory / "logback.xml")
        temporary = directory / "tmp"
        temporary.mkdir(exist_ok=True)
        return [
            str(find_java()),
            *(["-XX:TieredStopAtLevel=1"] if self._plan.short_lived else []),
            f"-Xms{heap_mb // 2}m",
            f"-Xmx{heap_mb}m",
            "-XX:+UseG1GC",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={temporary}",
            f"-Dlogback.configurationFile={logging.as_uri()}",
            "-classpath",
            f"{jar_folder(library)}/*",
            *rest,
        ]
