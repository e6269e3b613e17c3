"""An asyncio event loop whose time is virtual, and processes that die or stand still without being asked.

Time moves only when nothing is left to do at this instant; then it jumps to the next timer. A loop with neither
callback nor timer left is a deadlock, one that never lets time pass a livelock: both raise. Everything runs in the
order in which it was scheduled, so a run is a function of its inputs.

A **process** is a mark in the context of a callback. Tasks hand their context down, so every callback that some code
causes, however deep, belongs to the process that runs it, and the code under test knows nothing of it:

* `pause` is SIGSTOP: its callbacks wait, wherever it stood, while the world goes on; `resume` runs them in their order.
* `kill` is SIGKILL: its callbacks are dropped for ever. No `finally` and no `except` of it runs; its tasks are kept
  unfinished until the loop is closed, so that not even the garbage collector unwinds them meanwhile.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

#: Callbacks at one virtual instant; more of them are a loop that waits for nothing.
CALLBACKS_AT_ONCE_MAX = 200_000


class DeadlockError(RuntimeError):
    """Somebody waits, and nothing is scheduled that could ever wake them."""


class LivelockError(RuntimeError):
    """Callbacks follow each other for ever without any time passing."""


class Process:
    """A simulated process: alive or dead, running or standing still."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.deferred: list[Scheduled] = []

    def __repr__(self) -> str:
        return self.name


#: Callbacks of the world belong to no process.
WORLD = Context()

_current: ContextVar[Process | None] = ContextVar("process", default=None)


def current_process() -> Process | None:
    """The process whose code is running, None for the world around."""
    return _current.get()


class SimulatedTask(asyncio.Task[T]):
    """A task with a hash of its own: sets of tasks are walked in the same order in every run."""

    process: Process | None
    _serial: int
    _serials = count()

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> SimulatedTask[T]:
        task = super().__new__(cls)
        task._serial = next(cls._serials)
        return task

    def __hash__(self) -> int:
        return self._serial


class Scheduled(asyncio.TimerHandle):
    """A callback, the process it belongs to, and when it runs."""

    __slots__ = ("process",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, arguments, loop, context)
        self.process = _current.get() if context is None else context.get(_current)


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop. `now_us` is its time; `failures` are the exceptions nobody caught in a process that lives."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = 0
        self.failures: list[str] = []
        self._soon: deque[Scheduled] = deque()
        self._timers: list[tuple[int, int, Scheduled]] = []
        self._sequence = count()
        self._at_once = 0
        self._tasks: dict[int, SimulatedTask[Any]] = {}
        SimulatedTask._serials = count()
        self.set_exception_handler(lambda _, context: self._note_failure(context))

    # Time and callbacks

    def time(self) -> float:
        return self.now_us / 1_000_000

    @property
    def now_ms(self) -> float:
        return self.now_us / 1_000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = Scheduled(0, callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = Scheduled(when, callback, args, self, context)
        heapq.heappush(self._timers, (round(when * 1_000_000), next(self._sequence), handle))
        return handle

    def call_in_ms(self, delay_ms: float, callback: Callable[..., object], *args: Any) -> None:
        """Run something of the world's after a while, whoever asks for it and whatever becomes of them."""
        self.call_at((self.now_us + delay_ms * 1_000) / 1_000_000, callback, *args, context=WORLD)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task: SimulatedTask[T] = SimulatedTask(coro, loop=self, name=name, context=context)
        task.process = _current.get() if context is None else context.get(_current)
        return task

    def _run_once(self) -> None:
        if not self._soon:
            self._advance()
        self._at_once += 1
        if self._at_once > CALLBACKS_AT_ONCE_MAX:
            raise LivelockError(f"no time passes at {self.now_ms} ms; next is {self._soon[0]!r}")
        handle = self._soon.popleft()
        process = handle.process
        if handle._cancelled:
            return
        if process is None or not (process.paused or not process.alive):
            handle._run()
        elif process.alive:
            process.deferred.append(handle)

    def _advance(self) -> None:
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise DeadlockError(f"nothing is scheduled any more at {self.now_ms} ms")
        self.now_us = max(self.now_us, self._timers[0][0])
        self._at_once = 0
        while self._timers and self._timers[0][0] <= self.now_us:
            self._soon.append(heapq.heappop(self._timers)[2])

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay where they are until their time comes."""

    # Processes

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as code of this process."""
        context = copy_context()
        context.run(_current.set, process)
        return self.create_task(coroutine, name=process.name, context=context)

    def run_in(self, process: Process, callback: Callable[[], object]) -> None:
        """Run something as code of this process; never, if it is dead."""
        context = copy_context()
        context.run(_current.set, process)
        self.call_soon(callback, context=context)

    def pause(self, process: Process) -> None:
        """SIGSTOP."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """SIGCONT: what came due meanwhile runs now, in its order."""
        process.paused = False
        self._soon.extend(process.deferred)
        process.deferred.clear()

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        process.alive = False
        process.deferred.clear()
        for task in asyncio.all_tasks(self):
            if isinstance(task, SimulatedTask) and task.process is process:
                self._tasks[hash(task)] = task

    def close(self) -> None:
        """End the world: every task, living or dead, is dropped without a word."""
        for task in sorted({*self._tasks.values(), *asyncio.all_tasks(self)}, key=hash):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        self._tasks.clear()
        self._soon.clear()
        self._timers.clear()
        super().close()

    def _note_failure(self, context: dict[str, Any]) -> None:
        task = context.get("task") or context.get("future")
        process = getattr(task, "process", None) or current_process()
        if process is None or process.alive:
            self.failures.append(
                f"{process} at {self.now_ms:.0f} ms: {context['message']}: {context.get('exception')!r}"
            )
