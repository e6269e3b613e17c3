"""/metrics for Prometheus, /healthz for who restarts, /readyz for who routes: on loopback unless told otherwise.

It runs in a thread of its own, so that a scrape never waits for the event loop, nor the loop for a slow scraper.
Healthy means that the event loop turned lately; ready, that the store answered lately as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, make_wsgi_app
from prometheus_client.registry import Collector

from tocsin.schema.errors import SettingsError

#: Another address than this is asked for in words.
OFF: Final = "off"

Probe = Callable[[], bool]


class MetricsServer:
    """Serves until `close`.

    Args:
        address: host:port; port 0: the system chooses one.
        *collectors: what to export.
        healthy: whether the process lives.
        ready: whether it can do its work.

    Raises:
        SettingsError: the address is malformed or taken.
    """

    def __init__(self, address: str, *collectors: Collector, healthy: Probe, ready: Probe) -> None:
        registry = CollectorRegistry()
        for collector in collectors:
            registry.register(collector)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._metrics = make_wsgi_app(registry)
        self._probes = {"/healthz": healthy, "/readyz": ready}
        host, port = split_address(address)
        try:
            self._server = make_server(host, port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise SettingsError(
                f"metrics cannot be served on {address} ({error.strerror}); give another --metrics, or off."
            ) from error
        self.address = f"{host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="tocsin-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            metrics: Iterable[bytes] = self._metrics(environ, start_response)
            return metrics
        probe = self._probes.get(path)
        status = "404 Not Found" if probe is None else "200 OK" if probe() else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{status[4:]}\n".encode()]


class _Server(WSGIServer):
    #: A port that a process just left can be taken again at once.
    allow_reuse_address = True


class _Quiet(WSGIRequestHandler):
    #: Seconds after which a scraper that says nothing is let go.
    timeout = 5

    def log_message(self, *_: Any) -> None:
        """Scrapes are not worth a line."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port. Raises SettingsError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise SettingsError(f"{address!r} is not an address for metrics; write 127.0.0.1:9464, or off.")
    return host, int(port)


def next_address(address: str, process: int) -> str:
    """The address of the n-th process of one command: the ports follow each other, a chosen one stays chosen."""
    if address == OFF:
        return address
    host, port = split_address(address)
    return f"{host}:{port + process if port else 0}"
