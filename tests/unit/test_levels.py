"""Where an occurrence waits: buckets cover every position once, ends say when sealing reaches it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tocsin.schema.levels import FAR_SUB_PARTITIONS, Layout, Level, Levels, hash32
from tocsin.schema.timing import Timing

TIMING = Timing()
LEVELS = Levels(TIMING, 64, (Layout(0, 256),))
#: 2026-11-30 00:00 UTC.
MIDNIGHT = 1_795_996_800_000

positions = st.integers(min_value=0, max_value=4 * 10**12)
ids = st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable())
levels_of_all = st.sampled_from(Level)


def test_the_hash_of_an_id_is_what_b2sum_says_first() -> None:
    assert {text: hash32(text) for text in ("a", "tea", "customer-42", "日本")} == {
        "a": 0x333FCB4E,
        "tea": 0xF53C08E9,
        "customer-42": 0x8A71DBB2,
        "日本": 0xE37B4998,
    }


@given(levels_of_all, positions, ids)
def test_a_position_lies_in_its_bucket_and_before_its_end(level: Level, position: int, schedule_id: str) -> None:
    bucket = LEVELS.bucket(level, position, schedule_id)
    assert bucket.start <= position
    assert LEVELS.end(level, position) > position or level is Level.NEAR
    assert LEVELS.end(level, bucket.start) == LEVELS.end(level, position) or level is Level.NEAR


@given(levels_of_all, positions, st.integers(0, 3 * HOUR_MS), ids, st.integers(0, 3 * HOUR_MS))
def test_the_owner_of_an_id_reads_every_bucket_that_may_hold_it(
    level: Level, after: int, ahead: int, schedule_id: str, span: int
) -> None:
    position = after + 1 + min(ahead, span)
    read = list(LEVELS.buckets(level, LEVELS.shard_range(schedule_id), after, after + 1 + span))
    assert LEVELS.bucket(level, position, schedule_id) in read
    assert len(read) == len(set(read))
    assert [bucket.start for bucket in read] == sorted(bucket.start for bucket in read)


@given(positions, ids)
def test_only_the_owner_reads_a_bucket(position: int, schedule_id: str) -> None:
    small = Levels(TIMING, 4, (Layout(0, 16),))
    bucket = small.bucket(Level.MINUTE, position, schedule_id)
    readers = [r for r in range(4) if bucket in small.buckets(Level.MINUTE, r, position - 1, position)]
    assert readers == [small.shard_range(schedule_id)]


def test_nothing_is_read_of_an_empty_span() -> None:
    for level in Level:
        assert list(LEVELS.buckets(level, 0, MIDNIGHT - 1, MIDNIGHT - 1)) == []


def test_the_level_follows_the_start_of_the_bucket() -> None:
    now = MIDNIGHT
    assert LEVELS.choose(now + SECOND_MS, now) is Level.NEAR
    assert LEVELS.choose(now + MINUTE_MS - 1, now) is Level.NEAR
    assert LEVELS.choose(now + MINUTE_MS, now) is Level.MINUTE
    assert LEVELS.choose(now + MINUTE_MS, now + MINUTE_MS - TIMING.lead_ms) is Level.NEAR
    assert LEVELS.choose(now + 2 * DAY_MS - 1, now) is Level.MINUTE
    assert LEVELS.choose(now + 2 * DAY_MS, now) is Level.FAR
    assert LEVELS.choose(now - DAY_MS, now) is Level.NEAR


@given(positions, st.integers(-DAY_MS, 800 * DAY_MS))
def test_a_first_choice_is_never_a_bucket_that_an_owner_with_our_clock_has_sealed(now: int, ahead: int) -> None:
    due = max(0, now + ahead)
    level = LEVELS.choose(due, now)
    sealed_minute = LEVELS.end(Level.MINUTE, now + TIMING.lead_ms)
    sealed_far = LEVELS.end(Level.FAR, now + TIMING.far_seal_ms)
    if level is not Level.NEAR:
        assert LEVELS.end(level, due) > (sealed_minute if level is Level.MINUTE else sealed_far)


def test_every_level_demotes_to_the_one_below_and_near_to_itself() -> None:
    assert [level.below for level in (Level.FAR, Level.MINUTE, Level.NEAR)] == [Level.MINUTE, Level.NEAR, Level.NEAR]


def test_after_a_new_layout_writers_use_it_and_readers_read_both() -> None:
    changed = Levels(TIMING, 4, (Layout(0, 16), Layout(MIDNIGHT, 32)))
    assert changed.bucket(Level.MINUTE, MIDNIGHT - 1, "tea").layout == 16
    assert changed.bucket(Level.MINUTE, MIDNIGHT, "tea").layout == 32
    unaware = Levels(TIMING, 4, (Layout(0, 16),))
    shard_range = changed.shard_range("tea")
    read = set(changed.buckets(Level.MINUTE, shard_range, MIDNIGHT, MIDNIGHT + 1))
    assert {
        unaware.bucket(Level.MINUTE, MIDNIGHT + 1, "tea"),
        changed.bucket(Level.MINUTE, MIDNIGHT + 1, "tea"),
    } <= read
    assert len(read) == 16 // 4 + 32 // 4


def test_near_and_far_have_one_layout_each() -> None:
    assert LEVELS.bucket(Level.NEAR, MIDNIGHT, "tea").layout == 64
    assert LEVELS.bucket(Level.NEAR, MIDNIGHT, "tea").sub == LEVELS.shard_range("tea")
    assert LEVELS.bucket(Level.FAR, MIDNIGHT, "tea").layout == FAR_SUB_PARTITIONS


@pytest.mark.parametrize(
    ("shard_ranges", "layouts"),
    [(64, ()), (64, (Layout(0, 100),)), (3, (Layout(0, 9),)), (8, (Layout(0, 16), Layout(1, 20)))],
)
def test_a_geometry_that_does_not_nest_is_refused(shard_ranges: int, layouts: tuple[Layout, ...]) -> None:
    with pytest.raises(SettingsError, match="must"):
        Levels(TIMING, shard_ranges, layouts)
