"""What doctor asks of a Cassandra store: majorities that intersect, acknowledged writes that stay, rows that leave."""

from __future__ import annotations

from collections.abc import Iterator

from tocsin.deploy.findings import Finding
from tocsin.schema.cassandra_access import Consistency
from tocsin.schema.cassandra_inspection import ClusterFacts, NodeFacts, TableOptions

#: Fewer copies, and one node away is one node too many.
REPLICAS_MIN = 3
#: An acknowledged write is on disk.
SYNCED = ("batch", "group")
PAXOS = "v2"


def check_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """Every assumption about Cassandra that ARCHITECTURE.md names."""
    yield _replicas(facts)
    yield _consistency(facts)
    down = sum(facts.nodes_known.values()) - len(facts.nodes)
    yield Finding(
        "nodes that answer",
        f"{len(facts.nodes)} of {sum(facts.nodes_known.values())}",
        "all",
        down <= 0,
        "each that is away uses up what a majority can spare",
        "nodetool status on any node; docs/runbooks/node-replaced.md",
    )
    yield _of_nodes(
        facts,
        "commitlog_sync",
        wanted=" or ".join(SYNCED),
        others=[node for node in facts.nodes if node.commitlog_sync not in SYNCED],
        why="with periodic, power lost on a majority at once loses what was acknowledged in the last seconds",
        fix="commitlog_sync: group in cassandra.yaml, then a rolling restart",
    )
    yield _of_nodes(
        facts,
        "paxos_variant",
        wanted=PAXOS,
        others=[node for node in facts.nodes if node.paxos_variant != PAXOS],
        why="v1 needs twice the round trips for each change, and is not linearisable across topology changes",
        fix="paxos_variant: v2 in cassandra.yaml of every node, then a rolling restart",
    )
    yield from _tables(facts)


def _replicas(facts: ClusterFacts) -> Finding:
    counted = [facts.datacenter] if facts.consistency is Consistency.LOCAL and facts.datacenter else facts.replicas
    copies = {name: facts.replicas.get(name, 0) for name in counted}
    return Finding(
        "replication",
        ", ".join(f"{name}: {count}" for name, count in sorted(copies.items())) or "no data centre named",
        f"{REPLICAS_MIN} or more in each data centre",
        bool(copies) and min(copies.values()) >= REPLICAS_MIN,
        "two majorities must share a replica, and one node must be able to fail",
        "ALTER KEYSPACE … WITH replication = {'class': 'NetworkTopologyStrategy', …: 3}, then nodetool repair --full",
    )


def _consistency(facts: ClusterFacts) -> Finding:
    local = facts.consistency is Consistency.LOCAL
    if local:
        found = f"LOCAL_QUORUM and LOCAL_SERIAL in {facts.datacenter}"
        well = facts.datacenter in facts.nodes_known
    else:
        found = "QUORUM and SERIAL"
        well = len(facts.nodes_known) == 1
    return Finding(
        "consistency",
        found,
        "of the one data centre that dispatches",
        well,
        "with several data centres, QUORUM waits for the far one; a majority of an unknown one is nobody's",
        "TOCSIN_CASSANDRA_CONSISTENCY=local and TOCSIN_CASSANDRA_DATACENTER, the same for every process",
    )


def _of_nodes(
    facts: ClusterFacts, setting: str, *, wanted: str, others: list[NodeFacts], why: str, fix: str
) -> Finding:
    values = sorted({getattr(node, setting) for node in facts.nodes})
    where = f" ({', '.join(sorted(node.address for node in others))})" if others and len(values) > 1 else ""
    return Finding(setting, ", ".join(values) + where, wanted, not others, why, fix)


def _tables(facts: ClusterFacts) -> Iterator[Finding]:
    options = (
        ("compaction", "compaction", "rows that expire together must lie together, or their files never go"),
        (
            "time_to_live_seconds",
            "default_time_to_live",
            "rows leave by it; this process' timing asks for another",
        ),
        ("grace_seconds", "gc_grace_seconds", "longer, expired rows keep their space; shorter, hints come too late"),
        ("read_repair", "read_repair", "BLOCKING writes old rows into new windows, and their files never go"),
    )
    for field, name, why in options:
        off = sorted(
            table
            for table, wanted in facts.tables_wanted.items()
            if table not in facts.tables or getattr(facts.tables[table], field) != getattr(wanted, field)
        )
        yield Finding(
            name,
            "; ".join(f"{table}: {_value(facts.tables.get(table), field)}" for table in off)
            or f"as made, {len(facts.tables_wanted)} tables",
            "; ".join(f"{table}: {getattr(facts.tables_wanted[table], field)}" for table in off)
            or "as the migrations make them",
            not off,
            why,
            f"ALTER TABLE … WITH {name} = …; where timing differs, give every process of the store the same",
        )


def _value(options: TableOptions | None, field: str) -> str:
    return "no such table" if options is None else str(getattr(options, field))
