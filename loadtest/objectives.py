"""Service level objectives of a load test: what must hold, what was measured, whether it did."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tocsin.loadtest.figures import Figures


class Objectives(msgspec.Struct, frozen=True, kw_only=True):
    """Limits; None: whatever it is. Nothing may ever be early, out of order or unexpected, and no call may fail."""

    lost_max: int | None = 0
    repeated_max: int | None = None
    p99_ms_max: int | None = None
    peak_p99_ms_max: int | None = None
    lateness_ms_max: int | None = None
    drain_seconds_max: float | None = None

    def judged(self, figures: Figures) -> tuple[Judged, ...]:
        """Each objective, as it was met."""
        return tuple(self._judged(figures))

    def _judged(self, figures: Figures) -> Iterator[Judged]:
        findings, lateness = figures.findings, figures.lateness
        peak = lateness.get("peak")
        drains = [drain.seconds for drain in figures.drains]
        slowest = None if None in drains else max((drain for drain in drains if drain is not None), default=0.0)
        counted = (
            ("early", findings.early, 0),
            ("unexpected", findings.unexpected, 0),
            ("out of order", findings.out_of_order, 0),
            ("failed calls", findings.failed_calls, 0),
            ("lost", findings.lost, self.lost_max),
            ("repeated", findings.repeated, self.repeated_max),
        )
        for name, measured, limit in counted:
            if limit is not None:
                yield Judged(name, f"{measured:,}", f"at most {limit:,}", holds=measured <= limit)
        timed = (
            ("lateness p99", lateness["all"].p99_ms, self.p99_ms_max, "ms"),
            ("lateness p99 in peaks", None if peak is None else peak.p99_ms, self.peak_p99_ms_max, "ms"),
            ("latest of all", lateness["all"].max_ms, self.lateness_ms_max, "ms"),
            ("slowest drain", slowest, self.drain_seconds_max, "s"),
        )
        for name, measured_time, limit_time, unit in timed:
            if limit_time is not None:
                is_met = measured_time is not None and measured_time <= limit_time
                told = "never" if measured_time is None else f"{measured_time:,} {unit}"
                yield Judged(name, told, f"at most {limit_time:,} {unit}", holds=is_met)


class Judged(msgspec.Struct, frozen=True):
    """One objective."""

    name: str
    measured: str
    limit: str
    holds: bool
