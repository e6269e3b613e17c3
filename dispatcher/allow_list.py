"""A list of topics a dispatcher may publish to.

Whoever may write a schedule chooses its topic; without a list they would borrow the dispatcher's rights on the broker.
An occurrence for a topic that is not on the list is not published; it becomes a dead letter, and its schedule goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.producer.allowed_topics import AllowedTopics


class AllowList:
    """A Publisher that passes on what is allowed.

    Args:
        publisher: where to.
        patterns: names of topics, with `*` and `?` as in file names; matched whole and case-sensitive.
    """

    def __init__(self, publisher: Publisher, patterns: Sequence[str]) -> None:
        self._publisher = publisher
        self._allows = AllowedTopics(patterns).allows

    async def start(self) -> None:
        """Start the publisher behind."""
        await self._publisher.start()

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """NOT_ALLOWED for what is not on the list; the publisher's own outcome for the rest, order kept."""
        allowed = [record for record in records if self._allows(record.topic)]
        if len(allowed) == len(records):
            return await self._publisher.publish(records)
        answers = iter(await self._publisher.publish(allowed) if allowed else ())
        return [next(answers) if self._allows(record.topic) else Outcome.NOT_ALLOWED for record in records]

    async def close(self, timeout_ms: int) -> None:
        """Close the publisher behind."""
        await self._publisher.close(timeout_ms)
