"""What each change makes of a row: refused, recognised as done, or drafted; no store is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tocsin.producer.change import Draft, Wish
from tocsin.producer.definition import NewSchedule
from tocsin.producer.wishes import Cancel, Create, Pause, Resume, Update
from tocsin.schema.errors import (
    InstantInPast,
    InvalidSchedule,
    NeverOccurs,
    ScheduleExists,
    ScheduleNotFound,
    VersionConflict,
)
from tocsin.schema.recurrence import AnyRecurrence, Cron, Every, Once
from tocsin.schema.schedules import ScheduleRow, State, decode_spec

TEN = datetime(2026, 11, 30, 10, tzinfo=UTC)
TEN_MS = int(TEN.timestamp() * 1000)
GRACE_MS = 60_000
MINUTE_MS = 60_000


def new(recurrence: AnyRecurrence | None = None, **fields: Any) -> NewSchedule:
    return NewSchedule(
        schedule_id="s", recurrence=recurrence or Every(timedelta(minutes=1)), topic="t", **({"payload": b"p"} | fields)
    )


def create(schedule: NewSchedule | None = None) -> Create:
    return Create(schedule or new(), GRACE_MS)


def row_of(draft: Draft, *, version: int = 7, created_at: int = TEN_MS) -> ScheduleRow:
    return ScheduleRow(
        schedule_id="s",
        version=version,
        token=b"",
        state=draft.state,
        since=draft.since,
        spec=draft.spec,
        payload=draft.payload,
        tenant=draft.tenant,
        tags=draft.tags,
        created_at=created_at,
        updated_at=created_at,
        note=draft.note,
    )


def drafted(wish: Wish, current: ScheduleRow | None = None, now: int = TEN_MS) -> Draft:
    draft = wish.draft(current, now)
    assert draft is not None
    return draft


@pytest.fixture
def active() -> ScheduleRow:
    return row_of(drafted(create()))


def in_state(row: ScheduleRow, state: State) -> ScheduleRow:
    return msgspec.structs.replace(row, state=state)


# Create


def test_a_new_schedule_owns_nominal_times_from_its_creation_on() -> None:
    draft = drafted(create())
    assert (draft.state, draft.since, draft.keeps_before) == (State.ACTIVE, TEN_MS, 0)
    assert decode_spec(draft.spec).recurrence == Every(timedelta(minutes=1), anchor=TEN)


def test_a_once_within_the_grace_owns_its_own_instant() -> None:
    draft = drafted(create(new(Once(TEN))), now=TEN_MS + GRACE_MS)
    assert draft.since == TEN_MS
    with pytest.raises(InstantInPast):
        create(new(Once(TEN))).draft(None, TEN_MS + GRACE_MS + 1)


def test_a_schedule_that_never_occurs_is_refused() -> None:
    with pytest.raises(NeverOccurs):
        create(new(Cron("0 0 1 1 *"), until=TEN + timedelta(days=1))).draft(None, TEN_MS)


def test_a_create_recognises_its_own_result_at_any_later_time(active: ScheduleRow) -> None:
    assert create().draft(active, TEN_MS + 10**9) is None
    assert create().draft(in_state(active, State.PAUSED), TEN_MS) is None


def test_a_once_that_has_passed_is_still_recognised() -> None:
    wish = create(new(Once(TEN + timedelta(minutes=1))))
    assert wish.draft(row_of(drafted(wish)), TEN_MS + 10**9) is None


@pytest.mark.parametrize(
    "other",
    [
        {"payload": b"q"},
        {"tags": {"x"}},
        {"note": "n"},
        {"tenant": "acme"},
        {"jitter": timedelta(seconds=1)},
        {"recurrence": Every(timedelta(minutes=2))},
        {"headers": {"a": "b"}},
    ],
)
def test_a_create_with_other_content_is_refused_and_shows_what_exists(
    active: ScheduleRow, other: dict[str, Any]
) -> None:
    with pytest.raises(ScheduleExists) as raised:
        create(new(**other)).draft(active, TEN_MS)
    assert raised.value.existing is active


def test_the_id_of_a_cancelled_schedule_is_not_used_again(active: ScheduleRow) -> None:
    with pytest.raises(ScheduleExists, match="was cancelled; nothing was changed") as raised:
        create().draft(in_state(active, State.CANCELLED), TEN_MS)
    assert raised.value.cancelled


# Update


def update(expected_version: int | None = None, **changes: Any) -> Update:
    return Update("s", changes, grace_ms=GRACE_MS, expected_version=expected_version)


def test_an_update_owns_what_is_nominal_from_now_on_and_leaves_the_rest(active: ScheduleRow) -> None:
    now = TEN_MS + 90_000
    draft = drafted(update(payload=b"q"), active, now)
    assert (draft.state, draft.since, draft.keeps_before) == (State.ACTIVE, now, now)
    assert (draft.payload, draft.spec, draft.note) == (b"q", active.spec, active.note)


def test_saving_without_a_change_changes_nothing(active: ScheduleRow) -> None:
    assert update().draft(active, TEN_MS + 1) is None
    assert update(payload=b"p").draft(active, TEN_MS + 1) is None


def test_a_repeated_update_recognises_its_own_result(active: ScheduleRow) -> None:
    wish = update(active.version, payload=b"q")
    result = row_of(drafted(wish, active, TEN_MS + 5), version=8)
    assert wish.draft(result, TEN_MS + 9) is None
    assert update(active.version, payload=b"q").draft(result, TEN_MS + 9) is None


def test_an_update_refuses_another_version_than_expected(active: ScheduleRow) -> None:
    with pytest.raises(VersionConflict) as raised:
        update(6, payload=b"q").draft(active, TEN_MS)
    assert (raised.value.expected, raised.value.actual) == (6, 7)


def test_without_an_expectation_the_version_first_seen_is_expected(active: ScheduleRow) -> None:
    wish = update(payload=b"q")
    drafted(wish, active)
    with pytest.raises(VersionConflict):
        wish.draft(msgspec.structs.replace(active, version=8, payload=b"r"), TEN_MS)


def test_a_paused_schedule_stays_paused_when_updated(active: ScheduleRow) -> None:
    assert drafted(update(payload=b"q"), in_state(active, State.PAUSED)).state is State.PAUSED


def test_a_new_rule_must_occur(active: ScheduleRow) -> None:
    with pytest.raises(InstantInPast):
        update(recurrence=Once(TEN)).draft(active, TEN_MS + GRACE_MS + 1)
    text = drafted(update(recurrence=Once(TEN + timedelta(hours=1))), active).spec
    assert decode_spec(text).recurrence == Once(TEN + timedelta(hours=1))


def test_a_bad_value_of_an_update_is_refused_by_its_field(active: ScheduleRow) -> None:
    with pytest.raises(InvalidSchedule) as raised:
        update(topic="a b").draft(active, TEN_MS)
    assert raised.value.field == "topic"


# Pause, resume, cancel


def test_a_pause_drops_everything_pending_and_keeps_the_content(active: ScheduleRow) -> None:
    draft = drafted(Pause("s", "holidays"), active, TEN_MS + 5)
    assert (draft.state, draft.keeps_before, draft.note) == (State.PAUSED, 0, "holidays")
    assert (draft.spec, draft.payload) == (active.spec, active.payload)


def test_a_note_is_kept_where_a_pause_gives_none(active: ScheduleRow) -> None:
    noted = msgspec.structs.replace(active, note="mine")
    assert drafted(Pause("s", ""), noted).note == "mine"


def test_a_resume_owns_nominal_times_from_now_or_from_where_it_was_asked_to(active: ScheduleRow) -> None:
    paused = in_state(active, State.PAUSED)
    assert drafted(Resume("s", None, GRACE_MS), paused, TEN_MS + 9).since == TEN_MS + 9
    assert drafted(Resume("s", TEN_MS + 2, GRACE_MS), paused, TEN_MS + 9).since == TEN_MS + 2


def test_a_resume_from_the_future_is_refused(active: ScheduleRow) -> None:
    with pytest.raises(InvalidSchedule, match="future") as raised:
        Resume("s", TEN_MS + 1, GRACE_MS).draft(in_state(active, State.PAUSED), TEN_MS)
    assert raised.value.field == "resume_from"


def test_a_schedule_whose_time_is_over_cannot_be_resumed() -> None:
    once = in_state(row_of(drafted(create(new(Once(TEN))))), State.PAUSED)
    with pytest.raises(InstantInPast):
        Resume("s", None, GRACE_MS).draft(once, TEN_MS + 10 * MINUTE_MS)


def test_each_recognises_the_state_it_wants(active: ScheduleRow) -> None:
    assert Pause("s", "").draft(in_state(active, State.PAUSED), TEN_MS) is None
    assert Resume("s", None, GRACE_MS).draft(active, TEN_MS) is None
    assert Cancel("s").draft(in_state(active, State.CANCELLED), TEN_MS) is None


@pytest.mark.parametrize("state", [State.ACTIVE, State.PAUSED])
def test_a_cancel_ends_what_lives(active: ScheduleRow, state: State) -> None:
    draft = drafted(Cancel("s"), in_state(active, state))
    assert (draft.state, draft.keeps_before, draft.spec) == (State.CANCELLED, 0, active.spec)


@pytest.mark.parametrize("wish", [update(payload=b"q"), Pause("s", ""), Resume("s", None, GRACE_MS)])
def test_a_cancelled_schedule_does_not_come_back(active: ScheduleRow, wish: Wish) -> None:
    with pytest.raises(InvalidSchedule, match="cancelled"):
        wish.draft(in_state(active, State.CANCELLED), TEN_MS)


@pytest.mark.parametrize("wish", [update(payload=b"q"), Pause("s", ""), Resume("s", None, GRACE_MS), Cancel("s")])
def test_what_is_not_there_cannot_be_changed(wish: Wish) -> None:
    with pytest.raises(ScheduleNotFound):
        wish.draft(None, TEN_MS)
