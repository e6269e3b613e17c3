"""Tocsin: a scheduler for billions of schedules, on Cassandra and Kafka."""

from typing import TYPE_CHECKING, Any

from tocsin.dispatcher.inbox import Inbox
from tocsin.dispatcher.inbox_blocks import Concurrency, Turn
from tocsin.dispatcher.inbox_memory import MemoryInbox
from tocsin.dispatcher.inbox_sqlite import SqliteInbox
from tocsin.dispatcher.received import Received
from tocsin.producer.apply import ApplyResult
from tocsin.producer.blocking import Scheduler
from tocsin.producer.calendars import Calendar
from tocsin.producer.definition import NewSchedule
from tocsin.producer.extra_runs import Backfill
from tocsin.producer.many import CreateResult
from tocsin.producer.occurrences import Fate, OccurrenceStatus
from tocsin.producer.results import Change, ChangeOutcome, OccurrenceVersion, Recall, Schedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.producer.timers import NewTimer, SendResult
from tocsin.schema.entries import Kind, OccurrenceKey
from tocsin.schema.errors import (
    ClaimHeld,
    ClaimLost,
    ClockSkew,
    ForeignRecord,
    InstantInPast,
    InvalidSchedule,
    NeverOccurs,
    NotInitialised,
    OutcomeUnknown,
    Overloaded,
    PayloadTooLarge,
    ScheduleExists,
    ScheduleNotFound,
    SettingsError,
    StoreUnavailable,
    TocsinError,
    TopicNotAllowed,
    VersionConflict,
)
from tocsin.schema.recurrence import (
    Cron,
    Daily,
    Every,
    Gap,
    Monthly,
    Once,
    Overlap,
    Recurrence,
    Weekday,
    Weekly,
    Yearly,
)
from tocsin.schema.schedules import CatchUp, State

if TYPE_CHECKING:
    from tocsin.dispatcher.inbox_cassandra import CassandraInbox
    from tocsin.dispatcher.workbench import Workbench

__all__ = [
    "ApplyResult",
    "AsyncScheduler",
    "Backfill",
    "Calendar",
    "CassandraInbox",
    "CatchUp",
    "Change",
    "ChangeOutcome",
    "ClaimHeld",
    "ClaimLost",
    "ClockSkew",
    "Concurrency",
    "CreateResult",
    "Cron",
    "Daily",
    "Every",
    "Fate",
    "ForeignRecord",
    "Gap",
    "Inbox",
    "InstantInPast",
    "InvalidSchedule",
    "Kind",
    "MemoryInbox",
    "Monthly",
    "NeverOccurs",
    "NewSchedule",
    "NewTimer",
    "NotInitialised",
    "OccurrenceKey",
    "OccurrenceStatus",
    "OccurrenceVersion",
    "Once",
    "OutcomeUnknown",
    "Overlap",
    "Overloaded",
    "PayloadTooLarge",
    "Recall",
    "Received",
    "Recurrence",
    "Schedule",
    "ScheduleExists",
    "ScheduleNotFound",
    "Scheduler",
    "SendResult",
    "SettingsError",
    "SqliteInbox",
    "State",
    "StoreUnavailable",
    "TocsinError",
    "TopicNotAllowed",
    "Turn",
    "VersionConflict",
    "Weekday",
    "Weekly",
    "Workbench",
    "Yearly",
]


def __getattr__(name: str) -> Any:
    """Load the workbench, and what needs the Cassandra driver, for those who ask for it."""
    if name == "CassandraInbox":
        from tocsin.dispatcher.inbox_cassandra import CassandraInbox

        return CassandraInbox
    if name == "Workbench":
        from tocsin.dispatcher.workbench import Workbench

        return Workbench
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
