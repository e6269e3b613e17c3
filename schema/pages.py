"""Reading page by page, where a page that failed is not lost.

An async generator ends with its first exception: the next page asked for would be 'no more pages', and what had not
been read yet would be taken as not there. `Pages` keeps its place instead: after an error the next `anext` asks for the
same page again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")
Place = TypeVar("Place")


class Pages(AsyncIterator[Sequence[Row]], Generic[Row, Place]):
    """Pages of rows, each read when it is asked for.

    `read_page` takes the place where the page before ended (None: the start) and returns rows and the place where they
    end (None: nothing follows). A page may be empty and yet have others behind it; those are passed over.
    """

    def __init__(self, read_page: Callable[[Place | None], Awaitable[tuple[Sequence[Row], Place | None]]]) -> None:
        self._read_page = read_page
        self._place: Place | None = None
        self._ended = False

    async def __anext__(self) -> Sequence[Row]:
        """The next page; after an error, the same page again."""
        while not self._ended:
            rows, place = await self._read_page(self._place)
            self._place, self._ended = place, place is None
            if rows:
                return rows
        raise StopAsyncIteration


async def next_page(pages: AsyncIterator[Sequence[Row]]) -> Sequence[Row]:
    """The next page; an empty one after the last. After an error it is asked for again."""
    try:
        return await anext(pages)
    except StopAsyncIteration:
        return ()
