"""Each checker on a small history made by hand: silent where the promise was kept, loud where it was broken."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from simulation import check_dispatch, check_store
from simulation.clocks import EPOCH_MS
from simulation.history import Acknowledged, Applied, Delivery, Disturbance, History, Register
from simulation.scenario import END_MS, QUIET_MS
from simulation.world import LEVELS
from tocsin.schema.entries import Entry, encode_pack
from tocsin.schema.instants import to_datetime
from tocsin.schema.levels import Level
from tocsin.schema.recurrence import Every
from tocsin.schema.schedules import CatchUp, Marker, ScheduleRow, Spec, State, encode_spec
from tocsin.schema.store import PackRow

PERIOD_MS = 50_000
FIRST = EPOCH_MS + 10_000
DUES = tuple(range(FIRST, EPOCH_MS + END_MS, PERIOD_MS))


def spec(catch_up: CatchUp = CatchUp.ALL) -> Spec:
    rule = Every(timedelta(milliseconds=PERIOD_MS), anchor=to_datetime(FIRST))
    return Spec(recurrence=rule, topic="even", catch_up=catch_up)


def row(version: int = 1, state: State = State.ACTIVE, **changes: Any) -> ScheduleRow:
    plain = ScheduleRow(
        schedule_id="s",
        version=version,
        token=b"t",
        state=state,
        since=EPOCH_MS,
        spec=encode_spec(spec()),
        created_at=EPOCH_MS,
        updated_at=EPOCH_MS,
    )
    return msgspec.structs.replace(plain, **changes)


def delivery(due: int, version: int = 1, **changes: Any) -> Delivery:
    plain = Delivery(
        due + 50, "s", due, "", version, due, "even", "d0", arrived=True, acknowledged=True, store_clock_ms=due
    )
    return plain._replace(**changes)


class Story:
    """A history in the making."""

    def __init__(self, *rows: tuple[int, ScheduleRow]) -> None:
        self.now = float(EPOCH_MS)
        self.history = History(lambda: self.now, lambda _: 0)
        self.history.quiet_ms = EPOCH_MS + QUIET_MS
        self.history.end_ms = EPOCH_MS + END_MS
        for at, each in rows or ((EPOCH_MS, row()),):
            self.history.applied.append(Applied(at, each))

    def delivers(self, *deliveries: Delivery) -> Story:
        self.history.deliveries += deliveries
        return self

    def promises(self, at: int, operation: str = "create", version: int = 1, *, prevented: bool = False) -> Story:
        self.history.acknowledged.append(Acknowledged(at, operation, "s", version, prevented, ()))
        return self

    def is_disturbed(self, start: int, end: int, what: str = "kill") -> Story:
        self.history.disturbances.append(Disturbance(start, end, what))
        return self

    def marks(self, position: int, version: int) -> Story:
        marker = Marker(schedule_id="s", version=version, from_ms=0, until_ms=2 * EPOCH_MS, verify=False)
        self.history.markers.append((position, 0, marker))
        return self

    def arms(self, nominal: int, version: int = 1, *, at: int = EPOCH_MS, pack_id: bytes = b"p") -> Story:
        self.now = float(at)
        entry = Entry("s", nominal, nominal, version)
        bucket = LEVELS.bucket(Level.MINUTE, nominal, "s")
        pack = self.history.pack_begun(bucket, PackRow(nominal, pack_id, encode_pack([entry])))
        self.history.pack_acknowledged(pack)
        return self

    def commits(self, value: int, at: int) -> Story:
        self.history.registers.setdefault((0, "committed"), []).append(Register(at, value, "d0", at))
        return self

    def kinds(self, checker: Any) -> set[str]:
        return {violation.checker for violation in checker(self.history)}


def test_a_dispatch_before_the_stores_clock_is_early() -> None:
    assert Story().delivers(delivery(FIRST)).kinds(check_dispatch.never_early) == set()
    early = delivery(FIRST, store_clock_ms=FIRST - 1)
    assert Story().delivers(early).kinds(check_dispatch.never_early) == {"never early"}


def test_a_version_that_never_took_effect_is_not_dispatched() -> None:
    assert Story().delivers(delivery(FIRST)).kinds(check_dispatch.only_what_took_effect) == set()
    for wrong, kind in (
        (delivery(FIRST, version=2), "never committed"),
        (delivery(FIRST + 1), "not nominal"),
        (delivery(FIRST)._replace(due=FIRST + 1), "wrong due"),
    ):
        assert Story().delivers(wrong).kinds(check_dispatch.only_what_took_effect) == {kind}


def test_an_owed_occurrence_that_never_arrived_is_lost() -> None:
    everything = [delivery(due) for due in DUES]
    assert Story().promises(EPOCH_MS).delivers(*everything).kinds(check_dispatch.nothing_lost) == set()
    assert Story().promises(EPOCH_MS).delivers(*everything[1:]).kinds(check_dispatch.nothing_lost) == {"lost"}
    reported_only = everything[0]._replace(arrived=False)
    story = Story().promises(EPOCH_MS).delivers(reported_only, *everything[1:])
    assert story.kinds(check_dispatch.nothing_lost) == {"lost"}
    assert Story().delivers(*everything[1:]).kinds(check_dispatch.nothing_lost) == {"half-made change not healed"}


def test_latest_leaves_out_just_what_its_dispatch_counts_as_missed() -> None:
    latest = (EPOCH_MS, row(spec=encode_spec(spec(CatchUp.LATEST))))
    late = delivery(DUES[1], missed=1, at_ms=DUES[1] + 1, store_clock_ms=DUES[1] + 1)
    others = [delivery(due) for due in DUES[2:]]
    assert Story(latest).promises(EPOCH_MS).delivers(late, *others).kinds(check_dispatch.nothing_lost) == set()
    uncounted = late._replace(missed=0)
    assert Story(latest).promises(EPOCH_MS).delivers(uncounted, *others).kinds(check_dispatch.nothing_lost) == {"lost"}


def test_skip_leaves_out_nothing_in_a_calm() -> None:
    skip = (EPOCH_MS, row(spec=encode_spec(spec(CatchUp.SKIP))))
    rest = [delivery(due) for due in DUES[1:]]
    assert Story(skip).promises(EPOCH_MS).delivers(*rest).kinds(check_dispatch.nothing_lost) == {"lost"}
    disturbed = Story(skip).promises(EPOCH_MS).delivers(*rest).is_disturbed(FIRST - 1_000, FIRST + 9_000)
    assert disturbed.kinds(check_dispatch.nothing_lost) == set()


def test_what_was_prevented_is_never_dispatched() -> None:
    cancelled = row(2, State.CANCELLED, replaced=((1, 0),))
    story = Story((EPOCH_MS, row()), (FIRST, cancelled)).promises(FIRST + 10, "cancel", 2, prevented=True)
    story.marks(FIRST + 5, 2).delivers(delivery(FIRST, at_ms=FIRST + 5))
    assert story.kinds(check_dispatch.prevented_is_prevented) == set()
    story.delivers(delivery(DUES[1]))
    assert story.kinds(check_dispatch.prevented_is_prevented) == {"dispatched after prevented"}
    story.history.acknowledged[0] = story.history.acknowledged[0]._replace(prevented=False)
    assert story.kinds(check_dispatch.prevented_is_prevented) == {"old version long after the answer"}


def test_a_chain_that_ended_stays_ended_when_all_is_quiet() -> None:
    last = DUES[-1]
    cancelled = row(2, State.CANCELLED, replaced=((1, 0),))
    assert Story().delivers(delivery(last)).kinds(check_dispatch.ended_stays_ended) == set()
    story = Story((EPOCH_MS, row()), (FIRST, cancelled)).delivers(delivery(last))
    assert story.kinds(check_dispatch.ended_stays_ended) == {"ended chain goes on"}


def test_lateness_in_quiet_is_seen() -> None:
    last = DUES[-1]
    assert Story().delivers(delivery(last)).kinds(check_dispatch.on_time_when_quiet) == set()
    assert Story().delivers(delivery(last, at_ms=last + 2_000)).kinds(check_dispatch.on_time_when_quiet)


def test_a_repeat_needs_a_fault() -> None:
    twice = (delivery(FIRST), delivery(FIRST, at_ms=FIRST + 900, process="d1"))
    repeats = check_dispatch.repeats_have_a_reason
    assert Story().delivers(*twice).kinds(repeats) == {"repeated: without any fault"}
    assert Story().delivers(*twice).is_disturbed(FIRST, FIRST + 100).kinds(repeats) == set()
    by_one = (twice[0], twice[1]._replace(process="d0"))
    assert Story().delivers(*by_one).is_disturbed(FIRST, FIRST + 100).kinds(repeats) == {"repeated: by one process"}
    unsure = (twice[0]._replace(acknowledged=False), twice[1])
    assert Story().delivers(*unsure).kinds(repeats) == set()


def test_one_occurrence_is_armed_at_rest_no_more_and_no_less() -> None:
    done = [delivery(due) for due in DUES]
    following = DUES[-1] + PERIOD_MS
    one = check_store.one_armed_each
    assert Story().delivers(*done).arms(following).kinds(one) == set()
    assert Story().delivers(*done).kinds(one) == {"none armed"}
    twice = Story().delivers(*done).arms(following).arms(following + PERIOD_MS, pack_id=b"q")
    assert twice.kinds(one) == {"several armed"}


def test_an_old_versions_entry_must_be_ended_by_a_marker() -> None:
    following = DUES[-1] + PERIOD_MS
    cancelled = row(2, State.CANCELLED, replaced=((1, 0),))
    story = Story((EPOCH_MS, row()), (FIRST, cancelled)).arms(following)
    assert story.kinds(check_store.no_chain_of_an_old_version) == {"old chain armed"}
    assert story.marks(FIRST, 2).kinds(check_store.no_chain_of_an_old_version) == set()


def test_committed_passes_only_what_is_settled() -> None:
    def true(history: History) -> Any:
        return check_store.committed_tells_the_truth(history, LEVELS)

    story = Story().arms(FIRST).commits(FIRST + 100, at=FIRST + 200)
    assert story.kinds(true) == {"committed passes an entry"}
    assert story.delivers(delivery(FIRST)).kinds(true) == set()
    assert Story().arms(FIRST).commits(FIRST - 1, at=FIRST + 200).kinds(true) == set()
