"""Statements of many ranges asked as one: each gets its own answer, and nobody suffers for another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tocsin.schema.cassandra_driver import Rows
from tocsin.schema.cassandra_together import ALONE_AFTER_FAILURE, QuietReads, Together, Window
from tocsin.schema.errors import StoreTimeout


class Table:
    """Rows (range, position, body) of slot 1, and what was asked."""

    def __init__(self, *rows: tuple[int, int, bytes], paging_state: bytes | None = None) -> None:
        self.rows = rows
        self.paging_state = paging_state
        self.asked: list[Sequence[Any]] = []

    async def read(self, values: Sequence[Any]) -> Rows:
        self.asked.append(values)
        slot, ranges, after, through = values
        found = [row for row in self.rows if slot == 1 and row[0] in ranges and after < row[1] <= through]
        return Rows(found, self.paging_state)


def quiet(table: Table, *ranges: int) -> QuietReads:
    reads = QuietReads(table.read)
    for shard_range in ranges:
        reads.found(shard_range, 0)
    return reads


async def doubled(numbers: Sequence[int]) -> list[int]:
    return [2 * number for number in numbers]


async def test_questions_of_one_turn_are_one_and_each_has_its_own_answer() -> None:
    asked: list[list[int]] = []

    async def ask(numbers: Sequence[int]) -> list[int]:
        asked.append(list(numbers))
        return await doubled(numbers)

    together = Together(ask, most=3)
    assert await asyncio.gather(*map(together.put, range(5))) == [0, 2, 4, 6, 8]
    assert await together.put(5) == 10
    assert asked == [[0, 1, 2], [3, 4], [5]]


async def test_a_question_put_while_a_request_is_under_way_waits_for_the_next() -> None:
    under_way, answered = asyncio.Event(), asyncio.Event()
    asked: list[list[int]] = []

    async def ask(numbers: Sequence[int]) -> list[int]:
        asked.append(list(numbers))
        under_way.set()
        await answered.wait()
        return await doubled(numbers)

    together = Together(ask, most=10)
    first = asyncio.ensure_future(together.put(1))
    await under_way.wait()
    second = asyncio.ensure_future(together.put(2))
    answered.set()
    assert await asyncio.gather(first, second) == [2, 4]
    assert asked == [[1], [2]]


async def test_who_shares_a_failure_asks_again_alone() -> None:
    async def ask(numbers: Sequence[int]) -> list[int]:
        if 3 in numbers:
            raise StoreTimeout
        return await doubled(numbers)

    together = Together(ask, most=10)
    answers = await asyncio.gather(*map(together.put, range(1, 4)), return_exceptions=True)
    assert answers[:2] == [2, 4]
    assert isinstance(answers[2], StoreTimeout)


async def test_after_a_shared_failure_nobody_waits_for_another_for_a_while() -> None:
    sizes: list[int] = []

    async def ask(numbers: Sequence[int]) -> list[int]:
        sizes.append(len(numbers))
        if len(sizes) == 1:
            raise StoreTimeout
        return await doubled(numbers)

    together = Together(ask, most=10)
    for _ in range(ALONE_AFTER_FAILURE // 2 + 2):
        assert await asyncio.gather(together.put(1), together.put(2)) == [2, 4]
    assert sizes[0] == 2
    assert set(sizes[1:-1]) == {1}
    assert sizes[-1] == 2


async def test_a_range_that_asks_alone_and_fails_is_told_so() -> None:
    async def ask(numbers: Sequence[int]) -> list[int]:
        raise StoreTimeout(str(numbers))

    with pytest.raises(StoreTimeout):
        await Together(ask, most=10).put(1)


async def test_quiet_ranges_are_read_by_one_statement_and_each_sees_its_own_window() -> None:
    table = Table((7, 15, b"a"), (7, 25, b"later"), (8, 5, b"earlier"), (8, 15, b"b"))
    reads = quiet(table, 7, 8, 9)
    windows = [Window(1, 7, 10, 20), Window(1, 8, 12, 25), Window(1, 9, 10, 20)]
    found = await asyncio.gather(*map(reads.rows, windows))
    assert found == [[[15, b"a"]], [[15, b"b"]], []]
    assert table.asked == [(1, [7, 8, 9], 10, 25)]


async def test_a_range_that_has_something_asks_alone_until_it_is_quiet_again() -> None:
    table = Table((7, 15, b"a"))
    reads = quiet(table, 7)
    assert await reads.rows(Window(1, 7, 10, 20)) == [[15, b"a"]]
    assert await reads.rows(Window(1, 7, 20, 30)) is None
    reads.found(7, 3)
    assert await reads.rows(Window(1, 7, 30, 40)) is None
    reads.found(7, 0)
    assert await reads.rows(Window(1, 7, 40, 50)) == []


async def test_a_full_page_says_nothing_of_anybody() -> None:
    reads = quiet(Table((7, 15, b"a"), paging_state=b"more"), 7, 8)
    windows = [Window(1, 7, 10, 20), Window(1, 8, 10, 20)]
    assert await asyncio.gather(*map(reads.rows, windows)) == [None, None]


async def test_slots_are_read_by_a_statement_each() -> None:
    table = Table((7, 15, b"a"))
    reads = quiet(table, 7, 8)
    assert await asyncio.gather(reads.rows(Window(1, 7, 10, 20)), reads.rows(Window(2, 8, 10, 20))) == [
        [[15, b"a"]],
        [],
    ]
    assert len(table.asked) == 2
