"""The local stack itself: real nodes, a real broker, and no process left whatever happens to the starter."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from tests.conftest import MakeTopic
from tocsin.deploy import stack_ports, up
from tocsin.deploy.stack import LocalStack
from tocsin.deploy.stack_process import ProcessService

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

#: How long a quorum may take to answer while a node of it stands still, on a machine that is busy.
PATIENCE_SECONDS = 90

START_AND_WAIT = """
import sys
from pathlib import Path
from tocsin.deploy.stack import LocalStack
LocalStack(Path(sys.argv[1]), short_lived=True, report=lambda *step: print(*step, flush=True)).start()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def table(cassandra_session: Any, keyspace: str) -> str:
    cassandra_session.execute(
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} "
        "WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}"
    )
    cassandra_session.execute(f"CREATE TABLE IF NOT EXISTS {keyspace}.rows (id int PRIMARY KEY, word text)")
    return f"{keyspace}.rows"


def at(level: str, text: str) -> Any:
    from cassandra import ConsistencyLevel
    from cassandra.query import SimpleStatement

    return SimpleStatement(text, consistency_level=ConsistencyLevel.name_to_value[level])


def execute(session: Any, statement: Any) -> Any:
    """Ask again while a node that stands still was asked or waited for; for statements that may run twice."""
    from cassandra import OperationTimedOut, RequestExecutionException
    from cassandra.cluster import NoHostAvailable

    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        with suppress(OperationTimedOut, RequestExecutionException, NoHostAvailable):
            return session.execute(statement)
    return session.execute(statement)


def words(session: Any, level: str, table: str) -> set[str]:
    return {row.word for row in execute(session, at(level, f"SELECT word FROM {table}"))}


def test_a_row_written_to_all_three_nodes_is_read_at_quorum(cassandra_session: Any, table: str) -> None:
    cassandra_session.execute(at("ALL", f"INSERT INTO {table} (id, word) VALUES (1, 'everywhere')"))

    assert "everywhere" in words(cassandra_session, "QUORUM", table)


def test_quorum_outlives_a_killed_node_which_comes_back_with_its_data(
    disturbed_stack: LocalStack, cassandra_session: Any, table: str
) -> None:
    from cassandra import OperationTimedOut, Unavailable, WriteTimeout

    cassandra_session.execute(at("ALL", f"INSERT INTO {table} (id, word) VALUES (2, 'before')"))
    disturbed_stack.stop_node(3, gently=False)

    execute(cassandra_session, at("QUORUM", f"INSERT INTO {table} (id, word) VALUES (3, 'meanwhile')"))
    with pytest.raises((Unavailable, WriteTimeout, OperationTimedOut)):
        cassandra_session.execute(at("ALL", f"INSERT INTO {table} (id, word) VALUES (4, 'refused')"))
    disturbed_stack.start_node(3)

    assert {"before", "meanwhile"} <= words(cassandra_session, "ALL", table)


def test_a_paused_node_answers_again_once_resumed(
    disturbed_stack: LocalStack, cassandra_session: Any, table: str
) -> None:
    disturbed_stack.pause_node(2)
    execute(cassandra_session, at("QUORUM", f"INSERT INTO {table} (id, word) VALUES (5, 'without the second')"))
    disturbed_stack.resume_node(2)
    disturbed_stack.heal()

    assert "without the second" in words(cassandra_session, "ALL", table)


def test_what_both_kafka_clients_produce_a_plain_consumer_reads(cassandra_stack: LocalStack, topic: MakeTopic) -> None:
    from confluent_kafka import Producer
    from kafka import KafkaConsumer, KafkaProducer

    name = topic(partitions=2)
    with KafkaProducer(bootstrap_servers=cassandra_stack.kafka_bootstrap) as plain:
        plain.send(name, key=b"kafka-python", value=b"1", partition=0).get(timeout=30)
    fast = Producer({"bootstrap.servers": cassandra_stack.kafka_bootstrap})
    fast.produce(name, key=b"confluent-kafka", value=b"2", partition=1)
    assert fast.flush(30) == 0

    consumer = KafkaConsumer(
        name,
        bootstrap_servers=cassandra_stack.kafka_bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    records = [next(consumer), next(consumer)]
    consumer.close()

    assert {(record.key, record.partition) for record in records} == {(b"kafka-python", 0), (b"confluent-kafka", 1)}


def test_a_restarted_broker_keeps_its_topics(disturbed_stack: LocalStack, kafka_admin: Any, topic: MakeTopic) -> None:
    name = topic()
    disturbed_stack.stop_kafka()
    disturbed_stack.start_kafka()

    assert name in kafka_admin.list_topics(timeout=30).topics


def test_every_listener_is_on_the_loopback_addresses_of_the_stack_only(cassandra_stack: LocalStack) -> None:
    plan = cassandra_stack.plan
    ports = {plan.cassandra_port, plan.storage_port, plan.kafka_port, plan.controller_port}

    # A listener on all addresses would hold the port on this one too.
    assert all(stack_ports.is_free("127.0.0.9", port) for port in ports)
    assert not any(stack_ports.is_free("127.0.0.1", port) for port in ports)


def pids(stack: LocalStack) -> list[int]:
    return [service.pid for service in stack._services() if isinstance(service, ProcessService) and service.pid]


def await_end(pid: int) -> None:
    """Wait on the process itself, not on the clock."""
    ended, _, _ = select.select([os.pidfd_open(pid)], [], [], 60)
    assert ended, f"process {pid} still runs"


def test_a_short_lived_stack_ends_with_its_killed_starter(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path / "stack")
    starter = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT, str(stack.directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with starter:
        assert any(line == b"up\n" for line in starter.stdout or ())
        started = pids(stack)
        starter.kill()

    assert len(started) == 2
    for pid in started:
        await_end(pid)


def test_up_twice_is_one_stack_and_down_leaves_nothing(tmp_path: Path) -> None:
    app = typer.Typer()
    up.register(app)
    directory = tmp_path / "stack"
    runner = CliRunner()

    first = runner.invoke(app, ["up", "--directory", str(directory), "--topic", "kitchen"])
    started = pids(LocalStack(directory))
    second = runner.invoke(app, ["up", "--directory", str(directory), "--topic", "kitchen", "--topic", "mail"])
    again = pids(LocalStack(directory))
    topics = AdminClient({"bootstrap.servers": LocalStack(directory).kafka_bootstrap}).list_topics(timeout=30).topics
    ended = runner.invoke(app, ["down", "--directory", str(directory)])

    plan_urls = [line.split()[1] for line in first.stdout.splitlines() if line.startswith(("store", "sink"))]
    assert first.exit_code == second.exit_code == ended.exit_code == 0
    assert [url.partition("127")[0] for url in plan_urls] == ["cassandra://", "kafka://"]
    assert all(url in second.stdout for url in plan_urls)
    assert "Already running" in second.stderr
    assert {"kitchen", "mail"} <= topics.keys()
    assert started == again
    assert not directory.exists()
    for pid in started:
        await_end_or_gone(pid)


def await_end_or_gone(pid: int) -> None:
    try:
        await_end(pid)
    except ProcessLookupError:
        return


def test_down_stops_what_a_starter_killed_in_the_middle_had_begun(tmp_path: Path) -> None:
    app = typer.Typer()
    up.register(app)
    directory = tmp_path / "stack"
    starter = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT.replace("short_lived=True, ", ""), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with starter:
        assert any(line.startswith(b"Kafka brokers 0") for line in starter.stdout or ())
        starter.send_signal(signal.SIGKILL)
    started = pids(LocalStack(directory))

    ended = CliRunner().invoke(app, ["down", "--directory", str(directory)])

    assert ended.exit_code == 0
    assert len(started) == 2
    assert not directory.exists()
    for pid in started:
        await_end_or_gone(pid)
