"""What a dispatcher exports to Prometheus.

Counting happens on the hot path, once per batch, so it is plain additions here, and a herd of one instant is counted at
once; Prometheus' own objects are built when somebody scrapes. Labels are bounded: no schedule, no tenant, and the first
50 topics by name, the rest as "other". What the store and the publisher take is in measured.py.

=====================================  =============================================================================
tocsin_dispatch_lateness_seconds       acknowledged − due, by `herd`: due within the first minute of an hour, or other
tocsin_dispatched_total                occurrences that the sink acknowledged, by topic and kind
tocsin_skipped_total                   occurrences passed over as their schedule says, by reason
tocsin_verify_total                    marked entries and markers compared with `schedules`, by answer
tocsin_demoted_total                   entries written again one level down, by the level that was sealed
tocsin_parked_total                    occurrences set aside because their topic fails, by topic
tocsin_parked_now                      those of them that were not dispatched since
tocsin_failing_schedules               schedules whose last occurrence here was parked or became a dead letter
tocsin_dead_letters_total              occurrences that will not be dispatched, by reason
tocsin_troubles_total                  failures that are tried again, by action
tocsin_leases                          shard ranges by state: owned by this process, by another, free, abandoned
tocsin_leases_lost_total               shard ranges that this process gave up, planned or not
tocsin_dispatch_lag_seconds            now − committed, by shard range: every range, whoever owns it
tocsin_unowned_shard_ranges            ranges that no living dispatcher owns
tocsin_retention_headroom_seconds      until the oldest undispatched occurrence could expire from the store
tocsin_clock_skew_seconds              the store's clock minus this host's
tocsin_bucket_occurrences              what waits in the buckets of the next 60 minutes, by how many minutes ahead
tocsin_herd_forecast_occurrences       what will be due in the first minute of the next hour, in this process' ranges
tocsin_herd_ratio                      that, over the mean of the minutes dispatched here in the last hour
tocsin_herd_drain_seconds              from the last full hour until all that was due in its first second was out
=====================================  =============================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tocsin.dispatcher.forecast import Forecast
from tocsin.dispatcher.herds import Herds
from tocsin.dispatcher.histogram import Histogram
from tocsin.dispatcher.progress import RangeProgress
from tocsin.dispatcher.publisher import Outcome
from tocsin.dispatcher.setbacks import Setbacks
from tocsin.dispatcher.verification import Answer
from tocsin.schema.entries import Entry, Kind
from tocsin.schema.instants import HOUR_MS, MINUTE_MS
from tocsin.schema.levels import Level

#: Upper bounds in milliseconds; what is slower counts as +Inf.
LATENESS_BUCKETS_MS: Final = (10, 25, 50, 100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
#: Topics that have a label of their own.
TOPICS_MAX: Final = 50
OTHER: Final = "other"
TOP_OF_HOUR: Final = "top_of_hour"
#: What is counted by a label: name, help, label.
_COUNTED: Final = (
    ("skipped", "Occurrences passed over as their schedule says.", "reason"),
    ("verify", "Marked entries and change markers compared with schedules.", "result"),
    ("demoted", "Entries written again one level down, by the level that was sealed.", "level"),
    ("parked", "Occurrences set aside because their topic fails.", "topic"),
    ("dead_letters", "Occurrences that will not be dispatched.", "reason"),
    ("troubles", "Failures that are tried again.", "action"),
)


#: Series that are there with 0 from the beginning: a counter that appears with 1 has not risen, for Prometheus.
_FROM_ZERO: Final = {
    "skipped": ("missed", "expired", "excluded"),
    "verify": tuple(answer.value for answer in Answer),
    "demoted": tuple(level.value for level in Level),
    "dead_letters": ("undecodable", *(outcome.value for outcome in Outcome if outcome.permanent)),
}


class Metrics(Collector):
    """An Observer that counts, and a Collector of what it counted."""

    def __init__(self) -> None:
        self.dispatched_count = 0
        #: Told by whoever looks ahead.
        self.forecast = Forecast()
        self._lateness = {TOP_OF_HOUR: Histogram(LATENESS_BUCKETS_MS), OTHER: Histogram(LATENESS_BUCKETS_MS)}
        self._herds = Herds()
        self._setbacks = Setbacks()
        self._topics: set[str] = set()
        self._dispatched: Counter[tuple[str, int]] = Counter()
        self._counted: dict[str, Counter[str]] = {
            name: Counter(dict.fromkeys(_FROM_ZERO.get(name, ()), 0)) for name, _, _ in _COUNTED
        }
        self._owned: dict[int, int] = {}
        self._lost_count = 0
        self._progress: Sequence[RangeProgress] = ()
        self._now = 0
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
            self._herds.dispatched(due, count, now)
        self._setbacks.dispatched(entries)

    def skipped(self, reason: str, count: int) -> None:
        """Occurrences were passed over."""
        self._counted["skipped"][reason] += count

    def verified(self, answer: str) -> None:
        """A marked entry or marker was compared with `schedules`."""
        self._counted["verify"][answer] += 1

    def parked(self, topic: str, entries: Sequence[Entry]) -> None:
        """Occurrences of a failing topic went back to near."""
        label = self._topic(topic)
        self._counted["parked"][label] += len(entries)
        self._setbacks.parked(label, entries, self._now)

    def demoted(self, level: str, count: int) -> None:
        """Entries went one level down."""
        self._counted["demoted"][level] += count

    def dead_lettered(self, reason: str, key: str) -> None:
        """An occurrence will not be dispatched."""
        self._counted["dead_letters"][reason] += 1
        self._setbacks.dead_lettered(key, self._now)

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
        self._counted["troubles"][action] += 1

    # What is looked at each second

    @property
    def owned_count(self) -> int:
        """How many shard ranges this process owns."""
        return len(self._owned)

    def saw(self, progress: Sequence[RangeProgress], *, now: int, retention_ms: int, skew_ms: int) -> None:
        """Take the latest look at every range; `now` is the store's time, ms UTC."""
        self._progress, self._now, self._retention_ms, self._skew_ms = progress, now, retention_ms, skew_ms
        self._setbacks.forget(now)
        self._herds.forget(now)

    # Collector

    def collect(self) -> Iterator[Metric]:
        """Everything, for one scrape."""
        yield self._lateness_family()
        yield self._dispatched_family()
        for name, told, label in _COUNTED:
            family = CounterMetricFamily(f"tocsin_{name}", told, labels=[label])
            for value, count in list(self._counted[name].items()):
                family.add_metric([value], count)
            yield family
        yield CounterMetricFamily("tocsin_leases_lost", "Shard ranges that this process gave up.", self._lost_count)
        yield from self._setback_gauges()
        if self._progress:
            yield from self._progress_gauges(self._progress)
            yield from self._herd_gauges()

    def _lateness_family(self) -> Metric:
        family = HistogramMetricFamily(
            "tocsin_dispatch_lateness_seconds",
            "Acknowledged minus due, of one occurrence.",
            labels=["herd"],
            unit="seconds",
        )
        for herd, lateness in self._lateness.items():
            lateness.add_to(family, [herd])
        return family

    def _dispatched_family(self) -> Metric:
        family = CounterMetricFamily(
            "tocsin_dispatched", "Occurrences that the sink acknowledged.", labels=["topic", "kind"]
        )
        for (topic, kind), count in list(self._dispatched.items()):
            family.add_metric([topic, Kind(kind).name.lower()], count)
        return family

    def _setback_gauges(self) -> Iterator[Metric]:
        parked = GaugeMetricFamily(
            "tocsin_parked_now", "Occurrences parked and not dispatched since.", labels=["topic"]
        )
        for topic, count in self._setbacks.parked_counts().items():
            parked.add_metric([topic], count)
        yield parked
        yield GaugeMetricFamily(
            "tocsin_failing_schedules",
            "Schedules whose last occurrence here was parked or became a dead letter.",
            self._setbacks.failing_count,
        )

    def _progress_gauges(self, progress: Sequence[RangeProgress]) -> Iterator[Metric]:
        states = Counter(self._state(each) for each in progress)
        leases = GaugeMetricFamily("tocsin_leases", "Shard ranges by the state of their lease.", labels=["state"])
        for state in ("owned", "other", "free", "abandoned"):
            leases.add_metric([state], states[state])
        yield leases
        lag = GaugeMetricFamily(
            "tocsin_dispatch_lag_seconds",
            "Age of the oldest due, undispatched occurrence at most.",
            labels=["shard_range"],
            unit="seconds",
        )
        for each in progress:
            lag.add_metric([str(each.shard_range)], each.lag_ms / 1000)
        yield lag
        yield GaugeMetricFamily(
            "tocsin_unowned_shard_ranges",
            "Ranges that no living dispatcher owns.",
            sum(not each.is_owned for each in progress),
        )
        headroom_ms = self._retention_ms - max(each.lag_ms for each in progress)
        yield GaugeMetricFamily(
            "tocsin_retention_headroom_seconds",
            "Until undispatched occurrences could expire.",
            headroom_ms / 1000,
            unit="seconds",
        )
        yield GaugeMetricFamily(
            "tocsin_clock_skew_seconds", "The store's clock minus this host's.", self._skew_ms / 1000, unit="seconds"
        )

    def _state(self, progress: RangeProgress) -> str:
        if progress.shard_range in self._owned:
            return "owned"
        if progress.owner is None:
            return "free"
        return "other" if progress.owner_present else "abandoned"

    def _herd_gauges(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "tocsin_bucket_occurrences", "Occurrences in the next minutes' buckets.", labels=["minutes_ahead"]
        )
        for ahead, count in enumerate(self.forecast.waiting(self._now), 1):
            waiting.add_metric([str(ahead)], count)
        yield waiting
        herd = self.forecast.herd(self._now)
        if herd is not None:
            yield GaugeMetricFamily(
                "tocsin_herd_forecast_occurrences", "Occurrences due in the first minute of the next hour.", herd
            )
            mean = self._herds.mean_of_a_minute(self._now)
            if mean:
                yield GaugeMetricFamily(
                    "tocsin_herd_ratio", "The next full hour's herd over the mean minute of the last hour.", herd / mean
                )
        if self._herds.drain_ms is not None:
            yield GaugeMetricFamily(
                "tocsin_herd_drain_seconds",
                "From the last full hour until all that was due in its first second was dispatched.",
                self._herds.drain_ms / 1000,
                unit="seconds",
            )

    def _topic(self, topic: str) -> str:
        if topic in self._topics:
            return topic
        if len(self._topics) >= TOPICS_MAX:
            return OTHER
        self._topics.add(topic)
        return topic
