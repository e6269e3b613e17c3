"""A TCP proxy that breaks connections on purpose, and how a process is led through it.

    client ──► Link ──► node       one Link for each node, with a port of its own
                 │
                 ├ delay_seconds   each piece of data is passed on this much later, in both directions
                 ├ replies_lost    what the node answers is thrown away: requests take effect, nobody hears of it
                 └ refuse          new connections are closed at once; `cut` closes those there are

TCP loses no byte within a connection, so a connection that lost a reply is cut before data may flow again.

The Cassandra driver learns the nodes' addresses from the nodes and connects to those, so a proxy has to sit at the very
addresses. `environment` makes a Python process connect elsewhere instead (diverted/sitecustomize.py): below the code
under test, which is the code that ships, and where a rule of the system's firewall would act. Each process has proxies
of its own, so that one dispatcher can be cut off while another one is not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

#: Bytes taken at once.
PIECE_BYTES = 64 * 1024
#: How long a node may take to answer.
PATIENCE_SECONDS = 60.0
#: How soon connections are looked at again that have not ended.
SERVED_SECONDS = 0.05


class Link:
    """The way to one node."""

    def __init__(self, host: str, port: int, lost: threading.Event) -> None:
        self.host, self.port = host, port
        self._lost = lost
        self.listens_on = 0
        self.delay_seconds = 0.0
        self.replies_lost = False
        self.refuses = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.listens_on = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    def cut(self) -> None:
        """End every connection there is, without a goodbye."""
        for writer in self._writers:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if not self.refuses:
                await self._serve(reader, writer)
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            node_reader, node_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return  # the node is away, and so is its proxy
        self._writers.add(node_writer)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, node_writer, is_reply=False))
                pumps.create_task(self._pump(node_reader, writer, is_reply=True))
        finally:
            self._writers.discard(node_writer)
            node_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool) -> None:
        """Pass on what comes, until either end goes away."""
        try:
            while piece := await reader.read(PIECE_BYTES):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if is_reply and self.replies_lost:
                    self._lost.set()
                    continue
                writer.write(piece)
                await writer.drain()
        except OSError:
            pass  # a connection that was cut is what this is for
        writer.transport.abort()


class Proxy:
    """Links to all nodes, for the processes that are led through them; served by a thread of its own."""

    def __init__(self, nodes: Sequence[tuple[str, int]]) -> None:
        self._lost = threading.Event()
        self.links = [Link(host, port, self._lost) for host, port in nodes]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        for link in self.links:
            self._do(link.open())

    @property
    def environment(self) -> dict[str, str]:
        """What leads a Python process through this proxy."""
        diverted = (f"{link.host}:{link.port}={link.listens_on}" for link in self.links)
        return {"PYTHONPATH": str(Path(__file__).with_name("diverted")), "DIVERTED": ",".join(diverted)}

    @contextmanager
    def delayed(self, seconds: float) -> Iterator[None]:
        """Everything takes this much longer, each way."""
        for link in self.links:
            link.delay_seconds = seconds
        yield
        for link in self.links:
            link.delay_seconds = 0

    @contextmanager
    def replies_lost(self) -> Iterator[None]:
        """Requests take effect, and nobody hears of it; then the connections are cut."""
        for link in self.links:
            link.replies_lost = True
        yield
        # One step of the loop: a connection that lost a reply must not go on.
        self._do(
            _each(step for link in self.links for step in (link.cut, partial(setattr, link, "replies_lost", False)))
        )

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nobody can be reached."""
        for link in self.links:
            link.refuses = True
        self.cut()
        yield
        for link in self.links:
            link.refuses = False

    def until_a_reply_is_lost(self, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Return once an answer was thrown away since `replies_lost` began."""
        assert self._lost.wait(seconds), f"no reply came within {seconds} s"

    def cut(self) -> None:
        """End every connection; new ones may be made at once."""
        self._do(_each([link.cut for link in self.links]))

    def close(self) -> None:
        """End everything."""
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """End all connections, then listen no more; the other way round asyncio leaves sockets open (Python 3.11).

        A connection whose server closed after it was accepted and before it was established is never established.
        """
        for link in self.links:
            link.refuses = True
        while serving := asyncio.all_tasks() - {asyncio.current_task()}:
            for link in self.links:
                link.cut()
            await asyncio.wait(serving, timeout=SERVED_SECONDS)
        for link in self.links:
            link.close()
        await asyncio.sleep(0)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _each(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        call()
