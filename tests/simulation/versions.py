"""The life of a schedule as its versions tell it: what each one owed, by the design and not by its code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simulation.history import Acknowledged, Applied, Delivery, History
from tocsin.schema.recurrence import Once
from tocsin.schema.schedules import ScheduleRow, Spec, State, decode_spec


class Version(NamedTuple):
    """One version of a schedule."""

    row: ScheduleRow
    spec: Spec
    applied_ms: float
    #: The promise made to the client that wrote it, or to one that repeated its call.
    promise: Acknowledged | None
    #: The versions that came after it.
    later: tuple[Applied, ...]

    @property
    def next(self) -> Applied | None:
        """The version that replaced it."""
        return self.later[0] if self.later else None

    def owned_until(self) -> int | None:
        """Nominal times at or after this belong to a later version, or to none; None: all are its own."""
        ends = [end for each in self.later for version, end in each.row.replaced if version == self.row.version]
        return min(ends, default=None)

    def nominal_times(self, end: int) -> Iterator[int]:
        """What it owns below `end`."""
        own = self.owned_until()
        return self.spec.nominal_times(self.row.since, end if own is None else min(own, end))

    def due_of(self, nominal: int) -> int:
        return self.spec.due_of(self.row.schedule_id, nominal)

    @property
    def once(self) -> bool:
        return isinstance(self.spec.recurrence, Once)


class Lives:
    """Every schedule of a run, version by version, with what was dispatched of each."""

    def __init__(self, history: History) -> None:
        rows: defaultdict[str, list[Applied]] = defaultdict(list)
        for applied in history.applied:
            rows[applied.row.schedule_id].append(applied)
        promises: dict[tuple[str, int], Acknowledged] = {}
        for promise in history.acknowledged:
            promises.setdefault((promise.schedule_id, promise.version), promise)
        self.versions: dict[str, list[Version]] = {}
        for schedule_id, chain in rows.items():
            self.versions[schedule_id] = [
                Version(
                    applied.row,
                    decode_spec(applied.row.spec),
                    applied.at_ms,
                    promises.get((schedule_id, applied.row.version)),
                    tuple(chain[index + 1 :]),
                )
                for index, applied in enumerate(chain)
            ]
        self.deliveries: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in history.deliveries:
            self.deliveries[delivery.schedule_id].append(delivery)

    def version(self, schedule_id: str, version: int) -> Version | None:
        """One version, if it ever took effect."""
        return next((each for each in self.versions.get(schedule_id, ()) if each.row.version == version), None)

    def current(self) -> Iterator[Version]:
        """The last version of every schedule."""
        return (chain[-1] for chain in self.versions.values())

    def arrived(self, schedule_id: str) -> Sequence[Delivery]:
        """What consumers got of a schedule."""
        return [delivery for delivery in self.deliveries.get(schedule_id, ()) if delivery.arrived]


def is_active(version: Version) -> bool:
    """Whether it has occurrences at all."""
    return version.row.state is State.ACTIVE
