"""Lead this Python process through proxies: imported by the interpreter itself, before anything else runs.

DIVERTED says for which addresses: `host:port=port,…`. A connection to one of them goes to that port of 127.0.0.1.
"""

from __future__ import annotations

import os
import socket
from typing import Any

_PORTS = {
    address: int(port) for address, _, port in (each.partition("=") for each in os.environ["DIVERTED"].split(","))
}


class DivertedSocket(socket.socket):
    """A socket that connects to the proxy of an address, where there is one."""

    def connect(self, address: Any) -> None:
        """Connect, perhaps elsewhere."""
        super().connect(self._way_to(address))

    def connect_ex(self, address: Any) -> int:
        """Connect, perhaps elsewhere; the error as a number."""
        return super().connect_ex(self._way_to(address))

    @staticmethod
    def _way_to(address: Any) -> Any:
        port = _PORTS.get(f"{address[0]}:{address[1]}") if isinstance(address, tuple) else None
        return address if port is None else ("127.0.0.1", port)


socket.socket = DivertedSocket  # type: ignore[misc]
