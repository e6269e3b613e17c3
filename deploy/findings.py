"""What doctor found: one check, what it met, what it wanted, why that matters, and what to do."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """The answer of one check."""

    check: str
    found: str
    wanted: str
    well: bool
    #: What an operator risks by leaving it.
    why: str
    #: What to do about it.
    fix: str


def counted(count: int, what: str) -> str:
    """`1 range`, `2 ranges`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def span_text(duration_ms: int) -> str:
    """A duration for the eye, in its two largest units: 6 d 23 h."""
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)):
        count, duration_ms = divmod(duration_ms, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
