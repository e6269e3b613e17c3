"""Consumers that die, stand still and fail, on claims that answer late, not at all, or for what they did not do.

A seed decides everything. Virtual time passes while nobody can do anything, so a minute of patience costs nothing. What
is judged is what an inbox promises: a block that left without an exception is the only one of its place that ever did;
two of them are at work at once only where one has stood still or is dead; whoever is told that the work was done, it
was; and once the storm is over, all of it is.

The checks are checked: each of `BUGS` is put into the code and has to be found.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

import pytest

from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_blocks import Once
from tocsin.dispatcher.inbox_claims import Claim, Place
from tocsin.dispatcher.inbox_hold import Hold
from tocsin.dispatcher.inbox_memory import MemoryClaims
from tocsin.dispatcher.virtual_loop import VirtualClock, VirtualLoop
from tocsin.schema.errors import ClaimHeld, ClaimLost, StoreTimeout, StoreUnavailable

START_MS = 1_796_032_800_000
ABANDONED_MS = 10_000
CONSUMERS, KEYS, ROUNDS = 4, 3, 6
SEEDS = range(100)

Answer = TypeVar("Answer")


class Stormy:
    """Claims behind a bad network; shared by all consumers, and calm once `calm` is set."""

    def __init__(self, inner: MemoryClaims, random: Random, clock: VirtualClock) -> None:
        self._inner = inner
        self._random = random
        self._clock = clock
        self.calm = False
        self.late: set[asyncio.Task[Any]] = set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        step = getattr(self._inner, name)
        return step if name in {"open", "close"} else lambda *arguments: self._sent(step, arguments)

    async def _sent(self, step: Callable[..., Awaitable[Answer]], arguments: tuple[Any, ...]) -> Answer:
        fate = 1.0 if self.calm else self._random.random()
        await self._clock.sleep_ms(self._random.randrange(50))
        if fate < 0.08:
            raise StoreUnavailable
        if fate < 0.16:  # It arrives later, when nobody waits for it any more.
            self.late.add(asyncio.create_task(self._later(step, arguments)))
            raise StoreTimeout
        answer = await step(*arguments)
        await self._clock.sleep_ms(self._random.randrange(50))
        if fate < 0.24:
            raise StoreTimeout
        return answer

    async def _later(self, step: Callable[..., Awaitable[Answer]], arguments: tuple[Any, ...]) -> None:
        await self._clock.sleep_ms(self._random.randrange(2_000))
        await step(*arguments)


class Storm:
    """One run, and what happened in it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop, START_MS)
        self.memory = MemoryClaims(self.clock)
        self.claims = Stormy(self.memory, self.random, self.clock)
        self.left_well: Counter[str] = Counter()
        #: Who is in a block of a key; the dead and those that stand still are taken out.
        self.at_work: dict[str, set[Hold]] = {}
        self.wrong: list[str] = []
        self._numbers = iter(range(1, 10_000))

    def run(self) -> None:
        try:
            self.loop.run_until_complete(self._run())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()

    async def _run(self) -> None:
        await asyncio.gather(*(self._consume() for _ in range(CONSUMERS)))
        self.claims.calm = True
        await asyncio.gather(*self.claims.late)
        await self.clock.sleep_ms(ABANDONED_MS)
        for number in range(KEYS):
            await self._handle(self._inbox(), f"k{number}", calm=True)
            if not await self.memory.recorded(Place("s", "once", f"k{number}")):
                self.wrong.append(f"k{number} was never done")
        self.wrong += [f"{key} was done {count} times" for key, count in self.left_well.items() if count > 1]

    def _inbox(self) -> ClaimingInbox:
        terms = {"abandoned_after": timedelta(milliseconds=ABANDONED_MS), "patience": timedelta(seconds=30)}
        new_id = lambda: self.random.randbytes(16)  # noqa: E731 — a draw of this seed
        return ClaimingInbox(self.claims, clock=self.clock, new_id=new_id, **terms)  # type: ignore[arg-type]

    async def _consume(self) -> None:
        for _ in range(ROUNDS):
            await self.clock.sleep_ms(self.random.randrange(3_000))
            await self._handle(self._inbox(), f"k{self.random.randrange(KEYS)}")

    async def _handle(self, inbox: ClaimingInbox, key: str, *, calm: bool = False) -> None:
        """One delivery of a record; what becomes of it is drawn."""
        block, me = inbox.once_for(key, subscription="s"), next(self._numbers)
        working = self.at_work.setdefault(key, set())
        try:
            async with block as first:
                if not first:
                    if not await self.memory.recorded(Place("s", "once", key)):
                        self.wrong.append(f"{me} was told that {key} was done")
                    return
                if any(not hold.lost for hold in working):
                    self.wrong.append(f"{me} entered {key} beside another")
                await self._work(block, working, fate=1.0 if calm else self.random.random())
        except (StoreUnavailable, StoreTimeout, ClaimHeld, ClaimLost, ZeroDivisionError):
            return
        self.left_well[key] += 1

    async def _work(self, block: Once, working: set[Hold], *, fate: float) -> None:
        hold = block._hold
        assert hold is not None
        working.add(hold)
        await self.clock.sleep_ms(self.random.randrange(3 * ABANDONED_MS))
        working.discard(hold)
        if fate < 0.4:
            if fate < 0.2:  # It dies: nobody renews, records or releases. Otherwise it only fails.
                await hold._stop()
                block._hold = None
            raise ZeroDivisionError
        if fate < 0.6:  # It stands still for longer than its claim lives, and goes on.
            await hold._stop()
            await self.clock.sleep_ms(2 * ABANDONED_MS)
            if fate < 0.5:
                raise ZeroDivisionError


def storm(seed: int) -> list[str]:
    run = Storm(seed)
    run.run()
    return run.wrong


@pytest.mark.parametrize("seed", SEEDS)
def test_a_storm_does_nothing_twice_and_leaves_nothing_undone(seed: int) -> None:
    assert storm(seed) == []


# Bugs that have to be found


async def _records_whoever_asks(self: MemoryClaims, place: Place, holder: bytes, lifetime_ms: int) -> bool:
    self._put(place, Claim(holder, recorded=True), lifetime_ms)
    return True


async def _takes_what_was_recorded(self: MemoryClaims, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
    standing = self._standing(place)
    return standing if standing and not standing.recorded else self._put(place, Claim(holder), lifetime_ms)


async def _releases_whoever_has_it(self: MemoryClaims, place: Place, holder: bytes) -> None:
    self._places.pop(place, None)


async def _keeps_what_was_recorded(self: MemoryClaims, place: Place, holder: bytes, lifetime_ms: int) -> Claim:
    standing = self._standing(place)
    if standing is None or standing.holder != holder:
        return standing or Claim(b"")
    return self._put(place, Claim(holder), lifetime_ms)


async def _never_renews(self: Hold) -> None:
    return


async def _takes_being_done_for_done(self: Once, means: Any) -> bool:
    hold = Hold(means, self._place)
    if (await hold.take()).holder == hold.holder:
        self._hold = hold
        return True
    return False


async def _releases_nothing(self: MemoryClaims, place: Place, holder: bytes) -> None:
    return


async def _expires_never(self: Hold) -> bool:
    await self._stop()
    return True


BUGS = [
    (MemoryClaims, "record", _records_whoever_asks),
    (MemoryClaims, "take", _takes_what_was_recorded),
    (MemoryClaims, "release", _releases_whoever_has_it),
    (MemoryClaims, "keep", _keeps_what_was_recorded),
    (Hold, "_keep", _never_renews),
    (Hold, "record", _expires_never),
    (Once, "_enter", _takes_being_done_for_done),
]


@pytest.mark.parametrize(("kind", "name", "bug"), BUGS, ids=lambda value: getattr(value, "__name__", value))
def test_a_bug_is_found(kind: type, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, name, bug)
    assert any(storm(seed) for seed in SEEDS)
