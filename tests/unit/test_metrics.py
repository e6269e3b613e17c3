"""What a dispatcher exports is bounded, named as documented, and adds up."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tocsin.dispatcher.metrics import LATENESS_BUCKETS_MS, OTHER, TOP_OF_HOUR, TOPICS_MAX, Metrics
from tocsin.dispatcher.progress import RangeProgress
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
    metrics.parked("t99", 7)

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


def test_a_range_taken_again_is_not_lost_by_news_of_its_former_epoch(
    metrics: Metrics, registry: CollectorRegistry
) -> None:
    metrics.owns(3, 1)
    metrics.owns(3, 2)
    metrics.lost(3, 1, "taken by another")

    assert metrics.owned_count == 1
    assert registry.get_sample_value("tocsin_leases", {"state": "owned"}) == 1


def test_every_range_shows_its_lag_and_the_unowned_are_counted(metrics: Metrics, registry: CollectorRegistry) -> None:
    def progress(shard_range: int, owner: str | None, lag_ms: int, *, present: bool = True) -> RangeProgress:
        return RangeProgress(
            shard_range=shard_range, owner=owner, owner_present=present, epoch=1, committed=0, lag_ms=lag_ms
        )

    looked = [progress(0, "a", 100), progress(1, None, 5_000), progress(2, "dead", 9_000, present=False)]
    metrics.saw(looked, retention_ms=60_000, skew_ms=-20)

    value = registry.get_sample_value
    assert [value("tocsin_dispatch_lag_seconds", {"shard_range": str(number)}) for number in range(3)] == [0.1, 5, 9]
    assert value("tocsin_unowned_shard_ranges") == 2
    assert value("tocsin_retention_headroom_seconds") == 51
    assert value("tocsin_clock_skew_seconds") == -0.02


def test_before_the_first_look_nothing_is_claimed_of_the_fleet(registry: CollectorRegistry) -> None:
    assert registry.get_sample_value("tocsin_unowned_shard_ranges") is None
    assert b"tocsin_dispatch_lateness_seconds" in generate_latest(registry)
