"""What a Cassandra cluster says about itself: what `tocsin doctor` compares with what the protocol assumes.

Each node is asked for its own settings (`system_views.settings` is a node's word about itself, never the cluster's);
replication and tables are the cluster's and asked once. Nothing here is on the way of an occurrence, so its statements
stand here and no store prepares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tocsin.schema.cassandra_access import Access, Consistency
from tocsin.schema.cassandra_driver import CassandraSession
from tocsin.schema.cassandra_statements import Guarantee, Statement
from tocsin.schema.cassandra_tables import migrations
from tocsin.schema.errors import NotInitialised
from tocsin.schema.lifetimes import Lifetimes

#: Nodes asked at most: each has hundreds of settings.
NODES_MAX = 1_000

NODE_SETTINGS = Statement(
    "SELECT name, value FROM system_views.settings", Guarantee.ONE_NODE, idempotent=True, writes=False
)
REPLICATION = Statement(
    "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?",
    Guarantee.ONE_NODE,
    idempotent=True,
    writes=False,
)
TABLES = Statement(
    "SELECT table_name, compaction, default_time_to_live, gc_grace_seconds, read_repair "
    "FROM system_schema.tables WHERE keyspace_name = ?",
    Guarantee.ONE_NODE,
    idempotent=True,
    writes=False,
)


class NodeFacts(NamedTuple):
    """What one node says of itself."""

    address: str
    commitlog_sync: str
    paxos_variant: str


class TableOptions(NamedTuple):
    """How a table is kept: what it should be, or what it is."""

    compaction: str
    time_to_live_seconds: int
    grace_seconds: int
    read_repair: str


class ClusterFacts(NamedTuple):
    """A cluster, and our keyspace in it."""

    #: Copies of each row, by data centre.
    replicas: Mapping[str, int]
    #: How many nodes each data centre has.
    nodes_known: Mapping[str, int]
    #: Those that answered.
    nodes: tuple[NodeFacts, ...]
    tables: Mapping[str, TableOptions]
    tables_wanted: Mapping[str, TableOptions]
    #: Whose majority counts, and where.
    consistency: Consistency
    datacenter: str | None


async def inspect_cluster(access: Access, lifetimes: Lifetimes) -> ClusterFacts:
    """Ask every node that answers.

    Raises:
        NotInitialised: there is no such keyspace.
        StoreUnavailable, StoreTimeout, SettingsError: as connecting does.
    """
    session = CassandraSession(access)
    try:
        await session.connect()
        await session.prepare((NODE_SETTINGS, REPLICATION, TABLES))
        replication = (await session.run(REPLICATION, (access.keyspace,))).rows
        if not replication:
            raise NotInitialised(access.url)
        nodes_known = session.nodes()
        tables = (await session.run(TABLES, (access.keyspace,))).rows
        settings = await session.run_on_each(NODE_SETTINGS, NODES_MAX)
        return ClusterFacts(
            replicas=replicas_of(replication[0][0], nodes_known),
            nodes_known=nodes_known,
            nodes=tuple(_node(dict(answer.rows)) for answer in settings),
            tables={name: _options(*rest) for name, *rest in tables},
            tables_wanted=options_of(text for step in migrations(lifetimes) for text in step.expand),
            consistency=access.consistency,
            datacenter=access.datacenter,
        )
    finally:
        await session.close()


def replicas_of(replication: Mapping[str, str], nodes_known: Mapping[str, int]) -> dict[str, int]:
    """Copies by data centre, as the keyspace's strategy defines them; empty for a strategy that knows no data centres.

    SimpleStrategy places copies round the ring, data centres or not: with one it comes to the same, with several
    a data centre's majority means nothing.
    """
    strategy = replication["class"].rpartition(".")[2]
    if strategy == "SimpleStrategy" and len(nodes_known) == 1:
        return {next(iter(nodes_known)): int(replication["replication_factor"])}
    if strategy != "NetworkTopologyStrategy":
        return {}
    return {name: int(count) for name, count in replication.items() if name != "class"}


def options_of(statements: Iterable[str]) -> dict[str, TableOptions]:
    """How the tables that these statements make are kept; Cassandra's defaults where they say nothing."""
    return {
        made[1]: TableOptions(
            compaction=_found(text, r"'class': '(\w+)'", "SizeTieredCompactionStrategy"),
            time_to_live_seconds=int(_found(text, r"default_time_to_live = (\d+)", "0")),
            grace_seconds=int(_found(text, r"gc_grace_seconds = (\d+)", "864000")),
            read_repair=_found(text, r"read_repair = '(\w+)'", "BLOCKING"),
        )
        for text in statements
        if (made := re.search(r"CREATE TABLE IF NOT EXISTS (\w+)", text))
    }


def _found(text: str, pattern: str, default: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else default


def _node(settings: Mapping[str, str]) -> NodeFacts:
    address = settings.get("broadcast_rpc_address") or settings.get("rpc_address") or "?"
    return NodeFacts(
        address.rpartition("/")[2],
        (settings.get("commitlog_sync") or "?").lower(),
        (settings.get("paxos_variant") or "?").lower(),
    )


def _options(compaction: Mapping[str, str], time_to_live: int, grace: int, read_repair: Any) -> TableOptions:
    return TableOptions(compaction["class"].rpartition(".")[2], time_to_live, grace, str(read_repair).upper())
