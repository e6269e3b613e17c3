"""Where a process dies or stands still: at its n-th call of one kind, before the request leaves or after.

A trap springs inside the simulated store or publisher, never in the code under test, and the code under test has no say
in it: its callbacks just stop coming.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from simulation.event_loop import Process, VirtualLoop, current_process

#: `muffle`: the request reaches one replica only, and no answer comes.
Action = Literal["kill", "pause", "muffle"]


class Trap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="trap"):
    """Springs once."""

    action: Action
    #: Which calls count, as `call` or `call:register`; empty: every call.
    call: str = ""
    #: Calls counted that are let through first.
    spared: int = 0
    #: Virtual ms from which on calls count.
    from_ms: int = 0
    #: Whether the request has left when it springs.
    sent: bool = True
    #: How long a pause lasts.
    duration_ms: int = 0


class Traps:
    """The traps of every process, and what springs them."""

    def __init__(self, loop: VirtualLoop, note: Callable[[str], None], *, until_ms: float) -> None:
        self._loop = loop
        #: Nobody stands still any more from here on.
        self._until_ms = until_ms
        self._note = note
        self._set: dict[Process, list[list[Trap | int]]] = {}
        self.sprung = 0
        self.active = True
        #: Called with a process that was killed.
        self.on_death: dict[Process, Callable[[], None]] = {}

    def set(self, process: Process, traps: Iterable[Trap]) -> None:
        """Lay traps for a process."""
        self._set.setdefault(process, []).extend([trap, trap.spared] for trap in traps)

    async def step(self, call: str, *, sent: bool) -> bool:
        """A process is about to make a call, or has just made it; True: the request is muffled."""
        process = current_process()
        if process is None or not self.active:
            return False
        for armed in self._set.get(process, ()):
            trap, spared = armed
            assert isinstance(trap, Trap)
            assert isinstance(spared, int)
            if (
                trap.sent != sent
                or self._loop.now_ms < trap.from_ms
                or trap.call not in {"", call, call.partition(":")[0]}
            ):
                continue
            if spared:
                armed[1] = spared - 1
                continue
            self._set[process].remove(armed)
            self._spring(process, trap, call)
            await asyncio.sleep(0)  # never returns to the dead, and to the stopped only when they are resumed
            return trap.action == "muffle"
        return False

    def _spring(self, process: Process, trap: Trap, call: str) -> None:
        self.sprung += 1
        moment = "after" if trap.sent else "before"
        if trap.action == "muffle":
            self._note(f"{process} reaches one replica only with its {call}")
        elif trap.action == "kill":
            self.kill(process, f"{moment} {call}")
        else:
            self.pause(process, trap.duration_ms, f"{moment} {call}")

    def kill(self, process: Process, where: str) -> None:
        """SIGKILL, now."""
        if process.alive:
            self._note(f"{process} is killed {where}")
            self._loop.kill(process)
            if process in self.on_death:
                self.on_death[process]()

    def pause(self, process: Process, duration_ms: int, where: str) -> None:
        """SIGSTOP, now, and SIGCONT later."""
        if process.alive and not process.paused:
            duration_ms = min(duration_ms, max(0, round(self._until_ms - self._loop.now_ms)))
            self._note(f"{process} is stopped for {duration_ms} ms {where}")
            self._loop.pause(process)
            self._loop.call_in_ms(duration_ms, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.alive:
            self._note(f"{process} goes on")
            self._loop.resume(process)
