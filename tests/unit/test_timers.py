"""Timers: one write, no schedule; recalled on whatever level they wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.dispatcher.waiting import Status, Waiting
from tocsin.producer.allowed_topics import AllowedTopics
from tocsin.producer.timers import NewTimer, Timers
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.errors import InstantInPast, InvalidSchedule
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_datetime
from tocsin.schema.levels import Level
from tocsin.schema.schedules import RECALL_VERSION, TIMER_VERSION, Marker

DEADLINE = 10**12


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def timers(world: World) -> Timers:
    return Timers(world.levels, world.inserter(), world.store_clock, AllowedTopics([]))


def timer(ahead_ms: int, **fields: Any) -> NewTimer:
    return NewTimer(timer_id="s", topic="mail", at=to_datetime(START_MS + ahead_ms), payload=b"p", **fields)


def entry(ahead_ms: int) -> Entry:
    return timer(ahead_ms).entry(START_MS, MINUTE_MS)


@pytest.mark.parametrize(
    ("ahead_ms", "level"), [(SECOND_MS, Level.NEAR), (HOUR_MS, Level.MINUTE), (5 * DAY_MS, Level.FAR)]
)
async def test_a_timer_is_one_write_and_whole_on_every_level(world: World, ahead_ms: int, level: Level) -> None:
    await timers(world).send([entry(ahead_ms)], deadline=DEADLINE)
    ((found_level, _, found),) = await world.waiting()
    assert found_level is level
    assert found == entry(ahead_ms)
    assert not {"insert_schedule", "replace_schedule", "read_schedules"} & set(world.store.made)


async def test_a_timer_long_past_is_refused_and_nothing_written(world: World) -> None:
    with pytest.raises(InstantInPast, match="at"):
        timer(-HOUR_MS).entry(START_MS, MINUTE_MS)
    assert world.store.packs == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"timer_id": ""}, "timer_id"),
        ({"topic": "no spaces"}, "topic"),
        ({"payload": "text"}, "payload"),
        ({"at": datetime(2026, 12, 1)}, "at"),  # noqa: DTZ001 — naive on purpose
        ({"headers": {"ce_id": "x"}}, "headers"),
    ],
)
def test_bad_fields_are_refused_by_name(fields: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"timer_id": "s", "topic": "mail", "at": datetime(2026, 12, 1, tzinfo=UTC), "payload": b"p"}
    with pytest.raises(InvalidSchedule) as refused:
        NewTimer(**(good | fields)).entry(START_MS, MINUTE_MS)
    assert refused.value.field == field


@pytest.mark.parametrize("ahead_ms", [HOUR_MS + 1, 5 * DAY_MS + 1])
async def test_a_recall_follows_its_timer_to_an_open_bucket(world: World, ahead_ms: int) -> None:
    await timers(world).send([entry(ahead_ms)], deadline=DEADLINE)
    assert await timers(world).recall(entry(ahead_ms).key, deadline=DEADLINE)
    waiting = await world.waiting()
    sent, recalled = sorted((found.version, found.kind) for _, _, found in waiting)
    assert (sent, recalled) == ((TIMER_VERSION, Kind.TIMER), (RECALL_VERSION, Kind.RECALL))
    (of_sent, row), (of_recall, first) = sorted(world.store.packs, key=lambda written: -written[1].position)
    assert of_sent == of_recall
    assert first.position == of_sent.start < row.position, "it is read before its timer, however large the bucket"
    assert world.store.markers == []


async def test_a_recall_from_a_sealed_minute_is_a_marker_and_prevents_while_its_position_is_in_time(
    world: World,
) -> None:
    await world.seal(sealed_minute=START_MS + 2 * HOUR_MS)
    assert await timers(world).recall(entry(HOUR_MS).key, deadline=DEADLINE)
    ((position, marker),) = world.store.markers
    assert position <= START_MS + HOUR_MS
    assert (marker.version, marker.from_ms, marker.verify) == (RECALL_VERSION, START_MS + HOUR_MS, False)
    assert marker.until_ms > START_MS + HOUR_MS


async def test_a_recall_that_comes_too_late_says_so(world: World) -> None:
    await world.seal(sealed_near=START_MS)
    assert not await timers(world).recall(entry(50).key, deadline=DEADLINE)


async def test_what_is_not_a_key_is_refused(world: World) -> None:
    with pytest.raises(InvalidSchedule):
        await timers(world).recall("no key", deadline=DEADLINE)


# What they do to each other in memory


def recall_of(sent: Entry) -> Entry:
    return Entry(sent.schedule_id, sent.due, sent.due, RECALL_VERSION, kind=Kind.RECALL)


@pytest.mark.parametrize("recall_first", [False, True])
def test_of_a_timer_and_its_recall_only_the_recall_stays(recall_first: bool) -> None:
    waiting = Waiting()
    sent = entry(HOUR_MS)
    for each in (recall_of(sent), sent) if recall_first else (sent, recall_of(sent)):
        waiting.add(each, each.due, missed=False)
    (item,) = waiting.take_due(sent.due)
    assert item.entry.kind == Kind.RECALL


def test_a_demoted_timer_counts_as_it_is() -> None:
    item = Waiting().add(entry(0).marked(), START_MS, missed=False)
    assert item is not None
    assert item.status is Status.WAITING


def marker(version: int, from_ms: int) -> Marker:
    return Marker(schedule_id="s", version=version, from_ms=from_ms, until_ms=START_MS + DAY_MS, verify=False)


def test_a_recalls_marker_ends_that_one_instant_only() -> None:
    waiting = Waiting()
    for ahead_ms in (HOUR_MS, 2 * HOUR_MS):
        waiting.add(entry(ahead_ms), START_MS + ahead_ms, missed=False)
    waiting.apply(marker(RECALL_VERSION, START_MS + HOUR_MS))
    assert [item.entry.due for item in waiting.take_due(START_MS + DAY_MS)] == [START_MS + 2 * HOUR_MS]


def test_the_marker_of_a_schedule_of_the_same_name_leaves_timers_alone() -> None:
    waiting = Waiting()
    waiting.add(entry(HOUR_MS), START_MS + HOUR_MS, missed=False)
    waiting.apply(marker(START_MS * 1000, 0))
    assert waiting.count == 1


def test_a_recalls_marker_leaves_a_schedule_of_the_same_name_alone() -> None:
    waiting = Waiting()
    waiting.add(Entry("s", START_MS, START_MS, START_MS * 1000), START_MS, missed=False)
    waiting.apply(marker(RECALL_VERSION, START_MS))
    assert waiting.count == 1
