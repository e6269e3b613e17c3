"""Reading one range's packs and markers, whole and in order, until the store has answered every page.

The caller has sealed before: a page that is asked for now begins after that acknowledgement. A bucket of far or minute
is always read whole, for its packs lie at their lowest due; on near a position is exact, so a part can be read.

A pack that cannot be decoded is kept as a dead letter with its bytes and harms nobody else. One of a newer format is
not ours to judge: UnknownFormat reaches whoever owns the range, who gives it back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial

from tocsin.dispatcher.giving_up import give_up
from tocsin.dispatcher.services import Services
from tocsin.schema.entries import Entry, Undecodable, decode_pack
from tocsin.schema.levels import Bucket, Level
from tocsin.schema.pages import next_page
from tocsin.schema.store import PackRow, PlacedMarker

#: The entries of a pack, and the position at which it was read.
DecodedPack = tuple[int, list[Entry]]


def in_stretches(packs: Iterable[DecodedPack], size: int) -> Iterator[list[Entry]]:
    """The entries of these packs, at least so many at a time, but for the last; a pack stays whole."""
    stretch: list[Entry] = []
    for _, decoded in packs:
        stretch += decoded
        if len(stretch) >= size:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


class Reader:
    """Reads one shard range."""

    def __init__(self, services: Services, shard_range: int) -> None:
        self._services = services
        self._shard_range = shard_range

    async def near(self, after: int, through: int) -> list[DecodedPack]:
        """Every pack with after < position <= through."""
        packs: list[DecodedPack] = []
        for bucket in self._services.levels.buckets(Level.NEAR, self._shard_range, after, through):
            async for page in self._pages(bucket, after, through):
                packs += page
        return packs

    async def buckets(self, level: Level, after: int, through: int) -> AsyncIterator[list[DecodedPack]]:
        """The packs of every bucket that holds positions in (after, through], page by page, oldest bucket first.

        The next page is asked for once this one is taken in: however large a bucket is, a page of it is in memory.
        """
        for bucket in self._services.levels.buckets(level, self._shard_range, after, through):
            async for page in self._pages(bucket, None, None):
                yield page

    async def markers(self, after: int, through: int) -> list[PlacedMarker]:
        """Every change marker with after < position <= through."""

        async def read() -> list[PlacedMarker]:
            pages = self._services.store.read_markers(self._shard_range, after, through)
            return [marker async for page in pages for marker in page]

        return await self._services.persistence.until_answered(read)

    async def _pages(self, bucket: Bucket, after: int | None, through: int | None) -> AsyncIterator[list[DecodedPack]]:
        pages = self._services.store.read_packs(bucket, after, through)
        while True:
            page = await self._services.persistence.until_answered(partial(next_page, pages))
            if not page:
                return
            yield [(row.position, await self._decode(bucket, row)) for row in page]

    async def _decode(self, bucket: Bucket, row: PackRow) -> list[Entry]:
        try:
            return decode_pack(row.body)
        except Undecodable:
            key = f"{bucket.level.value}/{bucket.start}/{bucket.sub}/{row.pack_id.hex()}"
            await give_up(self._services, self._shard_range, key, "undecodable", row.body)
            return []
