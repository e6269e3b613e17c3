"""What the driver's failures mean, one by one; how answers cross threads; what every CQL text must keep to."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException, ConnectionShutdown
from cassandra.pool import NoConnectionsAvailable

from tocsin.schema.cassandra_answers import Answers
from tocsin.schema.cassandra_driver import told
from tocsin.schema.cassandra_statements import ALL, INBOX, INSERT_FRESH_SCHEDULE, Guarantee, Statement
from tocsin.schema.cassandra_tables import TABLES, migrations
from tocsin.schema.errors import SettingsError, StoreTimeout, StoreUnavailable
from tocsin.schema.lifetimes import Lifetimes
from tocsin.schema.timing import Timing

UNSENT = [
    NoHostAvailable("no host", {}),
    NoHostAvailable("no host", {"a": ConnectionException("Host has been marked down or removed")}),
    NoHostAvailable("no host", {"a": ConnectionBusy("full"), "b": NoConnectionsAvailable("full")}),
]
UNCERTAIN = [
    WriteTimeout("timeout", write_type=0),
    OperationTimedOut({"a": "Client request timeout"}),
    WriteFailure("failure", write_type=0),
    ConnectionShutdown("connection closed"),
    ConnectionException("socket closed"),
    NoHostAvailable("no host", {"a": OperationTimedOut()}),
    NoHostAvailable("no host", {"a": ConnectionException("down"), "b": ConnectionShutdown("closed")}),
    NoHostAvailable("no host", {"a": WriteTimeout("timeout", write_type=0)}),
    RuntimeError("the server's own"),
]


@pytest.mark.parametrize("error", UNSENT, ids=repr)
@pytest.mark.parametrize("conditional", [False, True])
def test_a_write_that_no_node_was_sent_was_not_attempted(error: Exception, conditional: bool) -> None:
    assert isinstance(told(error, writes=True, conditional=conditional), StoreUnavailable)


@pytest.mark.parametrize("error", UNCERTAIN, ids=repr)
@pytest.mark.parametrize("conditional", [False, True])
def test_a_write_that_a_node_was_sent_may_hold(error: Exception, conditional: bool) -> None:
    assert isinstance(told(error, writes=True, conditional=conditional), StoreTimeout)


def test_too_few_replicas_before_a_plain_write_mean_that_it_was_not_attempted() -> None:
    error = Unavailable("unavailable", required_replicas=2, alive_replicas=1)
    assert isinstance(told(error, writes=True, conditional=False), StoreUnavailable)


def test_too_few_replicas_may_be_met_by_a_conditional_write_when_it_commits() -> None:
    error = Unavailable("unavailable", required_replicas=2, alive_replicas=1)
    assert isinstance(told(error, writes=True, conditional=True), StoreTimeout)


@pytest.mark.parametrize("error", [ReadTimeout("timeout"), OperationTimedOut()], ids=repr)
def test_a_read_without_an_answer_in_time_is_a_timeout(error: Exception) -> None:
    assert isinstance(told(error, writes=False, conditional=False), StoreTimeout)


@pytest.mark.parametrize("error", [ReadFailure("failure"), ConnectionShutdown("closed"), *UNSENT], ids=repr)
def test_a_read_that_fails_otherwise_is_unavailable(error: Exception) -> None:
    assert isinstance(told(error, writes=False, conditional=False), StoreUnavailable)


@pytest.mark.parametrize("error", [InvalidRequest("no"), Unauthorized("no"), AuthenticationFailed("no")], ids=repr)
def test_what_the_cluster_refuses_is_not_tried_again(error: Exception) -> None:
    refusal = told(error, writes=True, conditional=True)
    assert isinstance(refusal, SettingsError)
    assert not refusal.retriable
    assert refusal.__cause__ is error


# Answers


async def test_answers_from_many_threads_all_arrive_and_wake_the_loop_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    woken: list[Any] = []
    wake = loop.call_soon_threadsafe

    def counting(callback: Callable[..., object], *arguments: Any, context: Any = None) -> asyncio.Handle:
        woken.append(callback)
        return wake(callback, *arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    answers: Answers[int] = Answers()
    futures = [answers.expect() for _ in range(4_000)]

    def put(mine: list[tuple[int, asyncio.Future[int]]]) -> None:
        for number, future in mine:
            answers.put(lambda number=number, future=future: future.set_result(number))  # type: ignore[misc]

    numbered = list(enumerate(futures))
    threads = [threading.Thread(target=put, args=(numbered[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:  # The loop does not run meanwhile, so that everything waits for it.
        thread.join()
    assert await asyncio.gather(*futures) == list(range(4_000))
    assert len(woken) == 1


async def test_an_answer_after_a_look_wakes_the_loop_again() -> None:
    answers: Answers[str] = Answers()
    for text in ("one", "two", "three"):
        future = answers.expect()
        thread = threading.Thread(target=answers.put, args=(lambda future=future, text=text: future.set_result(text),))
        thread.start()
        assert await future == text
        thread.join()


# Statements and tables


@pytest.mark.parametrize("statement", [*ALL, *INBOX], ids=lambda statement: statement.text[:40])
def test_a_statement_says_what_its_text_does(statement: Statement) -> None:
    text = statement.text
    reads = text.lstrip().startswith("SELECT")
    assert statement.writes is not reads
    assert (statement.guarantee is Guarantee.CONDITIONAL) is bool(re.search(r"\bIF\b", text))
    assert statement.idempotent is (statement.guarantee is not Guarantee.CONDITIONAL)
    assert "null" not in text.lower()
    assert "ALLOW FILTERING" not in text


def test_no_plain_write_touches_a_row_of_conditional_writes_and_no_conditional_one_the_frontier() -> None:
    by_paxos = re.compile(r"\b(schedules|leases|settings|inbox)\b")
    for statement in (*ALL, *INBOX):
        # An id generated for this very call has no other writer, and its timestamp lies below every later ballot.
        if statement is INSERT_FRESH_SCHEDULE:
            assert "USING TIMESTAMP ?" in statement.text
        elif statement.writes and statement.guarantee is not Guarantee.CONDITIONAL:
            assert not by_paxos.search(statement.text), statement.text
        if "frontier" in statement.text and statement.writes:
            assert "USING TIMESTAMP ?" in statement.text
            assert statement.guarantee is Guarantee.QUORUM
            assert "TTL" not in statement.text


def test_schedules_claims_and_single_leases_are_read_serially() -> None:
    for statement in (*ALL, *INBOX):
        if statement.text.startswith("SELECT") and re.search(
            r"FROM (schedules|leases|inbox) WHERE \w+ = \?", statement.text
        ):
            assert statement.guarantee is Guarantee.SERIAL


@pytest.mark.parametrize("retention_days", [1, 7, 30])
def test_tables_of_time_windows_have_twenty_to_thirty_of_them(retention_days: int) -> None:
    first, *_ = migrations(Lifetimes(Timing(retention_ms=retention_days * 86_400_000)))
    windowed = [text for text in first.expand if "TimeWindow" in text]
    assert len(windowed) == 4
    for text in windowed:
        lifetime = int(re.findall(r"default_time_to_live = (\d+)", text)[0])
        hours = int(re.findall(r"'compaction_window_size': (\d+)", text)[0])
        assert 20 <= lifetime / 3600 / hours <= 30
        assert "gc_grace_seconds = 10800" in text
        assert "read_repair = 'NONE'" in text


def test_the_tables_looked_for_are_the_tables_made() -> None:
    statements = migrations(Lifetimes(Timing()))[0].expand
    made = {name for text in statements for name in re.findall(r"TABLE IF NOT EXISTS (\w+)", text)}
    assert made | {"settings"} == TABLES
