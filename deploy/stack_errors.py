"""What can go wrong with the local stack, each with what to do about it."""

from __future__ import annotations

from pathlib import Path

from tocsin.schema.errors import TocsinError


class StackRefused(TocsinError):
    """The local stack cannot be started as asked; nothing was started."""


class StackUnavailable(TocsinError):
    """This machine lacks something the local stack needs; install it and run the command again."""


class ServiceFailed(StackUnavailable):
    """A service of the local stack did not start; its log says why."""

    def __init__(self, service: str, reason: str, log_tail: str) -> None:
        self.service = service
        self.reason = reason
        self.log_tail = log_tail
        super().__init__(f"{service} did not start: {reason}. The end of its log:\n{log_tail or '(empty)'}")


class PortTaken(StackRefused):
    """The port is in use; name another one, or leave the option out and a free one is chosen."""

    def __init__(self, service: str, address: str, port: int) -> None:
        self.service = service
        self.address = address
        self.port = port
        super().__init__(
            f"port {port} for {service} is already in use on {address}. "
            "Name another one, or leave the option out and a free one is chosen."
        )


class DirectoryInUse(StackRefused):
    """The directory holds other files or is being worked on; choose another one."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory}: {reason}")
