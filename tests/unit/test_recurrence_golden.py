"""Goal: an upgrade of the calendar walk or of the zone rules that moves anything is seen before it is released.

`next_times.jsonl` holds the next times of many rules, `zone_changes.json` a digest of every zone's clock changes for
ten years, both as last accepted. What they hold is checked against definitions elsewhere; here only change is looked
for. After a change on purpose: `python tests/unit/test_recurrence_golden.py` writes both anew, and the difference is
read in review.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import msgspec

from tocsin.schema import zones
from tocsin.schema.recurrence import AnyRecurrence, Cron, Daily, Gap, Monthly, Overlap, Weekly, Yearly

NEXT_TIMES = Path(__file__).with_name("next_times.jsonl")
ZONE_CHANGES = Path(__file__).with_name("zone_changes.json")

STARTS = [datetime(2024, 2, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)]
TEN_YEARS = datetime(2024, 1, 1, tzinfo=UTC), datetime(2034, 1, 1, tzinfo=UTC)
EXPRESSIONS = [
    "* * * * *",
    "*/7 * * * *",
    "59 * * * *",
    "30 1,2,3 * * *",
    "0 */5 * * *",
    "15 22-2 * * *",
    "0 0 * * *",
    "30 2 * * SUN",
    "0 9 * * MON-FRI",
    "0 9 * * FRI-MON/2",
    "0 0 1 * *",
    "0 0 31 * *",
    "0 0 29 2 *",
    "0 0 */10 * *",
    "0 0 L * *",
    "0 0 LW * *",
    "0 0 1W,15W * *",
    "0 0 L,10-12 */2 *",
    "0 0 * * 5L",
    "0 0 * * 1#1,1#3",
    "0 0 * * 2,5#5",
    "0 0 13 * FRI",
    "0 0 15W * FRI#2",
    "0 0 25 12 *",
    "0 0 1 NOV-FEB *",
    "@weekly",
]
ZONES = ["UTC", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Nuuk", "Antarctica/Troll"]
AT = time(2, 15)


def rules() -> list[AnyRecurrence]:
    """A wide set of rules."""
    crons = [Cron(expression, tz=tz) for expression in EXPRESSIONS for tz in ZONES]
    policies = [
        Cron("*/20 1-3 * * *", tz=tz, gap=gap, overlap=overlap)
        for tz, gap, overlap in itertools.product(ZONES[1:], Gap, Overlap)
    ]
    both = [Cron(text, day_match="both") for text in ("0 0 13 * 5", "0 0 */2 * 1", "0 0 29 2 1", "0 0 L * 5L")]
    seconds = Cron("*/25 59 23 L * ?", tz=ZONES[1], dialect="quartz")
    years = Cron("0 0 0 29 2 ? 2030-2060/2", dialect="quartz")
    hashed = [Cron("H H(0-5) H * *").bind(f"schedule-{number}") for number in range(8)]
    anchor = date(2024, 1, 31)
    calendar = [
        rule
        for tz in ZONES
        for rule in (
            Daily(AT, tz=tz, gap=Gap.SHIFT, overlap=Overlap.BOTH),
            Daily(AT, tz=tz, every=3, anchor=anchor),
            Weekly(("sat", "sun"), AT, tz=tz, every=2, anchor=anchor),
            Monthly(31, AT, tz=tz),
            Monthly(-2, AT, tz=tz, every=5, anchor=anchor),
            Yearly(2, 29, AT, tz=tz),
        )
    ]
    return [*crons, *policies, *both, seconds, years, *hashed, *calendar]


def next_times(rule: AnyRecurrence) -> dict[str, Any]:
    """A rule with its next times after each start."""
    runs = [list(itertools.islice(rule.between(start, start.replace(year=2300)), 6)) for start in STARTS]
    return {
        "rule": json.loads(msgspec.json.encode(rule)),
        "runs": [[run.isoformat().replace("+00:00", "Z") for run in found] for found in runs],
    }


def zone_changes(name: str) -> str:
    """A digest of a zone's clock changes."""
    position, end = (int(instant.timestamp()) * 1000 for instant in TEN_YEARS)
    changes, known = [], None
    while position < end:
        span = zones.span_at(name, position)
        if span.offset_ms != known:
            changes.append(f"{span.offset_ms} from {position}")
        position, known = span.end_ms, span.offset_ms
    return hashlib.blake2b("\n".join(changes).encode(), digest_size=4).hexdigest()


def test_no_next_time_has_moved() -> None:
    accepted = [json.loads(line) for line in NEXT_TIMES.read_text("utf-8").splitlines()]
    assert len(accepted) > 200
    for now, before in zip(map(next_times, rules()), accepted, strict=True):
        assert now == before


def test_no_clock_change_of_any_zone_has_moved() -> None:
    accepted = json.loads(ZONE_CHANGES.read_text("utf-8"))
    assert accepted["release"] == zones.zone_data_version()
    moved = {name for name in zones.zone_names() if zone_changes(name) != accepted["zones"].get(name)}
    assert moved == set()
    assert set(accepted["zones"]) == zones.zone_names()


if __name__ == "__main__":
    NEXT_TIMES.write_text("".join(json.dumps(next_times(rule)) + "\n" for rule in rules()), "utf-8")
    digests = {name: zone_changes(name) for name in sorted(zones.zone_names())}
    ZONE_CHANGES.write_text(
        json.dumps({"release": zones.zone_data_version(), "zones": digests}, indent=0) + "\n", "utf-8"
    )
