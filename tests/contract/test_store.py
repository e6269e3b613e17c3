"""The contract of `tocsin.schema.store`, on every kind of store: packs, markers, registers, letters, clocks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TypeVar

import pytest

from tocsin.schema.entries import Entry, decode_pack, encode_pack
from tocsin.schema.errors import NotInitialised
from tocsin.schema.levels import Bucket, Level
from tocsin.schema.schedules import Marker
from tocsin.schema.store import REGISTERS, DeadLetter, Frontier, Heartbeat, PackRow, PlacedMarker, Settings, Store

from .conftest import GENESIS, SETTINGS, Fresh, Subject

Row = TypeVar("Row")
HOUR_MS = 3_600_000


async def all_of(pages: AsyncIterator[Sequence[Row]]) -> list[Row]:
    return [row async for page in pages for row in page]


async def write_packs(store: Store, bucket: Bucket, rows: Iterable[PackRow]) -> None:
    await asyncio.gather(*(store.write_pack(bucket, row) for row in rows))


def pack_row(position: int, number: int = 0, body: bytes = b"body") -> PackRow:
    return PackRow(position, number.to_bytes(16, "big"), body)


def marker(schedule_id: str, version: int = 7, *, verify: bool = True) -> Marker:
    return Marker(schedule_id=schedule_id, version=version, from_ms=GENESIS, until_ms=GENESIS + HOUR_MS, verify=verify)


# Opening


async def test_opening_before_init_is_not_initialised(subject: Subject) -> None:
    untouched = subject.untouched()
    with pytest.raises(NotInitialised, match="tocsin init"):
        await untouched.open()
    with pytest.raises(NotInitialised):
        await untouched.open()
    await untouched.close()


async def test_init_twice_keeps_the_settings_and_registers_there_are(store: Store, second_store: Store) -> None:
    await store.write_frontier(2, {"committed": GENESIS + 5})
    later = Settings(genesis=GENESIS + 1, shard_ranges=8, layouts=SETTINGS.layouts)
    assert await second_store.initialise(later) == SETTINGS
    assert (await store.read_frontier(2)).committed >= GENESIS + 5
    assert (await store.read_frontier(3)).sealed_near == GENESIS


async def test_opening_answers_the_settings_in_force(store: Store, subject: Subject) -> None:
    opened = subject.another()
    assert await opened.open() == SETTINGS
    await opened.close()


async def test_closing_twice_is_harmless_and_opening_again_works(store: Store, subject: Subject) -> None:
    opened = subject.another()
    await opened.open()
    await opened.close()
    await opened.close()
    assert await opened.open() == SETTINGS
    await opened.close()


async def test_the_server_tells_its_time(store: Store, subject: Subject) -> None:
    readings = await store.server_times_ms()
    assert len(readings) == {"sqlite": 1, "cassandra": 3, "simulated": 2}[subject.url.partition(":")[0]]
    assert max(readings) - min(readings) < 60_000
    assert min(readings) > GENESIS // 2


# Packs


@pytest.mark.parametrize("level", Level)
async def test_a_pack_written_is_read_back_from_its_bucket_only(store: Store, fresh: Fresh, level: Level) -> None:
    bucket = fresh.bucket(level)
    row = pack_row(bucket.start + 1, body=bytes(range(256)))
    await store.write_pack(bucket, row)
    assert await all_of(store.read_packs(bucket)) == [row]
    assert await all_of(store.read_packs(bucket._replace(sub=bucket.sub + 1))) == []
    if level is Level.MINUTE:
        assert await all_of(store.read_packs(bucket._replace(layout=32))) == []


async def test_packs_are_read_after_one_position_and_through_another(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket(Level.NEAR)
    rows = [pack_row(bucket.start + place, place) for place in range(6)]
    await write_packs(store, bucket, reversed(rows))
    assert await all_of(store.read_packs(bucket)) == rows
    assert await all_of(store.read_packs(bucket, bucket.start + 1, bucket.start + 4)) == rows[2:5]
    assert await all_of(store.read_packs(bucket, bucket.start + 4)) == rows[5:]
    assert await all_of(store.read_packs(bucket, None, bucket.start)) == rows[:1]


async def test_many_packs_come_in_several_pages_and_in_order(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket()
    # Three packs for each position, so that a page ends between packs of one position; their ids are in no order.
    rows = sorted(pack_row(bucket.start + number // 3, number * 7919 % 1009) for number in range(350))
    await write_packs(store, bucket, reversed(rows))
    pages = [page async for page in store.read_packs(bucket)]
    assert len(pages) > 2
    assert list(itertools.chain(*pages)) == rows


async def test_a_page_is_read_when_it_is_asked_for(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket()
    await write_packs(store, bucket, (pack_row(bucket.start + number, number) for number in range(150)))
    pages = store.read_packs(bucket)
    first = await anext(pages)
    late = pack_row(bucket.start + 50_000, 999)
    await store.write_pack(bucket, late)
    rest = [row async for page in pages for row in page]
    assert late in rest
    assert len(first) + len(rest) == 151


async def test_the_same_pack_twice_is_one_pack(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket()
    row = pack_row(bucket.start)
    await asyncio.gather(store.write_pack(bucket, row), store.write_pack(bucket, row))
    await store.write_pack(bucket, row)
    assert await all_of(store.read_packs(bucket)) == [row]


async def test_packs_of_200_entries_and_32_kib_come_back_whole(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket()
    entries = [
        Entry(
            schedule_id=f"{number}@ü", scheduled_for=bucket.start, due=bucket.start, version=2**60, payload=b"\0" * 120
        )
        for number in range(200)
    ]
    rows = [pack_row(bucket.start, number, encode_pack(entries)) for number in range(120)]
    await write_packs(store, bucket, rows)
    found = await all_of(store.read_packs(bucket))
    assert found == rows
    assert decode_pack(found[-1].body) == entries


async def test_a_pack_of_900_kib_comes_back_whole(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket(Level.NEAR)
    row = pack_row(bucket.start, body=bytes(range(256)) * 4 * 900)
    await store.write_pack(bucket, row)
    assert await all_of(store.read_packs(bucket)) == [row]


async def test_a_write_acknowledged_is_seen_by_every_store_object(
    store: Store, second_store: Store, fresh: Fresh
) -> None:
    bucket = fresh.bucket(Level.NEAR)
    for number in range(30):
        await store.write_pack(bucket, pack_row(bucket.start + number))
        assert len(await all_of(second_store.read_packs(bucket))) == number + 1


async def test_a_write_whose_caller_gave_up_disturbs_no_other(store: Store, fresh: Fresh) -> None:
    bucket = fresh.bucket()
    given_up = [asyncio.ensure_future(store.write_pack(bucket, pack_row(bucket.start, number))) for number in range(50)]
    kept = [store.write_pack(bucket, pack_row(bucket.start + 1, number)) for number in range(50)]
    await asyncio.sleep(0)
    for write in given_up:
        write.cancel()
    await asyncio.gather(*kept)
    assert len(await all_of(store.read_packs(bucket, bucket.start))) == 50
    assert len(await all_of(store.read_packs(bucket, None, bucket.start))) <= 50


# Change markers


async def test_markers_are_read_after_one_position_and_through_another(store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    placed = [PlacedMarker(GENESIS + hour * HOUR_MS + 5, marker(f"s{hour}")) for hour in range(5)]
    await asyncio.gather(*(store.write_marker(each.position, shard_range, each.marker) for each in placed))
    assert await all_of(store.read_markers(shard_range, GENESIS, GENESIS + 9 * HOUR_MS)) == placed
    assert await all_of(store.read_markers(shard_range, placed[0].position, placed[3].position)) == placed[1:4]
    assert await all_of(store.read_markers(fresh.shard_range(), GENESIS, GENESIS + 9 * HOUR_MS)) == []


async def test_many_markers_come_in_several_pages(store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    placed = [PlacedMarker(GENESIS + number // 2, marker(f"s{number:03}")) for number in range(250)]
    await asyncio.gather(*(store.write_marker(each.position, shard_range, each.marker) for each in placed))
    assert await all_of(store.read_markers(shard_range, GENESIS - 1, GENESIS + HOUR_MS)) == placed


async def test_markers_of_one_place_differ_by_schedule_and_version(store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    markers = [marker("a", 1), marker("a", 2, verify=False), marker("b", 1)]
    for each in [*markers, *markers]:
        await store.write_marker(GENESIS, shard_range, each)
    found = await all_of(store.read_markers(shard_range, GENESIS - 1, GENESIS))
    assert [placed.marker for placed in found] == markers


# The frontier


@pytest.mark.parametrize("order", list(itertools.permutations((10, 20, 30))))
async def test_a_register_keeps_its_highest_value_whatever_the_order(
    store: Store, second_store: Store, fresh: Fresh, order: tuple[int, ...]
) -> None:
    shard_range = fresh.shard_range()
    await store.write_frontier(shard_range, dict.fromkeys(REGISTERS, GENESIS))
    for writer, value in zip((store, second_store, store), order, strict=True):
        await writer.write_frontier(shard_range, {"committed": GENESIS + value, "sealed_near": GENESIS - value})
    assert await second_store.read_frontier(shard_range) == Frontier(
        sealed_far=GENESIS,
        sealed_minute=GENESIS,
        sealed_near=GENESIS,
        committed=GENESIS + 30,
        committed_far=GENESIS,
        audited=GENESIS,
    )


async def test_registers_written_at_once_keep_the_highest(store: Store, second_store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    await store.write_frontier(shard_range, dict.fromkeys(REGISTERS, GENESIS))
    values = [GENESIS + (number * 7919) % 100 for number in range(100)]
    await asyncio.gather(
        *(
            writer.write_frontier(shard_range, {"sealed_minute": value, "sealed_far": value})
            for writer, value in zip(itertools.cycle((store, second_store)), values, strict=False)
        )
    )
    frontier = await store.read_frontier(shard_range)
    assert (frontier.sealed_minute, frontier.sealed_far) == (GENESIS + 99, GENESIS + 99)


async def test_a_missing_register_is_an_error_and_never_open(store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    with pytest.raises(NotInitialised):
        await store.read_frontier(shard_range)
    await store.write_frontier(shard_range, {name: GENESIS for name in REGISTERS if name != "sealed_near"})
    with pytest.raises(NotInitialised):
        await store.read_frontier(shard_range)


async def test_an_unknown_register_is_refused_and_nothing_is_written(store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    await store.write_frontier(shard_range, dict.fromkeys(REGISTERS, GENESIS))
    with pytest.raises(ValueError, match="sealed_tomorrow"):
        await store.write_frontier(shard_range, {"committed": GENESIS + 1, "sealed_tomorrow": GENESIS})
    assert (await store.read_frontier(shard_range)).committed == GENESIS


# Dispatchers and dead letters


async def test_a_heartbeat_rises_and_leaves_by_its_time_to_live(store: Store, subject: Subject) -> None:
    beat = Heartbeat(dispatcher_id="d1", number=1, address="10.0.0.1:9000", release="0.1.0")
    await store.write_heartbeat(beat)
    risen = Heartbeat(dispatcher_id="d1", number=2, address="10.0.0.1:9000", release="0.1.0")
    await store.write_heartbeat(risen)
    assert risen in await store.read_heartbeats()
    assert beat not in await store.read_heartbeats()
    await subject.pass_time(3_500)
    assert "d1" not in {heartbeat.dispatcher_id for heartbeat in await store.read_heartbeats()}


async def test_a_planned_stop_takes_only_its_own_heartbeat(store: Store) -> None:
    beats = [Heartbeat(dispatcher_id=name, number=1, address="", release="0.1.0") for name in ("stays", "goes")]
    for beat in beats:
        await store.write_heartbeat(beat)
    await store.delete_heartbeat("goes")
    await store.delete_heartbeat("never was")
    found = await store.read_heartbeats()
    assert beats[0] in found
    assert beats[1] not in found


async def test_dead_letters_are_kept_once_each_and_read_by_instant(store: Store, fresh: Fresh) -> None:
    shard_range = fresh.shard_range()
    letters = [
        DeadLetter(
            shard_range=shard_range,
            at=GENESIS + number * 30 * HOUR_MS,
            occurrence_key=f"ü{number}@2026-11-30T10:00:00.000Z",
            reason="unknown_topic",
            attempts=number,
            entry=bytes((number,)) * 5,
        )
        for number in range(4)
    ]
    for letter in [*letters, *letters]:
        await store.write_dead_letter(letter)
    assert await all_of(store.read_dead_letters(shard_range, GENESIS - 1, GENESIS + 1000 * HOUR_MS)) == letters
    assert await all_of(store.read_dead_letters(shard_range, letters[0].at, letters[2].at)) == letters[1:3]
