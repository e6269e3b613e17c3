"""What a load test runs against: a store, a sink, dispatchers, and how much each of them takes.

    named      a store and a sink that are there already, with the fleet that serves them
    own stack  Cassandra and Kafka of its own on this machine, one node or three, for as long as the test runs
    embedded   SQLite and a file, in a temporary directory

Where the test has dispatchers of its own, it may kill one of them; another is started at once, as whatever watches over
dispatchers would. What external parts take on their hosts is not seen here, but their metrics are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prometheus_client.parser import text_string_to_metric_families

from tocsin.deploy.dispatch import dispatcher_command, inherited_environment
from tocsin.deploy.stack import LocalStack
from tocsin.deploy.stack_topics import PARTITION_COUNT
from tocsin.dispatcher.kafka_security import KafkaSecurity
from tocsin.dispatcher.sink import kafka_servers
from tocsin.schema.errors import SettingsError, StoreTimeout, StoreUnavailable
from tocsin.schema.store import Store

if TYPE_CHECKING:
    import psutil

#: How long a dispatcher has to answer a scrape, and to stop.
SCRAPE_SECONDS: Final = 5
STOP_SECONDS: Final = 15
#: Gauges with these endings say the same of the whole fleet in each process, or mean nothing as a sum.
LARGEST: Final = ("_seconds", "_ratio", "_ranges")
#: How long is waited until every shard range is owned.
OWNED_SECONDS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a load test runs."""

    store_url: str
    sink_url: str
    directory: Path
    #: The stack of its own, where it has one.
    stack: LocalStack | None
    #: Whether the store is made anew, and with how many replicas.
    replication: int | None
    told: str


@contextlib.contextmanager
def place_of(store: str | None, sink: str | None, *, embedded: bool, nodes: int) -> Iterator[Place]:
    """The store and sink to use; what was started for the test is stopped and removed afterwards.

    Raises:
        SettingsError: the options contradict each other.
        StackUnavailable: this machine lacks something.
    """
    with tempfile.TemporaryDirectory(prefix="tocsin-loadtest-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        if store is not None or sink is not None:
            if store is None or sink is None or embedded:
                raise SettingsError("name a store and a sink, or neither: then the load test starts its own")
            yield Place(
                store_url=store,
                sink_url=sink,
                directory=directory,
                stack=None,
                replication=None,
                told=f"{store}, {sink}",
            )
        elif embedded:
            yield Place(
                store_url=f"sqlite:///{directory / 'tocsin.db'}",
                sink_url=f"jsonl://{directory / 'dispatched.jsonl'}",
                directory=directory,
                stack=None,
                replication=1,
                told="SQLite and a file on this machine",
            )
        else:
            stack = LocalStack(directory / "stack", short_lived=True)
            try:
                stack.start(nodes=nodes)
                yield Place(
                    store_url=stack.store_url(f"loadtest_{secrets.token_hex(4)}"),
                    sink_url=stack.sink_url,
                    directory=directory,
                    stack=stack,
                    replication=nodes,
                    told=f"{nodes} Cassandra node{'s' if nodes > 1 else ''} and Kafka on this machine",
                )
            finally:
                stack.stop()


@contextlib.contextmanager
def topic_of(place: Place, name: str, security: KafkaSecurity) -> Iterator[str]:
    """A topic for one run, whose records bear the broker's time; deleted afterwards."""
    if not place.sink_url.startswith("kafka:"):
        yield name
        return
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from tocsin.dispatcher.publisher_confluent import security_properties

    servers = kafka_servers(place.sink_url.removeprefix("kafka://").rstrip("/"))
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0, **security_properties(security)})
    topic = NewTopic(name, PARTITION_COUNT, config={"message.timestamp.type": "LogAppendTime"})
    admin.create_topics([topic])[name].result(30)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(30)


class RunningParts:
    """The dispatchers of one test, and what every part takes; `Parts` of a LoadRun."""

    def __init__(self, place: Place, store: Store) -> None:
        self._place = place
        self._store = store
        self._dispatchers: list[asyncio.subprocess.Process] = []
        self._seen: dict[int, psutil.Process] = {}

    @contextlib.asynccontextmanager
    async def dispatchers(self, count: int, shard_ranges: int) -> AsyncIterator[None]:
        """Run so many dispatchers, and wait until every range is owned by somebody.

        Raises:
            SettingsError: nobody took all the ranges.
        """
        try:
            for _ in range(count):
                self._dispatchers.append(await self._start())
            await self._until_owned(shard_ranges)
            yield
        finally:
            for process in self._dispatchers:
                await self._stop(process)

    async def kill_dispatcher(self) -> None:
        """Kill the first dispatcher, and start another in its place."""
        process = self._dispatchers[0]
        process.kill()
        await process.wait()
        self._dispatchers[0] = await self._start()

    async def stop_node(self) -> None:
        """Kill the last Cassandra node of the stack."""
        stack = self._place.stack
        if stack is not None:
            await asyncio.to_thread(stack.stop_node, stack.plan.nodes, gently=False)

    async def start_node(self) -> None:
        """Start it again."""
        stack = self._place.stack
        if stack is not None:
            await asyncio.to_thread(stack.start_node, stack.plan.nodes)

    def usage(self) -> Mapping[str, tuple[float, int]]:
        """By part: processor seconds since it began, and resident bytes."""
        import psutil  # of the extra `loadtest`, which no other command needs

        ids = {f"dispatcher {number}": process.pid for number, process in enumerate(self._dispatchers, 1)}
        ids |= self._place.stack.process_ids() if self._place.stack is not None else {}
        ids["load test"] = os.getpid()
        found = {}
        for name, pid in ids.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = self._seen.setdefault(pid, psutil.Process(pid))
                with process.oneshot():
                    times = process.cpu_times()
                    found[name] = (times.user + times.system, process.memory_info().rss)
        return found

    async def metrics(self) -> Mapping[str, float]:
        """What the living dispatchers' metrics read now: `name{labels}`, summed, or the largest of `LARGEST` ones."""
        found: defaultdict[str, float] = defaultdict(float)
        try:
            beats = await self._store.read_heartbeats()
        except (StoreTimeout, StoreUnavailable):
            return found
        for address in {beat.address for beat in beats if beat.address}:
            text = await asyncio.to_thread(_scraped, address)
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name.startswith("tocsin_") and not sample.name.endswith("_bucket"):
                        labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                        name = f"{sample.name}{{{labels}}}" if labels else sample.name
                        is_largest = family.type == "gauge" and sample.name.endswith(LARGEST)
                        found[name] = max(found[name], sample.value) if is_largest else found[name] + sample.value
        return found

    async def _start(self) -> asyncio.subprocess.Process:
        command = dispatcher_command(self._place.store_url, self._place.sink_url, metrics="127.0.0.1:0", log="json")
        with (self._place.directory / "dispatchers.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command,
                env=inherited_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _until_owned(self, shard_ranges: int) -> None:
        for _ in range(OWNED_SECONDS * 10):
            beats = {beat.dispatcher_id for beat in await self._store.read_heartbeats()}
            leases = await self._store.read_leases()
            if sum(lease.owner in beats for lease in leases) == shard_ranges:
                return
            await asyncio.sleep(0.1)
        raise SettingsError(
            f"not every shard range has an owner after {OWNED_SECONDS} s; start dispatchers, or give --dispatchers."
        )


def _scraped(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=SCRAPE_SECONDS) as answer:
            text: bytes = answer.read()
    except OSError:
        return ""
    return text.decode()
