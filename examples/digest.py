"""A digest for each customer, at nine in the morning where the customer is, on working days, once.

The rule keeps its local time through clock changes. A day off in the calendar is a day without digest. What comes to
the consumer twice, and everything does now and then, has its effect once: the inbox remembers.

Run it: python examples/digest.py (the weekend of a clock change passes in a moment, on the workbench)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tocsin import Inbox, MemoryInbox, Received, Scheduler, Weekday, Weekly, Workbench

WORKING_DAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri")


@dataclass(frozen=True)
class Customer:
    name: str
    zone: str


def subscribe(scheduler: Scheduler, customer: Customer) -> None:
    """Send this customer a digest from now on; doing it again is harmless."""
    scheduler.create(
        f"digest-{customer.name}",
        Weekly(WORKING_DAYS, time(9), tz=customer.zone),
        topic="digests",
        payload=customer.name.encode(),
        exclude=["holidays"],
        expires_after=timedelta(hours=6),  # Nobody wants this morning's digest tonight.
        headers={"zone": customer.zone},
    )


def send_digests(inbox: Inbox, records: Iterable[Received]) -> Iterator[str]:
    """The consumer: one digest for each occurrence, however often its record comes."""
    for received in records:
        with inbox.once(received, subscription="digests") as first:
            if first:
                local = received.due.astimezone(ZoneInfo(received.headers["zone"]))
                yield f"{received.payload.decode():5} {local:%a %d %b %H:%M %Z} = {received.due:%H:%M} UTC"


def main() -> None:
    with Workbench(start=datetime(2027, 3, 26, tzinfo=UTC)) as bench, MemoryInbox() as inbox:
        bench.scheduler.set_calendar("holidays", [date(2027, 3, 29)])  # Easter Monday
        for customer in (Customer("Ada", "Europe/London"), Customer("Haru", "Asia/Tokyo")):
            subscribe(bench.scheduler, customer)
        records = bench.advance(timedelta(days=5))
        for line in send_digests(inbox, [*records, *records]):
            print(line)


if __name__ == "__main__":
    main()
