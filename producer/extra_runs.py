"""Occurrences beside the rule: trigger runs a schedule once now, backfill runs it for a stretch of the past.

Neither moves the armed occurrence, and both work on a paused schedule. Their entries carry the schedule's current
version, so a later change of the schedule ends what is still pending of them, like anything else.

A trigger's key is `<id>@<instant>!<request id>`. The instant of a request is remembered by the store, so the same
request twice is one occurrence, whenever it is repeated.

A backfill is one entry that stands at the first nominal time not run yet. Each turn dispatches some occurrences, with
the keys that the live ones had, then inserts itself again at the next nominal time, that many seconds later as its
rate says. Where it stands is all it knows, so a repeated turn repeats only itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tocsin.producer.insert import Inserter, Placement
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.errors import InvalidSchedule, ScheduleNotFound
from tocsin.schema.schedules import ScheduleRow, Spec, State, decode_spec

#: Occurrences of one turn of a backfill at most.
TURN_MAX = 100
#: Occurrences of one backfill without an explicit confirmation, and with one.
UNCONFIRMED_MAX = 100_000
#: Characters of a request id.
REQUEST_LENGTH_MAX = 128


class BackfillTerms(NamedTuple):
    """What a backfill's entry carries in its request field."""

    request_id: str
    end: int
    per_second: int

    def encode(self) -> str:
        """As text."""
        return f"{self.end}/{self.per_second}/{self.request_id}"

    @classmethod
    def decode(cls, request: str) -> BackfillTerms:
        """From text."""
        end, per_second, request_id = request.split("/", 2)
        return cls(request_id, int(end), int(per_second))

    @property
    def turn(self) -> int:
        """Occurrences of one turn."""
        return min(TURN_MAX, self.per_second)


def trigger_entry(row: ScheduleRow, instant: int, request_id: str) -> Entry:
    """One occurrence at that instant (ms UTC), beside the rule."""
    return Entry(
        row.schedule_id,
        instant,
        instant,
        row.version,
        kind=Kind.TRIGGER,
        request=request_id,
        spec=row.spec,
        payload=row.payload,
    )


def backfill_entry(row: ScheduleRow, first: int, due: int, terms: BackfillTerms) -> Entry:
    """A backfill that stands at this nominal time; its turn is at `due`. All ms UTC."""
    return Entry(
        row.schedule_id,
        first,
        due,
        row.version,
        kind=Kind.BACKFILL,
        request=terms.encode(),
        spec=row.spec,
        payload=row.payload,
    )


def backfill_turn(entry: Entry, spec: Spec) -> tuple[list[int], int | None]:
    """The nominal times of this turn, and where the next one stands; None: this is the last."""
    terms = BackfillTerms.decode(entry.request)
    turn: list[int] = []
    for nominal in spec.nominal_times(entry.scheduled_for, terms.end):
        if len(turn) == terms.turn:
            return turn, nominal
        turn.append(nominal)
    return turn, None


def next_turn_due(entry: Entry) -> int:
    """When the turn after this one is due: a pure function of this one, whoever computes it."""
    terms = BackfillTerms.decode(entry.request)
    return entry.due + terms.turn * 1000 // terms.per_second


def check_request_id(request_id: str) -> None:
    """Refuse what would make an occurrence key ambiguous."""
    if not request_id or len(request_id) > REQUEST_LENGTH_MAX:
        raise InvalidSchedule("request_id", request_id[:40], f"must have 1 to {REQUEST_LENGTH_MAX} characters")
    if not request_id.isprintable() or "@" in request_id or "!" in request_id:
        raise InvalidSchedule("request_id", request_id, "must be printable and hold neither '@' nor '!'")


def require_living(row: ScheduleRow | None, schedule_id: str) -> ScheduleRow:
    """The row of a schedule that is not cancelled."""
    if row is None:
        raise ScheduleNotFound(schedule_id)
    if row.state is State.CANCELLED:
        raise InvalidSchedule("schedule_id", schedule_id, "is cancelled; it has no further occurrences")
    return row


def planned(row: ScheduleRow, start: int, end: int) -> Iterator[int]:
    """The nominal times a backfill of [start, end) would run, ms UTC; the schedule's own start and until hold."""
    return decode_spec(row.spec).nominal_times(start, end)


async def insert_run(inserter: Inserter, entry: Entry, *, deadline: int) -> None:
    """Put it on its level; repeated, it is harmless before it has run, and one occurrence by its key afterwards."""
    await inserter.insert([Placement(entry)], deadline=deadline)
