"""Wait until the services of a stack do their work: a query, and the broker's own description of its cluster."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from tocsin.deploy.stack_errors import ServiceFailed
from tocsin.deploy.stack_security import StackSecurity
from tocsin.deploy.stack_service import Service

#: A node takes 4 to 15 seconds on two busy cores; ten times that is a failure.
PATIENCE_SECONDS = 150
POLL_SECONDS = 0.1


def await_ready(service: Service, why_not: Callable[[], str | None]) -> None:
    """Return once nothing is lacking.

    Raises:
        ServiceFailed: the service ended, or something was lacking for too long.
    """
    give_up = time.monotonic() + PATIENCE_SECONDS
    while (lack := why_not()) is not None:
        if not service.running:
            raise ServiceFailed(service.name, "it ended", service.log_tail())
        if time.monotonic() > give_up:
            raise ServiceFailed(service.name, f"after {PATIENCE_SECONDS} s {lack}", service.log_tail())
        time.sleep(POLL_SECONDS)


def why_not_cassandra(
    address: str, port: int, others: Sequence[str], security: StackSecurity | None = None
) -> str | None:
    """Return what the node lacks; asks nothing before its port is open, since a driver that fails waits long."""
    if not _listens(address, port):
        return f"{address}:{port} is closed"
    from tocsin.schema.cassandra_probe import why_not_ready

    if security is None:
        return why_not_ready(address, port, others)
    return security.why_no_user(address, port) or why_not_ready(
        address, port, others, tls=security.tls(), credentials=security.credentials()
    )


def why_not_kafka(port: int, security: StackSecurity | None = None) -> str | None:
    """Return what the broker lacks: it has to name itself and a controller."""
    if not _listens("127.0.0.1", port):
        return f"127.0.0.1:{port} is closed"
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        admin = KafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{port}", bootstrap_timeout_ms=2_000, **_kafka_arguments(security)
        )
    except KafkaError as error:
        return f"the broker does not answer: {error!r}"
    try:
        cluster = admin.describe_cluster()
    except KafkaError as error:
        return f"the broker does not answer: {error!r}"
    finally:
        admin.close()
    return None if cluster["brokers"] and cluster["controller_id"] >= 0 else "the broker has no controller yet"


def _kafka_arguments(security: StackSecurity | None) -> dict[str, Any]:
    if security is None:
        return {}
    from tocsin.dispatcher.kafka_security import KafkaSecurity
    from tocsin.dispatcher.publisher_kafka_python import security_arguments

    return security_arguments(KafkaSecurity.from_environment(security.environment))


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True
