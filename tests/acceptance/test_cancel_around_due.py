"""Cancels a moment before and after the due, against live dispatchers: the answer and the topic agree every time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import pytest
from acceptance.faults import Fleet
from acceptance.records import Topic

from tocsin import AsyncScheduler, Change, ChangeOutcome, Once
from tocsin.schema.clock import SystemClock
from tocsin.schema.entries import occurrence_key
from tocsin.schema.instants import to_datetime
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Store

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]

#: When a schedule is cancelled, after its due.
OFFSETS_MS = (-1_000, -200, -50, 50)
#: Schedules cancelled at each offset, and the time between two cancels.
COUNT, APART_MS = 200, 25
#: From the first create to the first due.
AHEAD_MS = 12_000
PATIENCE_SECONDS = 60

CLOCK = SystemClock()

OpenTopic = Callable[[], Topic]


class Attempt(NamedTuple):
    """One schedule, and when it is cancelled."""

    schedule_id: str
    due: int
    offset_ms: int

    @property
    def key(self) -> str:
        return occurrence_key(self.schedule_id, self.due)


class Answer(NamedTuple):
    """What a cancel answered, and when it was asked for, ms UTC."""

    change: Change
    asked_ms: int


async def cancel_in_time(scheduler: AsyncScheduler, attempt: Attempt) -> Answer:
    await CLOCK.sleep_ms(max(0, attempt.due + attempt.offset_ms - CLOCK.wall_ms()))
    asked_ms = CLOCK.wall_ms()
    return Answer(await scheduler.cancel(attempt.schedule_id), asked_ms)


async def cancel_all(store: Store, topic: str) -> dict[Attempt, Answer]:
    """Create schedules that are due one after the other, and cancel each at its offset."""
    async with AsyncScheduler(store, timeout=timedelta(minutes=1)) as scheduler:
        first = CLOCK.wall_ms() + AHEAD_MS
        attempts = [
            Attempt(f"{topic}-{number}", first + number * APART_MS, OFFSETS_MS[number % len(OFFSETS_MS)])
            for number in range(COUNT * len(OFFSETS_MS))
        ]
        await asyncio.gather(
            *(scheduler.create(each.schedule_id, Once(to_datetime(each.due)), topic=topic) for each in attempts)
        )
        return dict(
            zip(attempts, await asyncio.gather(*(cancel_in_time(scheduler, each) for each in attempts)), strict=True)
        )


async def until_committed(store: Store, instant: int, topic: Topic) -> None:
    """Read the topic until every range has dispatched, or dropped, whatever was due by then."""
    shard_ranges = (await store.open()).shard_ranges
    async with asyncio.timeout(PATIENCE_SECONDS):
        while min([(await store.read_frontier(each)).committed for each in range(shard_ranges)]) < instant:
            await asyncio.to_thread(topic.read)
    while topic.read():
        pass


def test_what_a_cancel_answers_is_what_the_topic_shows(fleet: Fleet, real_store: str, open_topic: OpenTopic) -> None:
    assert fleet
    topic = open_topic()
    store = open_store(real_store)

    async def cancel_and_read() -> dict[Attempt, Answer]:
        answers = await cancel_all(store, topic.name)
        await until_committed(store, CLOCK.wall_ms(), topic)
        await store.close()
        return answers

    answers = asyncio.run(cancel_and_read())
    sent_ms = {record.key: record.sent_ms for record in topic.records}
    assert len(sent_ms) == len(topic.records), "nothing is dispatched twice"

    fates: Counter[str] = Counter()
    for attempt, (change, asked_ms) in answers.items():
        sent = sent_ms.get(attempt.key)
        topic_says = (
            "not dispatched" if sent is None else "dispatched before" if sent < asked_ms else "dispatched after"
        )
        fates[f"{attempt.offset_ms:+5} ms: {change.outcome.value}, {topic_says} it was asked for"] += 1
        if sent is not None and sent >= asked_ms:
            assert change.outcome is ChangeOutcome.POSSIBLY_DISPATCHED, attempt
            assert attempt.key in change.uncertain
        if change.outcome is ChangeOutcome.PREVENTED:
            assert not change.uncertain
    for fate, count in sorted(fates.items()):
        print(f"cancelled {fate}: {count}")
    assert any(change.outcome is ChangeOutcome.PREVENTED for change, _ in answers.values())
    assert sent_ms, "some cancels came too late, or nothing was tested"
