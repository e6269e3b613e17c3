"""In which order due items go out: topics take turns, and what was missed follows what is live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tocsin.dispatcher.waiting import Item

#: Live occurrences for each missed one.
LIVE_PER_MISSED = 4

Each = TypeVar("Each")


class _Topic:
    """Due items of one topic, in order of due."""

    __slots__ = ("live", "missed", "plain")

    def __init__(self) -> None:
        self.plain: list[Item] = []
        self.live: list[Item] = []
        self.missed: list[Item] = []

    def batches(self, size: int) -> list[list[Item]]:
        """Plain ones by themselves, so that a few others do not cost a herd its short way."""
        others = list(_mixed(self.live, self.missed))
        return list(_mixed(_cut(self.plain, size), _cut(others, size)))


def batches(items: Iterable[Item], size: int) -> list[list[Item]]:
    """Cut due items into batches of one topic each, taken from the topics in turn.

    Within a topic one missed occurrence follows four live ones, so that catching up delays nobody much.
    """
    topics: defaultdict[str, _Topic] = defaultdict(_Topic)
    for item in items:
        assert item.spec is not None  # noqa: S101 — decoded when it was released
        topic = topics[item.spec.topic]
        if item.plain:
            topic.plain.append(item)
        elif item.missed:
            topic.missed.append(item)
        else:
            topic.live.append(item)
    cut = [topic.batches(size) for topic in topics.values()]
    return [of_topic[turn] for turn in range(max(map(len, cut), default=0)) for of_topic in cut if turn < len(of_topic)]


def _mixed(first: list[Each], second: list[Each]) -> Iterator[Each]:
    """Four of the first for each of the second."""
    start = 0
    for each in second:
        yield from first[start : start + LIVE_PER_MISSED]
        start += LIVE_PER_MISSED
        yield each
    yield from first[start:]


def _cut(items: list[Item], size: int) -> list[list[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
