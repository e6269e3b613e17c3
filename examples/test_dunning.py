"""How to test code that schedules: the real scheduler and dispatcher, in memory, and a clock that you turn.

Nothing is mocked and nothing is waited for. What `advance` returns is what a consumer of the topics would receive.

Run it: pytest examples/test_dunning.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from dunning import Invoice, invoice_paid, invoice_sent

from tocsin import MemoryInbox, Workbench

SENT_AT = datetime(2026, 12, 1, 9, tzinfo=UTC)
INVOICE = Invoice(7, 120, SENT_AT)


@pytest.fixture
def bench() -> Iterator[Workbench]:
    with Workbench(start=SENT_AT) as bench:
        yield bench


def test_whoever_does_not_pay_is_reminded_three_times(bench: Workbench) -> None:
    invoice_sent(bench.scheduler, INVOICE)
    reminders = bench.advance(timedelta(days=15))
    assert [json.loads(reminder.payload)["step"] for reminder in reminders] == ["friendly", "firm", "final"]
    assert [reminder.due - SENT_AT for reminder in reminders] == [timedelta(days=days) for days in (3, 7, 14)]


def test_whoever_pays_is_left_alone(bench: Workbench) -> None:
    invoice_sent(bench.scheduler, INVOICE)
    bench.advance(timedelta(days=4))
    assert invoice_paid(bench.scheduler, INVOICE) == []
    assert bench.advance(timedelta(days=11)) == []


def test_sending_the_invoice_again_reminds_nobody_twice(bench: Workbench) -> None:
    for _ in range(2):
        invoice_sent(bench.scheduler, INVOICE)
    assert len(bench.advance(timedelta(days=3))) == 1


def test_a_record_that_comes_twice_is_handled_once(bench: Workbench) -> None:
    invoice_sent(bench.scheduler, INVOICE)
    (reminder,) = bench.advance(timedelta(days=3))
    letters = []
    with MemoryInbox() as inbox:
        for received in (reminder, reminder):
            with inbox.once(received, subscription="letters") as first:
                if first:
                    letters.append(received.key)
    assert letters == [reminder.key]
