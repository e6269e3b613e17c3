"""Which occurrence an entry stands for once it is due, and which one follows: pure rules.

An entry on time stands for itself, and the next nominal time follows. An entry that was *missed*, its bucket sealed
more than `misfire_grace_ms` after its due, is the head of a row of missed ones:

    latest     the last one that is due counts, those before it are skipped
    earliest   the first one counts, the rest that is due is skipped. What went out before the outage is none of the
               missed: where this process remembers that of the head, the next one is the first
    all        each counts, in order; beyond `max_catch_up` only the newest
    skip       none counts; the chain goes on with the first one that is late, not missed

An occurrence on an excluded date does not run, so it neither counts nor stands for others.

Missed is decided when a bucket is sealed, so a herd that takes its time is late and never missed.

A fast schedule after a long outage has very many missed occurrences. Only `WALK_MAX` are walked one by one; beyond
that the walk jumps close to the end, and the number skipped is a lower bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from datetime import date
from typing import NamedTuple

from tocsin.schema.entries import Entry, Kind
from tocsin.schema.recurrence import Once, excluded
from tocsin.schema.schedules import CatchUp, Spec

#: Nominal times walked one by one.
WALK_MAX = 2_000


class Chosen(NamedTuple):
    """What an entry stands for now."""

    scheduled_for: int
    due: int
    #: False: it is skipped, and only the next one is armed.
    counts: bool
    #: How many missed occurrences were skipped before it.
    skipped: int


class Horizon(NamedTuple):
    """What limits a catch-up, all ms UTC."""

    now: int
    #: Near is sealed and read up to here: nothing due later is dispatched yet.
    near_read: int
    #: The version owns nominal times below this only.
    end: int
    grace_ms: int
    #: On these dates nothing of the schedule runs.
    dates: Collection[date] = ()

    @property
    def due_by(self) -> int:
        """Occurrences due by then may be dispatched."""
        return min(self.now, self.near_read)


def choose(spec: Spec, schedule_id: str, scheduled_for: int, due: int, horizon: Horizon) -> Chosen:
    """What a missed entry stands for. A `Once` has nothing to catch up with: it is dispatched late."""
    if isinstance(spec.recurrence, Once):
        return Chosen(scheduled_for, due, counts=True, skipped=0)
    if spec.catch_up is CatchUp.SKIP:
        return Chosen(scheduled_for, due, counts=False, skipped=1)
    keep = {CatchUp.LATEST: 1, CatchUp.ALL: spec.max_catch_up}.get(spec.catch_up)
    if keep is None:
        return Chosen(scheduled_for, due, counts=True, skipped=0)
    newest, skipped = _newest(spec, schedule_id, scheduled_for, keep, horizon)
    if newest == scheduled_for:
        return Chosen(scheduled_for, due, counts=True, skipped=0)
    return Chosen(newest, spec.due_of(schedule_id, newest), counts=True, skipped=skipped)


def following(
    spec: Spec, schedule_id: str, scheduled_for: int, horizon: Horizon, *, counted: bool
) -> tuple[int | None, int]:
    """The nominal time to arm after a missed one, and how many were skipped on the way; None: the chain ends.

    `counted`: it has just been dispatched, and so may stand for others; unless it is only late, not missed.
    """
    nominal = spec.next_after(scheduled_for)
    stands = counted and horizon.now - spec.due_of(schedule_id, scheduled_for) > horizon.grace_ms
    if spec.catch_up in {CatchUp.ALL, CatchUp.LATEST} or (spec.catch_up is CatchUp.EARLIEST and not stands):
        return nominal, 0
    # `skip` goes on with the first one that is late but not missed, `earliest` with the first one still to come.
    skip_through = horizon.now - horizon.grace_ms - 1 if spec.catch_up is CatchUp.SKIP else horizon.now
    skipped = 0
    jumped = False
    while nominal is not None and nominal < horizon.end:
        if spec.due_of(schedule_id, nominal) > skip_through:
            break
        if skipped >= WALK_MAX and not jumped:
            nominal = max(nominal, _shortly_before(spec, nominal, min(skip_through, horizon.end - 1)))
            jumped = True
        skipped += 1
        nominal = spec.next_after(nominal)
    return nominal, skipped


def passed_over(spec: Spec, entry: Entry, now: int, dates: Collection[date]) -> str:
    """Why an occurrence whose turn has come is not dispatched; empty: it is. `dates` are those of its calendars.

    A backfill is late by intent, and a trigger was asked for whatever the date is.
    """
    if spec.expires_after_ms is not None and entry.kind != Kind.BACKFILL and now - entry.due > spec.expires_after_ms:
        return "expired"
    if dates and entry.kind != Kind.TRIGGER and excluded(dates, entry.scheduled_for, spec.recurrence.zone_name):
        return "excluded"
    return ""


def _newest(spec: Spec, schedule_id: str, first: int, keep: int, horizon: Horizon) -> tuple[int, int]:
    """The oldest of the newest `keep` occurrences that are due and run, from `first` on, and how many lie before it."""
    kept: deque[int] = deque(maxlen=keep)
    walked = running = 0
    jump_at = max(WALK_MAX, 2 * keep)
    nominal: int | None = first
    while nominal is not None and (not walked or _is_due(spec, schedule_id, nominal, horizon)):
        walked += 1
        if not (horizon.dates and excluded(horizon.dates, nominal, spec.recurrence.zone_name)):
            kept.append(nominal)
            running += 1
        later = spec.next_after(nominal)
        if walked == jump_at:
            start = _shortly_before(spec, nominal, min(horizon.due_by, horizon.end - 1), count=keep)
            later = start if start > nominal else later
        nominal = later
    return (kept[0], running - len(kept)) if kept else (first, 0)


def _is_due(spec: Spec, schedule_id: str, nominal: int, horizon: Horizon) -> bool:
    return nominal < horizon.end and spec.due_of(schedule_id, nominal) <= horizon.due_by


def _shortly_before(spec: Spec, after: int, instant: int, *, count: int = 1) -> int:
    """A nominal time with at least `count` others between it and the instant, or `after` where there is none.

    The distance is doubled until enough occurrences lie within it, so irregular rules are walked, never assumed.
    """
    distance_ms = 1_000 * count
    while instant - distance_ms > after:
        start = spec.next_after(instant - distance_ms)
        nominal = start
        found = 0
        while nominal is not None and nominal <= instant - spec.jitter_ms and found <= count:
            found += 1
            nominal = spec.next_after(nominal)
        if start is not None and found > count:
            return start
        distance_ms *= 2
    return after
