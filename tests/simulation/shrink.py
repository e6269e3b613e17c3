"""From a failing scenario to a short one that still breaks the same kind of promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from simulation.network import NetworkFaults
from simulation.scenario import Call, Scenario
from simulation.verdict import report_of


def shrink(scenario: Scenario, kind: str, *, runs_max: int = 300) -> Scenario:
    """Leave out whatever the violation does not need."""
    found = [scenario]
    runs = 0
    before = None
    while before is not found[-1] and runs < runs_max:
        before = found[-1]
        for candidate in _smaller(lambda: found[-1]):
            runs += 1
            if runs < runs_max and kind in report_of(candidate)[0].kinds:
                found.append(candidate)
    return found[-1]


def _smaller(current: Callable[[], Scenario]) -> Iterator[Scenario]:
    """Simpler scenarios, each made of the simplest one found so far."""
    for name in NetworkFaults.__struct_fields__:
        if getattr(current().network, name):
            yield msgspec.structs.replace(current(), network=msgspec.structs.replace(current().network, **{name: 0}))
    if any(current().skews_ms) or current().broker_slow:
        yield msgspec.structs.replace(current(), skews_ms=(0, 0, 0), broker_slow=0)
    size = max(1, len(current().events) // 2)
    while size:
        start = 0
        while start < len(current().events):
            before = current().events
            yield msgspec.structs.replace(current(), events=before[:start] + before[start + size :])
            if current().events == before:
                start += size
        size //= 2
    for index in range(len(current().events)):
        events = current().events
        event = events[index]
        if isinstance(event, Call) and (event.traps or event.skew_ms):
            plain = msgspec.structs.replace(event, traps=(), skew_ms=0, repeat_after_ms=None)
            yield msgspec.structs.replace(current(), events=(*events[:index], plain, *events[index + 1 :]))
