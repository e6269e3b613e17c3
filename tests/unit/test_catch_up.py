"""Missed occurrences: the four policies, and a walk that jumps but answers as if it had not."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dispatcher import catch_up
from tocsin.dispatcher.catch_up import Chosen, Horizon, choose, following
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from tocsin.schema.recurrence import Cron, Every, Once
from tocsin.schema.schedules import CatchUp, Spec

TEN = datetime(2026, 11, 30, 10, tzinfo=UTC)
TEN_MS = int(TEN.timestamp() * 1000)
NEVER = 1 << 62
GRACE_MS = MINUTE_MS


def at(minutes: float) -> int:
    return TEN_MS + int(minutes * MINUTE_MS)


def every(period: timedelta, **fields: object) -> Spec:
    return Spec(recurrence=Every(period, anchor=TEN), topic="t", **fields)  # type: ignore[arg-type]


def back_at(now: int, end: int = NEVER) -> Horizon:
    return Horizon(now=now, near_read=now, end=end, grace_ms=GRACE_MS)


def run(spec: Spec, horizon: Horizon, first: int = TEN_MS) -> tuple[list[int], int, int | None]:
    """What one missed entry leads to: the dispatched nominal times, how many were skipped, and what is armed then."""
    chosen = choose(spec, "s", first, spec.due_of("s", first), horizon)
    dispatched, skipped, nominal = [], chosen.skipped, chosen.scheduled_for
    if chosen.counts:
        dispatched.append(nominal)
    while True:
        following_nominal, passed = following(spec, "s", nominal, horizon, counted=chosen.counts)
        skipped += passed
        if following_nominal is None or following_nominal >= horizon.end:
            return dispatched, skipped, None
        if spec.due_of("s", following_nominal) > horizon.due_by:
            return dispatched, skipped, following_nominal
        nominal = following_nominal
        dispatched.append(nominal)


@pytest.mark.parametrize(
    ("policy", "dispatched", "skipped"),
    [
        (CatchUp.LATEST, [20], 2),
        (CatchUp.ALL, [0, 10, 20], 0),
        (CatchUp.EARLIEST, [0], 2),
        (CatchUp.SKIP, [], 3),
    ],
)
def test_down_over_three_occurrences(policy: CatchUp, dispatched: list[int], skipped: int) -> None:
    spec = every(timedelta(minutes=10), catch_up=policy)
    assert run(spec, back_at(at(25))) == ([at(minutes) for minutes in dispatched], skipped, at(30))


@pytest.mark.parametrize(
    ("policy", "dispatched", "skipped"),
    [
        (CatchUp.LATEST, [119], 119),
        (CatchUp.ALL, list(range(120)), 0),
        (CatchUp.EARLIEST, [0], 119),
        # The last one is late, not missed: it goes out under `skip` too.
        (CatchUp.SKIP, [119], 119),
    ],
)
def test_down_over_a_hundred_and_twenty_minutes(policy: CatchUp, dispatched: list[int], skipped: int) -> None:
    spec = every(timedelta(minutes=1), catch_up=policy)
    assert run(spec, back_at(at(119.5))) == ([at(minutes) for minutes in dispatched], skipped, at(120))


def test_all_keeps_only_the_newest_beyond_its_limit() -> None:
    spec = every(timedelta(minutes=1), catch_up=CatchUp.ALL, max_catch_up=5)
    dispatched, skipped, armed = run(spec, back_at(at(119.5)))
    assert dispatched == [at(minutes) for minutes in (115, 116, 117, 118, 119)]
    assert (skipped, armed) == (115, at(120))


@pytest.mark.parametrize("policy", CatchUp)
def test_a_missed_once_is_dispatched_late(policy: CatchUp) -> None:
    spec = Spec(recurrence=Once(TEN), topic="t", catch_up=policy)
    assert choose(spec, "s", TEN_MS, TEN_MS, back_at(at(60 * 24 * 30))) == Chosen(TEN_MS, TEN_MS, True, 0)


@pytest.mark.parametrize("policy", CatchUp)
def test_a_version_catches_up_only_with_what_it_owns(policy: CatchUp) -> None:
    spec = every(timedelta(minutes=10), catch_up=policy)
    dispatched, _, armed = run(spec, back_at(at(25), end=at(20)))
    assert armed is None
    assert all(nominal < at(20) for nominal in dispatched)
    assert bool(dispatched) is (policy is not CatchUp.SKIP)


@pytest.mark.parametrize("policy", CatchUp)
def test_nothing_is_chosen_beyond_what_near_was_read_for(policy: CatchUp) -> None:
    spec = every(timedelta(minutes=10), catch_up=policy)
    horizon = Horizon(now=at(25), near_read=at(15), end=NEVER, grace_ms=GRACE_MS)
    assert choose(spec, "s", at(0), at(0), horizon).scheduled_for <= at(15)


@pytest.mark.parametrize("policy", CatchUp)
def test_thirty_days_of_minutes_are_caught_up_within_bounded_steps(
    policy: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0
    walk = Every.after_ms

    def counted(rule: Every, instant_ms: int) -> int | None:
        nonlocal steps
        steps += 1
        return walk(rule, instant_ms)

    monkeypatch.setattr(Every, "after_ms", counted)
    spec = every(timedelta(minutes=1), catch_up=policy, max_catch_up=100)
    now = TEN_MS + 30 * DAY_MS + 30 * SECOND_MS
    dispatched, skipped, armed = run(spec, back_at(now))
    assert armed == now + 30 * SECOND_MS
    assert 1_000 < skipped <= 43_201 - len(dispatched)
    assert len(dispatched) == {CatchUp.ALL: 100}.get(policy, 1)
    assert dispatched[-1] == (TEN_MS if policy is CatchUp.EARLIEST else now - 30 * SECOND_MS)
    assert steps < 15_000


specs = st.builds(
    Spec,
    recurrence=st.one_of(
        st.builds(Every, st.integers(1, 10_000).map(lambda seconds: timedelta(seconds=seconds)), anchor=st.just(TEN)),
        st.sampled_from(
            [
                Cron("*/7 9-11 * * *"),
                Cron("0,1,2,30 */5 * * *"),
                Cron("* 2 * * *", tz="Europe/Berlin"),
                Cron("15 * * * 1,3"),
            ]
        ),
    ),
    topic=st.just("t"),
    jitter_ms=st.sampled_from([0, 1, 30_000, HOUR_MS]),
    catch_up=st.sampled_from(CatchUp),
    max_catch_up=st.integers(1, 12),
    until=st.none() | st.integers(TEN_MS, TEN_MS + 2 * DAY_MS),
)


@given(specs, st.integers(0, 2 * HOUR_MS), st.integers(0, 3 * HOUR_MS))
def test_a_jump_answers_as_a_walk_of_every_step(spec: Spec, down_ms: int, ends_after_ms: int) -> None:
    first = spec.first_from(TEN_MS)
    if first is None:
        return
    now = max(spec.due_of("s", first), TEN_MS + down_ms)
    horizon = back_at(now, end=first + 1 + ends_after_ms)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(catch_up, "WALK_MAX", NEVER)
        walked = run(spec, horizon, first)
        monkeypatch.setattr(catch_up, "WALK_MAX", 4)
        jumped = run(spec, horizon, first)
    assert jumped[0] == walked[0]
    assert jumped[2] == walked[2]
    assert 0 <= jumped[1] <= walked[1]


@given(specs, st.integers(0, 30 * MINUTE_MS))
def test_what_is_owed_is_dispatched_or_skipped_and_the_chain_goes_on_right_after(spec: Spec, down_ms: int) -> None:
    first = spec.first_from(TEN_MS)
    if first is None:
        return
    now = max(spec.due_of("s", first), TEN_MS + down_ms)
    dispatched, skipped, armed = run(spec, back_at(now), first)
    owed = []
    nominal: int | None = first
    while nominal is not None and spec.due_of("s", nominal) <= now:
        owed.append(nominal)
        nominal = spec.next_after(nominal)
    assert armed == nominal
    assert skipped == len(owed) - len(dispatched)
    assert dispatched == sorted(set(dispatched) & set(owed))
    if len(owed) > 1 or spec.catch_up is not CatchUp.SKIP:
        late = [nominal for nominal in owed if now - spec.due_of("s", nominal) <= GRACE_MS and nominal != first]
        missed = now - spec.due_of("s", first) > GRACE_MS
        assert (
            dispatched
            == {
                CatchUp.LATEST: owed[-1:],
                CatchUp.ALL: owed[-spec.max_catch_up :],
                CatchUp.EARLIEST: owed[:1] if missed else owed,
                CatchUp.SKIP: late,
            }[spec.catch_up]
        )


def test_what_went_out_before_the_outage_is_not_the_earliest_missed_one() -> None:
    spec = every(timedelta(minutes=10), catch_up=CatchUp.EARLIEST)
    assert following(spec, "s", at(0), back_at(at(25)), counted=False) == (at(10), 0)
    assert following(spec, "s", at(10), back_at(at(25)), counted=True) == (at(30), 1)


def test_one_that_is_late_and_not_missed_stands_for_nobody() -> None:
    spec = every(timedelta(seconds=10), catch_up=CatchUp.EARLIEST)
    assert following(spec, "s", at(0), back_at(at(1)), counted=True) == (at(0) + 10 * SECOND_MS, 0)


HOLIDAYS = frozenset({date(2026, 12, 1), date(2026, 12, 2)})


def back_after_the_holidays(minutes: float) -> Horizon:
    return back_at(at(minutes))._replace(dates=HOLIDAYS)


def test_a_date_on_which_nothing_runs_is_not_the_latest_missed_one() -> None:
    spec = every(timedelta(hours=6), catch_up=CatchUp.LATEST)
    third_day = 40 * 60
    chosen = choose(spec, "s", at(0), at(0), back_after_the_holidays(third_day))
    assert chosen == Chosen(at(12 * 60), at(12 * 60), counts=True, skipped=2)


def test_a_long_row_of_dates_on_which_nothing_runs_does_not_hide_the_latest_missed_one() -> None:
    """The walk jumps beyond `WALK_MAX`, into the middle of the dates."""
    spec = every(timedelta(minutes=1), catch_up=CatchUp.LATEST)
    last = at(14 * 60 - 1)
    chosen = choose(spec, "s", at(0), at(0), back_after_the_holidays(14 * 60 + 2 * 24 * 60 - 1))
    assert (chosen.scheduled_for, chosen.counts) == (last, True)


def test_where_nothing_missed_runs_the_head_is_passed_over() -> None:
    spec = every(timedelta(hours=6), catch_up=CatchUp.LATEST)
    first = at(24 * 60)
    assert choose(spec, "s", first, first, back_after_the_holidays(40 * 60)) == Chosen(
        first, first, counts=True, skipped=0
    )
