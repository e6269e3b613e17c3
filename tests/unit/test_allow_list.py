"""Only topics on the list reach the publisher; what is refused keeps its place among the outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.dispatcher.allow_list import AllowList
from tocsin.dispatcher.publisher import Outcome, Record


class Kept:
    def __init__(self) -> None:
        self.topics: list[str] = []

    async def start(self) -> None: ...

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        self.topics += [record.topic for record in records]
        return [Outcome.ACKED] * len(records)

    async def close(self, timeout_ms: int) -> None: ...


def record(topic: str) -> Record:
    return Record(topic, b"k", b"v", [], b"p")


async def test_what_is_not_on_the_list_is_refused_in_its_place() -> None:
    kept = Kept()
    outcomes = await AllowList(kept, ["mail-*", "sms"]).publish(
        [record(t) for t in ("mail-1", "secret", "sms", "sms2")]
    )
    assert outcomes == [Outcome.ACKED, Outcome.NOT_ALLOWED, Outcome.ACKED, Outcome.NOT_ALLOWED]
    assert kept.topics == ["mail-1", "sms"]


async def test_an_empty_list_allows_nothing() -> None:
    kept = Kept()
    assert await AllowList(kept, []).publish([record("mail")]) == [Outcome.NOT_ALLOWED]
    assert kept.topics == []
