"""Statements of many shard ranges, asked as one.

A dispatcher that owns many ranges asks the same of each in every tick: raise a register, is anything on near, is there
a change marker. Where nothing is there the asking is all that it costs, and it is what an idle fleet costs a cluster.
So questions that are put in the same turn of the event loop go out as one statement over several partitions: each is
still read, or written, with a majority of its own, and all of them begin after every question was put.

A failure is shared, so whoever shared it asks again alone, and for a while all do: a range whose replicas are away must
hold up no other, and a statement that times out holds up everybody who shares it.

Reads are shared only by ranges that had nothing the last time. One statement returns one page, and where the page is
full nobody can tell whose rows are missing: then too each asks alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from tocsin.schema.cassandra_driver import Rows
from tocsin.schema.errors import StoreTimeout, StoreUnavailable

#: So many ranges are read in one statement: all of them, in one tick.
READ_TOGETHER_MAX = 64
#: So many questions are asked alone after a failure was shared; of 64 ranges that tick, those of ten seconds.
ALONE_AFTER_FAILURE = 2_560

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Together(Generic[Question, Answer]):
    """Puts questions of one turn of the loop as one.

    Args:
        ask: answers questions, in order.
        most: questions put at once.
    """

    def __init__(self, ask: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]], *, most: int) -> None:
        self._ask = ask
        self._most = most
        self._open: list[Question] = []
        self._asking: asyncio.Task[Sequence[Answer]] | None = None
        #: Questions still to be asked alone.
        self._alone = 0

    async def put(self, question: Question) -> Answer:
        """The answer to this question, by a request that begins after this call."""
        if self._alone:
            self._alone -= 1
            return (await self._ask([question]))[0]
        if self._asking is None or len(self._open) >= self._most:
            self._open = []
            self._asking = asyncio.get_running_loop().create_task(self._send(self._open))
            self._asking.add_done_callback(_look_at)
        questions, asking = self._open, self._asking
        index = len(questions)
        questions.append(question)
        try:
            return (await asyncio.shield(asking))[index]
        except (StoreTimeout, StoreUnavailable):
            if len(questions) == 1:
                raise
            self._alone = ALONE_AFTER_FAILURE
        return (await self._ask([question]))[0]

    async def _send(self, questions: list[Question]) -> Sequence[Answer]:
        if self._open is questions:
            self._asking = None
        return await self._ask(questions)


class Window(NamedTuple):
    """What a range wants to see of one slot of time: after < position <= through."""

    slot: int
    shard_range: int
    after: int
    through: int


class QuietReads:
    """Reads of slots in which most ranges have nothing.

    Args:
        read: one page of the rows of several ranges, (slot, ranges, after, through); each row is the range, the
            position, and what else the table has.
    """

    def __init__(self, read: Callable[[Sequence[Any]], Awaitable[Rows]]) -> None:
        self._read = read
        self._quiet: set[int] = set()
        self._together = Together(self._ask, most=READ_TOGETHER_MAX)

    async def rows(self, window: Window) -> list[Sequence[Any]] | None:
        """The rows of a window, in order of position; None: ask for them alone, and tell what was found."""
        if window.shard_range not in self._quiet:
            return None
        rows = await self._together.put(window)
        if rows is None or rows:
            self._quiet.discard(window.shard_range)
        return rows

    def found(self, shard_range: int, count: int) -> None:
        """A range that asked alone found so many rows."""
        if not count:
            self._quiet.add(shard_range)

    async def _ask(self, windows: Sequence[Window]) -> Sequence[list[Sequence[Any]] | None]:
        slots = sorted({window.slot for window in windows})
        pages = await asyncio.gather(*(self._page([each for each in windows if each.slot == slot]) for slot in slots))
        page_of = dict(zip(slots, pages, strict=True))
        return [_rows_of(window, page_of[window.slot]) for window in windows]

    async def _page(self, windows: Sequence[Window]) -> Rows:
        """What lies in one slot, of all these ranges, from where the first begins to where the last ends."""
        after, through = min(window.after for window in windows), max(window.through for window in windows)
        ranges = sorted({window.shard_range for window in windows})
        return await self._read((windows[0].slot, ranges, after, through))


def _rows_of(window: Window, page: Rows) -> list[Sequence[Any]] | None:
    if page.paging_state is not None:
        return None
    return [
        row
        for shard_range, *row in page.rows
        if shard_range == window.shard_range and window.after < row[0] <= window.through
    ]


def _look_at(asked: asyncio.Task[Any]) -> None:
    """Whoever waits is told of a failure; where all were cancelled, nobody needs to be."""
    if not asked.cancelled():
        asked.exception()
