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

from functools import partial
from typing import Any, NamedTuple

from tocsin.producer.insert import Inserter, Placement
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import StoreClock
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, StoreTimeout, StoreUnavailable
from tocsin.schema.schedules import ScheduleRow, Spec, State, decode_spec
from tocsin.schema.store import Store

#: Occurrences of one turn of a backfill at most.
TURN_MAX = 100
#: Occurrences of one backfill at most.
BACKFILL_MAX = 100_000
#: Its highest rate.
PER_SECOND_MAX = 1_000
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
        """Occurrences of one turn: what a second allows, and no more than a batch."""
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


def check_request_id(request_id: Any) -> None:
    """Refuse what would make an occurrence key ambiguous."""
    if not isinstance(request_id, str):
        raise InvalidSchedule("request_id", request_id, f"must be text, not {type(request_id).__name__}")
    if not request_id or len(request_id) > REQUEST_LENGTH_MAX:
        raise InvalidSchedule("request_id", request_id[:40], f"must have 1 to {REQUEST_LENGTH_MAX} characters")
    if not request_id.isprintable() or "@" in request_id or "!" in request_id:
        raise InvalidSchedule("request_id", request_id, "must be printable and hold neither '@' nor '!'")


def require_living(row: ScheduleRow) -> ScheduleRow:
    """The row of a schedule that is not cancelled."""
    if row.state is State.CANCELLED:
        raise InvalidSchedule("schedule_id", row.schedule_id, "is cancelled; it has no further occurrences")
    return row


class Backfill(NamedTuple):
    """The answer to backfill."""

    request_id: str
    #: How many the window holds.
    occurrences: int
    #: Seconds it takes at its rate, from now on.
    seconds: float


class ExtraRuns:
    """Triggers and backfills schedules."""

    def __init__(self, store: Store, inserter: Inserter, store_clock: StoreClock, persistence: Persistence) -> None:
        self._store = store
        self._inserter = inserter
        self._store_clock = store_clock
        self._persistence = persistence

    async def trigger(self, row: ScheduleRow, request_id: str, *, deadline: int) -> str:
        """Run the schedule once now; the occurrence key, which is the same for the same request.

        Raises:
            OutcomeUnknown: trigger it again with the same request id.
        """
        keep = partial(self._store.keep_request, row.schedule_id, request_id, self._store_clock.now_ms())
        try:
            instant = await self._persistence.until_answered(keep, deadline)
            entry = trigger_entry(row, instant, request_id)
            await self._inserter.insert([Placement(entry)], deadline=deadline)
        except (StoreTimeout, StoreUnavailable) as error:
            raise OutcomeUnknown(row.schedule_id) from error
        return entry.key

    async def backfill(self, row: ScheduleRow, window: tuple[int, int], terms: BackfillTerms, *, deadline: int) -> None:
        """Run every nominal time in [start, end) again, at the rate of the terms.

        Raises:
            OutcomeUnknown: backfill it again with the same request id: what it repeats has the same keys.
        """
        first = decode_spec(row.spec).first_from(window[0])
        if first is None or first >= window[1]:
            return
        keep = partial(self._store.keep_request, row.schedule_id, terms.request_id, self._store_clock.now_ms())
        try:
            due = await self._persistence.until_answered(keep, deadline)
            await self._inserter.insert([Placement(backfill_entry(row, first, due, terms))], deadline=deadline)
        except (StoreTimeout, StoreUnavailable) as error:
            raise OutcomeUnknown(row.schedule_id) from error


def count_planned(row: ScheduleRow, window: tuple[int, int], per_second: int, now: int) -> int:
    """How many occurrences a backfill of [start, end) would run.

    Raises:
        InvalidSchedule: the window is empty or reaches into the future, the rate is out of range, or it holds more than
            BACKFILL_MAX occurrences: split it.
    """
    start, end = window
    if start >= end:
        raise InvalidSchedule("end", end, "must lie after start")
    if end > now:
        raise InvalidSchedule("end", end, "lies in the future; what is to come runs by the rule itself")
    if type(per_second) is not int or not 1 <= per_second <= PER_SECOND_MAX:
        raise InvalidSchedule("per_second", per_second, f"must be a whole number from 1 to {PER_SECOND_MAX}")
    count = 0
    for count, _ in enumerate(decode_spec(row.spec).nominal_times(start, end), 1):
        if count > BACKFILL_MAX:
            raise InvalidSchedule("start", start, f"the window holds more than {BACKFILL_MAX} occurrences; split it")
    return count
