"""Messages between a client and three replicas: each has its own delay, may be lost, doubled, or land much later.

A write that a replica never answered may still be applied there: at once (its answer was lost), seconds later (a hint,
a queue), or never. That is what makes a timeout differ from a failure, and it is the fault that most protocols forget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Protocol, TypeVar

import msgspec

from simulation.event_loop import WORLD

A = TypeVar("A")
N = TypeVar("N", bound="Node")


class Node(Protocol):
    """What messages are sent to."""

    down: bool


class NetworkFaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Shares of messages and calls, each between 0 and 1."""

    lost: float = 0
    slow: float = 0
    doubled: float = 0
    #: Conditional writes whose outcome stays unknown to the caller.
    unknown: float = 0
    #: Calls refused before anything was attempted.
    unavailable: float = 0


class Network:
    """Delivers messages. `faults` may be replaced while it runs; `delay_ms` scales the undisturbed delay."""

    def __init__(self, random: Random, faults: NetworkFaults, *, delay_ms: float = 4) -> None:
        self.random = random
        self.faults = faults
        self._delay_ms = delay_ms

    def delay_ms(self) -> float:
        """How long one message takes, if it arrives."""
        if self.faults.slow and self.random.random() < self.faults.slow:
            return self.random.uniform(30, 450)
        return self._delay_ms * self.random.uniform(0.1, 1.9)

    def chance(self, share: float) -> bool:
        """Whether this one meets with a fault of that share."""
        return share > 0 and self.random.random() < share

    def ask(self, node: N, request: Callable[[N], A], answer: Callable[[A], None], *, writes: bool) -> None:
        """Send a request; its answer, if any, runs in the caller's context, that is: in the caller's process."""
        caller = copy_context()
        later(self.delay_ms(), self._arrive, node, request, answer, writes, caller)
        if writes and self.chance(self.faults.doubled):
            later(self.random.uniform(10, 8_000), self._land, node, request)

    def _arrive(
        self, node: N, request: Callable[[N], A], answer: Callable[[A], None], writes: bool, caller: Context
    ) -> None:
        if node.down or self.chance(self.faults.lost):
            if writes and self.random.random() < 0.6:
                later(self.random.uniform(200, 25_000), self._land, node, request)
            return
        result = request(node)
        if not self.chance(self.faults.lost):
            asyncio.get_running_loop().call_later(self.delay_ms() / 1000, answer, result, context=caller)

    def _land(self, node: N, request: Callable[[N], A]) -> None:
        """A leftover arrives; nobody waits for its answer."""
        if not node.down:
            request(node)


def later(delay_ms: float, callback: Callable[..., object], *arguments: object) -> None:
    """Run something of the world's after a while."""
    asyncio.get_running_loop().call_later(delay_ms / 1000, callback, *arguments, context=WORLD)
