"""Everything at once, for real: clients that change their minds, dispatchers, and one fault after another.

The same promises as in the simulation are checked, by the same checkers, over what the run leaves behind. The timing is
the simulation's too: a day has a minute, a minute ten seconds, so that days are sealed and cascade while it runs.

    ENDURANCE_MINUTES   how long faults strike: 1.25 in `make test`, which makes two minutes in all; 10 in
                        `make endurance`
    ENDURANCE_SEED      which ones, and in which order
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from acceptance.evidence import Evidence, now_ms
from acceptance.faults import Faults, Fleet
from acceptance.processes import Processes, Running
from acceptance.proxy import Proxy
from acceptance.records import Topic
from simulation.check_dispatch import nothing_lost
from simulation.scenario import TIMING

from tocsin.deploy.stack import LocalStack
from tocsin.schema.clock import SystemClock
from tocsin.schema.levels import Layout
from tocsin.schema.open_store import open_store
from tocsin.schema.store import Settings

MINUTES = float(os.environ.get("ENDURANCE_MINUTES", "1.25"))
SEED = int(os.environ.get("ENDURANCE_SEED", str(secrets.randbelow(1_000_000))))

#: Besides the faults: the start, the end of the last fault, the drain.
pytestmark = [pytest.mark.cassandra, pytest.mark.kafka, pytest.mark.timeout(60 * MINUTES + 400)]

DISPATCHERS = 2
CLIENTS = 2
TASKS = 8
QUIET_MS = 8_000
PATIENCE_SECONDS = 90

OpenTopic = Callable[[], Topic]


@pytest.fixture
def settings() -> Settings:
    return Settings(genesis=SystemClock().wall_ms(), shard_ranges=16, layouts=(Layout(0, 64),))


@pytest.fixture
def keyspace_name() -> str:
    return f"endurance_{secrets.token_hex(3)}"


@pytest.fixture
def processes(
    cassandra_stack: LocalStack, keyspace_name: str, settings: Settings, tmp_path: Path
) -> Iterator[Processes]:
    """On a store of its own, with the simulation's timing."""
    url = cassandra_stack.store_url(keyspace_name)

    async def make() -> None:
        store = open_store(url, timing=TIMING)
        await store.initialise(settings)
        await store.close()

    asyncio.run(make())
    timing = "\n".join(f"{name} = {value}" for name, value in msgspec.structs.asdict(TIMING).items())
    (tmp_path / "tocsin.toml").write_text(f"[timing]\n{timing}\n")
    processes = Processes(tmp_path, url, cassandra_stack.sink_url)
    yield processes
    processes.reap()
    print(processes)


@pytest.fixture
def fleet(processes: Processes, nodes: list[tuple[str, int]], settings: Settings) -> Iterator[Fleet]:
    """Dispatchers that share all ranges."""
    fleet = Fleet(processes, nodes, settings.shard_ranges)
    for _ in range(DISPATCHERS):
        fleet.start()
    fleet.until_shared()
    yield fleet
    fleet.close()


@pytest.fixture
def client_proxy(nodes: list[tuple[str, int]]) -> Iterator[Proxy]:
    proxy = Proxy(nodes)
    yield proxy
    proxy.close()


class Clients:
    """Programs that change schedules; one of them dies each time a fault is over."""

    def __init__(self, processes: Processes, proxy: Proxy, topic: Topic) -> None:
        self._processes = processes
        self._proxy = proxy
        self._topic = topic
        self.running: list[Running] = []
        self.all: list[Running] = []

    def start(self) -> None:
        number = len(self.all)
        plan = {"topic": self._topic.name, "prefix": f"c{number}", "tasks": TASKS, "seed": SEED + number}
        plan["timing"] = msgspec.structs.asdict(TIMING)
        environment = self._proxy.environment
        client = self._processes.client(plan, program="changing_client.py", environment=environment)
        self.running.append(client)
        self.all.append(client)

    def kill_one(self) -> None:
        """Kill -9, perhaps in the middle of a change; another one starts, with schedules of its own."""
        victim = self.running.pop(0)
        victim.send(signal.SIGKILL)
        victim.ended()
        self.start()

    def lose_replies(self) -> None:
        with self._proxy.replies_lost():
            self._proxy.until_a_reply_is_lost()

    def finish(self) -> None:
        """Let each end what it has begun."""
        for client in self.running:
            client.end_input()
        for client in self.running:
            assert client.ended(seconds=PATIENCE_SECONDS) == 0, str(client)


def strike(faults: Faults, clients: Clients, luck: Random) -> list[str]:
    """One fault after another, every kind before any comes again, until the time is over; returns their names."""
    struck: list[str] = []
    give_up = time.monotonic() + 60 * MINUTES
    while time.monotonic() < give_up:
        for kind in luck.sample(faults.kinds, len(faults.kinds)):
            begun = time.monotonic()
            kind()
            struck.append(f"{kind.__name__} {time.monotonic() - begun:.0f} s")
            luck.choice([clients.kill_one, clients.lose_replies])()
            if time.monotonic() >= give_up:
                break
    return struck


def test_every_promise_is_kept_while_one_fault_follows_another(
    processes: Processes,
    fleet: Fleet,
    client_proxy: Proxy,
    open_topic: OpenTopic,
    disturbed_stack: LocalStack,
    settings: Settings,
    keyspace_name: str,
    cassandra_session: Any,
) -> None:
    luck = Random(SEED)
    topic = open_topic()
    evidence = Evidence(settings)
    clients = Clients(processes, client_proxy, topic)
    for _ in range(CLIENTS):
        clients.start()

    struck = strike(Faults(fleet, disturbed_stack, topic, evidence, luck), clients, luck)
    clients.finish()
    fleet.until_shared()
    history = evidence.history
    evidence.hear(clients.all)
    settle(topic, evidence)
    for running, _ in fleet.running:
        running.send(signal.SIGTERM)
        assert running.ended() == 0
    topic.until(lambda it: not it.read(), seconds=PATIENCE_SECONDS)
    evidence.read_topic(topic)
    asyncio.run(read_store(processes.store, evidence, cassandra_session, keyspace_name))

    print(
        f"ENDURANCE_SEED={SEED}: {len(struck)} faults ({', '.join(struck)}), "
        f"{len(history.acknowledged)} changes, {len(history.deliveries)} records, repeats {evidence.repeat_count}, "
        f"lateness p50 {evidence.lateness_ms(50):.0f} ms, p99 {evidence.lateness_ms(99):.0f} ms"
    )
    assert evidence.violations() == []
    assert len(history.deliveries) > 100 * MINUTES
    assert len(history.acknowledged) > 30 * MINUTES


def settle(topic: Topic, evidence: Evidence) -> None:
    """A while without faults, and everything that was owed by its end has come."""
    history = evidence.history
    history.quiet_ms = now_ms()
    history.end_ms = history.quiet_ms + QUIET_MS

    def settled(topic: Topic) -> bool:
        if now_ms() < history.end_ms:
            return False
        evidence.read_topic(topic)
        return not list(nothing_lost(history))

    # What has not come by then is told by the checkers.
    topic.until(settled, seconds=QUIET_MS / 1000 + PATIENCE_SECONDS)
    history.end_ms = now_ms()


async def read_store(url: str, evidence: Evidence, session: Any, keyspace: str) -> None:
    store = open_store(url, timing=TIMING)
    await store.open()
    await evidence.read_store(store, session, keyspace)
    await store.close()
