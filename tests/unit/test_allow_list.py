"""Only topics on the list reach the publisher, what is refused keeps its place; and a client refuses it at once."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tocsin import AsyncScheduler, NewSchedule, NewTimer, Once
from tocsin.dispatcher.allow_list import AllowList
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.schema.clock import SystemClock
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.open_store import default_settings, open_store

#: One that is allowed, and one that is not.
TOPICS = {"first": "sms", "second": "secret"}


class Kept:
    def __init__(self) -> None:
        self.topics: list[str] = []

    async def start(self) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        self.topics += [record.topic for record in records]
        return [Outcome.ACKED] * len(records)

    async def close(self, timeout_ms: int) -> None: ...


def record(topic: str) -> Record:
    return Record(topic, b"k", b"v", [], b"p")


async def test_what_is_not_on_the_list_is_refused_in_its_place() -> None:
    kept = Kept()
    outcomes = await AllowList(kept, ["mail-*", "sms"]).publish(
        [record(t) for t in ("mail-1", "secret", "sms", "sms2")]
    )
    assert outcomes == [Outcome.ACKED, Outcome.NOT_ALLOWED, Outcome.ACKED, Outcome.NOT_ALLOWED]
    assert kept.topics == ["mail-1", "sms"]


async def test_an_empty_list_allows_nothing() -> None:
    kept = Kept()
    assert await AllowList(kept, []).publish([record("mail")]) == [Outcome.NOT_ALLOWED]
    assert kept.topics == []


async def test_a_client_refuses_what_is_not_on_its_list_before_anything_is_written(tmp_path: Path) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    store = f"sqlite:///{tmp_path}/tocsin.db"
    opened = open_store(store)
    await opened.initialise(default_settings(store, SystemClock().wall_ms()))
    await opened.close()
    async with AsyncScheduler(store, allowed_topics=["mail-*", "sms"]) as scheduler:
        await scheduler.create("a", Once(at), topic="mail-1")
        refused: list[Awaitable[object]] = [
            scheduler.create("b", Once(at), topic="secret"),
            scheduler.update("a", topic="sms2"),
            scheduler.send_at("secret", at=at),
            scheduler.apply(
                [NewSchedule(schedule_id=each, recurrence=Once(at), topic=topic) for each, topic in TOPICS.items()],
                owner="me",
            ),
        ]
        for call in refused:
            with pytest.raises(InvalidSchedule, match="is not on the list of allowed topics: mail-\\*, sms"):
                await call
        timers = [NewTimer(timer_id=each, topic=topic, at=at) for each, topic in TOPICS.items()]
        sent = [result.error is None async for result in scheduler.send_many(timers)]
        created = [each.schedule_id async for each in scheduler.list()]
        moved = await scheduler.update("a", topic="sms")

    assert sent == [True, False]
    assert created == ["a"]
    assert moved.schedule.topic == "sms"
