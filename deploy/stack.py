"""A local stack of real parts: one or three Cassandra nodes and a Kafka broker, on this machine's loopback only.

Containers where a Docker engine answers, else Java processes (stack_docker, stack_java). One directory holds one stack:

    stack.json              the plan: engine, addresses, ports; written before anything starts
    <service>/              its configuration, data and log
    <service>.process.json  which process it is, noted by that process itself (Java engine)
    security/               certificate and password of a secure stack (stack_security)
    stopping                there while the stack is being removed
    lock                    held while a command starts or stops services

Nothing else is needed to find the stack again, so `down` works in another terminal and after a crash of the starter at
any moment. A stack outlives its starter unless it is `short_lived`; then a reaper stops it when the starter ends.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tocsin.deploy import stack_ready
from tocsin.deploy.file_lock import locked
from tocsin.deploy.maven import Report
from tocsin.deploy.stack_child import STOPPING
from tocsin.deploy.stack_docker import DockerEngine, docker_answers
from tocsin.deploy.stack_errors import DirectoryInUse, StackRefused
from tocsin.deploy.stack_java import JavaEngine
from tocsin.deploy.stack_plan import PLAN_FILE, StackPlan, make_plan, read_plan
from tocsin.deploy.stack_process import ProcessService
from tocsin.deploy.stack_reaper import start_reaper
from tocsin.deploy.stack_security import StackSecurity
from tocsin.deploy.stack_service import Service, ServiceEngine

LOCK_FILE = "lock"

#: What is reported on while services start.
CASSANDRA = "Cassandra nodes"
KAFKA = "Kafka brokers"


def report_nothing(what: str, done: int, total: int) -> None:
    """Keep quiet about progress."""


class LocalStack:
    """The stack in a directory. Nodes are numbered from 1, as their addresses are."""

    def __init__(self, directory: Path, *, short_lived: bool = False, report: Report = report_nothing) -> None:
        self.directory = directory.absolute()
        self._short_lived = short_lived
        self._report = report
        self._reaper: subprocess.Popen[bytes] | None = None

    def start(
        self,
        *,
        nodes: int = 1,
        cassandra_port: int | None = None,
        kafka_port: int | None = None,
        secure: bool = False,
    ) -> None:
        """Start what does not run yet, and return once all of it serves; `secure`: with TLS and a password.

        A stack that an interrupted or crashed run left is completed, its data kept. Whatever ends this call early, a
        signal included, stops what it began.

        Raises:
            StackRefused: a port is taken, the directory holds other things, or another stack is in it.
            StackUnavailable: this machine lacks something, or a service did not start (ServiceFailed).
        """
        try:
            with self._held():
                self._start(nodes, cassandra_port, kafka_port, secure=secure)
        except BaseException:
            self._end_reaper()
            raise

    def stop(self) -> None:
        """Stop every service and delete the stack's data; nothing happens where no stack is in the directory."""
        self._end_reaper()
        if self.directory.exists():
            with self._held():
                plan = read_plan(self.directory)
                if plan is not None:
                    self._remove(plan)

    def heal(self) -> None:
        """Let every paused service go on and start every stopped one, and return once all of it serves."""
        for service in self._services():
            service.resume()
        plan = self.plan
        self.start(nodes=plan.nodes, cassandra_port=plan.cassandra_port, kafka_port=plan.kafka_port, secure=plan.secure)

    @property
    def running(self) -> bool:
        """Whether every service runs."""
        plan = read_plan(self.directory)
        return plan is not None and all(service.running for service in _engine(plan, self.directory).services())

    def process_ids(self) -> dict[str, int]:
        """The processes of the services by name, where they are processes of this machine and not containers."""
        found = {each.name: each.pid for each in self._services() if isinstance(each, ProcessService)}
        return {name: pid for name, pid in found.items() if pid is not None}

    def stop_node(self, node: int, *, gently: bool = True) -> None:
        """End a Cassandra node, its data kept: gently flushes first, otherwise it is killed."""
        self._node(node).stop(gently=gently)

    def start_node(self, node: int) -> None:
        """Start a stopped node on its data, and return once it and the other running ones work together."""
        self._node(node).start()
        self._await_cassandra()

    def pause_node(self, node: int) -> None:
        """Freeze a node: its connections stay open and nothing answers."""
        self._node(node).pause()

    def resume_node(self, node: int) -> None:
        """Let a paused node go on; it is not waited for."""
        self._node(node).resume()

    def stop_kafka(self, *, gently: bool = True) -> None:
        """End the broker, its topics kept."""
        self._kafka().stop(gently=gently)

    def start_kafka(self) -> None:
        """Start the stopped broker on its topics, and return once it serves."""
        self._kafka().start()
        self._await_kafka()

    @property
    def plan(self) -> StackPlan:
        """What the stack consists of.

        Raises:
            StackRefused: no stack is in the directory.
        """
        plan = read_plan(self.directory)
        if plan is None:
            raise StackRefused(f"no local stack is in {self.directory}; start one: tocsin up")
        return plan

    @property
    def cassandra_contact_points(self) -> tuple[str, ...]:
        """The nodes' addresses, node 1 first."""
        return self.plan.cassandra_addresses

    @property
    def cassandra_port(self) -> int:
        """The port of every node."""
        return self.plan.cassandra_port

    @property
    def kafka_bootstrap(self) -> str:
        """The broker: host:port."""
        return self.plan.kafka_bootstrap

    @property
    def sink_url(self) -> str:
        """The broker's URL."""
        return self.plan.sink_url

    def store_url(self, keyspace: str = "tocsin") -> str:
        """Return the URL of a keyspace on these nodes, which need not exist."""
        return self.plan.store_url(keyspace)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that let a client in; none where anybody may."""
        return {} if self._security is None else self._security.environment

    @property
    def _security(self) -> StackSecurity | None:
        return StackSecurity(self.directory) if self.plan.secure else None

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Let no other command start or stop services here meanwhile; leave nothing where no stack is."""
        with locked(self.directory / LOCK_FILE):
            try:
                yield
            finally:
                if read_plan(self.directory) is None:
                    self._forget_directory()

    def _start(self, nodes: int, cassandra_port: int | None, kafka_port: int | None, *, secure: bool) -> None:
        found = self._found_plan()
        plan = found or self._new_plan(nodes, cassandra_port, kafka_port, secure=secure)
        _require_same(plan, nodes, cassandra_port, kafka_port, secure=secure)
        begun: list[Service] = []
        try:
            self._complete(plan, begun)
        except BaseException:
            for service in begun:
                service.stop(gently=False)
            if found is None:
                self._remove(plan)
            raise

    def _found_plan(self) -> StackPlan | None:
        """Return the plan of the stack that is here; finish the removal of one that is half removed."""
        plan = read_plan(self.directory)
        if plan is not None and (self.directory / STOPPING).exists():
            self._remove(plan)
            plan = None
        if plan is None and {entry.name for entry in self.directory.iterdir()} - {LOCK_FILE, STOPPING}:
            raise DirectoryInUse(self.directory, "the directory holds other files; name an empty or a new one.")
        return plan

    def _new_plan(self, nodes: int, cassandra_port: int | None, kafka_port: int | None, *, secure: bool) -> StackPlan:
        (self.directory / STOPPING).unlink(missing_ok=True)
        plan = make_plan(
            stack_id=secrets.token_hex(8),
            # Certificates and users are made for processes of this user; containers have other ones.
            engine="docker" if not secure and docker_answers() else "java",
            nodes=nodes,
            cassandra_port=cassandra_port,
            kafka_port=kafka_port,
            short_lived=self._short_lived,
            secure=secure,
        )
        plan.write(self.directory)
        return plan

    def _complete(self, plan: StackPlan, begun: list[Service]) -> None:
        if self._short_lived:
            self._reaper = self._reaper or start_reaper(self.directory)
        engine = _engine(plan, self.directory)
        engine.fetch(self._report)
        self._report(CASSANDRA, 0, plan.nodes)
        for service in engine.services():
            if not service.running:
                begun.append(service)
                service.start()
        self._await_kafka()
        self._await_cassandra()

    def _await_cassandra(self) -> None:
        plan = self.plan
        nodes = [
            (service, address)
            for service, address in zip(self._services(), plan.cassandra_addresses, strict=False)
            if service.running
        ]
        for done, (service, address) in enumerate(nodes):
            self._report(CASSANDRA, done, len(nodes))
            others = [other for _, other in nodes if other != address]
            lack = partial(stack_ready.why_not_cassandra, address, plan.cassandra_port, others, self._security)
            stack_ready.await_ready(service, lack)
        self._report(CASSANDRA, len(nodes), len(nodes))

    def _await_kafka(self) -> None:
        self._report(KAFKA, 0, 1)
        lack = partial(stack_ready.why_not_kafka, self.plan.kafka_port, self._security)
        stack_ready.await_ready(self._kafka(), lack)
        self._report(KAFKA, 1, 1)

    def _end_reaper(self) -> None:
        if self._reaper is not None:
            # The end of its standard input makes the reaper stop the stack, as it would had this process died.
            self._reaper.communicate()
            self._reaper = None

    def _remove(self, plan: StackPlan) -> None:
        # Before looking for processes: one that is just being born sees the mark and ends itself.
        (self.directory / STOPPING).touch()
        engine = _engine(plan, self.directory)
        services = engine.services()
        for service in services:
            service.stop(gently=False)
        for service in services:
            service.remove()
        engine.remove()
        (self.directory / PLAN_FILE).unlink()

    def _forget_directory(self) -> None:
        for name in (STOPPING, LOCK_FILE):
            (self.directory / name).unlink(missing_ok=True)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    def _services(self) -> Sequence[Service]:
        return _engine(self.plan, self.directory).services()

    def _node(self, node: int) -> Service:
        if not 1 <= node <= self.plan.nodes:
            raise StackRefused(f"there is no node {node}; nodes are numbered 1 to {self.plan.nodes}")
        return self._services()[node - 1]

    def _kafka(self) -> Service:
        return self._services()[-1]


def _engine(plan: StackPlan, directory: Path) -> ServiceEngine:
    return DockerEngine(plan, directory) if plan.engine == "docker" else JavaEngine(plan, directory)


def _require_same(
    plan: StackPlan, nodes: int, cassandra_port: int | None, kafka_port: int | None, *, secure: bool
) -> None:
    asked = (nodes, cassandra_port or plan.cassandra_port, kafka_port or plan.kafka_port, secure)
    if asked != (plan.nodes, plan.cassandra_port, plan.kafka_port, plan.secure):
        raise StackRefused(
            f"a stack of {plan.nodes} {'secure ' if plan.secure else ''}node(s) on ports {plan.cassandra_port} and "
            f"{plan.kafka_port} is here already. Stop it first: tocsin down"
        )
