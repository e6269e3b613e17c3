"""Commands become effects: each once, in order for each schedule, and what is refused goes to a topic of its own.

**Once.** An inbox remembers each command by its source and id, and an offset is committed only after the effects of
everything before it. So a command that is read again, after a crash or a rebalance or because a producer sent it twice,
does nothing; and one whose effect was made without being recorded is made again, which changes nothing, because no
later command of its schedule has begun.

**In order.** Commands of one schedule share a partition when their producer keys them alike, and are done one after the
other; those of different schedules side by side. Two processes that both believe to have a partition meet in the inbox:
each waits until the other has done what it has begun, so they go through a schedule's commands in step.

**Refused.** What is malformed, or what the schedule does not take, is published to the error topic with its reason, and
counts as done. What the store or the broker does not answer is tried again, for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from tocsin.deploy.schedule_command import Command, read_command
from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.clock import Clock
from tocsin.schema.errors import ClaimLost, InvalidSchedule, SettingsError, StoreUnavailable, TocsinError

#: Schedules whose commands are done side by side.
SIDE_BY_SIDE: Final = 64
#: The pause before what was not answered is tried again; doubled up to the second.
PAUSE_MS: Final = 200
PAUSE_MS_MAX: Final = 10_000

_log = structlog.get_logger("tocsin.ingest")


class Delivery(NamedTuple):
    """A record of the command topic."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def place(self) -> str:
        """Where it lies; names it where its content does not."""
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass
class Tally:
    """How many commands had which end."""

    done: int = 0
    #: Done before, and read again.
    repeated: int = 0
    refused: int = 0

    def __str__(self) -> str:
        return f"{self.done} done, {self.repeated} repeated, {self.refused} refused"


@dataclass
class Ingestion:
    """Does commands, as they are delivered."""

    scheduler: AsyncScheduler
    inbox: ClaimingInbox
    #: Carries away what is refused.
    publisher: Publisher
    error_topic: str
    clock: Clock
    tally: Tally = field(default_factory=Tally)

    async def take(self, deliveries: Iterable[Delivery]) -> None:
        """Do all of them; returns once each is done, or is on the error topic.

        Raises:
            SettingsError: the error topic takes no records.
        """
        chains: dict[str, list[tuple[Delivery, Command | InvalidSchedule]]] = {}
        for delivery in deliveries:
            command = _read(delivery)
            chain = command.schedule_id if isinstance(command, Command) else delivery.place
            chains.setdefault(chain, []).append((delivery, command))
        turn = asyncio.Semaphore(SIDE_BY_SIDE)

        async def follow(chain: Sequence[tuple[Delivery, Command | InvalidSchedule]]) -> None:
            async with turn:
                for delivery, command in chain:
                    await self._until_done(delivery, command)

        await asyncio.gather(*map(follow, chains.values()))

    async def _until_done(self, delivery: Delivery, command: Command | InvalidSchedule) -> None:
        pause_ms = PAUSE_MS
        while True:
            try:
                await self._do_once(delivery, command)
            except TocsinError as error:
                if not error.retriable and not isinstance(error, ClaimLost):
                    raise
                _log.warning(f"{delivery.place} has to wait: {error}", action="command_waits")
            else:
                return
            await self.clock.sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    async def _do_once(self, delivery: Delivery, command: Command | InvalidSchedule) -> None:
        name = command.name if isinstance(command, Command) else delivery.place
        async with self.inbox.once_for(name, subscription=f"ingest {delivery.topic}") as first:
            if not first:
                self.tally.repeated += 1
                return
            refusal = await self._refusal_of(command)
            if refusal is not None:
                await self._refuse(delivery, refusal)
        self.tally.refused += refusal is not None
        self.tally.done += refusal is None

    async def _refusal_of(self, command: Command | InvalidSchedule) -> TocsinError | None:
        """Do a command; why it was refused, or None where it was not."""
        if isinstance(command, InvalidSchedule):
            return command
        try:
            await command.perform(self.scheduler)
        except TocsinError as error:
            if error.retriable:
                raise
            return error
        return None

    async def _refuse(self, delivery: Delivery, refusal: TocsinError) -> None:
        """Publish the record as it came, with the reason in its headers."""
        told = {
            "tocsin_error": type(refusal).__name__,
            "tocsin_reason": str(refusal),
            "tocsin_topic": delivery.topic,
            "tocsin_partition": str(delivery.partition),
            "tocsin_offset": str(delivery.offset),
        }
        headers = [
            *delivery.headers,
            *((name, text.encode("utf-8", "backslashreplace")) for name, text in told.items()),
        ]
        record = Record(self.error_topic, delivery.key, delivery.value or b"", headers, delivery.key)
        (outcome,) = await self.publisher.publish([record])
        if outcome.permanent:
            raise SettingsError(
                f"the error topic {self.error_topic} does not take {delivery.place} ({outcome.value}); "
                "make the topic, or name another by --errors. Nothing is lost: its offset is not committed."
            )
        if outcome is not Outcome.ACKED:
            raise StoreUnavailable(f"the error topic {self.error_topic} does not answer ({outcome.value}).")
        _log.warning(
            f"Refused {delivery.place}: {refusal}", action="command_refused", figures={"error": type(refusal).__name__}
        )


def _read(delivery: Delivery) -> Command | InvalidSchedule:
    try:
        return read_command(delivery.value)
    except InvalidSchedule as refusal:
        return refusal
