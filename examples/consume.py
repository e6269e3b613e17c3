"""An aiokafka consumer with an inbox: each occurrence has its effect once, and an offset is committed after it.

A record whose handling fails is not committed, and comes again when the consumer starts anew: the inbox has forgotten
it by then. One that was handled and comes again is passed over. A record that is for another definition of the work is
set aside in the inbox, and does not hold up the others.

Run it: python examples/consume.py localhost:9092 mail
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, TopicPartition

from tocsin import ForeignRecord, Received, SqliteInbox

Handler = Callable[[Received], Awaitable[None]]


async def consume(servers: str, topic: str, inbox: SqliteInbox, handle: Handler, *, group: str = "mailer") -> None:
    """Handle the occurrences of a topic until cancelled; what `handle` raises ends it."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with consumer:
        async for record in consumer:
            await take(record, inbox, handle, group)
            await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})


async def take(record: object, inbox: SqliteInbox, handle: Handler, group: str) -> None:
    """Handle one record, unless that was done."""
    try:
        received = Received.from_record(record)
    except ForeignRecord as foreign:
        print(f"passed over: {foreign}", file=sys.stderr)
        return
    async with inbox.once(received, subscription=group, definition="mail-1") as first:
        if first:
            await handle(received)


async def show(received: Received) -> None:
    print(received.key, received.payload.decode(errors="replace"), flush=True)


async def main(servers: str, topic: str) -> None:
    async with SqliteInbox("sqlite:///inbox.db") as inbox:
        await consume(servers, topic, inbox, show)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
