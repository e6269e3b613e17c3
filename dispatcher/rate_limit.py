"""How many records a second a dispatcher puts on a topic: what is beyond it is late, never lost.

For a topic whose consumers cannot take a herd at once. The limit is each dispatcher process' own; with three of them a
topic gets three times as much. A batch is of one topic, and waits for its turn without holding up another's. One that
would wait longer than `WAIT_MS_MAX` is answered as if its topic failed: its occurrences go back to near and are tried
again later, so that a limited topic's herd does not fill the memory that others need. Whether an occurrence has expired
is judged when its batch begins to wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tocsin.dispatcher.publisher import Outcome, Publisher, Record
from tocsin.producer.quotas import TokenBucket
from tocsin.schema.clock import Clock
from tocsin.schema.errors import SettingsError

#: A batch waits no longer for its turn; beyond it, it is parked.
WAIT_MS_MAX = 5_000


class RateLimit:
    """A Publisher that passes records on at the rate of their topic.

    Args:
        publisher: where to.
        per_second: records a second, by topic; a topic without a rate is not limited.
        clock: this host's.

    Raises:
        SettingsError: a rate is below 1.
    """

    def __init__(self, publisher: Publisher, per_second: Mapping[str, int], clock: Clock) -> None:
        for topic, rate in per_second.items():
            if type(rate) is not int or rate < 1:
                raise SettingsError(f"the rate of topic {topic!r} is {rate!r}; it must be a whole number from 1 on.")
        self._publisher = publisher
        self._clock = clock
        self._buckets = {topic: TokenBucket(rate, clock.monotonic_ms()) for topic, rate in per_second.items()}

    async def start(self) -> None:
        """Start the publisher behind."""
        await self._publisher.start()

    async def publish(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """The publisher's own outcomes, once it is their topics' turn; TOPIC_FAILING where that takes too long."""
        counts = Counter(record.topic for record in records)
        limited = [(self._buckets[topic], count) for topic, count in counts.items() if topic in self._buckets]
        now = self._clock.monotonic_ms()
        wait_ms = max((bucket.wait_ms(now) for bucket, _ in limited), default=0)
        if wait_ms > WAIT_MS_MAX:
            return [Outcome.TOPIC_FAILING] * len(records)
        for bucket, count in limited:
            bucket.take(now, count)
        if wait_ms:
            await self._clock.sleep_ms(wait_ms)
        return await self._publisher.publish(records)

    async def close(self, timeout_ms: int) -> None:
        """Close the publisher behind."""
        await self._publisher.close(timeout_ms)
