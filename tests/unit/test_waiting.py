"""An owner's memory: copies, versions, markers, holds, and what committed may claim."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tocsin.dispatcher.load import Load
from tocsin.dispatcher.waiting import NO_END, Item, Status, Waiting
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.schedules import Marker
from tocsin.schema.store import PlacedMarker


def entry(scheduled_for: int = 100, version: int = 1, *, schedule_id: str = "s", verify: bool = False) -> Entry:
    return Entry(schedule_id, scheduled_for, scheduled_for, version, verify=verify)


def marker(version: int = 2, from_ms: int = 0, *, until_ms: int = 1_000, verify: bool = False) -> Marker:
    return Marker(schedule_id="s", version=version, from_ms=from_ms, until_ms=until_ms, verify=verify)


def marked(waiting: Waiting, position: int = 100, version: int = 1) -> Item:
    item = waiting.add(entry(version=version, verify=True), position, missed=False)
    assert item is not None
    return item


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def taken(waiting: Waiting, through: int = 100) -> list[tuple[int, int]]:
    return [(item.entry.scheduled_for, item.entry.version) for item in waiting.take_due(through)]


def test_what_is_due_is_taken_once_in_order(waiting: Waiting) -> None:
    for scheduled_for in (30, 10, 20, 40):
        waiting.add(entry(scheduled_for), scheduled_for, missed=False)
    assert waiting.next_due() == 10
    assert taken(waiting, 30) == [(10, 1), (20, 1), (30, 1)]
    assert taken(waiting, 30) == []
    assert waiting.next_due() == 40


def test_a_marked_entry_is_not_taken_before_it_was_verified(waiting: Waiting) -> None:
    item = marked(waiting)
    assert waiting.next_due() is None
    assert taken(waiting) == []
    assert waiting.let_count(item)
    assert taken(waiting) == [(100, 1)]


def test_a_marked_timer_counts_as_it_is(waiting: Waiting) -> None:
    timer = Entry("t", 100, 100, 1, kind=Kind.TIMER, verify=True)
    item = waiting.add(timer, 100, missed=False)
    assert item is not None
    assert item.status is Status.WAITING
    assert taken(waiting) == [(100, 1)]


# Copies


def test_copies_of_an_entry_are_one_item_from_the_lowest_to_the_highest_position(waiting: Waiting) -> None:
    for position in (100, 80, 120):
        waiting.add(entry(), position, missed=False)
    assert waiting.count == 1
    assert waiting.settled_before() == 80
    (item,) = waiting.take_due(100)
    assert (item.lowest, item.source) == (80, 120)
    waiting.drop(item)
    assert waiting.settled_before() is None


def test_an_unmarked_copy_makes_a_marked_entry_count_unasked(waiting: Waiting) -> None:
    item = marked(waiting)
    assert waiting.add(entry(), 90, missed=False) is None
    assert item.status is Status.WAITING
    assert not item.entry.verify
    assert taken(waiting) == [(100, 1)]


def test_a_marked_copy_changes_nothing_of_one_that_counts(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    assert waiting.add(entry(verify=True), 200, missed=False) is None
    assert taken(waiting) == [(100, 1)]


@pytest.mark.parametrize("status", [Status.MOVING, Status.PARKING])
def test_a_copy_read_while_an_item_moves_is_kept_for_the_end_of_the_move(waiting: Waiting, status: Status) -> None:
    item = marked(waiting)
    item.status = status
    again = entry(verify=True)
    assert waiting.add(again, 300, missed=False) is None
    assert item.again is again
    assert item.status is status


def test_an_unmarked_copy_ends_the_move_of_an_undecided_item(waiting: Waiting) -> None:
    item = marked(waiting)
    item.status = Status.MOVING
    waiting.add(entry(), 300, missed=False)
    assert item.status is Status.WAITING
    assert taken(waiting) == [(100, 1)]


def test_an_unmarked_copy_of_a_parked_item_waits_for_the_end_of_the_move(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    (item,) = waiting.take_due(100)
    item.status = Status.PARKING
    waiting.add(entry(), 300, missed=False)
    assert item.status is Status.PARKING
    assert item.again == entry()


def test_an_item_stands_for_the_later_occurrences_it_catches_up_with(waiting: Waiting) -> None:
    waiting.add(entry(100), 100, missed=True)
    (item,) = waiting.take_due(100)
    item.also |= {160}
    assert waiting.find("s", 160, 1) is item
    assert waiting.add(entry(160), 160, missed=False) is None
    assert waiting.count == 1
    assert item.source == 160


def test_another_request_is_another_occurrence(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    waiting.add(Entry("s", 100, 100, 1, request="r"), 100, missed=False)
    assert waiting.count == 2


# Versions


def test_of_two_versions_of_an_occurrence_the_higher_wins(waiting: Waiting) -> None:
    waiting.add(entry(version=1), 100, missed=False)
    waiting.add(entry(version=2), 100, missed=False)
    assert taken(waiting) == [(100, 2)]
    assert waiting.count == 1


def test_a_lower_version_that_comes_later_is_dropped(waiting: Waiting) -> None:
    waiting.add(entry(version=2), 100, missed=False)
    waiting.add(entry(version=1), 100, missed=False)
    assert taken(waiting) == [(100, 2)]


def test_a_marked_entry_shadows_a_lower_version_only_once_it_counts(waiting: Waiting) -> None:
    waiting.add(entry(version=1), 100, missed=False)
    item = marked(waiting, version=2)
    assert waiting.count == 2
    assert waiting.let_count(item)
    assert waiting.count == 1
    assert taken(waiting) == [(100, 2)]


def test_what_is_handed_to_the_publisher_takes_its_course(waiting: Waiting) -> None:
    waiting.add(entry(version=1), 100, missed=False)
    (old,) = waiting.take_due(100)
    waiting.add(entry(version=2), 100, missed=False)
    assert old.status is Status.DISPATCHING


# Change markers


def test_a_marker_drops_what_it_ends_now_and_from_now_on(waiting: Waiting) -> None:
    waiting.add(entry(50), 50, missed=False)
    waiting.add(entry(100), 100, missed=False)
    assert list(waiting.add_markers([PlacedMarker(70, marker(from_ms=60))])) == []
    waiting.add(entry(150), 150, missed=False)
    waiting.add(entry(150, version=2), 150, missed=False)
    assert taken(waiting, 200) == [(50, 1), (150, 2)]


def test_a_marker_does_not_call_back_what_is_being_published(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    (item,) = waiting.take_due(100)
    waiting.apply(marker())
    assert item.status is Status.DISPATCHING
    assert waiting.is_ended("s", 1, 100)
    assert waiting.end_of(item) == 0


def test_a_marked_marker_holds_its_schedule_until_the_first_answer(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    waiting.add(entry(schedule_id="other"), 100, missed=False)
    held = marker(verify=True)
    assert list(waiting.add_markers([PlacedMarker(90, held)])) == [held]
    assert waiting.is_held("s")
    assert [item.entry.schedule_id for item in waiting.take_due(100)] == ["other"]
    assert waiting.settled_before() == 100
    waiting.answered("s")
    assert not waiting.is_held("s")
    assert taken(waiting) == [(100, 1)]


def test_two_marked_markers_need_two_answers(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    list(waiting.add_markers([PlacedMarker(90, marker(2, verify=True)), PlacedMarker(91, marker(3, verify=True))]))
    waiting.answered("s")
    assert taken(waiting) == []
    waiting.answered("s")
    assert taken(waiting) == [(100, 1)]


def test_what_was_held_and_then_ended_is_never_taken(waiting: Waiting) -> None:
    waiting.add(entry(), 100, missed=False)
    held = marker(verify=True)
    list(waiting.add_markers([PlacedMarker(90, held)]))
    assert taken(waiting) == []
    waiting.apply(held)
    waiting.answered("s")
    assert taken(waiting) == []
    assert waiting.settled_before() is None


def test_a_marker_read_twice_is_asked_about_once(waiting: Waiting) -> None:
    twice = [PlacedMarker(90, marker(verify=True)), PlacedMarker(95, marker(verify=True))]
    assert len(list(waiting.add_markers(twice))) == 1


def test_a_version_ends_where_the_first_change_after_it_began(waiting: Waiting) -> None:
    waiting.add(entry(10), 10, missed=False)
    (item,) = waiting.take_due(10)
    assert waiting.end_of(item) == NO_END
    waiting.apply(marker(3, from_ms=70))
    waiting.apply(marker(2, from_ms=50))
    assert waiting.end_of(item) == 50
    item.end = 40
    assert waiting.end_of(item) == 40


def test_markers_are_forgotten_once_committed_has_passed_them(waiting: Waiting) -> None:
    waiting.apply(marker(2, until_ms=500))
    waiting.apply(marker(3, until_ms=700))
    waiting.forget_markers(500)
    assert waiting.is_ended("s", 1, 100)
    waiting.forget_markers(600)
    assert waiting.is_ended("s", 2, 100)
    waiting.forget_markers(701)
    assert not waiting.is_ended("s", 1, 100)


# Bytes


def test_what_is_forgotten_weighs_nothing() -> None:
    load = Load()
    waiting = Waiting(load)
    waiting.add(Entry("s", 100, 100, 1, payload=b"x" * 1_000), 100, missed=False)
    assert load.size_bytes > 1_000
    (item,) = waiting.take_due(100)
    waiting.drop(item)
    waiting.drop(item)
    assert load.size_bytes == 0


def test_a_range_that_was_left_weighs_nothing_whatever_is_still_under_way_there() -> None:
    load = Load()
    left, kept = Waiting(load), Waiting(load)
    for waiting in (left, kept):
        waiting.add(entry(10), 10, missed=False)
        waiting.add(entry(20), 20, missed=False)
    both = load.size_bytes
    (under_way,) = left.take_due(10)
    left.leave()
    assert load.size_bytes == both // 2
    left.drop(under_way)
    assert load.size_bytes == both // 2
    assert left.settled_before() == 20


class Owner(RuleBasedStateMachine):
    """An owner does anything in any order; the memory is compared with what can be said of it without cleverness."""

    schedule_ids = st.sampled_from(["a", "b"])
    instants = st.integers(0, 12)
    versions = st.integers(1, 4)

    @initialize()
    def begin(self) -> None:
        self.waiting = Waiting()
        self.items: list[Item] = []
        self.markers: list[Marker] = []
        self.asked: list[Marker] = []

    def living(self, *statuses: Status) -> list[Item]:
        return [item for item in self.items if item.status in (statuses or set(Status) - {Status.GONE})]

    @rule(schedule_id=schedule_ids, at=instants, version=versions, position=instants, verify=st.booleans())
    def read(self, schedule_id: str, at: int, version: int, position: int, verify: bool) -> None:
        found = self.waiting.find(schedule_id, at, version)
        read = entry(at, version, schedule_id=schedule_id, verify=verify)
        item = self.waiting.add(read, position, missed=False)
        if found is not None:
            assert item is None
        elif item is not None:
            self.items.append(item)
            assert (item.status is Status.VERIFYING) is verify

    @precondition(lambda self: self.living(Status.VERIFYING))
    @rule(data=st.data(), status=st.sampled_from([Status.WAITING, Status.MOVING, Status.GONE]))
    def answer(self, data: st.DataObject, status: Status) -> None:
        item = data.draw(st.sampled_from(self.living(Status.VERIFYING)))
        if status is Status.WAITING:
            self.waiting.let_count(item)
        elif status is Status.GONE:
            self.waiting.drop(item)
        else:
            item.status = status

    @rule(through=instants)
    def take(self, through: int) -> None:
        expected = {
            id(item)
            for item in self.living(Status.WAITING)
            if item.entry.due <= through and not self.waiting.is_held(item.entry.schedule_id)
        }
        taken = self.waiting.take_due(through)
        assert {id(item) for item in taken} == expected
        assert [item.entry.due for item in taken] == sorted(item.entry.due for item in taken)

    @precondition(lambda self: self.living(Status.DISPATCHING, Status.MOVING))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.waiting.drop(data.draw(st.sampled_from(self.living(Status.DISPATCHING, Status.MOVING))))

    @rule(schedule_id=schedule_ids, version=versions, from_ms=instants, until=instants, verify=st.booleans())
    def change(self, schedule_id: str, version: int, from_ms: int, until: int, verify: bool) -> None:
        read = Marker(schedule_id=schedule_id, version=version, from_ms=from_ms, until_ms=until, verify=verify)
        before = {found for found in self.markers if found == read}
        asked = list(self.waiting.add_markers([PlacedMarker(0, read)]))
        self.asked += asked
        if not verify and not before:
            self.markers.append(read)

    @precondition(lambda self: self.asked)
    @rule(holds=st.booleans())
    def answer_marker(self, holds: bool) -> None:
        found = self.asked.pop(0)
        if holds:
            self.waiting.apply(found)
            self.markers.append(found)
        self.waiting.answered(found.schedule_id)

    @rule(committed=instants)
    def forget(self, committed: int) -> None:
        self.waiting.forget_markers(committed)
        self.markers = [found for found in self.markers if found.until_ms >= committed]

    @invariant()
    def the_sums_are_right(self) -> None:
        assert self.waiting.count == len(self.living())
        assert self.waiting.settled_before() == min((item.lowest for item in self.living()), default=None)
        held = {found.schedule_id for found in self.asked}
        assert held == {name for name in ("a", "b") if self.waiting.is_held(name)}

    @invariant()
    def nothing_waits_that_was_ended(self) -> None:
        for item in self.living(Status.WAITING, Status.VERIFYING, Status.MOVING):
            assert not any(self.ends(found, item) for found in self.markers)

    @invariant()
    def one_version_of_an_occurrence_waits(self) -> None:
        waiting = [(item.entry.schedule_id, item.entry.scheduled_for) for item in self.living(Status.WAITING)]
        assert len(waiting) == len(set(waiting))

    @invariant()
    def versions_end_where_markers_say(self) -> None:
        for item in self.living():
            ends = [found.from_ms for found in self.markers if self.newer(found, item)]
            assert self.waiting.end_of(item) == min(ends, default=NO_END)

    @invariant()
    def the_next_due_is_known(self) -> None:
        due = self.waiting.next_due()
        free = [i.entry.due for i in self.living(Status.WAITING) if not self.waiting.is_held(i.entry.schedule_id)]
        assert due is None or due in {item.entry.due for item in self.living(Status.WAITING)}
        assert not free or (due is not None and due <= min(free))

    @staticmethod
    def newer(found: Marker, item: Item) -> bool:
        return found.schedule_id == item.entry.schedule_id and found.version > item.entry.version

    def ends(self, found: Marker, item: Item) -> bool:
        return self.newer(found, item) and item.entry.scheduled_for >= found.from_ms


TestAnyOrder = Owner.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)
