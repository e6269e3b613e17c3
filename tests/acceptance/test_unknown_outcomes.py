"""Calls whose answers get lost on the way back: the client repeats them, and it is as if they had been made once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from acceptance.processes import Processes
from acceptance.proxy import Proxy
from acceptance.records import Topic

from tocsin import AsyncScheduler, Once
from tocsin.loadtest.verdict import judge
from tocsin.schema.entries import parse_occurrence_key
from tocsin.schema.errors import ScheduleExists
from tocsin.schema.instants import to_datetime

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

COUNT = 200
DELAY_SECONDS = 10
ROUNDS = 3
PATIENCE_SECONDS = 60

OpenTopic = Callable[[], Topic]


@pytest.fixture
def proxy(nodes: list[tuple[str, int]]) -> Iterator[Proxy]:
    """Between a process and the store's nodes."""
    proxy = Proxy(nodes)
    yield proxy
    proxy.close()


def test_creates_whose_answers_are_lost_make_one_schedule_and_one_record_each(
    processes: Processes, open_topic: OpenTopic, proxy: Proxy, real_store: str
) -> None:
    topic = open_topic()
    dispatcher = processes.dispatcher()
    plan = {"topic": topic.name, "prefix": topic.name, "count": COUNT, "delay_seconds": DELAY_SECONDS, "seed": 1}
    client = processes.client(plan, environment=proxy.environment)

    for done in range(1, ROUNDS + 1):
        client.until_action("created", COUNT * done // (ROUNDS + 1))
        with proxy.replies_lost():
            proxy.until_a_reply_is_lost()
    assert client.ended() == 0
    dispatcher.until_action("took_range")

    expected = {line["key"]: line["due"] for line in client.said if line["action"] == "created"}
    assert len(expected) == COUNT
    topic.until(lambda it: it.keys >= expected.keys(), seconds=DELAY_SECONDS + PATIENCE_SECONDS)
    verdict = judge(expected, topic.seen)
    assert verdict.holds
    assert verdict.repeat_count == 0

    key, due = next(iter(expected.items()))
    asyncio.run(refuse_other_content(real_store, parse_occurrence_key(key)[0], due, topic.name))


async def refuse_other_content(store: str, schedule_id: str, due: int, topic: str) -> None:
    async with AsyncScheduler(store) as scheduler:
        stored = await scheduler.get(schedule_id)
        with pytest.raises(ScheduleExists):
            await scheduler.create(schedule_id, Once(to_datetime(due)), topic=topic, payload=b"another body")
        assert await scheduler.get(schedule_id) == stored
