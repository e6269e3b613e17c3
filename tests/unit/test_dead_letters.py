"""Dead letters are found by reason, and replayed with their key without arming anything twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.producer.dead_letters import read_dead_letters, replay, replay_entry
from tocsin.producer.extra_runs import backfill_turn
from tocsin.schema.entries import Entry, Kind, encode_pack
from tocsin.schema.instants import DAY_MS, HOUR_MS, to_datetime
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import Spec, encode_spec
from tocsin.schema.store import DeadLetter

SPEC = Spec(recurrence=Every(timedelta(hours=1), anchor=to_datetime(START_MS - DAY_MS)), topic="t")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


def letter(kind: Kind = Kind.ARM, *, reason: str = "too_large", body: bytes | None = None) -> DeadLetter:
    due = START_MS - HOUR_MS
    entry = Entry("s", due, due, 7, kind=kind, tries=3, spec=encode_spec(SPEC), payload=b"p")
    return DeadLetter(
        shard_range=0,
        at=START_MS,
        occurrence_key=f"{entry.key}{reason}",
        reason=reason,
        attempts=1,
        entry=encode_pack([entry]) if body is None else body,
    )


async def test_they_are_found_by_reason(world: World) -> None:
    for reason in ("too_large", "unknown_topic"):
        await world.store.inner.write_dead_letter(letter(reason=reason))
    ranges = world.levels.shard_ranges

    async def reasons(wanted: str | None) -> list[str]:
        found = read_dead_letters(world.store, ranges, 0, START_MS, reason=wanted)  # type: ignore[arg-type]
        return [each.reason async for each in found]

    assert sorted(await reasons(None)) == ["too_large", "unknown_topic"]
    assert await reasons("unknown_topic") == ["unknown_topic"]


def test_an_occurrence_of_a_schedule_comes_back_alone_and_arms_nothing() -> None:
    entry = replay_entry(letter(), START_MS)
    assert entry is not None
    assert (entry.kind, entry.due, entry.tries, entry.verify) == (Kind.BACKFILL, START_MS, 0, False)
    assert backfill_turn(entry, SPEC) == ([START_MS - HOUR_MS], None)


@pytest.mark.parametrize("kind", [Kind.TIMER, Kind.TRIGGER])
def test_what_follows_nothing_comes_back_as_it_was(kind: Kind) -> None:
    entry = replay_entry(letter(kind), START_MS)
    assert entry is not None
    assert (entry.kind, entry.scheduled_for, entry.payload) == (kind, START_MS - HOUR_MS, b"p")


@pytest.mark.parametrize("body", [b"", b"\xff garbage", encode_pack([])])
async def test_what_cannot_be_read_is_not_replayed(world: World, body: bytes) -> None:
    assert not await replay(world.inserter(), letter(body=body), START_MS)
    assert world.store.packs == []


async def test_a_replay_waits_on_near(world: World) -> None:
    assert await replay(world.inserter(), letter(), START_MS)
    assert [entry.kind for _, _, entry in await world.waiting()] == [Kind.BACKFILL]
