"""What a dispatcher says: a sentence and a stable `action` each time, for the eye or as JSON lines for programs.

Nothing is said per occurrence. Texts of strangers are escaped, so that no id or error text can drive a terminal.
Programs get every figure as a field of its own; people get them within the sentence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

import structlog

from tocsin.dispatcher.publisher_lines import printable
from tocsin.schema.entries import Entry

_log = structlog.get_logger("tocsin.dispatcher")

_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


def configure_log(*, as_json: bool) -> None:
    """Log to standard error; standard output belongs to the sink."""
    coloured = sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    render = [_with_figures, structlog.processors.JSONRenderer()] if as_json else [Lines(coloured=coloured)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ" if as_json else "%H:%M:%S", utc=True),
            structlog.processors.format_exc_info,
            _escaped,
            *render,
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


class Lines:
    """A line for the eye: time, sentence, what else was said, action."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured

    def __call__(self, _: Any, __: str, event: MutableMapping[str, Any]) -> str:
        """The line; a processor of structlog, the last one."""
        time, sentence, action = event.pop("timestamp"), event.pop("event"), event.pop("action", "")
        colour = _COLOURS.get(event.pop("level", ""), "")
        event.pop("figures", None)
        more = "".join(f" {name}={printable(str(value))}" for name, value in event.items())
        if self._coloured:
            return f"{_DIM}{time}{_PLAIN}  {colour}{sentence}{_PLAIN if colour else ''}{_DIM}{more}  {action}{_PLAIN}"
        return f"{time}  {sentence}{more}  {action}"


class LogObserver:
    """An Observer that says what an operator has to know."""

    def dispatched(self, topic: str, entries: Sequence[Entry], now: int) -> None:
        """Counted, not said."""

    def skipped(self, reason: str, count: int) -> None:
        """Occurrences were passed over."""
        _log.info(f"Skipped {count} occurrences: {reason}.", action="skipped", figures={"count": count})

    def verified(self, answer: str) -> None:
        """Counted, not said."""

    def parked(self, topic: str, entries: Sequence[Entry]) -> None:
        """Occurrences of a failing topic went back to near."""
        _log.warning(
            f"Topic {topic} is missing or takes no records; {len(entries)} occurrences wait and are tried again.",
            action="parked",
            figures={"topic": topic, "count": len(entries)},
        )

    def demoted(self, level: str, count: int) -> None:
        """Counted, not said."""

    def dead_lettered(self, reason: str, key: str) -> None:
        """An occurrence will not be dispatched."""
        _log.error(
            f"{key} will not be dispatched: {reason}. It is kept in the dead letters.",
            action="dead_letter",
            figures={"key": key, "reason": reason},
        )

    def owns(self, shard_range: int, epoch: int) -> None:
        """A shard range was acquired."""
        _log.info(
            f"Took shard range {shard_range}, epoch {epoch}.",
            action="took_range",
            figures={"shard_range": shard_range, "epoch": epoch},
        )

    def lost(self, shard_range: int, epoch: int, reason: str) -> None:
        """A shard range was released or lost."""
        _log.info(
            f"Gave up shard range {shard_range}: {reason}.",
            action="gave_up_range",
            figures={"shard_range": shard_range, "epoch": epoch, "reason": reason},
        )

    def troubled(self, action: str, error: Exception) -> None:
        """Something failed and will be tried again."""
        _log.warning(
            f"{action.replace('_', ' ').capitalize()}, and is tried again: {error}",
            action=action,
            figures={"error": type(error).__name__},
        )


def _escaped(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event


def _with_figures(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.update(event.pop("figures", {}))
    return event
