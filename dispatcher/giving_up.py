"""What nobody can dispatch is kept as a dead letter, with its bytes and the reason, until the store has it."""

from __future__ import annotations

from functools import partial

from tocsin.dispatcher.services import Services
from tocsin.schema.entries import Entry, encode_pack
from tocsin.schema.store import DeadLetter


async def give_up_entry(services: Services, shard_range: int, entry: Entry, reason: str) -> None:
    """Keep an occurrence that will not be dispatched."""
    await give_up(services, shard_range, entry.key, reason, encode_pack([entry]), attempts=entry.tries + 1)


async def give_up(
    services: Services, shard_range: int, key: str, reason: str, body: bytes, *, attempts: int = 1
) -> None:
    """Keep the bytes of a pack, under a key by which it can be found."""
    letter = DeadLetter(
        shard_range=shard_range,
        at=services.store_clock.now_ms(),
        occurrence_key=key,
        reason=reason,
        attempts=attempts,
        entry=body,
    )
    await services.persistence.until_answered(partial(services.store.write_dead_letter, letter))
    services.observer.dead_lettered(reason, key)
