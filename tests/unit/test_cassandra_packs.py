"""Packs of one turn of the event loop share a request, within its bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tocsin.schema.cassandra_driver import Call
from tocsin.schema.cassandra_packs import TOGETHER_BYTES_MAX, TOGETHER_MAX, PackWriter
from tocsin.schema.cassandra_statements import WRITE_PACK
from tocsin.schema.errors import StoreTimeout
from tocsin.schema.levels import Level


def call(number: int) -> Call:
    return Call(WRITE_PACK[Level.MINUTE], (number,))


class Cluster:
    """Keeps what it is sent, and fails where told."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.failing: set[int] = set()

    async def run_together(self, calls: Sequence[Call]) -> None:
        numbers = [each.values[0] for each in calls]
        self.requests.append(numbers)
        await asyncio.sleep(0)
        if self.failing & set(numbers):
            raise StoreTimeout


async def test_packs_written_at_once_go_out_in_one_request_and_later_ones_in_another() -> None:
    cluster = Cluster()
    writer = PackWriter(cluster.run_together)
    await asyncio.gather(*(writer.write(call(number), 100) for number in range(3)))
    await writer.write(call(3), 100)
    assert cluster.requests == [[0, 1, 2], [3]]


async def test_a_request_holds_neither_more_packs_nor_more_bytes_than_cassandra_takes_without_a_warning() -> None:
    cluster = Cluster()
    writer = PackWriter(cluster.run_together)
    sizes = [100] * 25 + [TOGETHER_BYTES_MAX // 2] * 5 + [10 * TOGETHER_BYTES_MAX] * 2 + [100]
    await asyncio.gather(*(writer.write(call(number), size) for number, size in enumerate(sizes)))
    assert sorted(number for request in cluster.requests for number in request) == list(range(len(sizes)))
    assert max(map(len, cluster.requests)) == TOGETHER_MAX
    for request in cluster.requests:
        assert len(request) == 1 or sum(sizes[number] for number in request) <= TOGETHER_BYTES_MAX


async def test_a_failed_request_fails_those_who_share_it_and_nobody_else() -> None:
    cluster = Cluster()
    cluster.failing.add(1)
    writer = PackWriter(cluster.run_together)
    answers = await asyncio.gather(*(writer.write(call(number), 100) for number in range(12)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreTimeout] * TOGETHER_MAX + [type(None)] * 2
    await writer.write(call(2), 100)


async def test_a_caller_that_gives_up_takes_nobody_with_it() -> None:
    cluster = Cluster()
    writer = PackWriter(cluster.run_together)
    given_up, kept = (asyncio.ensure_future(writer.write(call(number), 100)) for number in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    await kept
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert cluster.requests == [[0, 1]]
