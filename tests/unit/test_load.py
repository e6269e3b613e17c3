"""What ranges carry together: when re-arms wait for a herd, and that long work takes turns."""

from __future__ import annotations

import asyncio

from tocsin.dispatcher.load import HERD_COUNT, REARM_WAITS_MS_MAX, WAITING_BYTES_MAX, Load
from tocsin.dispatcher.turns import Turns
from tocsin.dispatcher.virtual_loop import VirtualLoop


async def is_waiting(load: Load) -> bool:
    """Whether a re-arm would wait now."""
    waits = asyncio.ensure_future(load.herd_is_out())
    await asyncio.sleep(0)
    waiting = not waits.done()
    waits.cancel()
    return waiting


async def test_a_rearm_waits_while_a_herd_is_under_way_and_no_longer() -> None:
    load = Load()
    load.publishing(HERD_COUNT - 1)
    assert not await is_waiting(load)
    load.publishing(1)
    assert await is_waiting(load)
    rearm = asyncio.ensure_future(load.herd_is_out())
    await asyncio.sleep(0)
    load.publishing(-1)
    await asyncio.wait_for(rearm, 1)


def test_a_rearm_waits_for_a_limited_time_however_slow_the_sink_is() -> None:
    loop = VirtualLoop()
    load = Load()
    load.publishing(HERD_COUNT)
    loop.run_until_complete(load.herd_is_out())
    assert loop.time() == REARM_WAITS_MS_MAX / 1000
    loop.close()


async def test_who_reads_and_has_no_room_lets_rearms_go_at_once() -> None:
    load = Load()
    load.publishing(HERD_COUNT)
    rearm = asyncio.ensure_future(load.herd_is_out())
    await asyncio.sleep(0)
    load.size_bytes = WAITING_BYTES_MAX + 1
    load.rearm_now()
    await asyncio.wait_for(rearm, 1)
    load.publishing(1)
    assert not await is_waiting(load)


async def test_between_two_turns_whoever_else_is_ready_is_served() -> None:
    turns, order = Turns(), list[str]()

    async def long_work(name: str) -> None:
        async with turns:
            order.append(name)

    async def somebody_else() -> None:
        await asyncio.sleep(0)
        order.append("somebody else")

    await asyncio.gather(long_work("first"), long_work("second"), long_work("third"), somebody_else())
    assert order[0] == "first"
    assert order.index("somebody else") < order.index("third")
    assert [name for name in order if name != "somebody else"] == ["first", "second", "third"]
