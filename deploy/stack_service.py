"""What every service of the local stack can do, whatever runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tocsin.deploy.maven import Report


class Service(Protocol):
    """One Cassandra node or the Kafka broker. A handle: it works the same in a command that did not start it."""

    name: str

    def start(self) -> None:
        """Begin; returns once it runs, not once it serves. On data left by an earlier start it goes on from there."""
        ...

    def stop(self, *, gently: bool) -> None:
        """End it and return once it is gone, its data kept; nothing happens where it does not run."""
        ...

    def pause(self) -> None:
        """Freeze it."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...

    def remove(self) -> None:
        """Delete its data; it has to be stopped."""
        ...

    @property
    def running(self) -> bool:
        """Whether it runs, paused or not."""
        ...

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines it wrote."""
        ...


class ServiceEngine(Protocol):
    """Makes the services of one plan."""

    def fetch(self, report: Report) -> None:
        """Bring what the services run onto this machine."""
        ...

    def services(self) -> Sequence[Service]:
        """Return the handles of all services: Cassandra's nodes in order, then Kafka."""
        ...

    def remove(self) -> None:
        """Delete what belongs to no single service."""
        ...
