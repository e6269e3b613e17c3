"""Group commit: what waits is one transaction, acknowledged after its commit, and failures hit whom they concern."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tocsin.schema.errors import StoreTimeout, StoreUnavailable
from tocsin.schema.sqlite_thread import ConnectionThread


class Recording(sqlite3.Connection):
    """Remembers transactions, and fails a statement on demand."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.transactions: list[str] = []
        self.failing: str | None = None

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:  # type: ignore[override]
        if statement == self.failing:
            raise sqlite3.OperationalError("disk I/O error")
        if statement.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            self.transactions.append(statement)
        return super().execute(statement, *values)


class Worker:
    """A thread on a file of its own, which can be held up and looked into."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.connection: Recording | None = None
        self.thread = ConnectionThread("test", self._connect)

    def _connect(self) -> sqlite3.Connection:
        self.connection = sqlite3.connect(self._path, isolation_level=None, factory=Recording, check_same_thread=False)
        self.connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
        return self.connection

    def insert(self, number: int) -> asyncio.Future[int]:
        return self.thread.submit(lambda at: at.execute("INSERT INTO t VALUES (?)", (number,)).rowcount, writes=True)

    def select(self) -> asyncio.Future[list[int]]:
        return self.thread.submit(lambda at: [number for (number,) in at.execute("SELECT a FROM t")], writes=False)

    def held_up(self) -> threading.Event:
        event = threading.Event()
        self.thread.submit(lambda _: event.wait(30), writes=False)
        return event


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    worker = Worker(tmp_path / "store.db")
    await worker.thread.start()
    yield worker
    await worker.thread.close()


def transactions(worker: Worker) -> list[str]:
    assert worker.connection is not None
    return worker.connection.transactions


async def test_what_waits_is_committed_in_one_transaction(worker: Worker) -> None:
    go_on = worker.held_up()
    writes = [worker.insert(number) for number in range(100)]
    go_on.set()
    assert await asyncio.gather(*writes) == [1] * 100
    assert transactions(worker) in (
        ["BEGIN", "COMMIT", "BEGIN IMMEDIATE", "COMMIT"],
        ["BEGIN IMMEDIATE", "COMMIT"],  # Where the thread woke up after all had been queued.
    )


async def test_work_that_refuses_fails_alone(worker: Worker) -> None:
    go_on = worker.held_up()
    writes = [worker.insert(number) for number in (1, 2, 2**70, 2, 3)]
    go_on.set()
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(answer) for answer in answers] == [int, int, OverflowError, sqlite3.IntegrityError, int]
    assert await worker.select() == [1, 2, 3]


async def test_a_failure_in_the_middle_takes_the_whole_group_back(worker: Worker) -> None:
    await worker.insert(0)
    go_on = worker.held_up()
    assert worker.connection is not None
    worker.connection.failing = "broken"
    broken = worker.thread.submit(lambda at: at.execute("broken"), writes=True)
    group = [worker.insert(1), broken, worker.insert(2)]
    go_on.set()
    answers = await asyncio.gather(*group, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert await worker.select() == [0]
    assert await worker.insert(3) == 1


async def test_a_failing_commit_leaves_the_outcome_open(worker: Worker) -> None:
    go_on = worker.held_up()
    assert worker.connection is not None
    worker.connection.failing = "COMMIT"
    writes = [worker.insert(1), worker.insert(2)]
    go_on.set()
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreTimeout] * 2
    worker.connection.failing = None
    assert await worker.insert(3) == 1


async def test_closing_finishes_what_is_queued_and_refuses_what_comes_after(worker: Worker) -> None:
    go_on = worker.held_up()
    writes = [worker.insert(number) for number in range(1_000)]
    closing = asyncio.ensure_future(worker.thread.close())
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="closed"):
        worker.insert(1_000)
    go_on.set()
    await closing
    assert await asyncio.gather(*writes) == [1] * 1_000


async def test_cancelled_work_neither_stops_nor_breaks_the_thread(worker: Worker) -> None:
    go_on = worker.held_up()
    writes = [worker.insert(number) for number in range(10)]
    for write in writes[::2]:
        write.cancel()
    go_on.set()
    await asyncio.gather(*writes, return_exceptions=True)
    assert set(range(1, 10, 2)) <= set(await worker.select())


async def test_a_forked_process_is_told_to_open_its_own(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreUnavailable, match="fork"):
        worker.insert(1)
