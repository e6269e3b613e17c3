"""One thread with one SQLite connection, and group commit.

SQLite pays one fsync for each transaction, so one transaction for each write would be slow. Here the callers' work
queues up while the thread is busy with the fsync before; then all that waits is executed in one transaction, committed
once, and all its futures are resolved by one wake-up of the event loop. Nothing is acknowledged before its commit.

Work is executed in the order it was submitted, even when its caller has stopped waiting: work that was cancelled may
hold or not, and work submitted later sees which.

What fails, fails for those it concerns:

* work that refuses (ScheduleNotFound, a value SQLite cannot store) has changed nothing: its own future, nobody else's;
* the lock is held by another process beyond the patience, or SQLite fails in the middle: the group is rolled back and
  all of it is StoreUnavailable;
* the commit itself fails: whether it reached the disk is not known, and all of it is StoreTimeout.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from tocsin.schema.errors import StoreTimeout, StoreUnavailable, TocsinError

#: Pieces of work in one transaction at most: with the largest packs, 16 MiB.
GROUP_MAX = 512
#: SQLite waits this long for a lock before the thread asks again. Left to itself it looks every 100 ms in the end, and
#: a process that writes now and then would wait that long beside one that always does.
LOCK_POLL_MS = 2

Result = TypeVar("Result")


class Job(NamedTuple):
    """Work that waits for its turn."""

    work: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    writes: bool


class Outcome(NamedTuple):
    """What a future is told."""

    future: asyncio.Future[Any]
    result: Any
    error: Exception | None


class ConnectionThread:
    """Executes work on one connection, in order, in groups. Start it within a running event loop."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        *,
        group_max: int = GROUP_MAX,
        lock_polls_max: int = 1,
    ) -> None:
        self._connect = connect
        self._group_max = group_max
        self._lock_polls_max = lock_polls_max
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._closed = False
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def start(self) -> None:
        """Connect. What `connect` raises is raised here."""
        self._thread.start()
        await self._opened

    def submit(self, work: Callable[[sqlite3.Connection], Result], *, writes: bool) -> asyncio.Future[Result]:
        """Queue work; the future is resolved once it is committed."""
        if self._process != os.getpid():
            raise StoreUnavailable("the store was opened in another process; open one of its own after a fork")
        if self._closed:
            raise StoreUnavailable("the store is closed; open it again")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put(Job(work, future, writes))
        return future

    async def close(self) -> None:
        """Finish what is queued, then give the connection back; safe to call twice."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._connect()
        except (TocsinError, sqlite3.Error) as error:
            self._closed = True
            self._tell([Outcome(self._opened, None, error), Outcome(self._ended, None, None)])
            return
        self._tell([Outcome(self._opened, None, None)])
        try:
            while group := self._next_group():
                self._tell(_commit(connection, group, self._lock_polls_max))
        finally:
            connection.close()
            self._tell([Outcome(self._ended, None, None)])

    def _next_group(self) -> list[Job]:
        """What waits, at least one piece; empty when the thread is to end."""
        group: list[Job] = []
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            if len(group) == self._group_max:
                return group
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return group
        if group:
            self._jobs.put(None)  # The end was met behind work: do the work first.
        return group

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        with suppress(RuntimeError):  # The event loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(_resolve, outcomes)


class ConnectionInLoop:
    """The same without a thread: work of one turn of the event loop is one group.

    For a store in memory, which never waits for a disk; and for an event loop whose time is virtual, which must not
    pass while a thread is at work.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._jobs: list[Job] = []

    async def start(self) -> None:
        """Connect. What `connect` raises is raised here."""
        self._connection = self._connect()

    def submit(self, work: Callable[[sqlite3.Connection], Result], *, writes: bool) -> asyncio.Future[Result]:
        """Queue work; the future is resolved once it is committed."""
        if self._connection is None:
            raise StoreUnavailable("the store is closed; open it again")
        future: asyncio.Future[Result] = self._loop.create_future()
        if not self._jobs:
            self._loop.call_soon(self._work)
        self._jobs.append(Job(work, future, writes))
        return future

    async def close(self) -> None:
        """Finish what is queued, then give the connection back; safe to call twice."""
        self._work()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _work(self) -> None:
        jobs, self._jobs = self._jobs, []
        if jobs and self._connection is not None:
            _resolve(_commit(self._connection, jobs, 1))


def _resolve(outcomes: Sequence[Outcome]) -> None:
    for future, result, error in outcomes:
        if future.done():  # Its caller was cancelled.
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _commit(connection: sqlite3.Connection, group: Sequence[Job], lock_polls_max: int) -> list[Outcome]:
    """Execute a group as one transaction."""
    try:
        # Work that only reads needs a snapshot, not the lock that keeps other processes' writers out.
        _begin(connection, "BEGIN IMMEDIATE" if any(job.writes for job in group) else "BEGIN", lock_polls_max)
        outcomes = [_perform(connection, job) for job in group]
    except sqlite3.Error as error:
        _roll_back(connection)
        return _all_fail(group, StoreUnavailable(f"SQLite: {error}; nothing was changed. Try again later."))
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        _roll_back(connection)
        return _all_fail(group, StoreTimeout(f"SQLite: {error}, while committing: the write may hold or not."))
    return outcomes


def _begin(connection: sqlite3.Connection, statement: str, polls_max: int) -> None:
    for poll in range(1, polls_max + 1):
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY or poll == polls_max:
                raise
        else:
            return


def _perform(connection: sqlite3.Connection, job: Job) -> Outcome:
    """Do one piece of work; it is one statement that writes at most, so that a refusal has changed nothing."""
    try:
        return Outcome(job.future, job.work(connection), None)
    except Exception as error:
        # These are the connection's failures, and the whole transaction's; all else is between this work and its
        # caller, and must not end the thread.
        if type(error) in {sqlite3.OperationalError, sqlite3.DatabaseError}:
            raise
        return Outcome(job.future, None, error)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _all_fail(group: Sequence[Job], error: TocsinError) -> list[Outcome]:
    # Each waiter gets an error of its own: one raised in several tasks would collect all their tracebacks.
    return [Outcome(job.future, None, type(error)(str(error))) for job in group]
