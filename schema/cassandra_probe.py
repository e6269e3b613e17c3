"""Ask Cassandra nodes, one by one, whether they work together: what a started cluster waits for.

An open port proves little. A node counts once it answers a query, knows the others, has the same tables as they, and
reaches all of them: it reads a table that Cassandra itself keeps in three copies (`system_distributed`), at a
consistency level that needs every node.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

#: The level at which a read needs that many of the three copies.
LEVEL_FOR_NODES = {1: "ONE", 2: "TWO", 3: "THREE"}

SELECT_LOCAL = "SELECT schema_version FROM system.local"
SELECT_PEERS = "SELECT rpc_address, schema_version FROM system.peers"
SELECT_REPLICATED = "SELECT keyspace_name FROM system_distributed.view_build_status"


MAKE_USER = "CREATE ROLE IF NOT EXISTS {} WITH LOGIN = true AND SUPERUSER = true AND PASSWORD = %s"
END_USER = "ALTER ROLE {} WITH LOGIN = false AND SUPERUSER = false"


def why_not_ready(
    address: str,
    port: int,
    others: Sequence[str],
    *,
    tls: ssl.SSLContext | None = None,
    credentials: tuple[str, str] | None = None,
) -> str | None:
    """Return what the node still lacks to work with the others; None where nothing. Takes up to three nodes in all."""
    return _asked(address, port, partial(_lack, others=others), tls=tls, credentials=credentials)


def why_not_user(
    address: str, port: int, tls: ssl.SSLContext, *, begin: tuple[str, str], wanted: tuple[str, str]
) -> str | None:
    """Make the wanted user, as the one that Cassandra begins with, and end that one; return why not, None: it is made.

    Both are a name and a password.
    """
    user, password = wanted

    def make(session: Any) -> None:
        session.execute(MAKE_USER.format(user), (password,))

    def end(session: Any) -> None:
        session.execute(END_USER.format(begin[0]))

    lack = _asked(address, port, make, tls=tls, credentials=begin)
    # Where the first step is done already, by a start that was interrupted, the second one tells.
    ended = _asked(address, port, end, tls=tls, credentials=wanted)
    return None if ended is None else lack or ended


def _asked(
    address: str,
    port: int,
    ask: Callable[[Any], str | None],
    *,
    tls: ssl.SSLContext | None,
    credentials: tuple[str, str] | None,
) -> str | None:
    """What is told on a session with this node alone, or why there is none."""
    from cassandra import DriverException
    from cassandra.auth import PlainTextAuthProvider
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
    from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy

    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy([address]), retry_policy=FallthroughRetryPolicy()
    )
    cluster = Cluster(
        [address],
        port=port,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=2,
        ssl_context=tls,
        auth_provider=PlainTextAuthProvider(*credentials) if credentials else None,
    )
    try:
        return ask(cluster.connect())
    except (DriverException, NoHostAvailable, OSError) as error:
        return f"{address} does not answer: {error}"
    finally:
        cluster.shutdown()


def _lack(session: Any, others: Sequence[str]) -> str | None:
    from cassandra import ConsistencyLevel
    from cassandra.query import SimpleStatement

    version = session.execute(SELECT_LOCAL).one().schema_version
    known = {str(peer.rpc_address): peer.schema_version for peer in session.execute(SELECT_PEERS)}
    for other in others:
        if known.get(other) != version:
            return f"{other} is not known yet" if other not in known else f"{other} has other tables yet"
    level = ConsistencyLevel.name_to_value[LEVEL_FOR_NODES[1 + len(others)]]
    session.execute(SimpleStatement(SELECT_REPLICATED, consistency_level=level))
    return None
