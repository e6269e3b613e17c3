"""Changing a schedule: write ahead, commit, confirm. Create, update, pause, resume and cancel are this one procedure.

    1. Write ahead, marked verify: the new version's first entry where it will be active, and a change marker for the
       version it replaces.
    2. Commit: one conditional write to `schedules`, with a fresh token and a version above all before. It happens no
       later than `commit_limit_ms` after the write ahead began, else the write ahead is made again. Unknown outcome:
       a serial read settles it. Any token of this call: applied. Another: somebody else was first. The version we
       expected: not applied so far, so the wish is made anew; an answer that never came may still be on its way, so a
       refusal from there on is an unknown outcome. Never a blind retry.
    3. Confirm: the same entry and marker again, unmarked, by the insert rule. Then the caller is told.

A client that dies before the commit has left marked entries that verification drops. One that dies after it has left
marked entries that verification lets count, on time. So a half-made change always ends as `schedules` says.

Repeating a call whose outcome was unknown redoes step 3 and succeeds: what a change wants (see changes.py) recognises
its own result. Once the first due is committed, step 3 would repeat history, and the audit's rule is used instead.

The answer: `prevented` covers every occurrence of the replaced version due at or after the marker's position, and none
was due between min(committed, a second ago) and it, both as they were when the caller asked: what was dispatched since
then was pending. Otherwise `possibly_dispatched`, with the keys of those in between; whoever cancels at the due is told
of an occurrence that went out a moment ago, too.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from tocsin.producer.arming import arm_again, entry_from
from tocsin.producer.insert import Inserter, Place, Placement
from tocsin.producer.persistence import Persistence
from tocsin.schema.clock import Clock, StoreClock
from tocsin.schema.entries import Entry, occurrence_key
from tocsin.schema.errors import OutcomeUnknown, StoreTimeout, StoreUnavailable, TocsinError
from tocsin.schema.levels import Level, Levels
from tocsin.schema.schedules import REPLACED_MAX, Marker, ScheduleRow, Spec, State, decode_spec
from tocsin.schema.store import Store

#: Uncertain keys named in an answer at most; an outage of days may leave more of a fast schedule.
UNCERTAIN_MAX = 1000
#: What fell due so shortly before the caller asked is named, though committed may have passed it.
JUST_NOW_MS = 1_000
#: A version is an instant in µs; the store's clock gives ms, the rest is drawn from the token.
VERSIONS_PER_MS = 1000


class Draft(NamedTuple):
    """What a change wants the schedule to become."""

    state: State
    spec: bytes
    payload: bytes
    tenant: str
    topic: str
    tags: frozenset[str]
    note: str
    #: The new version owns nominal times at or after it, ms UTC.
    since: int
    #: The replaced version keeps nominal times before it; 0: it keeps none, everything pending is dropped.
    keeps_before: int


class Wish(Protocol):
    """One intended change, told apart from its procedure."""

    def draft(self, current: ScheduleRow | None, now: int) -> Draft | None:
        """What should become of the current row; None: the row already is the result of this very wish.

        Raises:
            TocsinError: the wish cannot be granted on this row; nothing was changed.
        """
        ...


class Origin(enum.Enum):
    """What a change is to find."""

    #: A row, most likely: it is read first.
    THERE = "there"
    #: Nothing, most likely: the commit itself finds out, and saves a create the serial read.
    NEW = "new"
    #: Nothing for certain, for the id was generated for this very call: a plain write commits it.
    GENERATED = "generated"


class Committed(NamedTuple):
    """A change that holds."""

    row: ScheduleRow
    #: The row it replaced; None at a create, and where a repeated call found its result in place.
    previous: ScheduleRow | None
    #: Keys of the replaced version that may have been dispatched; None: they cannot be named.
    uncertain: tuple[str, ...] | None


class _Ahead(NamedTuple):
    """What was written ahead for one commit."""

    row: ScheduleRow
    previous: ScheduleRow | None
    place: Place | None
    began: int
    #: Up to when occurrences had been dispatched before the caller asked, ms UTC; None: it replaces nothing.
    committed: int | None = None


class Changes:
    """Makes changes to schedules.

    Args:
        store: holds them.
        levels: the store's geometry.
        inserter: the insert rule.
        store_clock: gives the instant of a change.
        clock: measures deadlines and the commit limit.
        new_token: a fresh token each call, 16 bytes.
    """

    def __init__(
        self,
        store: Store,
        levels: Levels,
        inserter: Inserter,
        *,
        store_clock: StoreClock,
        clock: Clock,
        new_token: Callable[[], bytes],
    ) -> None:
        self._store = store
        self._levels = levels
        self._timing = levels.timing
        self._inserter = inserter
        self._store_clock = store_clock
        self._clock = clock
        self._new_token = new_token
        self._persistence = Persistence(clock, levels.timing)

    async def read(self, schedule_id: str, *, deadline: int | None = None) -> ScheduleRow | None:
        """The row of this id, read serially."""
        rows = await self._persistence.until_answered(lambda: self._store.read_schedules([schedule_id]), deadline)
        return rows.get(schedule_id)

    async def make(self, schedule_id: str, wish: Wish, *, deadline: int, origin: Origin = Origin.THERE) -> Committed:
        """Grant the wish.

        Raises:
            OutcomeUnknown: the deadline passed on the way; repeat the same call.
            StoreUnavailable: the deadline passed before anything could change.
            TocsinError: the wish cannot be granted.
        """
        mine: dict[bytes, _Ahead] = {}
        repeated = False
        try:
            if origin is Origin.GENERATED:
                ahead = await self._commit_generated(schedule_id, wish, mine, deadline)
            else:
                current, committed = None, None
                if origin is Origin.THERE:
                    current, committed = await self._as_asked(schedule_id, deadline)
                ahead, repeated = await self._commit(schedule_id, wish, current, mine, deadline)
                ahead = ahead._replace(committed=committed)
            return await self._confirm(ahead, deadline, repeated=repeated)
        except (StoreTimeout, StoreUnavailable) as error:
            if not mine and not repeated:
                raise StoreUnavailable(str(error)) from error
            raise OutcomeUnknown(schedule_id) from error
        except TocsinError as refused:
            if not mine:
                raise
            raise OutcomeUnknown(schedule_id) from refused

    async def _as_asked(self, schedule_id: str, deadline: int) -> tuple[ScheduleRow | None, int]:
        """The row, and up to when occurrences had been dispatched before the caller asked, ms UTC."""
        shard_range = self._levels.shard_range(schedule_id)
        row, frontier = await asyncio.gather(
            self.read(schedule_id, deadline=deadline), self._inserter.read_frontier(shard_range, deadline=deadline)
        )
        return row, frontier.committed

    async def _commit_generated(self, schedule_id: str, wish: Wish, mine: dict[bytes, _Ahead], deadline: int) -> _Ahead:
        """Write ahead, and write the row until it is acknowledged: the same row, for nobody else writes one."""
        now = self._store_clock.now_ms()
        draft = wish.draft(None, now)
        assert draft is not None  # noqa: S101 — a wish is only ever fulfilled by a row
        began = self._clock.monotonic_ms()
        row = self._row(schedule_id, draft, None, now)
        ahead = await self._write_ahead(row, None, began, deadline)
        commit_by = began + self._timing.commit_limit_ms
        if self._clock.monotonic_ms() > commit_by:
            raise StoreTimeout
        mine[row.token] = ahead
        insert = partial(self._store.insert_fresh_schedule, ahead.row)
        await self._persistence.until_answered(insert, min(deadline, commit_by))
        return ahead

    async def _commit(
        self,
        schedule_id: str,
        wish: Wish,
        current: ScheduleRow | None,
        mine: dict[bytes, _Ahead],
        deadline: int,
    ) -> tuple[_Ahead, bool]:
        """Write ahead and commit, as often as it takes; True: an earlier call's commit was found in place.

        `mine` holds by token what may have been committed by now, or may be yet.
        """
        while True:
            if current is not None and current.token in mine:
                return mine[current.token], False
            now = self._store_clock.now_ms()
            draft = wish.draft(current, now)
            began = self._clock.monotonic_ms()
            if draft is None:
                assert current is not None  # noqa: S101 — a wish is only ever fulfilled by a row
                return _Ahead(current, None, None, began), True
            row = self._row(schedule_id, draft, current, now)
            ahead = await self._write_ahead(row, current, began, deadline)
            if self._clock.monotonic_ms() - began <= self._timing.commit_limit_ms:
                mine[row.token] = ahead
                if await self._commit_once(ahead):
                    return ahead, False
            if self._clock.monotonic_ms() > deadline:
                raise StoreTimeout
            current = await self.read(schedule_id, deadline=deadline)
            _forget_beaten(mine, current)

    def _row(self, schedule_id: str, draft: Draft, current: ScheduleRow | None, now: int) -> ScheduleRow:
        replaced: tuple[tuple[int, int], ...] = ()
        if current is not None:
            end = draft.keeps_before
            older = ((version, min(kept, end)) for version, kept in current.replaced)
            replaced = ((current.version, end), *itertools.islice(older, REPLACED_MAX - 1))
        token = self._new_token()
        # Two callers of one millisecond must not share a version: verification would let the loser's entry count.
        drawn = int.from_bytes(token) % VERSIONS_PER_MS
        return ScheduleRow(
            schedule_id=schedule_id,
            version=max(now * VERSIONS_PER_MS, (current.version if current else 0) + 1) + drawn,
            token=token,
            state=draft.state,
            since=draft.since,
            replaced=replaced,
            spec=draft.spec,
            payload=draft.payload,
            tenant=draft.tenant,
            topic=draft.topic,
            tags=draft.tags,
            created_at=current.created_at if current else now,
            updated_at=now,
            note=draft.note,
        )

    async def _write_ahead(self, row: ScheduleRow, current: ScheduleRow | None, began: int, deadline: int) -> _Ahead:
        place = None
        entry = entry_from(row, row.since)
        if entry is not None:
            (place,) = await self._inserter.insert([Placement(entry.marked())], deadline=deadline)
        if current is not None:
            _, marker = await self._insert_marker(row, current, deadline, verify=True)
            row = msgspec.structs.replace(row, until=marker.until_ms)
        return _Ahead(row, current, place, began)

    async def _commit_once(self, ahead: _Ahead) -> bool:
        """True: applied for certain. False: read again, it may hold, or somebody else was first."""
        try:
            if ahead.previous is None:
                return await self._store.insert_schedule(ahead.row) is None
            return await self._store.replace_schedule(ahead.row, ahead.previous.version) is None
        except (StoreTimeout, StoreUnavailable):
            return False

    async def _confirm(self, ahead: _Ahead, deadline: int, *, repeated: bool) -> Committed:
        row, previous, place, began, committed = ahead
        entry = entry_from(row, row.since)
        if entry is not None:
            if repeated:
                await self._redo(row, entry, deadline)
            elif place is None or place.level is not Level.FAR or await self._day_was_sealed(place, row, deadline):
                late = self._clock.monotonic_ms() - began > 2 * self._timing.commit_limit_ms
                source = None if place is None or late else place.position
                await self._inserter.insert([Placement(entry, source=source)], deadline=deadline)
        replaced_something = bool(row.replaced)
        if not replaced_something:
            return Committed(row, previous, ())
        marked, _ = await self._insert_marker(row, previous or row, deadline, verify=False)
        uncertain = None
        if previous is not None and committed is not None:
            low = min(committed, row.updated_at - JUST_NOW_MS)
            uncertain = self._uncertain(row, previous, low, marked.position)
        elif row.state is not State.ACTIVE:
            # A pause or cancel keeps the spec, so the replaced occurrences can be named by a repeated call too.
            low = min(marked.frontier.committed, row.updated_at - JUST_NOW_MS)
            uncertain = self._uncertain(row, row, low, marked.position)
        return Committed(row, previous, uncertain)

    async def _redo(self, row: ScheduleRow, entry: Entry, deadline: int) -> None:
        """Confirm on behalf of an earlier call: as it would have, or as the audit does once its due is committed."""
        shard_range = self._levels.shard_range(row.schedule_id)
        frontier = await self._inserter.read_frontier(shard_range, deadline=deadline)
        if frontier.committed < entry.due:
            await self._inserter.insert([Placement(entry, source=entry.due)], deadline=deadline)
        else:
            await arm_again(self._inserter, [row], self._store_clock.now_ms(), deadline=deadline)

    async def _day_was_sealed(self, place: Place, row: ScheduleRow, deadline: int) -> bool:
        """Whether a far pointer's day was sealed since it was written ahead: its owner may have judged it too early."""
        shard_range = self._levels.shard_range(row.schedule_id)
        frontier = await self._inserter.read_frontier(shard_range, deadline=deadline)
        return frontier.sealed_far >= self._levels.end(Level.FAR, place.position)

    async def _insert_marker(
        self, row: ScheduleRow, replaced: ScheduleRow, deadline: int, *, verify: bool
    ) -> tuple[Place, Marker]:
        keeps_before = row.replaced[0][1]
        spec = decode_spec(replaced.spec)

        def marker_at(position: int) -> Marker:
            return Marker(
                schedule_id=row.schedule_id,
                version=row.version,
                from_ms=keeps_before,
                until_ms=max(replaced.until, row.until, self._until(spec, position)),
                verify=verify,
            )

        shard_range = self._levels.shard_range(row.schedule_id)
        return await self._inserter.insert_marker(shard_range, marker_at, deadline=deadline)

    def _until(self, spec: Spec, position: int) -> int:
        """How long a marker at this position must be known.

        The chain it ends has one occurrence waiting and may be re-arming the next: the second nominal time from here,
        as late as its jitter allows, and some slack for whoever is slow.
        """
        start = max(position, self._store_clock.now_ms())
        second = start
        for nominal in itertools.islice(spec.nominal_times(start + 1, start + self._timing.marker_limit_ms), 2):
            second = nominal
        until = second + spec.jitter_ms + self._timing.marker_slack_ms
        return min(until, start + self._timing.marker_limit_ms)

    def _uncertain(self, row: ScheduleRow, replaced: ScheduleRow, low: int, position: int) -> tuple[str, ...]:
        """Keys of the replaced version that are due between the two, both ms UTC."""
        if replaced is not row and replaced.state is not State.ACTIVE:
            return ()
        spec = decode_spec(replaced.spec)
        first = max(row.replaced[0][1], replaced.since if replaced is not row else 0, low - spec.jitter_ms)
        uncertain = []
        for nominal in spec.nominal_times(first, position):
            if low < spec.due_of(row.schedule_id, nominal) < position:
                uncertain.append(occurrence_key(row.schedule_id, nominal))
            if len(uncertain) >= UNCERTAIN_MAX:
                break
        return tuple(uncertain)


def _forget_beaten(mine: dict[bytes, _Ahead], current: ScheduleRow | None) -> None:
    """Leave in `mine` what holds, or may come to hold: commits whose condition still does."""
    version = None if current is None else current.version
    for token, ahead in list(mine.items()):
        expected = None if ahead.previous is None else ahead.previous.version
        if expected != version and (current is None or token != current.token):
            del mine[token]
