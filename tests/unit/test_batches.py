"""In which order due items go out."""

from __future__ import annotations

from datetime import UTC, datetime

from tocsin.dispatcher.batches import batches
from tocsin.dispatcher.waiting import Item
from tocsin.schema.entries import Entry
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import Spec


def item(name: str, *, topic: str = "t", missed: bool = False, plain: bool = False) -> Item:
    made = Item(Entry(name, 1, 1, 1), 1, missed=missed)
    made.spec = Spec(recurrence=Once(datetime(2026, 12, 1, tzinfo=UTC)), topic=topic)
    made.plain = plain
    return made


def names(cut: list[list[Item]]) -> list[str]:
    return [" ".join(each.entry.schedule_id for each in batch) for batch in cut]


def test_topics_take_turns() -> None:
    items = [item(f"a{n}", topic="a") for n in range(4)] + [item(f"b{n}", topic="b") for n in range(2)]
    assert names(batches(items, 2)) == ["a0 a1", "b0 b1", "a2 a3"]


def test_a_missed_one_follows_four_live_ones() -> None:
    items = [item(f"m{n}", missed=True) for n in range(3)] + [item(f"l{n}") for n in range(6)]
    assert names(batches(items, 20)) == ["l0 l1 l2 l3 m0 l4 l5 m1 m2"]


def test_plain_ones_go_by_themselves_and_the_others_are_not_left_behind() -> None:
    items = [item(f"p{n}", plain=True) for n in range(10)] + [item("m", missed=True), item("l")]
    assert names(batches(items, 2)) == ["p0 p1", "p2 p3", "p4 p5", "p6 p7", "l m", "p8 p9"]


def test_nothing_due_is_nothing_to_do() -> None:
    assert batches([], 10) == []
