"""Commands on a real topic, done by real processes: what was committed is done once, whoever reads it how often."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from acceptance.processes import Processes, Running, Said
from acceptance.records import Topic
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conftest import MakeTopic
from tocsin import AsyncScheduler, State
from tocsin.deploy.stack import LocalStack

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

PARTITIONS = 2
SCHEDULES = 20
UPDATES = 5

Result = TypeVar("Result")


def command(action: str, subject: str, number: int, data: Any = None) -> bytes:
    event = {"specversion": "1.0", "id": str(number), "source": "/test", "type": f"tocsin.schedule.{action}"}
    return json.dumps(event | {"subject": subject, "data": data or {}}).encode()


def send(stack: LocalStack, topic: str, commands: list[tuple[str, bytes]], *, commits: bool = True) -> None:
    """Send commands in one transaction, as a caller does that has more to write."""
    producer = Producer({"bootstrap.servers": stack.kafka_bootstrap, "transactional.id": secrets.token_hex(4)})
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in commands:
        producer.produce(topic, value, key)
    producer.flush(30)
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def ask(store: str, question: Callable[[AsyncScheduler], Awaitable[Result]]) -> Result:
    async def asked() -> Result:
        async with AsyncScheduler(store) as scheduler:
            return await question(scheduler)

    return asyncio.run(asked())


def committed(stack: LocalStack, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": stack.kafka_bootstrap, "group.id": group, "log_level": 0})
    offsets = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 30)
    consumer.close()
    return sum(max(0, each.offset) for each in offsets)


def counted(said: list[Said], names: tuple[str, ...]) -> int:
    """How many commands a process says it has met, by its newest line."""
    figures = [line for line in said if line.get("action") in {"status", "stopped"}]
    return sum(figures[-1][name] for name in names) if figures else 0


def stopped(process: Running) -> Said:
    process.send(signal.SIGTERM)
    assert process.ended() == 0
    return process.until_action("stopped")[-1]


def test_commands_are_done_once_in_order_and_what_is_refused_is_told(
    processes: Processes, cassandra_stack: LocalStack, topic: MakeTopic
) -> None:
    commands, errors, prefix = topic(partitions=PARTITIONS), topic(), secrets.token_hex(3)
    names = [f"{prefix}-{number}" for number in range(SCHEDULES)]
    numbers = iter(range(10_000))
    created = [(name, command("create", name, next(numbers), {"every": "1h", "topic": "t"})) for name in names]
    updated = [
        (name, command("update", name, next(numbers), {"payload": str(round_)}))
        for round_ in range(UPDATES)
        for name in names
    ]
    cancelled = [(name, command("cancel", name, next(numbers))) for name in names[:5]]
    bad = [(prefix, b"nonsense"), (prefix, command("pause", f"{prefix}-none", next(numbers)))]
    total = len(created) + len(updated) + len(cancelled) + len(bad)
    send(cassandra_stack, commands, created[:1], commits=False)
    send(cassandra_stack, commands, created + updated)
    words = ("--source", cassandra_stack.sink_url, "--topic", commands, "--errors", errors)

    first, second = (processes.command("ingest", *words, "--group", prefix) for _ in range(2))
    send(cassandra_stack, commands, cancelled + bad)
    met = ("done", "refused")
    refused = Topic(cassandra_stack.kafka_bootstrap, errors, 1)
    assert refused.until(lambda it: len(it.records) == len(bad), seconds=60)
    last = names[4]
    while ask(processes.store, lambda scheduler: scheduler.get(last)).state is not State.CANCELLED:
        pass
    ends = [stopped(process) for process in (first, second)]

    assert sum(counted([end], met) for end in ends) == total
    schedules = [ask(processes.store, lambda scheduler, name=name: scheduler.get(name)) for name in names]  # type: ignore[misc]
    assert {schedule.payload for schedule in schedules} == {str(UPDATES - 1).encode()}
    assert [schedule.state is State.CANCELLED for schedule in schedules] == [True] * 5 + [False] * 15
    assert {record.headers["tocsin_error"] for record in refused.records} == {"InvalidSchedule", "ScheduleNotFound"}
    assert committed(cassandra_stack, prefix, commands) >= total

    # Another group reads all of it from the beginning, and finds it done.
    again = processes.command("ingest", *words, "--group", f"{prefix}-again")
    again.until(lambda said: counted(said, (*met, "repeated")) == total)
    end = stopped(again)
    assert (end["done"], end["refused"], end["repeated"]) == (0, 0, total)
    after = [ask(processes.store, lambda scheduler, name=name: scheduler.get(name)) for name in names]  # type: ignore[misc]
    assert [schedule.version for schedule in after] == [schedule.version for schedule in schedules]
    refused.read()
    assert len(refused.records) == len(bad)
    refused.close()


def test_a_topic_that_is_missing_and_a_sink_that_is_no_kafka_are_told(
    processes: Processes, cassandra_stack: LocalStack
) -> None:
    missing = processes.command("ingest", "--source", cassandra_stack.sink_url, "--topic", "nobody-made-it")
    elsewhere = processes.command("ingest", "--source", "stdout:")
    assert (missing.ended(), elsewhere.ended()) == (1, 1)
    assert "there is no topic nobody-made-it" in str(missing)
    assert "commands come from Kafka" in str(elsewhere)
