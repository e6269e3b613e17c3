"""The client for code without an event loop: AsyncScheduler on a thread of its own.

Every method is made from the asynchronous one of the same name, with its arguments, documentation and errors; only
waiting is different. What a caller hands in is consumed on the caller's thread, so that an iterable may itself use the
scheduler, or a database.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tocsin.producer.loop_thread import LoopThread
from tocsin.producer.many import WINDOW
from tocsin.producer.scheduler import SEND_MAX, AsyncScheduler
from tocsin.schema.store import Store

#: Results fetched from the other thread in one go.
FETCH_MAX = 100

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")
Result = TypeVar("Result")


def _waiting(
    method: Callable[Concatenate[AsyncScheduler, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Scheduler, Arguments], Result]:
    """The method, waiting for its answer."""

    @functools.wraps(method)
    def call(self: Scheduler, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return self.run(method(self.asynchronous, *arguments, **options))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncScheduler, Arguments], AsyncIterator[Result]],
) -> Callable[Concatenate[Scheduler, Arguments], Iterator[Result]]:
    """The method, its results fetched some at a time."""

    @functools.wraps(method)
    def iterate(self: Scheduler, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Iterator[Result]:
        results = method(self.asynchronous, *arguments, **options)
        while fetched := self.run(_fetch(results, FETCH_MAX)):
            yield from fetched

    return iterate


def _feeding(
    method: Callable[[AsyncScheduler, Iterable[Item]], AsyncIterator[Result]], part_max: int
) -> Callable[[Scheduler, Iterable[Item]], Iterator[Result]]:
    """The method, its items handed over part by part."""

    @functools.wraps(method)
    def feed(self: Scheduler, items: Iterable[Item]) -> Iterator[Result]:
        remaining = iter(items)
        while part := list(itertools.islice(remaining, part_max)):
            yield from self.run(_fetch(method(self.asynchronous, part), part_max))

    return feed


async def _fetch(results: AsyncIterator[Result], count_max: int) -> list[Result]:
    """The next results, so many at most."""
    fetched: list[Result] = []
    async for result in results:
        fetched.append(result)
        if len(fetched) == count_max:
            break
    return fetched


class Scheduler:
    """AsyncScheduler for code without an event loop; same arguments, same methods, same errors."""

    def __init__(self, store: str | Store = "sqlite:///tocsin.db", **options: Any) -> None:
        #: What does the work, on the other thread.
        self.asynchronous = AsyncScheduler(store, **options)
        self._thread = LoopThread("Scheduler")

    def __enter__(self) -> Self:
        try:
            self.run(self.asynchronous.__aenter__())
        except BaseException:
            self._thread.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back the store's connections and end the thread."""
        if not self._thread.is_closed:
            try:
                self.run(self.asynchronous.close())
            finally:
                self._thread.close()

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a call of the asynchronous client on its thread and wait for its answer."""
        return self._thread.run(call)

    create = _waiting(AsyncScheduler.create)
    create_many = _feeding(AsyncScheduler.create_many, 2 * WINDOW)
    apply = _waiting(AsyncScheduler.apply)
    get = _waiting(AsyncScheduler.get)
    list = _iterating(AsyncScheduler.list)
    upcoming = _waiting(AsyncScheduler.upcoming)
    occurrences = _iterating(AsyncScheduler.occurrences)
    update = _waiting(AsyncScheduler.update)
    pause = _waiting(AsyncScheduler.pause)
    resume = _waiting(AsyncScheduler.resume)
    cancel = _waiting(AsyncScheduler.cancel)
    is_current = _waiting(AsyncScheduler.is_current)
    trigger = _waiting(AsyncScheduler.trigger)
    backfill = _waiting(AsyncScheduler.backfill)
    send_at = _waiting(AsyncScheduler.send_at)
    send_many = _feeding(AsyncScheduler.send_many, SEND_MAX)
    recall = _waiting(AsyncScheduler.recall)
    set_calendar = _waiting(AsyncScheduler.set_calendar)
    get_calendar = _waiting(AsyncScheduler.get_calendar)
