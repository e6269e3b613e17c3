"""What `schedules` says of a marked entry or marker."""

from __future__ import annotations

import pytest

from tocsin.dispatcher.verification import Answer, Verdict, judge_entry, judge_marker
from tocsin.schema.entries import Entry
from tocsin.schema.schedules import Marker, ScheduleRow, State


def row(version: int, state: State = State.ACTIVE, replaced: tuple[tuple[int, int], ...] = ()) -> ScheduleRow:
    return ScheduleRow(
        schedule_id="s",
        version=version,
        token=b"",
        state=state,
        since=0,
        replaced=replaced,
        spec=b"{}",
        created_at=0,
        updated_at=0,
    )


def entry(version: int, scheduled_for: int = 100, spec: bytes = b"{}") -> Entry:
    return Entry("s", scheduled_for, scheduled_for, version, verify=True, spec=spec)


@pytest.mark.parametrize("state", State)
def test_without_a_row_or_at_an_older_one_it_is_undecided(state: State) -> None:
    assert judge_entry(entry(5), None).answer is Answer.UNDECIDED
    assert judge_entry(entry(5), row(4, state)).answer is Answer.UNDECIDED


def test_the_current_version_counts_without_an_end() -> None:
    assert judge_entry(entry(5), row(5)) == Verdict(Answer.COUNTS)


def test_a_pointer_of_the_current_version_counts() -> None:
    assert judge_entry(entry(5, spec=b""), row(5)).answer is Answer.COUNTS


@pytest.mark.parametrize("state", [State.PAUSED, State.CANCELLED])
def test_nothing_counts_while_the_schedule_is_not_active(state: State) -> None:
    assert judge_entry(entry(5), row(5, state)).answer is Answer.DROPPED
    assert judge_entry(entry(5), row(6, state, ((5, 200),))).answer is Answer.DROPPED


@pytest.mark.parametrize(
    ("scheduled_for", "answer"), [(99, Answer.COUNTS), (100, Answer.DROPPED), (101, Answer.DROPPED)]
)
def test_a_replaced_version_counts_below_its_end_only(scheduled_for: int, answer: Answer) -> None:
    verdict = judge_entry(entry(5, scheduled_for), row(7, replaced=((6, 150), (5, 100))))
    assert verdict.answer is answer
    if answer is Answer.COUNTS:
        assert verdict.end == 100


def test_a_version_nobody_remembers_is_dropped() -> None:
    assert judge_entry(entry(4), row(7, replaced=((6, 150), (5, 100)))).answer is Answer.DROPPED


def test_a_pointer_of_a_replaced_version_is_dropped_for_its_spec_is_gone() -> None:
    assert judge_entry(entry(5, 99, spec=b""), row(6, replaced=((5, 100),))).answer is Answer.DROPPED


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        (None, Answer.UNDECIDED),
        (row(4), Answer.UNDECIDED),
        (row(5), Answer.COUNTS),
        (row(5, State.CANCELLED), Answer.COUNTS),
        (row(8, replaced=((5, 0),)), Answer.COUNTS),
        (row(8, State.PAUSED, replaced=((7, 0), (5, 0))), Answer.COUNTS),
        (row(8, replaced=((7, 0),)), Answer.DROPPED),
    ],
)
def test_a_marker_counts_once_its_change_is_known_to_hold(found: ScheduleRow | None, answer: Answer) -> None:
    marker = Marker(schedule_id="s", version=5, from_ms=0, until_ms=0, verify=True)
    assert judge_marker(marker, found) is answer
