"""What a dispatcher exports is bounded, named as documented, and adds up."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tocsin.dispatcher.metrics import LATENESS_BUCKETS_MS, OTHER, TOP_OF_HOUR, TOPICS_MAX, Metrics
from tocsin.dispatcher.progress import RangeProgress
from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.setbacks import FORGOTTEN_AFTER_MS
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.instants import HOUR_MS, MINUTE_MS

#: A full hour.
TEN = 1_796_032_800_000


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def registry(metrics: Metrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


def entry(due: int, kind: Kind = Kind.ARM) -> Entry:
    return Entry("a", due, due, 1, kind=kind)


def test_lateness_is_counted_below_the_first_bound_that_holds_it(metrics: Metrics, registry: CollectorRegistry) -> None:
    for lateness_ms in (0, 10, 11, 60_000, 60_001):
        metrics.dispatched("t", [entry(TEN + MINUTE_MS)], TEN + MINUTE_MS + lateness_ms)

    def count(bound: str) -> float | None:
        name = "tocsin_dispatch_lateness_seconds_bucket"
        return registry.get_sample_value(name, {"herd": OTHER, "le": bound})

    assert (count("0.01"), count("0.025"), count("60.0"), count("+Inf")) == (2, 3, 4, 5)
    assert registry.get_sample_value("tocsin_dispatch_lateness_seconds_sum", {"herd": OTHER}) == 120.022
    assert tuple(sorted(LATENESS_BUCKETS_MS)) == LATENESS_BUCKETS_MS


def test_the_first_minute_of_an_hour_is_the_herd(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.dispatched("t", [entry(TEN), entry(TEN + MINUTE_MS - 1), entry(TEN + HOUR_MS)], TEN + HOUR_MS)
    metrics.dispatched("t", [entry(TEN + MINUTE_MS), entry(TEN - 1)], TEN + HOUR_MS)

    def count(herd: str) -> float | None:
        return registry.get_sample_value("tocsin_dispatch_lateness_seconds_count", {"herd": herd})

    assert (count(TOP_OF_HOUR), count(OTHER)) == (3, 2)


def test_topics_beyond_fifty_share_one_label(metrics: Metrics, registry: CollectorRegistry) -> None:
    for number in range(TOPICS_MAX + 5):
        metrics.dispatched(f"t{number}", [entry(TEN)], TEN)
    metrics.dispatched("t0", [entry(TEN, Kind.TIMER)], TEN)
    metrics.parked("t99", [entry(TEN + number) for number in range(7)])

    def count(topic: str, kind: str = "arm") -> float | None:
        return registry.get_sample_value("tocsin_dispatched_total", {"topic": topic, "kind": kind})

    assert (count("t0"), count("t0", "timer"), count("t49"), count("t50"), count(OTHER)) == (1, 1, 1, None, 5)
    assert registry.get_sample_value("tocsin_parked_total", {"topic": OTHER}) == 7
    assert metrics.dispatched_count == TOPICS_MAX + 6


def test_what_is_skipped_verified_buried_and_troubled_is_counted_by_reason(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics.skipped("expired", 3)
    metrics.verified("counts")
    metrics.dead_lettered("too_large", "a@…")
    metrics.troubled("heartbeat_failed", OSError())

    value = registry.get_sample_value
    assert value("tocsin_skipped_total", {"reason": "expired"}) == 3
    assert value("tocsin_verify_total", {"result": "counts"}) == 1
    assert value("tocsin_dead_letters_total", {"reason": "too_large"}) == 1
    assert value("tocsin_troubles_total", {"action": "heartbeat_failed"}) == 1


def test_what_may_come_stands_at_zero_before_it_does(registry: CollectorRegistry) -> None:
    """Else the first dead letter of all would be no increase, and no alert."""
    value = registry.get_sample_value
    for outcome in Outcome:
        expected = 0 if outcome.permanent else None
        assert value("tocsin_dead_letters_total", {"reason": outcome.value}) == expected
    assert value("tocsin_dead_letters_total", {"reason": "undecodable"}) == 0
    assert value("tocsin_skipped_total", {"reason": "missed"}) == 0
    assert value("tocsin_demoted_total", {"level": "near"}) == 0
    assert value("tocsin_verify_total", {"result": "dropped"}) == 0


def test_a_range_taken_again_is_not_lost_by_news_of_its_former_epoch(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics.owns(3, 1)
    metrics.owns(3, 2)
    metrics.lost(3, 1, "taken by another")

    assert metrics.owned_count == 1
    assert registry.get_sample_value("tocsin_leases_lost_total") == 1


def progress(shard_range: int, owner: str | None, lag_ms: int = 100, *, present: bool = True) -> RangeProgress:
    return RangeProgress(
        shard_range=shard_range, owner=owner, owner_present=present, epoch=1, committed=0, lag_ms=lag_ms
    )


def test_every_range_shows_its_lag_and_the_unowned_are_counted(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.owns(0, 1)
    looked = [progress(0, "me"), progress(1, None, 5_000), progress(2, "dead", 9_000, present=False), progress(3, "b")]
    metrics.saw(looked, now=TEN, retention_ms=60_000, skew_ms=-20)

    value = registry.get_sample_value
    assert [value("tocsin_dispatch_lag_seconds", {"shard_range": str(number)}) for number in range(3)] == [0.1, 5, 9]
    states = ("owned", "other", "free", "abandoned")
    assert [value("tocsin_leases", {"state": state}) for state in states] == [1, 1, 1, 1]
    assert value("tocsin_unowned_shard_ranges") == 2
    assert value("tocsin_retention_headroom_seconds") == 51
    assert value("tocsin_clock_skew_seconds") == -0.02


def test_lag_rises_for_a_range_that_nobody_owns(metrics: Metrics, registry: CollectorRegistry) -> None:
    def lag() -> float:
        return registry.get_sample_value("tocsin_dispatch_lag_seconds", {"shard_range": "1"}) or 0

    seen = []
    for seconds in (1, 2, 10):
        metrics.saw([progress(0, "a"), progress(1, None, 1_000 * seconds)], now=TEN, retention_ms=60_000, skew_ms=0)
        seen.append(lag())
    assert seen == [1, 2, 10]


def test_what_is_parked_counts_until_it_is_out_or_given_up(metrics: Metrics, registry: CollectorRegistry) -> None:
    def parked() -> tuple[float | None, float | None]:
        value = registry.get_sample_value
        return value("tocsin_parked_now", {"topic": "t"}), value("tocsin_failing_schedules")

    others = [Entry(name, TEN, TEN, 1) for name in ("a", "b", "c")]
    metrics.parked("t", others)
    metrics.parked("t", others)
    assert parked() == (3, 3)
    metrics.dispatched("t", others[:1], TEN)
    metrics.dead_lettered("too_large", others[1].key)
    assert parked() == (1, 2)
    metrics.dead_lettered("undecodable", "near/1/2/00ff")
    metrics.dispatched("t", others, TEN)
    assert parked() == (None, 0)


def test_what_another_process_may_have_dispatched_is_not_parked_for_ever(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    looked = [progress(0, "a")]
    metrics.saw(looked, now=TEN, retention_ms=1, skew_ms=0)
    metrics.parked("t", [entry(TEN)])
    metrics.saw(looked, now=TEN + FORGOTTEN_AFTER_MS, retention_ms=1, skew_ms=0)
    assert registry.get_sample_value("tocsin_failing_schedules") == 1
    metrics.saw(looked, now=TEN + FORGOTTEN_AFTER_MS + 1, retention_ms=1, skew_ms=0)
    assert registry.get_sample_value("tocsin_failing_schedules") == 0


def test_a_herd_drains_until_its_last_occurrence_is_out(metrics: Metrics, registry: CollectorRegistry) -> None:
    metrics.saw([progress(0, "a")], now=TEN, retention_ms=1, skew_ms=0)
    assert registry.get_sample_value("tocsin_herd_drain_seconds") is None
    metrics.dispatched("t", [entry(TEN)], TEN + 200)
    metrics.dispatched("t", [entry(TEN + 40_000)], TEN + 40_100)
    metrics.dispatched("t", [entry(TEN)], TEN + 1_700)
    metrics.dispatched("t", [entry(TEN - HOUR_MS)], TEN + 50_000)
    assert registry.get_sample_value("tocsin_herd_drain_seconds") == 1.7


def test_the_herd_is_forecast_for_the_ranges_that_are_owned(metrics: Metrics, registry: CollectorRegistry) -> None:
    now = TEN - 5 * MINUTE_MS
    metrics.dispatched("t", [entry(now - MINUTE_MS)] * 10, now)
    metrics.dispatched("t", [entry(now - 2 * MINUTE_MS)] * 30, now)
    for shard_range in range(3):
        metrics.forecast.saw(shard_range, {TEN: 100.0, now + MINUTE_MS: 7.0}, {TEN: 110.0})
    metrics.forecast.keep_only([0, 1])
    metrics.saw([progress(0, "a")], now=now, retention_ms=1, skew_ms=0)

    value = registry.get_sample_value
    assert value("tocsin_herd_forecast_occurrences") == 220
    assert value("tocsin_herd_ratio") == 11
    assert [value("tocsin_bucket_occurrences", {"minutes_ahead": ahead}) for ahead in ("1", "2", "5")] == [14, 0, 200]
    assert value("tocsin_bucket_occurrences", {"minutes_ahead": "61"}) is None


def test_ranges_that_were_looked_at_stand_for_those_that_were_not_yet(metrics: Metrics) -> None:
    metrics.forecast.keep_only(range(4))
    metrics.forecast.saw(0, {TEN: 30.0}, {TEN: 50.0})
    assert metrics.forecast.herd(TEN - MINUTE_MS) == 200
    assert metrics.forecast.waiting(TEN - MINUTE_MS)[0] == 120


def test_every_metric_says_what_it_is_and_in_which_unit(metrics: Metrics) -> None:
    exercise(metrics)
    families = list(metrics.collect())
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.name.startswith("tocsin_")
        assert len(family.documentation.split()) >= 4, family.name
        assert (family.unit == "seconds") == family.name.endswith("_seconds"), family.name


def test_a_hundred_thousand_schedules_and_a_thousand_topics_are_a_bounded_number_of_series(metrics: Metrics) -> None:
    exercise(metrics)
    before = series(metrics)
    for number in range(1_000):
        metrics.dispatched(f"t{number}", [Entry(f"s{number}-{each}", TEN, TEN, 1) for each in range(100)], TEN)
        metrics.parked(f"t{number}", [Entry(f"p{number}", TEN, TEN, 1)])
    assert series(metrics) <= before + 3 * (TOPICS_MAX + 1)


def exercise(metrics: Metrics) -> None:
    """Let every metric have a value."""
    metrics.saw([progress(0, "a")], now=TEN, retention_ms=1, skew_ms=0)
    metrics.dispatched("t", [entry(TEN)], TEN + 5)
    metrics.skipped("expired", 1)
    metrics.verified("counts")
    metrics.parked("t", [entry(TEN + 1)])
    metrics.demoted("minute", 1)
    metrics.dead_lettered("too_large", "a@b")
    metrics.troubled("heartbeat_failed", OSError())
    metrics.dispatched("t", [entry(TEN - 2 * MINUTE_MS)], TEN)
    metrics.forecast.saw(0, {}, {TEN + HOUR_MS: 1.0})
    metrics.saw([progress(0, "a")], now=TEN, retention_ms=1, skew_ms=0)


def series(metrics: Metrics) -> int:
    return sum(len(family.samples) for family in metrics.collect())


def test_before_the_first_look_nothing_is_claimed_of_the_fleet(registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("tocsin_unowned_shard_ranges") is None
    assert b"tocsin_dispatch_lateness_seconds" in generate_latest(registry)
