"""The one typed module around the untyped Cassandra driver: connecting, running a statement, telling its errors apart.

**Threads.** The driver answers on threads of its own. Waking the event loop once for each answer costs more than the
answer, so answers collect in a queue and the loop is woken once for all that arrived since it last looked.

**Retries.** The driver retries nothing. Whoever called knows what a repeat means: the protocol writes the same thing
again, or settles the outcome by its token.

**Errors.** What matters after a write is whether it may hold. Only two kinds of failure say that it does not:
NoHostAvailable whose reasons all lie before the sending, and Unavailable of a write that is not conditional (the
coordinator counts replicas before it sends; a conditional write may find too few only when it commits). Those are
StoreUnavailable. Everything else after a write is StoreTimeout: timeouts of coordinator or client, a lost connection,
a replica's failure, an error of the server's own.

**Forks.** A driver's threads and sockets do not survive a fork; the child's first statement says so.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ProtocolVersion,
    Timeout,
    Unauthorized,
    Unavailable,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResultSet,
)
from cassandra.connection import (
    ConnectionBusy,
    ConnectionException,
    DefaultEndPoint,
    ProtocolError,
    ProtocolVersionUnsupported,
)
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.pool import NoConnectionsAvailable
from cassandra.query import BatchStatement, BatchType, SimpleStatement, tuple_factory

from tocsin.schema.cassandra_access import Access, Consistency
from tocsin.schema.cassandra_answers import Answers
from tocsin.schema.cassandra_statements import Guarantee, Statement
from tocsin.schema.errors import SettingsError, StoreTimeout, StoreUnavailable, TocsinError

#: A node that does not take a connection within this is not there.
CONNECT_SECONDS = 2.0
#: All of connecting, several hosts that swallow packets included.
OPEN_SECONDS = 5.0
#: A coordinator answers within this; its own limits (2 s for writes, 5 s for reads) come first unless it is frozen.
REQUEST_SECONDS = 5.0
#: A connection without traffic is probed this often, and given up this much later: a frozen node is left within 5 s.
HEARTBEAT_SECONDS = 2.0
HEARTBEAT_TIMEOUT_SECONDS = 3.0
#: Nodes agree on a changed table within this.
AGREEMENT_SECONDS = 30.0
#: Statements under way at once; the protocol has 32,768 stream ids for each connection, and beyond them the driver
#: blocks the event loop.
IN_FLIGHT_MAX = 2_048

_UNDER = {
    Consistency.CLUSTER: (ConsistencyLevel.QUORUM, ConsistencyLevel.SERIAL),
    Consistency.LOCAL: (ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL),
}


class Rows(NamedTuple):
    """Rows of a page, and where the next one starts (None: there is none)."""

    rows: list[tuple[Any, ...]]
    paging_state: bytes | None


class Call(NamedTuple):
    """A statement, and what is bound to it."""

    statement: Statement
    values: Sequence[Any] = ()


class CassandraSession:
    """Connections to a cluster, for one process and one event loop."""

    def __init__(self, access: Access, *, request_seconds: float = REQUEST_SECONDS) -> None:
        self._access = access
        self._request_seconds = request_seconds
        self._cluster: Any = None
        self._session: Any = None
        self._prepared: dict[Statement, Any] = {}
        self._process = os.getpid()
        self._in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._answers: Answers[Rows] = Answers()

    # Connecting

    async def connect(self) -> None:
        """Connect to the cluster, to no keyspace yet.

        Raises:
            StoreUnavailable: nobody answers at these addresses.
            SettingsError: somebody does, and refuses us.
        """
        try:
            self._cluster, self._session = await asyncio.to_thread(_connect, self._access, self._request_seconds)
        except NoHostAvailable as error:
            raise _refused(self._access, error) from error

    async def close(self) -> None:
        """Give back every connection; safe to call twice."""
        cluster, self._cluster, self._session = self._cluster, None, None
        self._prepared.clear()
        if cluster is not None:
            await asyncio.to_thread(cluster.shutdown)

    def tables(self) -> frozenset[str] | None:
        """The tables of our keyspace as the cluster had them when we connected; None: there is no such keyspace."""
        keyspace = self._require().cluster.metadata.keyspaces.get(self._access.keyspace)
        return None if keyspace is None else frozenset(keyspace.tables)

    def nodes(self) -> Mapping[str, int]:
        """How many nodes each data centre has."""
        counted: dict[str, int] = {}
        for host in self._require().cluster.metadata.all_hosts():
            counted[host.datacenter] = counted.get(host.datacenter, 0) + 1
        return counted

    async def use_keyspace(self) -> None:
        """Mean our keyspace, which exists, from now on."""
        await self._blocking(lambda: self._session.set_keyspace(self._access.keyspace))

    async def prepare(self, statements: Iterable[Statement]) -> None:
        """Let the nodes parse these once; every statement is prepared before it is run."""
        for statement in statements:
            if statement not in self._prepared:
                self._prepared[statement] = await self._blocking(partial(self._prepare, statement))

    async def _blocking(self, work: Callable[[], Any]) -> Any:
        try:
            return await asyncio.to_thread(work)
        except (DriverException, NoHostAvailable, ConnectionException) as error:
            raise told(error, writes=False, conditional=False) from error

    def _prepare(self, statement: Statement) -> Any:
        quorum, serial = _UNDER[self._access.consistency]
        prepared = self._session.prepare(statement.text)
        prepared.consistency_level = {
            Guarantee.QUORUM: quorum,
            Guarantee.CONDITIONAL: quorum,
            Guarantee.SERIAL: serial,
            Guarantee.ONE_NODE: ConsistencyLevel.ONE,
        }[statement.guarantee]
        prepared.serial_consistency_level = serial
        prepared.is_idempotent = statement.idempotent
        return prepared

    # Running

    async def run(
        self,
        statement: Statement,
        values: Sequence[Any] = (),
        *,
        page_rows: int | None = None,
        paging_state: bytes | None = None,
    ) -> Rows:
        """Run a prepared statement.

        Its answer is one page of at most `page_rows` rows, the first or the one at `paging_state`; a page may be empty
        and yet have others behind it.
        """
        self._require()
        bound = self._prepared[statement].bind(values)
        if page_rows is not None:
            bound.fetch_size = page_rows
        return await self._run(statement, bound, paging_state=paging_state)

    async def run_together(self, calls: Sequence[Call]) -> None:
        """Run writes in one request; those of one partition are one mutation."""
        if len(calls) == 1:
            await self.run(*calls[0])
            return
        quorum, serial = _UNDER[self._access.consistency]
        self._require()
        batch = BatchStatement(BatchType.UNLOGGED, consistency_level=quorum, serial_consistency_level=serial)
        batch.is_idempotent = all(call.statement.idempotent for call in calls)
        for statement, values in calls:
            batch.add(self._prepared[statement].bind(values))
        await self._run(calls[0].statement, batch)

    async def run_on_each(self, statement: Statement, nodes_max: int) -> list[Rows]:
        """Run a prepared read on several nodes; the answers of those that answer.

        Raises:
            StoreUnavailable, StoreTimeout: none of them does.
        """
        nodes = self._up_nodes()[:nodes_max]
        bound = self._prepared[statement].bind(())
        found = await asyncio.gather(
            *(self._run(statement, bound, node=node) for node in nodes), return_exceptions=True
        )
        answers = [answer for answer in found if not isinstance(answer, BaseException)]
        if not answers:
            raise next((error for error in found if isinstance(error, BaseException)), StoreUnavailable())
        return answers

    async def define(self, *texts: str) -> None:
        """Run statements that change tables, in order, and wait until the nodes agree.

        Agreement takes a second, and is waited for once: all go to one node, which applies them one by one. It is the
        node whose word on agreement we take; another one may not have heard of a change that it then sees nobody miss.
        """
        node = self._require().cluster.get_control_connection_host()
        for text in texts:
            statement = Statement(text, Guarantee.QUORUM, idempotent=True, writes=True)
            await self._run(statement, SimpleStatement(text, consistency_level=ConsistencyLevel.QUORUM), node=node)
        wait = partial(self._cluster.control_connection.wait_for_schema_agreement, wait_time=AGREEMENT_SECONDS)
        if not await asyncio.to_thread(wait):
            raise StoreTimeout("the nodes do not agree on the tables in time; repeat the same call.")

    def _up_nodes(self) -> list[Any]:
        return [node for node in self._require().cluster.metadata.all_hosts() if node.is_up]

    def _require(self) -> Any:
        if self._process != os.getpid():
            raise StoreUnavailable("the store was opened in another process; open one of its own after a fork")
        if self._session is None:
            raise StoreUnavailable(f"the store {self._access.url} is not open")
        return self._session

    async def _run(
        self, statement: Statement, bound: Any, *, paging_state: bytes | None = None, node: Any = None
    ) -> Rows:
        session = self._require()
        async with self._in_flight:
            answer = self._answers.expect()
            sent = session.execute_async(bound, paging_state=paging_state, host=node)
            sent.add_callbacks(
                self._succeeded,
                self._failed,
                callback_args=(answer, sent),
                errback_args=(answer, statement),
            )
            return await answer

    def _succeeded(self, rows: list[tuple[Any, ...]] | None, answer: asyncio.Future[Rows], sent: Any) -> None:
        following = ResultSet(sent, rows).paging_state if sent.has_more_pages else None

        def resolve() -> None:
            if not answer.done():  # Else its caller was cancelled.
                answer.set_result(Rows(rows or [], following))

        self._answers.put(resolve)

    def _failed(self, error: Exception, answer: asyncio.Future[Rows], statement: Statement) -> None:
        conditional = statement.guarantee is Guarantee.CONDITIONAL

        def resolve() -> None:
            if not answer.done():
                answer.set_exception(told(error, writes=statement.writes, conditional=conditional))

        self._answers.put(resolve)


def told(error: BaseException, *, writes: bool, conditional: bool) -> TocsinError:
    """What a failure of the driver means to the contract."""
    if isinstance(error, InvalidRequest | Unauthorized | AuthenticationFailed):
        return _from(error, SettingsError(f"the cluster refuses: {error}"))
    not_sent = isinstance(error, NoHostAvailable) and all(map(_lies_before_sending, error.errors.values()))
    if not_sent or (isinstance(error, Unavailable) and not conditional):
        return _from(error, StoreUnavailable(f"{_reason(error)}; nothing was changed. Try again later."))
    if writes or isinstance(error, Timeout | OperationTimedOut):
        return _from(error, StoreTimeout(f"{_reason(error)}: no acknowledgement in time, a write may hold or not."))
    return _from(error, StoreUnavailable(f"{_reason(error)}; try again later."))


def _from(cause: BaseException, error: TocsinError) -> TocsinError:
    error.__cause__ = cause
    return error


def _lies_before_sending(error: BaseException) -> bool:
    # Exactly ConnectionException: "marked down" and "pool is shutdown"; a connection that broke is a subclass.
    return type(error) is ConnectionException or isinstance(error, NoConnectionsAvailable | ConnectionBusy)


def _reason(error: BaseException) -> str:
    if isinstance(error, NoHostAvailable | OperationTimedOut) and error.errors:
        return ", ".join(f"{node}: {reason}" for node, reason in error.errors.items())
    return f"{type(error).__name__}: {error}"


def _addresses(access: Access) -> str:
    return ", ".join(f"{host}:{port}" for host, port in access.hosts)


def _refused(access: Access, error: NoHostAvailable) -> TocsinError:
    """Why connecting failed: nobody listens, or somebody does and does not want us."""
    reasons = list(error.errors.values())
    if any(isinstance(reason, AuthenticationFailed | Unauthorized) for reason in reasons):
        return SettingsError(
            f"{_addresses(access)}: the cluster refuses user {access.username!r}; "
            "set TOCSIN_CASSANDRA_USERNAME and TOCSIN_CASSANDRA_PASSWORD."
        )
    # The driver tells of a handshake that failed by an error of its own, with the text of the first.
    if any(isinstance(reason, ssl.SSLError) or "[SSL:" in str(reason) for reason in reasons):
        why = "; ".join(sorted({str(reason) for reason in reasons}))
        return SettingsError(f"{_addresses(access)}: no TLS with the nodes ({why}); correct TOCSIN_CASSANDRA_CA_FILE.")
    if any(isinstance(reason, ProtocolError | ProtocolVersionUnsupported) for reason in reasons):
        return SettingsError(f"{_addresses(access)}: does not speak protocol v5; Tocsin needs Cassandra 5.0 or newer.")
    why = "; ".join(sorted({str(reason) for reason in reasons}))
    return StoreUnavailable(f"no Cassandra node answers at {_addresses(access)} ({why}). Start it, or correct the URL.")


def _connect(access: Access, request_seconds: float) -> tuple[Any, Any]:
    """A cluster and its session; blocks."""
    local = DCAwareRoundRobinPolicy(access.datacenter) if access.datacenter else RoundRobinPolicy()
    quorum, serial = _UNDER[access.consistency]
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(local),
        retry_policy=FallthroughRetryPolicy(),
        consistency_level=quorum,
        serial_consistency_level=serial,
        request_timeout=request_seconds,
        row_factory=tuple_factory,
    )
    authentication = PlainTextAuthProvider(access.username, access.password) if access.username else None
    cluster = Cluster(
        contact_points=[DefaultEndPoint(host, port) for host, port in access.hosts],
        port=access.hosts[0][1],
        protocol_version=ProtocolVersion.V5,
        compression=False,
        auth_provider=authentication,
        ssl_context=access.tls(),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=min(CONNECT_SECONDS, OPEN_SECONDS / len(access.hosts)),
        control_connection_timeout=CONNECT_SECONDS,
        idle_heartbeat_interval=HEARTBEAT_SECONDS,
        idle_heartbeat_timeout=HEARTBEAT_TIMEOUT_SECONDS,
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 10.0, max_attempts=None),
        monitor_reporting_enabled=False,
        max_schema_agreement_wait=0,  # `define` waits itself, once for many statements.
        application_name="tocsin",
    )
    try:
        return cluster, cluster.connect(wait_for_all_pools=True)
    except BaseException:
        cluster.shutdown()
        raise
