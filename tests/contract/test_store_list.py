"""The contract of `tocsin.schema.store`: schedules listed and walked, generated ids, calendars."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import date
from typing import TypeVar

import msgspec
import pytest

from tocsin.schema.schedules import Calendar, ScheduleFilter, ScheduleRow, State
from tocsin.schema.store import Store

from .conftest import GENESIS, Fresh

Row = TypeVar("Row")


async def all_of(pages: AsyncIterator[Sequence[Row]]) -> list[Row]:
    return [row async for page in pages for row in page]


def row(schedule_id: str, version: int = 1, **changes: object) -> ScheduleRow:
    plain = ScheduleRow(
        schedule_id=schedule_id,
        version=version,
        token=secrets.token_bytes(16),
        state=State.ACTIVE,
        since=GENESIS,
        spec=b'{"topic":"t"}',
        created_at=GENESIS,
        updated_at=GENESIS,
    )
    return msgspec.structs.replace(plain, **changes)


async def listed(store: Store, **wanted: object) -> set[str]:
    rows = await all_of(store.list_schedules(msgspec.convert(wanted, ScheduleFilter)))
    assert len({each.schedule_id for each in rows}) == len(rows)
    return {each.schedule_id for each in rows}


async def insert(store: Store, rows: Iterable[ScheduleRow]) -> None:
    assert set(await asyncio.gather(*map(store.insert_schedule, rows))) <= {None}


async def replace(store: Store, old: ScheduleRow, **changes: object) -> ScheduleRow:
    new = msgspec.structs.replace(old, version=old.version + 1, token=secrets.token_bytes(16), **changes)
    assert await store.replace_schedule(new, old.version) is None
    return new


# Listing


async def test_schedules_are_listed_by_tenant_tag_state_and_topic_and_by_all_of_them(
    store: Store, fresh: Fresh
) -> None:
    mine = fresh.schedule_id()
    tenants, topics, tags = ([f"{kind}-{mine}-{number}" for number in (1, 2)] for kind in ("tenant", "topic", "tag"))
    rows = [
        row(
            f"{mine}-{number}",
            tenant=tenants[number % 2],
            topic=topics[number // 2 % 2],
            tags=frozenset({tags[number // 4 % 2], f"each-{mine}"}),
            state=State.PAUSED if number // 8 % 2 else State.ACTIVE,
        )
        for number in range(16)
    ]
    await insert(store, rows)

    def expected(numbers: Iterable[int]) -> set[str]:
        return {f"{mine}-{number}" for number in numbers}

    assert await listed(store, tag=f"each-{mine}") == expected(range(16))
    assert await listed(store, tenant=tenants[1]) == expected(n for n in range(16) if n % 2)
    assert await listed(store, topic=topics[1]) == expected(n for n in range(16) if n // 2 % 2)
    assert await listed(store, tag=tags[1]) == expected(n for n in range(16) if n // 4 % 2)
    assert await listed(store, tag=f"each-{mine}", state="paused") == expected(range(8, 16))
    assert await listed(store, tenant=tenants[1], topic=topics[1], tag=tags[1], state="paused") == expected([15])
    assert await listed(store, tenant=tenants[1], tag="no such tag") == set()


async def test_a_listing_tells_every_field_as_a_read_does(store: Store, fresh: Fresh) -> None:
    tag = fresh.schedule_id()
    full = row(
        fresh.schedule_id(),
        state=State.PAUSED,
        replaced=((1, GENESIS),),
        payload=b"\0payload",
        tenant="zürich",
        topic="mail",
        tags=frozenset({tag, "é"}),
        note="why",
    )
    await insert(store, [full])
    assert await all_of(store.list_schedules(ScheduleFilter(tag=tag))) == [full]


async def test_a_conditional_write_is_listed_by_what_it_wrote_and_not_by_what_it_replaced(
    store: Store, second_store: Store, fresh: Fresh
) -> None:
    before, after = fresh.schedule_id(), fresh.schedule_id()
    for _ in range(10):
        old = row(fresh.schedule_id(), tenant=before, topic=before, tags=frozenset({before}))
        await insert(store, [old])
        assert old.schedule_id in await listed(second_store, tag=before)
        new = await replace(store, old, tenant=after, topic=after, tags=frozenset({after, "more"}), state=State.PAUSED)
        for wanted in ({"tenant": after}, {"topic": after}, {"tag": after}, {"tag": after, "state": "paused"}):
            assert new.schedule_id in await listed(second_store, **wanted)
        for wanted in ({"tenant": before}, {"topic": before}, {"tag": before}, {"tag": after, "state": "active"}):
            assert new.schedule_id not in await listed(second_store, **wanted)


async def test_a_conditional_write_that_was_not_applied_is_not_listed(store: Store, fresh: Fresh) -> None:
    there, refused = fresh.schedule_id(), fresh.schedule_id()
    kept = row(there, tags=frozenset({there}))
    await insert(store, [kept])
    assert await store.insert_schedule(row(there, tags=frozenset({refused}))) == kept
    assert await store.replace_schedule(row(there, 9, tags=frozenset({refused})), 8) == kept
    assert await listed(store, tag=refused) == set()
    assert await listed(store, tag=there) == {there}


async def test_a_schedule_that_lost_its_tags_is_listed_by_none(store: Store, fresh: Fresh) -> None:
    tag = fresh.schedule_id()
    old = row(fresh.schedule_id(), tags=frozenset({tag, "other"}))
    await insert(store, [old])
    await replace(store, old, tags=frozenset())
    assert await listed(store, tag=tag) == set()


async def test_a_long_listing_comes_in_pages_and_without_a_filter_holds_everything(store: Store, fresh: Fresh) -> None:
    tag = fresh.schedule_id()
    rows = [row(fresh.schedule_id(), tags=frozenset({tag})) for _ in range(350)]
    await insert(store, rows)
    pages = [page async for page in store.list_schedules(ScheduleFilter(tag=tag))]
    assert max(map(len, pages)) <= 100
    assert sum(map(len, pages)) == 350
    assert {each.schedule_id for each in rows} <= await listed(store)


# Walking


@pytest.mark.parametrize("segments", [1, 7])
async def test_every_id_is_walked_in_exactly_one_segment_and_always_in_the_same(
    store: Store, fresh: Fresh, segments: int
) -> None:
    rows = [row(fresh.schedule_id()) for _ in range(350)]
    await insert(store, rows)
    first = [await all_of(store.walk_schedules(segment, segments)) for segment in range(segments)]
    counted = Counter(schedule_id for ids in first for schedule_id in ids)
    assert {each.schedule_id for each in rows} <= counted.keys()
    assert set(counted.values()) == {1}
    assert min(map(len, first)) > sum(map(len, first)) / segments / 3
    await insert(store, [row(fresh.schedule_id()) for _ in range(50)])
    again = [await all_of(store.walk_schedules(segment, segments)) for segment in range(segments)]
    assert all(set(before) <= set(after) for before, after in zip(first, again, strict=True))


# Generated ids


async def test_a_generated_id_is_there_at_once_and_listed(store: Store, second_store: Store, fresh: Fresh) -> None:
    tag = fresh.schedule_id()
    made = row(fresh.schedule_id(), tags=frozenset({tag}))
    await store.insert_fresh_schedule(made)
    assert await second_store.read_schedules([made.schedule_id]) == {made.schedule_id: made}
    assert await all_of(second_store.list_schedules(ScheduleFilter(tag=tag))) == [made]


async def test_a_change_of_a_generated_id_wins_over_every_repeat_of_its_first_write(store: Store, fresh: Fresh) -> None:
    tag = fresh.schedule_id()
    for ahead_ms in (0, 60_000):
        # Whoever generated the id may have a clock that runs ahead of the nodes'.
        (now,) = set((await store.server_times_ms())[:1])
        made = row(fresh.schedule_id(), tags=frozenset({tag}), payload=b"first", created_at=now + ahead_ms)
        await store.insert_fresh_schedule(made)
        changed = await replace(store, made, state=State.CANCELLED, payload=b"", tags=frozenset(), note="changed")
        await store.insert_fresh_schedule(made)
        assert await store.read_schedules([made.schedule_id]) == {made.schedule_id: changed}
        assert await store.insert_schedule(row(made.schedule_id)) == changed
    assert await listed(store, tag=tag) == set()


# Calendars


def calendar(name: str, version: int, *dates: date) -> Calendar:
    return Calendar(name=name, dates=frozenset(dates), version=version, token=secrets.token_bytes(16))


async def test_a_calendar_is_written_once_and_changed_at_the_version_expected(
    store: Store, second_store: Store, fresh: Fresh
) -> None:
    name = f"{fresh.schedule_id()} ü"
    first = calendar(name, 1, date(2026, 12, 25), date(2027, 1, 1))
    assert await store.read_calendar(name) is None
    assert not await store.write_calendar(calendar(name, 2), 1)
    assert await store.write_calendar(first, 0)
    assert not await second_store.write_calendar(calendar(name, 1), 0)
    assert await second_store.read_calendar(name) == first
    emptied = calendar(name, 2)
    assert await second_store.write_calendar(emptied, 1)
    assert not await store.write_calendar(calendar(name, 2), 1)
    assert await store.read_calendar(name) == emptied


async def test_all_calendars_are_read_at_once_by_name(store: Store, fresh: Fresh) -> None:
    made = [calendar(f"{fresh.schedule_id()}-{number}", 1, date(2026, 1, 1 + number)) for number in range(5)]
    for each in made:
        assert await store.write_calendar(each, 0)
    found = await store.read_calendars()
    assert [each.name for each in found] == sorted(each.name for each in found)
    assert all(each in found for each in made)


async def test_a_request_keeps_the_instant_of_its_first_call(store: Store, second_store: Store, fresh: Fresh) -> None:
    schedule_id = fresh.schedule_id()
    assert await store.keep_request(schedule_id, "r1", 1_000) == 1_000
    assert await second_store.keep_request(schedule_id, "r1", 2_000) == 1_000
    assert await store.keep_request(schedule_id, "r2", 3_000) == 3_000
    instants = range(10, 20)
    kept = await asyncio.gather(*(store.keep_request(schedule_id, "r3", instant) for instant in instants))
    assert len(set(kept)) == 1
    assert kept[0] in instants
