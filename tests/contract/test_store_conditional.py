"""The contract of `tocsin.schema.store`, its conditional writes: schedules and leases, and who wins a race."""

from __future__ import annotations

import asyncio
import secrets
import sys

import msgspec
import pytest

from tocsin.schema.errors import ScheduleNotFound
from tocsin.schema.levels import Layout
from tocsin.schema.schedules import ScheduleFilter, ScheduleRow, State
from tocsin.schema.store import Lease, Store

from .conftest import GENESIS, SETTINGS, Fresh, Subject


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


def lease(shard_range: int, epoch: int, owner: str | None = "d1") -> Lease:
    return Lease(shard_range=shard_range, owner=owner, epoch=epoch, token=secrets.token_bytes(16))


# Schedules


async def test_every_field_of_a_schedule_comes_back(store: Store, fresh: Fresh) -> None:
    full = row(
        f"{fresh.schedule_id()}@ü 日本",
        version=2**62,
        state=State.PAUSED,
        replaced=tuple((2**61 + number, GENESIS + number) for number in range(8)),
        until=GENESIS + 1,
        spec='{"topic":"ü","headers":[["k","\\u0000"]]}'.encode(),
        payload=bytes(range(256)) * 256,
        tenant="zürich",
        tags=frozenset({"a", "é", "日"}),
        note="why: 'quoted' \"twice\"\n",
    )
    assert await store.insert_schedule(full) is None
    assert await store.read_schedules([full.schedule_id]) == {full.schedule_id: full}


async def test_empty_fields_come_back_empty(store: Store, fresh: Fresh) -> None:
    plain = row(fresh.schedule_id())
    await store.insert_schedule(plain)
    assert await store.read_schedules([plain.schedule_id]) == {plain.schedule_id: plain}


async def test_a_payload_of_900_kib_comes_back_whole(store: Store, fresh: Fresh) -> None:
    large = row(fresh.schedule_id(), payload=secrets.token_bytes(900 * 1024))
    await store.insert_schedule(large)
    assert await store.read_schedules([large.schedule_id]) == {large.schedule_id: large}


async def test_inserting_an_id_twice_answers_the_row_that_was_there(store: Store, fresh: Fresh) -> None:
    first, second = (row(schedule_id := fresh.schedule_id()), row(schedule_id, version=9))
    assert await store.insert_schedule(first) is None
    assert await store.insert_schedule(second) == first
    assert await store.read_schedules([schedule_id]) == {schedule_id: first}


async def test_a_row_is_replaced_at_the_version_expected(store: Store, fresh: Fresh) -> None:
    schedule_id = fresh.schedule_id()
    await store.insert_schedule(row(schedule_id, payload=b"old", tags=frozenset({"old"}), note="old"))
    replacing = row(schedule_id, version=2, replaced=((1, GENESIS),), state=State.CANCELLED)
    assert await store.replace_schedule(replacing, 1) is None
    assert await store.read_schedules([schedule_id]) == {schedule_id: replacing}


async def test_a_row_at_another_version_stays_and_is_answered(store: Store, fresh: Fresh) -> None:
    schedule_id = fresh.schedule_id()
    there = row(schedule_id, version=5)
    await store.insert_schedule(there)
    assert await store.replace_schedule(row(schedule_id, version=6), 4) == there
    assert await store.read_schedules([schedule_id]) == {schedule_id: there}


async def test_replacing_what_is_not_there_is_not_found_and_makes_nothing(store: Store, fresh: Fresh) -> None:
    schedule_id = fresh.schedule_id()
    with pytest.raises(ScheduleNotFound):
        await store.replace_schedule(row(schedule_id, version=2), 1)
    assert await store.read_schedules([schedule_id]) == {}


async def test_many_schedules_are_read_at_once_and_those_missing_are_left_out(store: Store, fresh: Fresh) -> None:
    rows = [row(fresh.schedule_id()) for _ in range(120)]
    await asyncio.gather(*map(store.insert_schedule, rows))
    asked = [each.schedule_id for each in rows]
    found = await store.read_schedules([*asked, "missing", *asked[:10]])
    assert found == {each.schedule_id: each for each in rows}
    assert await store.read_schedules([]) == {}


async def test_of_several_inserting_one_id_exactly_one_wins(store: Store, second_store: Store, fresh: Fresh) -> None:
    for _ in range(5):
        rows = [row(schedule_id := fresh.schedule_id()), *(row(schedule_id) for _ in range(3))]
        stores = (store, second_store, store, second_store)
        answers = await asyncio.gather(*(each.insert_schedule(one) for each, one in zip(stores, rows, strict=True)))
        (winner,) = (one for one, answer in zip(rows, answers, strict=True) if answer is None)
        assert [answer for answer in answers if answer is not None] == [winner] * 3
        assert await second_store.read_schedules([schedule_id]) == {schedule_id: winner}


async def test_of_several_replacing_one_version_exactly_one_wins(
    store: Store, second_store: Store, fresh: Fresh
) -> None:
    schedule_id = fresh.schedule_id()
    await store.insert_schedule(row(schedule_id))
    for version in range(1, 6):
        rows = [row(schedule_id, version + 1) for _ in range(4)]
        stores = (store, second_store, store, second_store)
        answers = await asyncio.gather(
            *(each.replace_schedule(one, version) for each, one in zip(stores, rows, strict=True))
        )
        (winner,) = (one for one, answer in zip(rows, answers, strict=True) if answer is None)
        assert await store.read_schedules([schedule_id]) == {schedule_id: winner}


async def test_a_serial_read_settles_a_write_whose_caller_gave_up(store: Store, fresh: Fresh) -> None:
    for _ in range(10):
        schedule_id = fresh.schedule_id()
        given_up = asyncio.ensure_future(store.insert_schedule(row(schedule_id)))
        await asyncio.sleep(0)
        given_up.cancel()
        first = await store.read_schedules([schedule_id])
        # Whoever comes now finds what the serial read said: either it holds, or its place is free.
        other = row(schedule_id, version=3)
        answer = await store.insert_schedule(other)
        assert answer in (None, *first.values())
        assert (await store.read_schedules([schedule_id]))[schedule_id] == (answer or other)


async def test_a_row_is_removed_at_its_version_only_and_its_id_is_free_again(store: Store, fresh: Fresh) -> None:
    first = row(fresh.schedule_id(), tags=frozenset({"one"}))
    assert await store.insert_schedule(first) is None
    assert not await store.remove_schedule(first.schedule_id, first.version + 1)
    assert await store.read_schedules([first.schedule_id]) == {first.schedule_id: first}
    assert await store.remove_schedule(first.schedule_id, first.version)
    assert not await store.remove_schedule(first.schedule_id, first.version)
    assert await store.read_schedules([first.schedule_id]) == {}
    again = msgspec.structs.replace(first, version=first.version + 7, tags=frozenset({"two"}))
    assert await store.insert_schedule(again) is None
    assert await store.read_schedules([first.schedule_id]) == {first.schedule_id: again}
    with_tag = [each.schedule_id async for page in store.list_schedules(ScheduleFilter(tag="one")) for each in page]
    assert first.schedule_id not in with_tag


# Leases


async def test_there_is_one_free_lease_for_each_range_at_first(store: Store) -> None:
    leases = await store.read_leases()
    assert [each.shard_range for each in leases] == list(range(SETTINGS.shard_ranges))


async def test_a_lease_is_acquired_at_the_epoch_expected_and_released(store: Store, second_store: Store) -> None:
    epoch = (await store.read_lease(0)).epoch
    acquired = lease(0, epoch + 1)
    assert await store.acquire_lease(acquired, epoch)
    assert await second_store.read_lease(0) == acquired
    assert acquired in await second_store.read_leases()
    released = lease(0, epoch + 2, owner=None)
    assert await second_store.acquire_lease(released, epoch + 1)
    assert await store.read_lease(0) == released


async def test_a_lease_at_another_epoch_stays_as_it_is(store: Store) -> None:
    before = await store.read_lease(1)
    assert not await store.acquire_lease(lease(1, before.epoch + 2), before.epoch + 1)
    assert not await store.acquire_lease(lease(1, before.epoch), before.epoch - 1)
    assert await store.read_lease(1) == before


async def test_of_several_acquiring_one_range_exactly_one_wins(store: Store, second_store: Store) -> None:
    epoch = (await store.read_lease(2)).epoch
    wanted = [lease(2, epoch + 1, owner) for owner in ("d1", "d2", "d3", "d4")]
    stores = (store, second_store, store, second_store)
    answers = await asyncio.gather(*(each.acquire_lease(one, epoch) for each, one in zip(stores, wanted, strict=True)))
    assert sorted(answers) == [False, False, False, True]
    assert await store.read_lease(2) == wanted[answers.index(True)]


async def test_ranges_are_acquired_side_by_side(store: Store, second_store: Store) -> None:
    leases = await store.read_leases()
    taken = await asyncio.gather(
        *(second_store.acquire_lease(lease(each.shard_range, each.epoch + 1), each.epoch) for each in leases)
    )
    assert all(taken)
    assert {each.owner for each in await store.read_leases()} == {"d1"}


# Settings


async def test_settings_change_where_they_are_the_expected_ones(store: Store, second_store: Store) -> None:
    found = await store.read_settings()
    wider = msgspec.structs.replace(found, layouts=(*found.layouts, Layout(found.layouts[-1].from_ms + 60_000, 32)))
    assert await store.replace_settings(wider, found)
    assert not await second_store.replace_settings(found, found)
    assert await second_store.read_settings() == wider
    assert await second_store.replace_settings(found, wider)
    assert await store.read_settings() == found


# Processes

RACE = """
import asyncio, sys
from tocsin.schema.open_store import open_store
from tocsin.schema.schedules import ScheduleRow, State

async def race(url, schedule_ids):
    store = open_store(url)
    await store.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for schedule_id in schedule_ids:
        row = ScheduleRow(schedule_id=schedule_id, version=1, token=sys.argv[2].encode(), state=State.ACTIVE, since=0,
                          spec=b"{}", created_at=0, updated_at=0)
        print("won" if await store.insert_schedule(row) is None else "lost", flush=True)
    await store.close()

asyncio.run(race(sys.argv[1], sys.argv[3:]))
"""


@pytest.mark.parametrize("subject", ["sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra)], indirect=True)
async def test_of_several_processes_exactly_one_wins_each_id(store: Store, subject: Subject, fresh: Fresh) -> None:
    schedule_ids = [fresh.schedule_id() for _ in range(10)]
    pipe = asyncio.subprocess.PIPE
    racers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", RACE, subject.url, name, *schedule_ids, stdin=pipe, stdout=pipe
        )
        for name in ("one", "two", "three")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert await racer.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(racer.communicate(b"go\n") for racer in racers))
    answers = [output.split() for output, _ in outputs]
    assert all(each.count(b"won") == 1 for each in zip(*answers, strict=True))
    found = await store.read_schedules(schedule_ids)
    for number, schedule_id in enumerate(schedule_ids):
        winner = ("one", "two", "three")[[answer[number] for answer in answers].index(b"won")]
        assert found[schedule_id].token == winner.encode()
