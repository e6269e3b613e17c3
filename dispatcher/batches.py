"""In which order due items go out: topics take turns, and what was missed follows what is live."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from tocsin.dispatcher.waiting import Item

#: Live occurrences for each missed one.
LIVE_PER_MISSED = 4


def batches(items: Iterable[Item], size: int) -> list[list[Item]]:
    """Cut due items into batches of one topic each, taken from the topics in turn.

    Within a topic one missed occurrence follows four live ones, so that catching up delays nobody much.
    """
    topics: defaultdict[str, tuple[deque[Item], deque[Item]]] = defaultdict(lambda: (deque(), deque()))
    for item in items:
        assert item.spec is not None  # noqa: S101 — decoded when it was released
        topics[item.spec.topic][item.missed].append(item)
    cut: list[list[list[Item]]] = []
    for live, missed in topics.values():
        ordered: list[Item] = []
        while live or missed:
            ordered += [live.popleft() for _ in range(min(LIVE_PER_MISSED, len(live)))]
            if missed:
                ordered.append(missed.popleft())
        cut.append([ordered[start : start + size] for start in range(0, len(ordered), size)])
    return [of_topic[turn] for turn in range(max(map(len, cut), default=0)) for of_topic in cut if turn < len(of_topic)]
