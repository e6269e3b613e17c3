"""Commands in, effects out: each once, in order for each schedule, through outages; and refusals with their reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
import structlog

from tocsin import MemoryInbox, SettingsError, State, Workbench
from tocsin.deploy.ingestion import Delivery, Ingestion
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.schema.errors import StoreUnavailable
from tocsin.schema.instants import to_datetime

START = to_datetime(1_796_032_800_000)


@dataclass
class Refused:
    """A Publisher to the error topic."""

    outcomes: list[Outcome] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    async def start(self) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome.ACKED
        self.records += records if outcome is Outcome.ACKED else ()
        return [outcome] * len(records)


class Topic:
    """Hands out commands with offsets, as a topic of one partition does."""

    def __init__(self) -> None:
        self.sent: list[Delivery] = []

    def send(self, action: str, subject: str = "s", data: Any = None, **attributes: Any) -> Delivery:
        number = len(self.sent)
        event = {"specversion": "1.0", "id": str(number), "source": "/t", "type": f"tocsin.schedule.{action}"}
        event |= {"subject": subject} | ({} if data is None else {"data": data}) | attributes
        return self.send_raw(json.dumps(event).encode())

    def send_raw(self, value: bytes | None) -> Delivery:
        self.sent.append(Delivery("commands", 0, len(self.sent), b"k", value, (("trace", b"1"),)))
        return self.sent[-1]


@pytest.fixture
def bench() -> Iterator[Workbench]:
    structlog.reset_defaults()
    with Workbench(start=START) as bench:
        yield bench


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def refused() -> Refused:
    return Refused()


@pytest.fixture
def ingestion(bench: Workbench, refused: Refused) -> Ingestion:
    inbox = MemoryInbox(clock=bench._clock)
    return Ingestion(bench.asynchronous, inbox, refused, "commands.errors", bench._clock)


def test_a_schedule_s_commands_are_done_in_order(bench: Workbench, topic: Topic, ingestion: Ingestion) -> None:
    topic.send("create", data={"every": "1h", "topic": "t", "payload": "0"})
    for number in range(1, 20):
        topic.send("update", data={"payload": str(number), "tags": [f"n{number}"]})
    topic.send("pause", data={"note": "enough"})
    topic.send("create", "other", data={"every": "1h", "topic": "t"})
    topic.send("cancel", "other")
    bench.run(ingestion.take(topic.sent))
    schedule = bench.scheduler.get("s")
    assert (schedule.payload, schedule.state, schedule.note) == (b"19", State.PAUSED, "enough")
    assert bench.scheduler.get("other").state is State.CANCELLED
    assert (ingestion.tally.done, ingestion.tally.refused) == (23, 0)
    bench.run(ingestion.take([topic.send("resume"), topic.send("trigger")]))
    assert bench.scheduler.get("s").state is State.ACTIVE


def test_what_is_read_again_changes_nothing(bench: Workbench, topic: Topic, ingestion: Ingestion) -> None:
    topic.send("create", data={"every": "1h", "topic": "t", "payload": "old"})
    topic.send("update", data={"payload": "new"})
    topic.send("pause")
    topic.send("trigger")
    bench.run(ingestion.take(topic.sent))
    version = bench.scheduler.get("s").version
    first = bench.advance(bench.now - bench.now)
    for _ in range(2):
        bench.run(ingestion.take(topic.sent))
    assert bench.scheduler.get("s").version == version
    assert (ingestion.tally.done, ingestion.tally.repeated) == (4, 8)
    again = bench.dispatch_due()
    assert [record.payload for record in first + again] == [b"new"]


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (lambda topic: topic.send("update", "none", {"payload": "x"}), "there is no schedule 'none'"),
        (lambda topic: topic.send("create", data={"every": "2h", "topic": "t"}), "exists with other content"),
        (lambda topic: topic.send("create", "late", {"at": "2020-01-01T00:00Z", "topic": "t"}), "has passed"),
        (lambda topic: topic.send("create", "bad", {"cron": "99 9 * * *", "topic": "t"}), "not a valid minute"),
        (lambda topic: topic.send("explode"), "must be tocsin.schedule."),
        (lambda topic: topic.send_raw(b"{"), "is not JSON"),
        (lambda topic: topic.send_raw(None), "is not JSON"),
    ],
)
def test_what_is_refused_is_on_the_error_topic_with_its_reason_once(
    bench: Workbench,
    topic: Topic,
    ingestion: Ingestion,
    refused: Refused,
    send: Callable[[Topic], Delivery],
    reason: str,
) -> None:
    topic.send("create", data={"every": "1h", "topic": "t"})
    bad = send(topic)
    for _ in range(2):
        bench.run(ingestion.take(topic.sent))
    (record,) = refused.records
    headers = dict(record.headers)
    assert (record.topic, record.key, record.value) == ("commands.errors", b"k", bad.value or b"")
    assert reason in headers["tocsin_reason"].decode()
    assert (headers["trace"], headers["tocsin_topic"], headers["tocsin_offset"]) == (b"1", b"commands", b"1")
    assert (ingestion.tally.refused, ingestion.tally.done, ingestion.tally.repeated) == (1, 1, 2)


def test_an_error_topic_that_is_missing_ends_it_and_nothing_is_lost(
    bench: Workbench, topic: Topic, ingestion: Ingestion, refused: Refused
) -> None:
    topic.send("explode")
    refused.outcomes = [Outcome.BROKER_AWAY, Outcome.TOPIC_FAILING, Outcome.UNKNOWN_TOPIC]
    with pytest.raises(SettingsError, match=r"commands\.errors does not take commands/0/0"):
        bench.run(ingestion.take(topic.sent))
    assert refused.records == []
    bench.run(ingestion.take(topic.sent))
    assert len(refused.records) == 1


def test_what_the_store_does_not_answer_is_tried_until_it_does(
    bench: Workbench, topic: Topic, ingestion: Ingestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send("create", data={"every": "1h", "topic": "t"})
    topic.send("pause")
    left = 5

    def failing(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                raise StoreUnavailable("away")
            return await method(*arguments, **options)

        return call

    monkeypatch.setattr(bench.asynchronous, "pause", failing(bench.asynchronous.pause))
    bench.run(ingestion.take(topic.sent))
    assert bench.scheduler.get("s").state is State.PAUSED
    assert left < 0
    assert (ingestion.tally.done, ingestion.tally.repeated) == (2, 0)


@pytest.mark.parametrize("seed", range(20))
def test_two_that_believe_to_have_the_same_partition_go_through_it_in_step(
    bench: Workbench, refused: Refused, topic: Topic, seed: int
) -> None:
    """Each reads from an offset of its own, and one of them dies somewhere; the other begins again where it likes."""
    random = Random(seed)
    topic.send("create", data={"every": "1h", "topic": "t", "payload": "0"})
    for number in range(1, 15):
        topic.send("update", data={"payload": str(number)})
    inbox = MemoryInbox(clock=bench._clock)
    one, two = (Ingestion(bench.asynchronous, inbox, refused, "e", bench._clock) for _ in range(2))
    payloads: list[bytes] = []

    async def watch() -> None:
        while not payloads or payloads[-1] != b"14":
            await asyncio.sleep(0)
            row = (await bench._store.read_schedules(["s"])).get("s")
            if row is not None and (not payloads or payloads[-1] != row.payload):
                payloads.append(row.payload)

    async def dies_on_the_way() -> None:
        dying = asyncio.create_task(one.take(topic.sent))
        await bench._clock.sleep_ms(random.randrange(3))
        for _ in range(random.randrange(60)):
            await asyncio.sleep(0)
        dying.cancel()
        await asyncio.wait([dying])

    async def run() -> None:
        watching = asyncio.create_task(watch())
        await asyncio.gather(dies_on_the_way(), two.take(topic.sent))
        await watching

    bench.run(run())
    assert payloads == sorted(payloads, key=int)
    assert bench.scheduler.get("s").payload == b"14"
    assert refused.records == []
