"""A new layout of minutes: refused where it could be missed, and known to owners before they read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from command_line import tocsin
from unit.manual_clock import START_MS
from unit.scripted_store import World, a_world

from tocsin.dispatcher.layouts import KnownLayouts
from tocsin.producer.layouts import LAYOUTS_MAX, check_layout, set_layout
from tocsin.producer.persistence import Persistence
from tocsin.schema.errors import SettingsError, StoreTimeout
from tocsin.schema.instants import HOUR_MS, MINUTE_MS
from tocsin.schema.levels import Layout, Level
from tocsin.schema.store import SCHEMA_VERSION, Settings
from tocsin.schema.timing import Timing

TIMING = Timing()
NOW = START_MS
SETTINGS = Settings(genesis=START_MS, shard_ranges=4, layouts=(Layout(0, 16),))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with a_world() as made:
        yield made


async def put(world: World, layout: Layout, *, deadline_ms: int = 10_000) -> Settings:
    return await set_layout(
        world.store,  # type: ignore[arg-type]
        layout,
        timing=TIMING,
        store_clock=world.store_clock,
        persistence=Persistence(world.clock, TIMING),
        deadline=world.clock.monotonic_ms() + deadline_ms,
    )


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout(NOW + 2 * TIMING.layout_notice_ms - MINUTE_MS, 32), "is too near"),
        (Layout(NOW - HOUR_MS, 32), "is too near"),
        (Layout(NOW + HOUR_MS + 1, 32), "not the start of a minute"),
        (Layout(NOW + HOUR_MS, 18), "multiple of shard_ranges"),
        (Layout(NOW + HOUR_MS, 0), "0 sub-partitions cannot be"),
        (Layout(NOW + HOUR_MS, 1 << 17), "cannot be"),
        (Layout(NOW + HOUR_MS, 16), "already"),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_what_to_do(layout: Layout, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        check_layout(layout, SETTINGS, TIMING, NOW)


def test_the_soonest_instant_is_named_and_accepted() -> None:
    with pytest.raises(SettingsError, match=r"Choose 2026-11-30T10:20:00Z or later"):
        check_layout(Layout(NOW + MINUTE_MS, 32), SETTINGS, TIMING, NOW)
    check_layout(Layout(NOW + 2 * TIMING.layout_notice_ms, 32), SETTINGS, TIMING, NOW)


def test_layouts_follow_each_other_and_are_few() -> None:
    several = tuple(Layout(NOW + number * HOUR_MS, 4 << number) for number in range(LAYOUTS_MAX))
    settings = msgspec.structs.replace(SETTINGS, layouts=several)
    with pytest.raises(SettingsError, match="is set already; choose a later instant"):
        check_layout(Layout(NOW + 2 * HOUR_MS, 4), settings, TIMING, NOW)
    with pytest.raises(SettingsError, match="has had 6 layouts"):
        check_layout(Layout(NOW + 9 * HOUR_MS, 1024), settings, TIMING, NOW)
    check_layout(Layout(NOW + 9 * HOUR_MS, 8), settings, TIMING, NOW)


def test_a_store_that_a_newer_release_made_is_left_to_it() -> None:
    newer = msgspec.structs.replace(SETTINGS, schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(SettingsError, match="with that release"):
        check_layout(Layout(NOW + HOUR_MS, 32), newer, TIMING, NOW)


async def test_setting_it_twice_sets_it_once(world: World) -> None:
    layout = Layout(START_MS + HOUR_MS, 32)
    await put(world, layout)
    assert (await put(world, layout)).layouts == (Layout(0, 16), layout)
    assert (await world.store.inner.read_settings()).layouts == (Layout(0, 16), layout)


async def test_who_is_second_builds_on_what_the_first_wrote(world: World) -> None:
    first, second = Layout(START_MS + HOUR_MS, 32), Layout(START_MS + 2 * HOUR_MS, 64)

    async def meanwhile() -> None:
        settings = await world.store.inner.read_settings()
        changed = msgspec.structs.replace(settings, layouts=(*settings.layouts, first))
        assert await world.store.inner.replace_settings(changed, settings)

    world.store.meanwhile("read_settings", meanwhile)
    assert (await put(world, second)).layouts == (Layout(0, 16), first, second)


@pytest.mark.parametrize("applied", [True, False])
async def test_an_unknown_outcome_is_settled_by_reading_again(world: World, *, applied: bool) -> None:
    layout = Layout(START_MS + HOUR_MS, 32)
    world.store.fail("replace_settings", applied=applied)
    assert (await put(world, layout)).layouts == (Layout(0, 16), layout)


async def test_a_store_that_does_not_answer_ends_at_the_deadline(world: World) -> None:
    world.store.dies_at = (0, False)
    with pytest.raises(StoreTimeout):
        await put(world, Layout(START_MS + HOUR_MS, 32))


async def test_an_owner_looks_before_a_minute_that_may_be_split_anew(world: World) -> None:
    known = KnownLayouts(
        world.store,  # type: ignore[arg-type]
        world.levels,
        world.store_clock,
        Persistence(world.clock, TIMING),
    )
    await known.until_known(START_MS + MINUTE_MS)
    later = Layout(START_MS + HOUR_MS, 32)
    await put(world, later)
    reads = world.store.made.count("read_settings")

    await known.until_known(START_MS + 2 * MINUTE_MS)
    assert world.store.made.count("read_settings") == reads
    world.clock.turn(HOUR_MS)
    await known.until_known(START_MS + HOUR_MS + MINUTE_MS)

    assert world.levels.layouts == (Layout(0, 16), later)
    parts = {bucket.layout for bucket in world.levels.buckets(Level.MINUTE, 0, later.from_ms - 1, later.from_ms)}
    assert parts == {16, 32}


def test_the_command_sets_shows_and_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tocsin("init")
    refused = tocsin("layout", "set", "--sub-partitions", "32", "--from", "+5m")
    done = tocsin("layout", "set", "--sub-partitions", "32", "--from", "+2h", "-o", "json")
    shown = tocsin("layout", "show")

    assert (refused.code, done.code) == (1, 0)
    assert "too near" in refused.err
    assert [(each["sub_partitions"], each["state"]) for each in done.objects()] == [(16, "in force"), (32, "to come")]
    assert "to come" in shown.out
