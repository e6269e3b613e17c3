"""How long rows live, the same in every store.

Times to live are constant per table, so that Cassandra can drop whole files once all of their rows have expired. Each
is the longest time a row can wait for its instant plus `retention_ms`, within which a dispatcher that was away still
finds it.
"""

from __future__ import annotations

from tocsin.schema.instants import DAY_MS, HOUR_MS, SECOND_MS
from tocsin.schema.levels import Level
from tocsin.schema.timing import Timing

#: A dead letter waits this long for someone to look at it.
DEAD_LETTER_MS = 90 * DAY_MS


class Lifetimes:
    """Times to live in ms, derived from the durations of the protocol."""

    def __init__(self, timing: Timing) -> None:
        #: On the minute level a bucket starts at most two days after the write: the day of its cascade, and the day.
        minute_ms = 2 * timing.day_ms + timing.retention_ms
        self._packs_ms = {
            Level.FAR: timing.far_limit_ms + timing.day_ms + timing.retention_ms,
            Level.MINUTE: minute_ms,
            # Positions on near are never further away than the longest parking; one lifetime for both is simpler.
            Level.NEAR: minute_ms,
        }
        self.markers_ms = timing.marker_limit_ms + timing.retention_ms
        #: Others take an owner's ranges after lease_ttl; it leaves their count at the same time, to the whole second.
        self.heartbeat_ms = max(2 * SECOND_MS, -(-timing.lease_ttl_ms // SECOND_MS) * SECOND_MS)
        self.dead_letters_ms = DEAD_LETTER_MS
        #: Cassandra keeps an expired row this long before it may be forgotten: a late repair within it is harmless.
        self.grace_ms = 3 * HOUR_MS

    def packs_ms(self, level: Level) -> int:
        """How long a pack of this level lives after its write."""
        return self._packs_ms[level]
