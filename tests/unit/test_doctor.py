"""Doctor says no where it should: each check meets facts that are well and facts that are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest
from command_line import tocsin

from tocsin.deploy.doctor import pinned
from tocsin.deploy.doctor_cassandra import check_cluster
from tocsin.deploy.doctor_kafka import check_kafka
from tocsin.deploy.doctor_store import (
    ClockReading,
    StoreFacts,
    check_clocks,
    check_dispatching,
    check_timing,
    check_zone_data,
)
from tocsin.deploy.findings import Finding, span_text
from tocsin.dispatcher.kafka_inspection import KafkaFacts, TopicFacts
from tocsin.dispatcher.progress import RangeProgress
from tocsin.schema.cassandra_access import Consistency
from tocsin.schema.cassandra_inspection import ClusterFacts, NodeFacts, options_of, replicas_of
from tocsin.schema.cassandra_tables import TABLES, migrations
from tocsin.schema.instants import DAY_MS, HOUR_MS
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.store import Heartbeat
from tocsin.schema.timing import Timing

TIMING = Timing()
NOW = 1_796_000_000_000
AS_MADE = options_of(text for step in migrations(Lifetimes(TIMING)) for text in step.expand)


def progress(*, lag_ms: int = 300, owner: str | None = "d1") -> RangeProgress:
    return RangeProgress(
        shard_range=3, owner=owner, owner_present=owner is not None, epoch=7, committed=NOW - lag_ms, lag_ms=lag_ms
    )


STORE = StoreFacts(
    readings=[ClockReading(NOW, NOW - 5, NOW + 5)] * 3,
    progress=[progress()],
    heartbeats=[Heartbeat(dispatcher_id="d1", number=9, address="", release="1.0")],
    zone_data="2026.6",
    zone_data_wanted="2026.6",
    release="1.0",
)
CLUSTER = ClusterFacts(
    replicas={"dc1": 3},
    nodes_known={"dc1": 3},
    nodes=tuple(NodeFacts(f"10.0.0.{number}", "group", "v2") for number in range(3)),
    tables=AS_MADE,
    tables_wanted=AS_MADE,
    consistency=Consistency.CLUSTER,
    datacenter=None,
)
KAFKA = KafkaFacts(3, (TopicFacts("mail", 8, 3, 2, 7 * DAY_MS, 1_048_588),))


def wrong(findings: Iterable[Finding]) -> list[str]:
    return [finding.check for finding in findings if not finding.well]


def every_store_check(facts: StoreFacts) -> list[str]:
    return wrong([*check_clocks(facts, TIMING), check_zone_data(facts), *check_dispatching(facts, TIMING)])


def test_what_is_well_is_well() -> None:
    assert every_store_check(STORE) == []
    assert wrong(check_cluster(CLUSTER)) == []
    assert wrong(check_kafka(KAFKA, 1_000_000)) == []
    assert check_timing(TIMING).well


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"readings": [ClockReading(NOW + 1_500, NOW - 5, NOW + 5)]}, "clock of this host"),
        ({"readings": [ClockReading(NOW + ahead, NOW, NOW) for ahead in (-600, 600)]}, "clocks of 2 coordinators"),
        ({"zone_data": "2025.2"}, "zone data"),
        ({"progress": [progress(owner=None)]}, "shard ranges with an owner"),
        ({"progress": [progress(lag_ms=90_000)]}, "lag"),
        ({"heartbeats": [Heartbeat(dispatcher_id="d2", number=1, address="", release="0.9")]}, "releases at work"),
    ],
)
def test_each_check_of_a_store_can_fail_alone(changes: dict[str, object], check: str) -> None:
    assert every_store_check(STORE._replace(**changes)) == [check]


def test_headroom_is_gone_before_anything_is_lost() -> None:
    assert every_store_check(STORE._replace(progress=[progress(lag_ms=4 * DAY_MS)])) == ["lag", "headroom"]


def test_a_lease_that_outlasts_one_slow_heartbeat_only_is_not_well() -> None:
    tight = msgspec.structs.replace(TIMING, lease_ttl_ms=3_500, lease_margin_ms=1_500)
    assert not check_timing(tight).well


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"replicas": {"dc1": 1}}, "replication"),
        ({"replicas": {}}, "replication"),
        ({"nodes": CLUSTER.nodes[:2]}, "nodes that answer"),
        ({"nodes": (*CLUSTER.nodes[:2], NodeFacts("10.0.0.2", "periodic", "v2"))}, "commitlog_sync"),
        ({"nodes": (*CLUSTER.nodes[:2], NodeFacts("10.0.0.2", "batch", "v1"))}, "paxos_variant"),
        ({"nodes_known": {"dc1": 2, "dc2": 1}, "replicas": {"dc1": 3, "dc2": 3}}, "consistency"),
        ({"tables": {**AS_MADE, "near": AS_MADE["near"]._replace(grace_seconds=864_000)}}, "gc_grace_seconds"),
        (
            {"tables": {**AS_MADE, "near": AS_MADE["near"]._replace(compaction="LeveledCompactionStrategy")}},
            "compaction",
        ),
        ({"tables": {**AS_MADE, "changes": AS_MADE["changes"]._replace(read_repair="BLOCKING")}}, "read_repair"),
        ({"tables": {**AS_MADE, "far": AS_MADE["far"]._replace(time_to_live_seconds=60)}}, "default_time_to_live"),
    ],
)
def test_each_check_of_a_cluster_can_fail_alone(changes: dict[str, object], check: str) -> None:
    assert wrong(check_cluster(CLUSTER._replace(**changes))) == [check]


def test_one_data_centre_of_several_counts_where_its_majority_does() -> None:
    local = CLUSTER._replace(
        nodes_known={"dc1": 3, "dc2": 0},
        replicas={"dc1": 3, "dc2": 1},
        consistency=Consistency.LOCAL,
        datacenter="dc1",
    )
    assert wrong(check_cluster(local)) == []
    assert wrong(check_cluster(local._replace(datacenter="dc9"))) == ["replication", "consistency"]


def test_copies_are_counted_by_data_centre() -> None:
    network = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3", "dc2": "2"}
    simple = {"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "3"}
    assert replicas_of(network, {"dc1": 3, "dc2": 3}) == {"dc1": 3, "dc2": 2}
    assert replicas_of(simple, {"dc1": 3}) == {"dc1": 3}
    assert replicas_of(simple, {"dc1": 3, "dc2": 3}) == {}


def test_what_tables_should_be_is_read_from_their_migrations() -> None:
    assert AS_MADE.keys() | {"settings"} == TABLES
    assert AS_MADE["near"]._replace(time_to_live_seconds=0) == ("TimeWindowCompactionStrategy", 0, 10_800, "NONE")
    assert AS_MADE["leases"] == ("UnifiedCompactionStrategy", 0, 864_000, "BLOCKING")


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda topic: topic._replace(insync_min=1), "topic mail: replicas"),
        (lambda topic: topic._replace(replica_count=2), "topic mail: replicas"),
        (lambda topic: topic._replace(partition_count=2), "topic mail: partitions"),
        (lambda topic: topic._replace(retention_ms=HOUR_MS), "topic mail: retention"),
        (lambda topic: topic._replace(record_bytes_max=100_000), "topic mail: largest record"),
        (lambda topic: TopicFacts(topic.name), "topic mail"),
    ],
)
def test_each_check_of_a_topic_can_fail_alone(change: Callable[[TopicFacts], TopicFacts], check: str) -> None:
    assert wrong(check_kafka(KafkaFacts(3, (change(KAFKA.topics[0]),)), 1_000_000)) == [check]


def test_records_kept_for_ever_are_kept_long_enough() -> None:
    assert wrong(check_kafka(KafkaFacts(3, (KAFKA.topics[0]._replace(retention_ms=-1),)), 1_000_000)) == []


def test_a_store_without_a_dispatcher_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tocsin("init")

    told = tocsin("doctor")
    listed = tocsin("doctor", "-o", "json")

    assert (told.code, listed.code) == (1, 1)
    assert "tocsin dispatch" in told.out
    assert [each["check"] for each in listed.objects() if not each["well"]] == ["shard ranges with an owner"]
    assert len(listed.objects()) >= 8


def test_a_store_that_is_not_there_is_an_error_and_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tocsin("doctor").code == 1
    assert not list(tmp_path.iterdir())


def test_what_is_pinned_is_read_from_the_package() -> None:
    assert pinned("tzdata").count(".") == 1


def test_durations_are_shown_in_their_two_largest_units() -> None:
    assert span_text(6 * DAY_MS + 23 * HOUR_MS + 5) == "6 d 23 h"
    assert span_text(1_360) == "1 s 360 ms"
    assert span_text(0) == "0 s"
