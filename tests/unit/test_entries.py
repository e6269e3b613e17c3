"""Entries, packs and occurrence keys: what is written can be read, what is damaged is said to be."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.schema.entries import (
    FORMAT,
    PACK_BYTES_MAX,
    PACK_ENTRIES_MAX,
    Entry,
    Kind,
    Undecodable,
    UnknownFormat,
    decode_pack,
    encode_pack,
    format_instant,
    occurrence_key,
    pack,
    parse_instant,
    parse_occurrence_key,
)
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.levels import Level
from tocsin.schema.zones import zone_data_version

instants = st.integers(min_value=0, max_value=4 * 10**12)
ids = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=255)
requests = ids.filter(lambda text: "@" not in text) | st.just("")
entries = st.builds(
    Entry,
    schedule_id=ids,
    scheduled_for=instants,
    due=instants,
    version=st.integers(0, 2**62),
    kind=st.sampled_from(Kind),
    verify=st.booleans(),
    tries=st.integers(0, 20),
    request=requests,
    previous=instants,
    spec=st.binary(max_size=2_000),
    payload=st.binary(max_size=20_000),
)


@given(ids, instants, requests)
@example("a@2026-11-30T10:00:00.000Z", 0, "")
@example("@", 1, "r!r")
def test_an_occurrence_key_gives_back_what_it_was_made_of(schedule_id: str, scheduled_for: int, request: str) -> None:
    key = occurrence_key(schedule_id, scheduled_for, request)
    assert parse_occurrence_key(key) == (schedule_id, scheduled_for, request)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "tea",
        "tea@",
        "@2026-11-30T10:00:00.000Z",
        "tea@2026-11-30",
        "tea@2026-11-30T10:00:00Z",
        "tea@2026-11-30T10:00:00.000+01:00",
        "tea@2026-02-30T10:00:00.000Z",
        "tea@2026-11-30T10:00:00.5Z",
        "tea@2026-11-30T10:00:00.000123Z",
        "tea@2026-1-1T1:1:1.000Z",
        "tea@2026-11-30T10:00:00.000Z!",
    ],
)
def test_what_is_no_occurrence_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidSchedule, match="not an occurrence key"):
        parse_occurrence_key(key)


@given(instants)
def test_an_instant_is_written_as_rfc_3339_with_milliseconds(instant: int) -> None:
    text = format_instant(instant)
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(instant // 1000, UTC).replace(
        microsecond=instant % 1000 * 1000
    )
    assert parse_instant(text) == instant


@given(st.lists(entries, max_size=30))
def test_a_pack_gives_back_its_entries(written: list[Entry]) -> None:
    assert decode_pack(encode_pack(written)) == written


@given(st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 3_000)), max_size=60))
def test_packs_keep_order_and_both_limits(sizes: list[tuple[int, int]]) -> None:
    written = [Entry(f"s{i}", i, i, 1, spec=b"s" * s, payload=b"p" * p) for i, (p, s) in enumerate(sizes)]
    packs = list(pack(written))
    assert [entry for entries in packs for entry in entries] == written
    for entries in packs:
        assert 1 <= len(entries) <= PACK_ENTRIES_MAX
        assert len(encode_pack(entries)) <= PACK_BYTES_MAX or len(entries) == 1


@given(st.integers(0, 1_000))
def test_small_entries_fill_packs_to_the_count(count: int) -> None:
    packs = list(pack(Entry(f"s{i}", i, i, 1) for i in range(count)))
    assert [len(entries) for entries in packs[:-1]] == [PACK_ENTRIES_MAX] * (len(packs) - 1)
    assert sum(map(len, packs)) == count


@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=255, max_size=255))
def test_ids_of_wide_characters_stay_within_the_byte_limit(schedule_id: str) -> None:
    full = Entry(schedule_id, 1, 1, 1, request=schedule_id, zone_data="2026a")
    for entries in pack([full] * PACK_ENTRIES_MAX):
        assert len(encode_pack(entries)) <= PACK_BYTES_MAX


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x00")
@example(bytes((FORMAT,)))
@example(bytes((FORMAT,)) + b"\x91" * 190)
def test_damaged_bytes_are_undecodable_or_of_a_newer_format_and_never_another_error(body: bytes) -> None:
    try:
        decode_pack(body)
    except UnknownFormat:
        assert body[0] > FORMAT
    except Undecodable:
        assert not body or body[0] <= FORMAT


@given(st.lists(entries, min_size=1, max_size=3), st.data())
def test_a_pack_cut_short_is_undecodable(written: list[Entry], data: st.DataObject) -> None:
    body = encode_pack(written)
    cut = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(Undecodable):
        decode_pack(body[:cut])


def test_a_newer_format_is_left_to_a_newer_release() -> None:
    with pytest.raises(UnknownFormat, match="newer release") as raised:
        decode_pack(bytes((FORMAT + 1,)) + b"anything")
    assert raised.value.found == FORMAT + 1


def test_a_kind_nobody_knows_is_undecodable() -> None:
    fields = list(msgspec.structs.astuple(Entry("tea", 1, 1, 1)))
    assert decode_pack(bytes((FORMAT,)) + msgspec.msgpack.encode([fields])) == [Entry("tea", 1, 1, 1)]
    fields[4] = 99
    with pytest.raises(Undecodable):
        decode_pack(bytes((FORMAT,)) + msgspec.msgpack.encode([fields]))


def test_fields_that_a_later_release_appends_are_passed_over() -> None:
    longer = [*msgspec.structs.astuple(Entry("tea", 1, 2, 3)), "new", 7]
    assert decode_pack(bytes((FORMAT,)) + msgspec.msgpack.encode([longer])) == [Entry("tea", 1, 2, 3)]


def test_on_far_an_entry_is_a_pointer_to_be_verified() -> None:
    entry = Entry("tea", 1, 2, 3, previous=9, spec=b"spec", payload=b"payload")
    pointer = entry.as_stored(Level.FAR)
    assert pointer.verify
    assert (pointer.spec, pointer.payload, pointer.previous) == (b"", b"", 9)
    assert pointer.zone_data == zone_data_version()
    assert entry.as_stored(Level.MINUTE) is entry
    assert entry.as_stored(Level.NEAR) is entry


def test_a_timer_is_whole_on_every_level() -> None:
    timer = Entry("t", 1, 2, 3, kind=Kind.TIMER, spec=b"spec", payload=b"payload")
    assert all(timer.as_stored(level) is timer for level in Level)


def test_marking_keeps_everything_else() -> None:
    entry = Entry("tea", 1, 2, 3, spec=b"s", payload=b"p", request="r")
    marked = entry.marked()
    assert marked.verify
    assert msgspec.structs.replace(marked, verify=False) == entry
    assert marked.marked() is marked
    assert marked.marked(tries=3).tries == 3
