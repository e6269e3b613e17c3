"""The entry point of the `tocsin` command: what went wrong becomes a sentence and an exit code, never a traceback.

Exit codes: 0 done, 1 refused, 2 the command line is malformed, 3 not found, 4 conflict, 5 outcome unknown,
6 unavailable, 70 a fault of ours (as EX_SOFTWARE), 130 interrupted.

Malformed is what cannot be read: an unknown option, one that is missing, options that exclude each other, and a value
that is not what its option takes, be that a number, a choice, a duration, an instant, a date, a zone, a header or a
rule. What can be read and is not accepted is refused: an id too long, a jitter as long as the period, a topic that
Kafka would not take. What a *file* says is never the command line: a bad line of it is refused.

The base install is the client and has no command line. Nothing is imported here that it lacks, so that a missing extra
is named and never an ImportError.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final

from tocsin.deploy.recurrence_options import Unreadable
from tocsin.deploy.stack_errors import StackUnavailable
from tocsin.schema.errors import (
    ClockSkew,
    InvalidSchedule,
    OutcomeUnknown,
    Overloaded,
    ScheduleExists,
    ScheduleNotFound,
    StoreTimeout,
    StoreUnavailable,
    TocsinError,
    VersionConflict,
)

#: The first class that fits decides; every other TocsinError is a refusal.
EXIT_CODES: Final[tuple[tuple[tuple[type[TocsinError], ...], int], ...]] = (
    ((Unreadable,), 2),
    ((ScheduleNotFound,), 3),
    ((ScheduleExists, VersionConflict), 4),
    ((OutcomeUnknown,), 5),
    ((StoreUnavailable, StoreTimeout, Overloaded, ClockSkew, StackUnavailable), 6),
)
EXIT_REFUSED: Final = 1
EXIT_FAULT: Final = 70
EXIT_INTERRUPTED: Final = 130

#: Set to anything, it shows the traceback of a fault of ours.
TRACEBACK_VARIABLE: Final = "TOCSIN_TRACEBACK"
#: What the `loadtest` extra brings beyond it.
_LOADTEST_EXTRA: Final = frozenset({"plotly", "psutil"})
#: What the `dispatcher` extra brings and commands need.
_EXTRA: Final = frozenset(
    {"confluent_kafka", "kafka", "prometheus_client", "pydantic", "pydantic_settings", "rich", "structlog", "typer"}
)


def main() -> None:
    """Run the command line of this process, and end the process with its exit code."""
    sys.exit(run())


def run() -> int:
    """Run the command line; returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a sign gets its code, never an error instead of an answer.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from tocsin.deploy.application import application

        application()(prog_name="tocsin")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else EXIT_REFUSED
    except TocsinError as error:
        tell(error)
        return exit_code(error)
    except ModuleNotFoundError as error:
        return _missing(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as fault:  # noqa: BLE001 — the one place where a fault of ours becomes a sentence
        return _fault(fault)
    return 0


def exit_code(error: TocsinError) -> int:
    """The exit code that tells scripts what kind of error it was."""
    return next((code for kinds, code in EXIT_CODES if isinstance(error, kinds)), EXIT_REFUSED)


def tell(error: TocsinError) -> None:
    """Say on standard error what happened and what to do."""
    from tocsin.deploy.output import print_error

    print_error(str(error), advice(error))


def advice(error: TocsinError) -> str:
    """What to do, where the error's own text does not say it."""
    if isinstance(error, Unreadable):
        return "--help says how it is written. Nothing was written; correct it and repeat the command."
    if isinstance(error, InvalidSchedule):
        return "Nothing was written; correct it and repeat the command."
    if isinstance(error, StoreUnavailable):
        return "Where the store is comes from --store, TOCSIN_STORE or tocsin.toml."
    return ""


def _missing(error: ModuleNotFoundError) -> int:
    name = (error.name or "").partition(".")[0]
    if name not in _EXTRA | _LOADTEST_EXTRA:
        return _fault(error)
    extra = "loadtest" if name in _LOADTEST_EXTRA else "dispatcher"
    sys.stderr.write(f"tocsin: {name} is not installed.\nRun: pip install 'tocsin[{extra}]'\n")
    return EXIT_REFUSED


def _fault(fault: Exception) -> int:
    if TRACEBACK_VARIABLE in os.environ:
        raise fault
    sys.stderr.write(
        f"tocsin: a fault of Tocsin itself: {type(fault).__name__}: {str(fault)!a}\n"
        f"Repeat the command with {TRACEBACK_VARIABLE}=1 and report what it shows.\n"
    )
    return EXIT_FAULT


if __name__ == "__main__":
    main()
