"""What doctor asks of every store: clocks, zone data, who dispatches, how far they are, and for how long it lasts.

Each check is a function of facts that were read before, so that a test shows each of them saying no.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tocsin.deploy.findings import Finding, span_text
from tocsin.dispatcher.progress import RangeProgress
from tocsin.schema.instants import SECOND_MS
from tocsin.schema.store import Heartbeat
from tocsin.schema.timing import Timing

#: Doctor says so while there is time: owners audit what they owe only when six sevenths of retention are gone.
HEADROOM_SHARE = 0.5


class ClockReading(NamedTuple):
    """A coordinator's time and the host's before and after it was asked, all ms UTC."""

    server_ms: int
    host_sent_ms: int
    host_received_ms: int

    @property
    def skew_ms(self) -> int:
        """How far the coordinator is ahead of the host (negative: behind); 0 where the way of the reply explains it."""
        if self.host_sent_ms <= self.server_ms <= self.host_received_ms:
            return 0
        return min(self.server_ms - self.host_sent_ms, self.server_ms - self.host_received_ms, key=abs)


class StoreFacts(NamedTuple):
    """What any store can tell."""

    readings: Sequence[ClockReading]
    progress: Sequence[RangeProgress]
    heartbeats: Sequence[Heartbeat]
    #: Ours, and what this release was built with.
    zone_data: str
    zone_data_wanted: str
    release: str


def check_clocks(facts: StoreFacts, timing: Timing) -> Iterator[Finding]:
    """The host against each coordinator, and the coordinators against each other."""
    skews = [reading.skew_ms for reading in facts.readings]
    allowed = f"at most {timing.skew_ms_max} ms"
    why = "beyond it no dispatcher seals, and everything waits"
    worst = max(skews, key=abs)
    yield Finding(
        "clock of this host",
        f"{abs(worst)} ms from the store's",
        allowed,
        abs(worst) <= timing.skew_ms_max,
        why,
        "set the clocks: chronyc tracking on this host and on every node",
    )
    if len(skews) > 1:
        spread = max(skews) - min(skews)
        yield Finding(
            f"clocks of {len(skews)} coordinators",
            f"{spread} ms apart",
            allowed,
            spread <= timing.skew_ms_max,
            "readings beyond it are discarded as outliers, and two halves of a cluster cannot outvote each other",
            "set the clocks of the nodes: chronyc tracking on each",
        )


def check_zone_data(facts: StoreFacts) -> Finding:
    """The rules of time zones are part of the release."""
    return Finding(
        "zone data",
        f"tzdata {facts.zone_data}",
        f"tzdata {facts.zone_data_wanted}",
        facts.zone_data == facts.zone_data_wanted,
        "processes with other rules arm other instants for the same schedule",
        f"pip install 'tzdata=={facts.zone_data_wanted}' on every host, then: tocsin audit --zone ZONE",
    )


def check_dispatching(facts: StoreFacts, timing: Timing) -> Iterator[Finding]:
    """Whether every range has an owner, keeps up, and would outlive an outage."""
    unowned = [each.shard_range for each in facts.progress if not each.is_owned]
    shown = ", ".join(map(str, unowned[:8])) + (", …" if len(unowned) > 8 else "")
    yield Finding(
        "shard ranges with an owner",
        f"{len(facts.progress) - len(unowned)} of {len(facts.progress)}" + (f" (not: {shown})" if unowned else ""),
        "all",
        not unowned,
        "what is due in a range that nobody owns waits",
        "start a dispatcher: tocsin dispatch; docs/runbooks/unowned-ranges.md",
    )
    lag_ms = max(each.lag_ms for each in facts.progress)
    yield Finding(
        "lag",
        span_text(lag_ms),
        f"below {span_text(timing.misfire_grace_ms)}",
        lag_ms < timing.misfire_grace_ms,
        "what is later counts as missed, and its catch-up policy decides whether it runs",
        "docs/runbooks/lag.md",
    )
    headroom_ms = timing.retention_ms - lag_ms
    yield Finding(
        "headroom",
        span_text(headroom_ms) if headroom_ms > 0 else "none",
        f"above {span_text(round(timing.retention_ms * HEADROOM_SHARE))}",
        headroom_ms > timing.retention_ms * HEADROOM_SHARE,
        f"rows leave {span_text(timing.retention_ms)} after their due; timers are lost then, and schedules have to be "
        "armed anew",
        "start dispatchers; docs/runbooks/long-outage.md",
    )
    others = sorted({beat.release for beat in facts.heartbeats if beat.release != facts.release})
    yield Finding(
        "releases at work",
        ", ".join([facts.release, *others]),
        f"{facts.release} alone",
        not others,
        "two releases are for the time of an upgrade; timing and zone data must be the same for all",
        "upgrade the dispatchers that tocsin status names; docs/runbooks/upgrade.md",
    )


def check_timing(timing: Timing) -> Finding:
    """Relations between durations are asserted when they are read; what is left is how they compare with the store."""
    trusted_ms = timing.lease_ttl_ms - timing.lease_margin_ms
    return Finding(
        "timing",
        f"a lease lasts {timing.lease_ttl_ms / SECOND_MS:g} s, and is trusted for {trusted_ms / SECOND_MS:g} s",
        f"trusted for more than two heartbeats of {timing.heartbeat_ms / SECOND_MS:g} s",
        trusted_ms > 2 * timing.heartbeat_ms,
        "one slow heartbeat would cost a dispatcher all its ranges",
        "raise timing.lease_ttl_ms, or lower timing.lease_margin_ms, in every process of the store",
    )
