"""A dunning flow: an unpaid invoice is reminded of three times, and a payment stops what has not gone out yet.

Each reminder is a one-shot schedule with an id of its own, so that paying is: cancel three ids. A cancel that is
acknowledged as prevented has won against the dispatcher; otherwise it names what may have gone out a moment before.

Run it: python examples/dunning.py (two weeks pass in a moment, on the workbench)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tocsin import Once, Received, Scheduler, Workbench

STEPS = {"friendly": timedelta(days=3), "firm": timedelta(days=7), "final": timedelta(days=14)}


@dataclass(frozen=True)
class Invoice:
    number: int
    amount: int
    sent_at: datetime


def invoice_sent(scheduler: Scheduler, invoice: Invoice) -> None:
    """Schedule every reminder there may be; doing it again is harmless."""
    for step, after in STEPS.items():
        scheduler.create(
            reminder_id(invoice, step),
            Once(invoice.sent_at + after),
            topic="dunning",
            payload=json.dumps({"invoice": invoice.number, "amount": invoice.amount, "step": step}).encode(),
            content_type="application/json",
            tags=["dunning"],
        )


def invoice_paid(scheduler: Scheduler, invoice: Invoice) -> list[str]:
    """Cancel what is left; returns the keys of reminders that may have gone out just now."""
    changes = [scheduler.cancel(reminder_id(invoice, step)) for step in STEPS]
    return [key for change in changes for key in change.uncertain]


def reminder_id(invoice: Invoice, step: str) -> str:
    return f"invoice-{invoice.number}-{step}"


def letter(received: Received) -> str:
    """What the consumer of the topic makes of a record."""
    reminder = json.loads(received.payload)
    return f"{received.due:%d %B}: {reminder['step']} reminder of invoice {reminder['invoice']}, {reminder['amount']} €"


def main() -> None:
    start = datetime(2026, 12, 1, 9, tzinfo=UTC)
    prompt, late = Invoice(7, 120, start), Invoice(8, 80, start)
    with Workbench(start=start) as bench:
        for invoice in (prompt, late):
            invoice_sent(bench.scheduler, invoice)
        for received in bench.advance(timedelta(days=5)):
            print(letter(received))
        print("6 December: invoice 7 is paid; uncertain:", invoice_paid(bench.scheduler, prompt))
        for received in bench.advance(timedelta(days=10)):
            print(letter(received))


if __name__ == "__main__":
    main()
