"""The store's clock from below: never ahead of the store, whatever servers and hosts say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.manual_clock import START_MS, ManualClock

from tocsin.schema.clock import DRIFT_PPM, StoreClock, SystemClock, lowest_credible
from tocsin.schema.errors import ClockSkew, StoreUnavailable

SKEW_MS = 1_000
#: What is left off because every clock is cut to whole milliseconds.
CUT_MS = 1

readings = st.lists(st.integers(0, 10**13), min_size=1, max_size=7)


class Servers:
    """The coordinators of a store; asking them takes time."""

    def __init__(self, clock: ManualClock, *ahead_ms: int) -> None:
        self.clock = clock
        self.ahead_ms = ahead_ms
        self.reply_takes_ms = 0
        self.error: Exception | None = None

    async def server_times_ms(self) -> list[int]:
        if self.error is not None:
            raise self.error
        times = [self.clock.wall_ms() + ahead_ms for ahead_ms in self.ahead_ms]
        self.clock.turn(self.reply_takes_ms)
        return times


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_the_way_back_of_the_reply_only_makes_it_later(clock: ManualClock) -> None:
    servers = Servers(clock, 0)
    servers.reply_takes_ms = 300
    store_clock = StoreClock(servers, clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    assert store_clock.now_ms() == clock.wall_ms() - 300 - CUT_MS


async def test_between_two_readings_it_goes_on_with_the_monotonic_clock(clock: ManualClock) -> None:
    store_clock = StoreClock(Servers(clock, 0), clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    clock.step(3_600_000)
    clock.turn(250)
    assert store_clock.now_ms() == START_MS + 250 - CUT_MS


async def test_of_several_servers_the_earliest_counts(clock: ManualClock) -> None:
    store_clock = StoreClock(Servers(clock, 40, -30, 10), clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    assert store_clock.now_ms() == START_MS - 30 - CUT_MS


@pytest.mark.parametrize("outlier_ms", [60_000, -60_000])
async def test_one_server_that_is_far_off_is_not_believed(clock: ManualClock, outlier_ms: int) -> None:
    store_clock = StoreClock(Servers(clock, 5, outlier_ms, 20), clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    assert store_clock.now_ms() == START_MS + 5 - CUT_MS


async def test_a_failed_reading_leaves_the_last_one(clock: ManualClock) -> None:
    servers = Servers(clock, 0)
    store_clock = StoreClock(servers, clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    servers.error = StoreUnavailable()
    clock.turn(500)
    with pytest.raises(StoreUnavailable):
        await store_clock.refresh()
    assert store_clock.now_ms() == START_MS + 500 - CUT_MS


async def test_a_reply_that_comes_late_neither_lowers_the_bound_nor_raises_the_alarm(clock: ManualClock) -> None:
    servers = Servers(clock, 0)
    store_clock = StoreClock(servers, clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    servers.reply_takes_ms = 3_000
    await store_clock.refresh()
    assert clock.wall_ms() - 5 <= store_clock.now_ms() < clock.wall_ms()
    assert store_clock.skew_ms == 0


async def test_a_store_that_is_set_back_is_followed_at_once(clock: ManualClock) -> None:
    servers = Servers(clock, 0)
    store_clock = StoreClock(servers, clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    servers.ahead_ms = (-5_000,)
    await store_clock.refresh()
    assert store_clock.now_ms() == START_MS - 5_000 - CUT_MS
    assert store_clock.skew_ms == -5_000


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 60_000), st.integers(-2, 2)), max_size=20))
async def test_however_replies_travel_and_clocks_drift_it_never_leads(
    rounds: list[tuple[int, int, int]],
) -> None:
    clock = ManualClock()
    servers = Servers(clock, 0)
    store_clock = StoreClock(servers, clock, skew_ms_max=SKEW_MS)
    store_ahead_ms = 0
    for reply_takes_ms, pause_ms, drift in rounds:
        servers.reply_takes_ms = reply_takes_ms
        await store_clock.refresh()
        clock.turn(pause_ms)
        # The store's clock runs at another rate, by less than DRIFT_PPM.
        store_ahead_ms += drift * pause_ms * (DRIFT_PPM // 3) // 1_000_000
        servers.ahead_ms = (store_ahead_ms,)
        drifted_ms = pause_ms * DRIFT_PPM // 1_000_000 + 1
        assert store_clock.now_ms() <= clock.wall_ms() + store_ahead_ms + drifted_ms


async def test_before_the_first_reading_it_knows_nothing(clock: ManualClock) -> None:
    with pytest.raises(RuntimeError, match="refresh"):
        StoreClock(Servers(clock, 0), clock, skew_ms_max=SKEW_MS).now_ms()


@pytest.mark.parametrize("ahead_ms", [-SKEW_MS, 0, SKEW_MS])
async def test_host_and_store_may_differ_by_the_allowed_skew(clock: ManualClock, ahead_ms: int) -> None:
    store_clock = StoreClock(Servers(clock, ahead_ms), clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    store_clock.require_agreement()


@pytest.mark.parametrize("ahead_ms", [-SKEW_MS - 1, SKEW_MS + 1])
async def test_beyond_it_nothing_is_sealed(clock: ManualClock, ahead_ms: int) -> None:
    store_clock = StoreClock(Servers(clock, ahead_ms), clock, skew_ms_max=SKEW_MS)
    await store_clock.refresh()
    with pytest.raises(ClockSkew) as raised:
        store_clock.require_agreement()
    assert (raised.value.skew_ms, raised.value.limit_ms) == (ahead_ms, SKEW_MS)


@given(readings, st.integers(0, 10_000))
def test_the_lowest_credible_reading_is_one_near_the_median(found: list[int], skew_ms: int) -> None:
    lowest = lowest_credible(found, skew_ms)
    middle = sorted(found)[(len(found) - 1) // 2]
    assert lowest in found
    assert middle - skew_ms <= lowest <= middle
    assert all(reading >= lowest for reading in found if reading >= middle - skew_ms)


@given(st.integers(10**12, 10**13), st.lists(st.integers(-400, 400), min_size=2, max_size=6), st.integers())
def test_a_minority_of_wrong_servers_never_leads_it_past_the_right_ones(
    true_ms: int, offsets_ms: list[int], wrong: int
) -> None:
    right = [true_ms + offset_ms for offset_ms in offsets_ms]
    lies = [wrong] * ((len(right) - 1) // 2)
    assert lowest_credible(right + lies, SKEW_MS) <= max(right)
    assert lowest_credible(right + lies, SKEW_MS) >= min(right) - SKEW_MS


async def test_the_systems_clocks_go_forward() -> None:
    clock = SystemClock()
    wall, monotonic = clock.wall_ms(), clock.monotonic_ms()
    await clock.sleep_ms(-5)
    assert clock.wall_ms() - wall < 60_000
    assert clock.monotonic_ms() >= monotonic
