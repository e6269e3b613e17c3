"""Loopback addresses and ports for the local stack.

Ports are chosen below the range from which the system takes ports for outgoing connections, so that none of those takes
a chosen port before its service listens there.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Container, Sequence
from itertools import chain

from tocsin.deploy.stack_errors import PortTaken, StackUnavailable

LOWEST_PORT = 20_000
HIGHEST_PORT = 32_000
TRIES = 1_000


def loopback_addresses(nodes: int) -> tuple[str, ...]:
    """Return one loopback address per node, 127.0.0.1 first.

    Raises:
        StackUnavailable: the system has only 127.0.0.1, as macOS has.
    """
    addresses = tuple(f"127.0.0.{node}" for node in range(1, nodes + 1))
    for address in addresses:
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
            except OSError as error:
                raise StackUnavailable(
                    f"the address {address} is missing, and each Cassandra node needs its own. Add it "
                    f"(macOS: sudo ifconfig lo0 alias {address} up), or start one node: tocsin up --nodes 1"
                ) from error
    return addresses


def is_free(address: str, port: int) -> bool:
    """Whether a service could listen there now."""
    with socket.socket() as probe:
        # As servers do, so that connections of an earlier run that linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def require_free(service: str, addresses: Sequence[str], port: int) -> int:
    """Return the port that was asked for.

    Raises:
        PortTaken: something listens there on one of the addresses.
    """
    for address in addresses:
        if not is_free(address, port):
            raise PortTaken(service, address, port)
    return port


def choose_free(addresses: Sequence[str], *, prefer: int | None = None, avoid: Container[int] = ()) -> int:
    """Return a port that is free on all the addresses: the preferred one where it is, else any.

    Raises:
        StackUnavailable: none was found.
    """
    candidates = (LOWEST_PORT + secrets.randbelow(HIGHEST_PORT - LOWEST_PORT) for _ in range(TRIES))
    for port in chain([prefer] if prefer else [], candidates):
        if port not in avoid and all(is_free(address, port) for address in addresses):
            return port
    raise StackUnavailable(f"no port between {LOWEST_PORT} and {HIGHEST_PORT} is free on {', '.join(addresses)}")
