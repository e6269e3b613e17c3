"""Real services for the tests that need them: started once per run, on the first use.

Three Cassandra nodes (so that quorums are real) and a Kafka broker. They end with the run, killed or not. Where this
machine lacks what they need, such tests skip, except in CI, where they fail.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import settings

from tocsin.deploy.stack import LocalStack
from tocsin.deploy.stack_errors import ServiceFailed, StackUnavailable

MakeTopic = Callable[..., str]

# A machine that starts Cassandra beside them stalls tests: slowness is judged by benchmarks, not by a deadline here.
settings.register_profile("tocsin", deadline=None)
settings.load_profile("tocsin")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the simulation stand here, since pytest takes them from its outermost conftest only."""
    parser.addoption("--seeds", type=int, default=300, help="how many seeds the simulation runs")
    parser.addoption("--seed", type=int, default=None, help="the one seed the simulation runs, shrunk where it fails")


@pytest.fixture(scope="session")
def run_folder() -> Iterator[Path]:
    """A folder of this run, and an end to what crashed runs left: theirs are the folders that nobody holds."""
    base = Path(tempfile.gettempdir()) / f"tocsin-tests-{os.getuid()}"
    base.mkdir(exist_ok=True)
    for lock in base.glob("*.held"):
        with lock.open() as left:
            try:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            LocalStack(lock.with_suffix("")).stop()
            lock.unlink()
    folder = base / secrets.token_hex(4)
    held = folder.with_suffix(".held")
    with held.open("w") as mine:
        fcntl.flock(mine, fcntl.LOCK_EX)
        yield folder
        held.unlink()


@pytest.fixture(scope="session")
def cassandra_stack(run_folder: Path) -> Iterator[LocalStack]:
    """Three Cassandra nodes and a Kafka broker. A test that stops or pauses one uses `disturbed_stack`."""
    stack = LocalStack(run_folder, short_lived=True)
    try:
        stack.start(nodes=3)
    except ServiceFailed:
        raise
    except StackUnavailable as lacking:
        if "CI" in os.environ:
            raise
        pytest.skip(str(lacking))
    yield stack
    stack.stop()


@pytest.fixture
def disturbed_stack(cassandra_stack: LocalStack) -> Iterator[LocalStack]:
    """The same stack for a test that stops and pauses its services; whole again afterwards."""
    yield cassandra_stack
    cassandra_stack.heal()


@pytest.fixture(scope="session")
def cassandra_session(cassandra_stack: LocalStack) -> Iterator[Any]:
    """The driver's own session, for looking behind Tocsin's back."""
    from cassandra.cluster import Cluster

    cluster = Cluster(cassandra_stack.cassandra_contact_points, port=cassandra_stack.cassandra_port, protocol_version=5)
    yield cluster.connect()
    cluster.shutdown()


@pytest.fixture(scope="module")
def keyspace(request: pytest.FixtureRequest, cassandra_session: Any) -> Iterator[str]:
    """The name of a keyspace that nobody has used; whatever the module makes of it is dropped afterwards."""
    name = f"{request.module.__name__.rpartition('.')[2][:30]}_{secrets.token_hex(3)}"
    yield name
    cassandra_session.execute(f"DROP KEYSPACE IF EXISTS {name}")


@pytest.fixture(scope="session")
def kafka_admin(cassandra_stack: LocalStack) -> AdminClient:
    """Kafka's admin client; confluent's, since it outlives a broker that a test restarts."""
    return AdminClient({"bootstrap.servers": cassandra_stack.kafka_bootstrap, "log_level": 0})


@pytest.fixture
def topic(kafka_admin: AdminClient) -> Iterator[MakeTopic]:
    """Make topics: `topic(partitions=4)` creates a fresh one and returns its name; deleted after the test."""
    made: list[str] = []

    def make(*, partitions: int = 1) -> str:
        name = f"test-{secrets.token_hex(6)}"
        created = kafka_admin.create_topics([NewTopic(name, num_partitions=partitions)], operation_timeout=30)
        created[name].result()
        made.append(name)
        return name

    yield make
    for deleted in kafka_admin.delete_topics(made).values() if made else ():
        deleted.result()
