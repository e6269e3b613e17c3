"""Every duration of the protocol in one record, so that their relations can be asserted before anything runs.

All values are milliseconds. The defaults are those of the design; a simulation injects a record with a short day, so
that the same code lives through many days. A relation that does not hold stops the process with one clear line.
"""

from __future__ import annotations

import msgspec

from tocsin.schema.errors import SettingsError
from tocsin.schema.instants import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of levels, ticks, leases and markers, in milliseconds."""

    #: Width of a far bucket.
    day_ms: int = DAY_MS
    #: Width of a bucket of the minute level.
    minute_ms: int = MINUTE_MS
    #: Width of a partition of the near level; only storage, no rule looks at it.
    near_slot_ms: int = 10 * SECOND_MS
    #: Width of a partition of change markers; only storage, no rule looks at it.
    changes_slot_ms: int = HOUR_MS
    #: An occurrence waits on the far level where its day starts later than this from now.
    far_from_ms: int = DAY_MS
    #: A day is sealed this long before it starts: at 00:30 UTC of the day before.
    far_seal_ms: int = DAY_MS - 30 * MINUTE_MS
    #: Nothing is written further out than this; a pointer placed there inserts itself again.
    far_limit_ms: int = 400 * DAY_MS
    #: A minute is sealed this long before it starts.
    lead_ms: int = 10 * SECOND_MS
    #: A new layout of minutes is made known this long before it holds; an owner reads no minute without having looked.
    layout_notice_ms: int = 10 * MINUTE_MS
    #: The owner seals near at least this often.
    tick_ms: int = 250
    #: The owner seals near at most this often.
    tick_ms_min: int = 20
    #: A near position lies at least this far ahead of the position clock; doubled with each try.
    margin_ms: int = 200
    #: The margin grows no further.
    margin_ms_max: int = 3_200
    #: An occurrence whose bucket was sealed later than this after its due is missed, not late.
    misfire_grace_ms: int = MINUTE_MS
    #: An owner whose heartbeat stood still this long, on the watcher's monotonic clock, has lost its ranges.
    lease_ttl_ms: int = 6 * SECOND_MS
    #: An owner stops trusting its leases this long before others may take them.
    lease_margin_ms: int = 1_500
    #: Distance between two heartbeats.
    heartbeat_ms: int = SECOND_MS
    #: First distance after which an undecided entry is asked about again; doubled with each try.
    undecided_ms: int = SECOND_MS
    #: An entry undecided this many times is dropped; 1, 2, 4 … s outlast the commit limit.
    undecided_tries_max: int = 10
    #: A writer commits no later than this after its write ahead.
    commit_limit_ms: int = 5 * MINUTE_MS
    #: A change marker outlives the second next occurrence of what it ends by this much.
    marker_slack_ms: int = 2 * HOUR_MS
    #: A change marker lives no longer than this past its position.
    marker_limit_ms: int = 50 * HOUR_MS
    #: The longest jitter.
    jitter_ms_max: int = 12 * HOUR_MS
    #: First and longest distance between two tries of a parked occurrence.
    park_ms: int = SECOND_MS
    park_ms_max: int = 5 * MINUTE_MS
    #: What this process dispatched is remembered this long after its re-arm.
    memory_ms: int = 5 * MINUTE_MS
    #: A topic that is not there is waited for this long; then its occurrences are dead letters.
    unknown_topic_ms: int = MINUTE_MS
    #: The frontier is read again this often by its owner.
    frontier_reread_ms: int = SECOND_MS
    #: Distance between two looks at the far level.
    far_check_ms: int = 30 * SECOND_MS
    #: Distance between two looks at the store's clock.
    clock_refresh_ms: int = SECOND_MS
    #: The store's clock and the host's may differ by this much; beyond it nothing is sealed.
    skew_ms_max: int = SECOND_MS
    #: A store call that failed is repeated after this, doubled each time up to retry_ms_max.
    retry_ms: int = 50
    retry_ms_max: int = 2 * SECOND_MS
    #: Entries stay readable this long after they were due.
    retention_ms: int = 7 * DAY_MS

    #: A schedule leaves the store this long after its last occurrence, or after it was cancelled.
    ended_kept_ms: int = 90 * DAY_MS

    @property
    def undecided_ms_max(self) -> int:
        """How long an undecided entry is asked about in all."""
        return self.undecided_ms * ((1 << self.undecided_tries_max) - 1)

    @property
    def owed_ms(self) -> int:
        """A range that lags by more than this audits what it owes: rows leave a seventh of retention later."""
        return self.retention_ms - self.retention_ms // 7

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise SettingsError(f"{name} must be at least 1; correct the timing settings")
        relations = (
            (self.lease_ttl_ms > 3 * self.heartbeat_ms, "lease_ttl_ms must exceed three heartbeat_ms"),
            (self.lease_margin_ms >= self.heartbeat_ms, "lease_margin_ms must be at least one heartbeat_ms"),
            (
                self.lease_ttl_ms > self.lease_margin_ms + self.heartbeat_ms,
                "lease_ttl_ms must leave time to be trusted",
            ),
            (self.tick_ms_min <= self.tick_ms, "tick_ms_min must not exceed tick_ms"),
            (self.tick_ms < self.lead_ms < self.minute_ms, "lead_ms must lie between tick_ms and minute_ms"),
            (self.minute_ms < self.far_seal_ms <= self.far_from_ms, "far_seal_ms must lie within far_from_ms"),
            (self.day_ms % self.minute_ms == 0, "day_ms must be whole minutes"),
            (
                self.lead_ms + 2 * self.minute_ms <= self.layout_notice_ms,
                "layout_notice_ms must exceed lead_ms and two minute_ms",
            ),
            (
                self.far_from_ms + self.day_ms <= self.far_limit_ms,
                "far_limit_ms must reach a day that is not sealed yet",
            ),
            (self.retry_ms <= self.retry_ms_max, "retry_ms must not exceed retry_ms_max"),
            (self.park_ms <= self.park_ms_max, "park_ms must not exceed park_ms_max"),
            (self.margin_ms <= self.margin_ms_max, "margin_ms must not exceed margin_ms_max"),
            (self.marker_slack_ms < self.marker_limit_ms, "marker_slack_ms must be below marker_limit_ms"),
            (self.undecided_ms_max > self.commit_limit_ms, "undecided tries must outlast commit_limit_ms"),
            (self.jitter_ms_max < self.marker_limit_ms, "jitter_ms_max must be below marker_limit_ms"),
            (
                self.ended_kept_ms > self.marker_limit_ms + self.retention_ms,
                "ended_kept_ms must exceed marker_limit_ms and retention_ms: nothing of a schedule may wait by then",
            ),
        )
        for holds, sentence in relations:
            if not holds:
                raise SettingsError(f"{sentence}; correct the timing settings")
