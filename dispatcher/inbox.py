"""An inbox: what a consumer remembers, so that an occurrence has its effect once.

Kafka and Tocsin deliver at least once. A record may come again after a rebalance, after a dispatcher's takeover, or
because an offset was not committed. The occurrence key is the same each time, so a consumer asks its inbox:

    with inbox.once(received, subscription="digests") as first:
        if first:
            send_digest(received)

**Claimed, then recorded.** Entering claims the occurrence; leaving without an exception records it. In between nobody
else enters: who comes meanwhile waits, since 'it is being done' is no reason to commit an offset, and learns in the end
that it was done, or takes over what was left. An exception releases the claim, so the next try need not wait. A
consumer that dies leaves a claim that nobody renews; after `abandoned_after` it is free.

**What it cannot promise.** Between the effect of a block and its record a consumer can die, and then the block runs
again. Where the effect lies in a database, put the record there too, in the same transaction: a table with the primary
key (subscription, occurrence key) and an insert that changes nothing on conflict are all it takes, and `Inbox` is the
protocol to hide it behind. Where the effect is a call, give the callee the occurrence key.

**Another definition.** A payload is made for one definition of the work. A consumer that names its own refuses others:
they are set aside, and `once` yields False, so that the offset moves on. Whoever knows that definition takes them up
later, by `awaiting`.

**Overlap.** `guard` is the same claim on the schedule in place of the occurrence: long-running work of one schedule
runs one at a time. What happens to an occurrence that comes meanwhile is the consumer's to say, or the schedule's own,
in its header `concurrency`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from tocsin.dispatcher.inbox_blocks import Concurrency, Guard, Once
from tocsin.dispatcher.inbox_claims import Claims, Place
from tocsin.dispatcher.inbox_hold import Means, Terms
from tocsin.dispatcher.received import Received
from tocsin.producer.loop_thread import LoopThread
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, SystemClock
from tocsin.schema.errors import SettingsError
from tocsin.schema.fresh_ids import FreshIds
from tocsin.schema.pages import next_page
from tocsin.schema.timing import Timing

#: The header by which a schedule says what its occurrences do when they overlap.
CONCURRENCY_HEADER: Final = "concurrency"
#: Characters of a subscription at most.
SUBSCRIPTION_LENGTH_MAX: Final = 255

Result = TypeVar("Result")


class Inbox(Protocol):
    """What handlers rely on; one's own table in one's own transaction is an Inbox too."""

    def once(self, received: Received, *, subscription: str) -> AbstractContextManager[bool]:
        """Yield True the first time for this subscription, else False; recorded only when the block succeeds."""
        ...


class ClaimingInbox:
    """An inbox on claims; `MemoryInbox`, `SqliteInbox` and `CassandraInbox` say where they are kept.

    Used by `with` from any number of threads, or by `async with` on one event loop; make one inbox for each loop.

    Args:
        claims: where they are kept.
        clock: the host's clock.
        new_id: makes fresh ids of 16 bytes.
        terms: durations by name, see `Terms`: abandoned_after, patience, remembered_for.

    Raises:
        SettingsError: a term is unknown or out of range.
    """

    def __init__(
        self, claims: Claims, *, clock: Clock | None = None, new_id: Callable[[], bytes] | None = None, **terms: Any
    ) -> None:
        unknown = sorted(set(terms) - set(Terms.__dataclass_fields__))
        if unknown:
            raise SettingsError(f"an inbox has no {unknown[0]}; it has {', '.join(Terms.__dataclass_fields__)}.")
        clock = clock or SystemClock()
        self._means = Means(claims, Terms(**terms), clock, new_id or FreshIds(), Persistence(clock, Timing()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._thread: LoopThread | None = None
        self._threading = threading.Lock()

    # For handlers

    def once(self, received: Received, *, subscription: str, definition: str | None = None) -> Once:
        """Do the work of an occurrence once for this subscription, see `inbox_blocks.Once`.

        Args:
            received: the occurrence.
            subscription: who does the work; each subscription does it once.
            definition: the definition this consumer knows; what is for another one is set aside. None: all are taken.
        """
        fits = definition is None or received.definition == definition
        return Once(self, _place(subscription, "once", received.key), None if fits else received)

    def once_for(self, name: str, *, subscription: str) -> Once:
        """The same for work of another name than an occurrence key: a command's id, a file's."""
        return Once(self, _place(subscription, "once", name))

    def guard(self, received: Received, *, subscription: str, concurrency: Concurrency | None = None) -> Guard:
        """Run one occurrence of its schedule at a time, see `inbox_blocks.Guard`.

        Args:
            received: the occurrence.
            subscription: who does the work.
            concurrency: what an occurrence does that comes meanwhile. None: what the schedule's header `concurrency`
                says, else forbid.

        Raises:
            SettingsError: the header names no policy.
        """
        if concurrency is None:
            concurrency = _policy(received.headers.get(CONCURRENCY_HEADER, Concurrency.FORBID.value))
        return Guard(self, _place(subscription, "turn", received.schedule_id), concurrency)

    def awaiting(self, *, subscription: str, definition: str | None) -> Iterator[Received]:
        """What was set aside for a definition (None: for none). Each leaves once the inbox has recorded it.

        Do its work by `once`, as for a record that has just come.
        """
        waiting = self.awaiting_async(subscription=subscription, definition=definition)
        while (received := self.run(_next(waiting))) is not None:
            yield received

    async def awaiting_async(self, *, subscription: str, definition: str | None) -> AsyncIterator[Received]:
        """The same for code with an event loop."""
        means = await self.ready()
        claims, answered, of = means.claims, means.persistence.until_answered, (subscription, definition or "")
        pages = claims.awaiting(*of)
        while page := await answered(partial(next_page, pages), means.deadline()):
            for key, body in page:
                place = _place(subscription, "once", key)
                if not await answered(partial(claims.recorded, place), means.deadline()):
                    yield msgspec.msgpack.decode(body, type=Received)
                if await answered(partial(claims.recorded, place), means.deadline()):
                    await answered(partial(claims.take_up, *of, key), means.deadline())

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    def __enter__(self) -> Self:
        self.run(self.ready())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def close_async(self) -> None:
        """Give back connections; an inbox that is used again opens them anew."""
        self._loop = None
        await self._means.claims.close()

    def close(self) -> None:
        """Give back connections and end the thread; an inbox that is used again opens them anew."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self.close_async())
            thread.close()

    async def ready(self) -> Means:
        """What to work with, connected.

        Raises:
            SettingsError: the inbox is in use on another event loop.
            NotInitialised, StoreUnavailable: the claims cannot be reached.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None:
            async with self._opening:
                await self._means.claims.open()
                self._loop = loop
        elif self._loop is not loop:
            raise SettingsError("this inbox is in use on another event loop, or by `with`; make one for each.")
        return self._means

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a call on the inbox's own thread and wait for it."""
        with self._threading:
            self._thread = thread = self._thread or LoopThread("Inbox")
        return thread.run(call)


def _place(subscription: str, purpose: str, name: str) -> Place:
    if not 0 < len(subscription) <= SUBSCRIPTION_LENGTH_MAX:
        raise SettingsError(f"subscription is {subscription!r}; give it 1 to {SUBSCRIPTION_LENGTH_MAX} characters.")
    return Place(subscription, purpose, name)


def _policy(text: str) -> Concurrency:
    try:
        return Concurrency(text)
    except ValueError as error:
        known = ", ".join(policy.value for policy in Concurrency)
        raise SettingsError(f"the header {CONCURRENCY_HEADER} is {text!r}; it is one of {known}.") from error


async def _next(waiting: AsyncIterator[Received]) -> Received | None:
    return await anext(waiting, None)
