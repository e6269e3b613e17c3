"""Doctor on real services: what Cassandra and Kafka say of themselves is understood, and a wrong setting is met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import tocsin

from tests.conftest import MakeTopic
from tocsin.deploy.stack import LocalStack

pytestmark = [pytest.mark.cassandra, pytest.mark.kafka]


def test_a_cluster_and_a_topic_are_examined(
    cassandra_stack: LocalStack,
    cassandra_session: Any,
    keyspace: str,
    topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    url, name = cassandra_stack.store_url(keyspace), topic(partitions=4)
    assert tocsin("init", url, "--shard-ranges", "4", "--sub-partitions", "16").code == 0
    arguments = ("doctor", "--store", url, "--sink", cassandra_stack.sink_url, "--topic", name, "-o", "json")

    found = {each["check"]: each for each in tocsin(*arguments).objects()}
    cassandra_session.execute(f"ALTER TABLE {keyspace}.near WITH gc_grace_seconds = 864000")
    after = {each["check"]: each for each in tocsin(*arguments).objects()}

    # One broker cannot hold two replicas, and nobody dispatches: these two are wrong here, and only these.
    assert {check for check, each in found.items() if not each["well"]} == {
        "shard ranges with an owner",
        f"topic {name}: replicas",
    }
    assert {"replication", "commitlog_sync", "paxos_variant", "read_repair", "clocks of 3 coordinators"} <= found.keys()
    assert found["paxos_variant"]["found"] == "v2"
    assert found["commitlog_sync"]["found"] == "batch"
    assert found[f"topic {name}: partitions"]["found"] == "4"
    assert {check for check, each in after.items() if each["well"] != found[check]["well"]} == {"gc_grace_seconds"}
    assert after["gc_grace_seconds"]["found"] == "near: 864000"
