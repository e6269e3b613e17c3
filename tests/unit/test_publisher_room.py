"""The bound on un-acked records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatcher.room import Room, Share


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_finds_no_room_waits_until_there_is() -> None:
    room, shares = Room(count_max=10, bytes_max=1_000), [Share(), Share(), Share()]
    await room.take(shares[0], 5, 10)
    await room.take(shares[1], 5, 10)
    waiting = asyncio.create_task(room.take(shares[2], 1, 10))
    await settle()
    assert not waiting.done()
    room.give_back(shares[0], 5, 10)
    await waiting
    assert (room.count, room.size_bytes) == (6, 20)


async def test_a_topic_holds_at_most_half_and_the_others_pass_it_by() -> None:
    room, greedy, modest = Room(count_max=10, bytes_max=1_000), Share(), Share()
    await room.take(greedy, 5, 10)
    more = asyncio.create_task(room.take(greedy, 1, 10))
    await settle()
    assert not more.done()
    await asyncio.wait_for(room.take(modest, 5, 10), 1)
    room.give_back(greedy, 5, 10)
    await more


async def test_whoever_waits_for_much_is_not_starved_by_those_who_come_later_for_little() -> None:
    room, held, big, small = Room(count_max=10, bytes_max=1_000), [Share(), Share()], Share(), Share()
    await room.take(held[0], 4, 1)
    await room.take(held[1], 4, 1)
    much = asyncio.create_task(room.take(big, 5, 1))
    await settle()
    little = asyncio.create_task(room.take(small, 1, 1))
    await settle()
    assert not little.done()
    room.give_back(held[0], 4, 1)
    await much
    await little


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    room, shares = Room(count_max=4, bytes_max=1_000), [Share(), Share(), Share()]
    await room.take(shares[0], 2, 1)
    await room.take(shares[1], 2, 1)
    given_up = asyncio.create_task(room.take(shares[2], 2, 1))
    await settle()
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    room.give_back(shares[0], 2, 1)
    assert (room.count, shares[2].count) == (2, 0)


async def test_a_wait_cancelled_in_the_moment_it_was_admitted_gives_its_room_back() -> None:
    room, shares = Room(count_max=4, bytes_max=1_000), [Share(), Share(), Share()]
    await room.take(shares[0], 2, 1)
    await room.take(shares[1], 2, 1)
    admitted = asyncio.create_task(room.take(shares[2], 2, 1))
    await settle()
    room.give_back(shares[0], 2, 1)
    admitted.cancel()
    await asyncio.gather(admitted, return_exceptions=True)
    assert (room.count, shares[2].count) == (2, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 300)), max_size=60))
def test_neither_bound_is_ever_passed_and_everybody_gets_in(visits: Sequence[tuple[int, int, int]]) -> None:
    async def visit(room: Room, share: Share, count: int, size_bytes: int) -> None:
        await room.take(share, count, size_bytes)
        assert share.count == count or (2 * share.count <= 50 and 2 * share.size_bytes <= 400)
        assert room.count == count or (room.count <= 50 and room.size_bytes <= 400)
        await asyncio.sleep(0)
        room.give_back(share, count, size_bytes)

    async def all_visit() -> None:
        room, shares = Room(count_max=50, bytes_max=400), [Share() for _ in range(4)]
        async with asyncio.timeout(10):
            await asyncio.gather(*(visit(room, shares[who], *what) for who, *what in visits))
        assert (room.count, room.size_bytes) == (0, 0)

    asyncio.run(all_visit())
