"""A Kafka that acknowledges late, fails, is away, refuses topics, and says 'failed' of records it took.

The broker is shared by all processes; each has a publisher of its own. What a publisher reports and what the broker
took differ on purpose: only the second is what consumers see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from simulation.event_loop import current_process
from simulation.history import Delivery, History
from simulation.traps import Traps
from tocsin.dispatcher.publisher import Outcome, Record
from tocsin.schema.entries import Kind, parse_instant, parse_occurrence_key


class Broker:
    """The cluster.

    Args:
        random: decides delays and faults.
        history: where every record is written down.
        store_clock_ms: the highest time the store's clock has shown.
        delivery_timeout_ms: after this long without an answer a record is BROKER_AWAY.
    """

    def __init__(
        self,
        random: Random,
        history: History,
        store_clock_ms: Callable[[], float],
        *,
        delivery_timeout_ms: float = 1_500,
    ) -> None:
        self.random = random
        self.history = history
        self.store_clock_ms = store_clock_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.away = False
        self.slow = 0.0
        #: Topics that do not take records now.
        self.failing: set[str] = set()
        #: Topics that refuse every record for good, with what they say.
        self.refusing: dict[str, Outcome] = {}

    def delay_ms(self) -> float:
        """One way."""
        return self.random.uniform(100, 900) if self.random.random() < self.slow else self.random.uniform(0.5, 6)

    def take(self, record: Record) -> tuple[Outcome, bool]:
        """What is reported of a record, and whether it is in the log."""
        if self.away:
            return Outcome.BROKER_AWAY, self.random.random() < 0.3
        if record.topic in self.refusing:
            return self.refusing[record.topic], False
        if record.topic in self.failing:
            return Outcome.TOPIC_FAILING, self.random.random() < 0.3
        return Outcome.ACKED, True


class SimulatedPublisher:
    """What one process sees of the broker; implements tocsin.dispatcher.publisher.Publisher."""

    def __init__(self, broker: Broker, traps: Traps) -> None:
        self._broker = broker
        self._traps = traps

    async def start(self) -> None:
        """Nothing to connect."""

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        broker, loop = self._broker, asyncio.get_running_loop()
        await self._traps.step("publish", sent=False)
        process = str(current_process())
        taken = [broker.take(record) for record in records]
        clock_ms = broker.store_clock_ms()
        for record, (outcome, arrived) in zip(records, taken, strict=True):
            broker.history.delivered(delivery_of(record, process, broker.history.now_ms(), clock_ms, outcome, arrived))
        outcomes = [outcome for outcome, _ in taken]
        wait_ms = broker.delivery_timeout_ms if broker.away else broker.delay_ms() + broker.delay_ms()
        answered: asyncio.Future[None] = loop.create_future()
        loop.call_later(wait_ms / 1000, answered.set_result, None)
        await self._traps.step("publish", sent=True)
        await answered
        return outcomes

    async def close(self, timeout_ms: int) -> None:
        """Nothing is held."""


def delivery_of(
    record: Record, process: str, at_ms: float, store_clock_ms: float, outcome: Outcome, arrived: bool
) -> Delivery:
    """A record as the checkers see it, read back from its key and headers as a consumer would."""
    headers = dict(record.headers)
    schedule_id, scheduled_for, request = parse_occurrence_key(record.key.decode())
    return Delivery(
        at_ms=at_ms,
        schedule_id=schedule_id,
        scheduled_for=scheduled_for,
        request=request,
        version=int(headers["ce_version"]),
        due=parse_instant(headers["ce_time"].decode()),
        topic=record.topic,
        process=process,
        arrived=arrived,
        acknowledged=outcome is Outcome.ACKED,
        store_clock_ms=store_clock_ms,
        missed=int(headers.get("ce_missed", b"0")),
        kind=Kind[headers["ce_kind"].decode().upper()],
    )
