"""What a local stack consists of, written down before its first process starts.

`stack.json` in the stack's directory holds the plan. From it any later command, and the reaper, makes the same handles
on the same services; which processes they are is noted by the processes themselves (see stack_child).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from tocsin.deploy import stack_errors, stack_ports
from tocsin.deploy.stack_child import write_whole

PLAN_FILE = "stack.json"
Engine = Literal["docker", "java"]


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """The services of one stack and where they listen: loopback addresses only."""

    #: Tells this stack's containers from those of any other.
    stack_id: str
    engine: Engine
    #: One per Cassandra node; all nodes share both ports below.
    cassandra_addresses: tuple[str, ...]
    cassandra_port: int
    storage_port: int
    kafka_port: int
    controller_port: int
    #: Started for a test run: quick to start rather than fast in the long run, and gone with its starter.
    short_lived: bool = False
    #: Cassandra and Kafka want TLS and a password (stack_security.py).
    secure: bool = False

    @property
    def nodes(self) -> int:
        """How many Cassandra nodes."""
        return len(self.cassandra_addresses)

    @property
    def kafka_bootstrap(self) -> str:
        """The broker as Kafka clients take it: host:port."""
        return f"127.0.0.1:{self.kafka_port}"

    def store_url(self, keyspace: str) -> str:
        """Return the URL of a keyspace on these nodes."""
        hosts = ",".join(f"{address}:{self.cassandra_port}" for address in self.cassandra_addresses)
        return f"cassandra://{hosts}/{keyspace}"

    @property
    def sink_url(self) -> str:
        """The URL of the broker."""
        return f"kafka://{self.kafka_bootstrap}"

    def write(self, directory: Path) -> None:
        """Write the plan into the stack's directory."""
        write_whole(directory / PLAN_FILE, msgspec.json.encode(self).decode())


def read_plan(directory: Path) -> StackPlan | None:
    """Return the plan in the directory; None where no stack is there.

    Raises:
        DirectoryInUse: there is a plan, and it cannot be read.
    """
    try:
        return msgspec.json.decode((directory / PLAN_FILE).read_bytes(), type=StackPlan)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except msgspec.DecodeError as error:
        raise stack_errors.DirectoryInUse(
            directory, f"{PLAN_FILE} cannot be read ({error}); stop its processes and delete it"
        ) from error


def make_plan(
    *,
    stack_id: str,
    engine: Engine,
    nodes: int,
    cassandra_port: int | None,
    kafka_port: int | None,
    short_lived: bool,
    secure: bool = False,
) -> StackPlan:
    """Choose addresses and ports: those asked for; else the usual ones where free; a short-lived stack takes any.

    Raises:
        PortTaken: a port that was asked for is in use.
        StackUnavailable: a loopback address is missing.
    """
    addresses = stack_ports.loopback_addresses(nodes)
    broker = addresses[:1]
    wanted = {port for port in (cassandra_port, kafka_port) if port is not None}
    chosen: list[int] = []
    for service, listens_on, asked, usual in (
        ("Cassandra", addresses, cassandra_port, 9042),
        ("Kafka", broker, kafka_port, 9092),
        ("Cassandra's storage", addresses, None, None),
        ("Kafka's controller", broker, None, None),
    ):
        if asked is None:
            prefer = None if short_lived else usual
            chosen.append(stack_ports.choose_free(listens_on, prefer=prefer, avoid=wanted.union(chosen)))
        elif asked in chosen:
            raise stack_errors.PortTaken(service, listens_on[0], asked)
        else:
            chosen.append(stack_ports.require_free(service, listens_on, asked))
    return StackPlan(
        stack_id=stack_id,
        engine=engine,
        cassandra_addresses=addresses,
        cassandra_port=chosen[0],
        kafka_port=chosen[1],
        storage_port=chosen[2],
        controller_port=chosen[3],
        short_lived=short_lived,
        secure=secure,
    )
