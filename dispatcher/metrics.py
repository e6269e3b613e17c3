"""What a dispatcher exports to Prometheus.

Counting happens on the hot path, once per batch, so it is plain additions here, and a herd of one instant is counted at
once; Prometheus' own objects are built when somebody scrapes. Labels are bounded: no schedule, no tenant, and the first
50 topics by name, the rest as "other".

=====================================  =============================================================================
tocsin_dispatch_lateness_seconds       acknowledged − due, by `herd`: due within the first minute of an hour, or other
tocsin_dispatched_total                occurrences that the sink acknowledged, by topic and kind
tocsin_skipped_total                   occurrences passed over as their schedule says, by reason
tocsin_verify_total                    marked entries and markers compared with `schedules`, by answer
tocsin_parked_total                    occurrences set aside because their topic fails, by topic
tocsin_dead_letters_total              occurrences that will not be dispatched, by reason
tocsin_troubles_total                  failures that are tried again, by action; unknown outcomes are among them
tocsin_leases                          shard ranges of this process, by state: `owned`, and `lost` since the start
tocsin_dispatch_lag_seconds            now − committed, by shard range: every range, whoever owns it
tocsin_unowned_shard_ranges            ranges that no living dispatcher owns
tocsin_retention_headroom_seconds      until the oldest undispatched occurrence could expire from the store
tocsin_clock_skew_seconds              the store's clock minus this host's
=====================================  =============================================================================
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tocsin.dispatcher.progress import RangeProgress
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.instants import HOUR_MS, MINUTE_MS

#: Upper bounds in milliseconds; what is slower counts as +Inf.
LATENESS_BUCKETS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
#: Topics that have a label of their own.
TOPICS_MAX: Final = 50
OTHER: Final = "other"
TOP_OF_HOUR: Final = "top_of_hour"


class Lateness:
    """A histogram that costs two additions an observation, however many occurrences it stands for."""

    __slots__ = ("_counts", "_sum_ms")

    def __init__(self) -> None:
        self._counts = [0] * (len(LATENESS_BUCKETS_MS) + 1)
        self._sum_ms = 0

    def observe(self, lateness_ms: int, count: int) -> None:
        """Count so many occurrences of one lateness."""
        self._counts[bisect_left(LATENESS_BUCKETS_MS, lateness_ms)] += count
        self._sum_ms += lateness_ms * count

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound in seconds, as Prometheus has them."""
        bounds = [str(bound / 1000) for bound in LATENESS_BUCKETS_MS] + ["+Inf"]
        total = 0
        cumulative = []
        for bound, count in zip(bounds, list(self._counts), strict=True):
            total += count
            cumulative.append((bound, float(total)))
        return cumulative

    @property
    def sum_seconds(self) -> float:
        """All lateness together."""
        return self._sum_ms / 1000


class Metrics(Collector):
    """An Observer that counts, and a Collector of what it counted."""

    def __init__(self) -> None:
        self.dispatched_count = 0
        self._lateness = {TOP_OF_HOUR: Lateness(), OTHER: Lateness()}
        self._topics: set[str] = set()
        self._dispatched: Counter[tuple[str, int]] = Counter()
        self._parked: Counter[str] = Counter()
        self._by_label: dict[str, Counter[str]] = {"skipped": Counter(), "verify": Counter(), "dead_letters": Counter()}
        self._troubles: Counter[str] = Counter()
        self._owned: dict[int, int] = {}
        self._lost_count = 0
        self._progress: Sequence[RangeProgress] = ()
        self._retention_ms = 0
        self._skew_ms = 0

    # Observer

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """Kafka acknowledged a batch; the lateness of each is `now` − its due, in ms of the store's clock."""
        self.dispatched_count += len(entries)
        label = self._topic(topic)
        for kind, count in Counter(entry.kind for entry in entries).items():
            self._dispatched[label, kind] += count
        for due, count in Counter(entry.due for entry in entries).items():
            herd = TOP_OF_HOUR if due % HOUR_MS < MINUTE_MS else OTHER
            self._lateness[herd].observe(now - due, count)

    def skipped(self, reason: str, count: int) -> None:
        """Occurrences were passed over."""
        self._by_label["skipped"][reason] += count

    def verified(self, answer: str) -> None:
        """A marked entry or marker was compared with `schedules`."""
        self._by_label["verify"][answer] += 1

    def parked(self, topic: str, count: int) -> None:
        """Occurrences of a failing topic went back to near."""
        self._parked[self._topic(topic)] += count

    def dead_lettered(self, reason: str, key: str) -> None:  # noqa: ARG002 — the key is for the log, not for a label
        """An occurrence will not be dispatched."""
        self._by_label["dead_letters"][reason] += 1

    def owns(self, shard_range: int, epoch: int) -> None:
        """A shard range was acquired."""
        self._owned[shard_range] = epoch

    def lost(self, shard_range: int, epoch: int, reason: str) -> None:  # noqa: ARG002 — the reason is for the log
        """A shard range was released or lost."""
        if self._owned.get(shard_range) == epoch:
            del self._owned[shard_range]
        self._lost_count += 1

    def troubled(self, action: str, error: Exception) -> None:  # noqa: ARG002 — the error is for the log
        """Something failed and will be tried again."""
        self._troubles[action] += 1

    # What is looked at each second

    @property
    def owned_count(self) -> int:
        """How many shard ranges this process owns."""
        return len(self._owned)

    def saw(self, progress: Sequence[RangeProgress], *, retention_ms: int, skew_ms: int) -> None:
        """Take the latest look at every range."""
        self._progress, self._retention_ms, self._skew_ms = progress, retention_ms, skew_ms

    # Collector

    def collect(self) -> Iterator[Metric]:
        """Everything, for one scrape."""
        yield self._lateness_family()
        yield self._dispatched_family()
        yield from self._counters()
        yield from self._gauges()

    def _lateness_family(self) -> Metric:
        family = HistogramMetricFamily(
            "tocsin_dispatch_lateness_seconds", "Acknowledged minus due, of one occurrence.", labels=["herd"]
        )
        for herd, lateness in self._lateness.items():
            family.add_metric([herd], lateness.buckets(), lateness.sum_seconds)
        return family

    def _dispatched_family(self) -> Metric:
        family = CounterMetricFamily(
            "tocsin_dispatched", "Occurrences that the sink acknowledged.", labels=["topic", "kind"]
        )
        for (topic, kind), count in list(self._dispatched.items()):
            family.add_metric([topic, Kind(kind).name.lower()], count)
        return family

    def _counters(self) -> Iterator[Metric]:
        for name, told, label, counts in (
            ("skipped", "Occurrences passed over as their schedule says.", "reason", self._by_label["skipped"]),
            ("verify", "Marked entries compared with schedules.", "result", self._by_label["verify"]),
            ("parked", "Occurrences set aside because their topic fails.", "topic", self._parked),
            ("dead_letters", "Occurrences that will not be dispatched.", "reason", self._by_label["dead_letters"]),
            ("troubles", "Failures that are tried again.", "action", self._troubles),
        ):
            family = CounterMetricFamily(f"tocsin_{name}", told, labels=[label])
            for value, count in list(counts.items()):
                family.add_metric([value], count)
            yield family

    def _gauges(self) -> Iterator[Metric]:
        leases = GaugeMetricFamily("tocsin_leases", "Shard ranges of this process.", labels=["state"])
        leases.add_metric(["owned"], len(self._owned))
        leases.add_metric(["lost"], self._lost_count)
        yield leases
        lag = GaugeMetricFamily(
            "tocsin_dispatch_lag_seconds", "Age of the oldest due, undispatched occurrence.", labels=["shard_range"]
        )
        progress = self._progress
        for each in progress:
            lag.add_metric([str(each.shard_range)], each.lag_ms / 1000)
        yield lag
        if not progress:
            return
        unowned = sum(not each.is_owned for each in progress)
        yield GaugeMetricFamily("tocsin_unowned_shard_ranges", "Ranges that no living dispatcher owns.", unowned)
        headroom_ms = self._retention_ms - max(each.lag_ms for each in progress)
        yield GaugeMetricFamily(
            "tocsin_retention_headroom_seconds", "Until undispatched occurrences could expire.", headroom_ms / 1000
        )
        yield GaugeMetricFamily(
            "tocsin_clock_skew_seconds", "The store's clock minus this host's.", self._skew_ms / 1000
        )

    def _topic(self, topic: str) -> str:
        if topic in self._topics:
            return topic
        if len(self._topics) >= TOPICS_MAX:
            return OTHER
        self._topics.add(topic)
        return topic
