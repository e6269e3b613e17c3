"""Pages keep their place over errors and pass over empty pages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tocsin.schema.errors import StoreTimeout
from tocsin.schema.pages import Pages


class Table:
    """Pages by number; asking may fail as often as it is told to."""

    def __init__(self, *pages: list[int]) -> None:
        self._pages = pages
        self.asked: list[int | None] = []
        self.failures_left = 0

    async def read_page(self, place: int | None) -> tuple[Sequence[int], int | None]:
        self.asked.append(place)
        if self.failures_left:
            self.failures_left -= 1
            raise StoreTimeout
        number = place or 0
        return self._pages[number], number + 1 if number + 1 < len(self._pages) else None


async def test_nothing_is_read_before_it_is_asked_for() -> None:
    table = Table([1], [2])
    pages = Pages(table.read_page)
    assert table.asked == []
    assert await anext(pages) == [1]
    assert table.asked == [None]


async def test_an_empty_page_does_not_end_the_reading() -> None:
    assert [page async for page in Pages(Table([], [1], [], [], [2], []).read_page)] == [[1], [2]]


async def test_a_page_that_failed_is_asked_for_again_and_none_is_lost() -> None:
    table = Table([1], [2], [3])
    pages = Pages(table.read_page)
    assert await anext(pages) == [1]
    table.failures_left = 2
    for _ in range(2):
        with pytest.raises(StoreTimeout):
            await anext(pages)
    assert [page async for page in pages] == [[2], [3]]


async def test_the_end_stays_the_end() -> None:
    table = Table([1])
    pages = Pages(table.read_page)
    assert [page async for page in pages] == [[1]]
    assert [page async for page in pages] == []
    assert table.asked == [None]
