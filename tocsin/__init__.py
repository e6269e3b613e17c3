"""Tocsin: a scheduler for billions of schedules, on Cassandra and Kafka."""

from typing import TYPE_CHECKING, Any

from tocsin.producer.apply import ApplyResult
from tocsin.producer.blocking import Scheduler
from tocsin.producer.calendars import Calendar
from tocsin.producer.definition import NewSchedule
from tocsin.producer.many import CreateResult
from tocsin.producer.results import Change, ChangeOutcome, Recall, Schedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.producer.timers import NewTimer, SendResult
from tocsin.schema.errors import (
    ClockSkew,
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
from tocsin.schema.recurrence import Cron, Daily, Every, Gap, Monthly, Once, Overlap, Weekday, Weekly, Yearly
from tocsin.schema.schedules import CatchUp, State

if TYPE_CHECKING:
    from tocsin.dispatcher.workbench import Workbench

__all__ = [
    "ApplyResult",
    "AsyncScheduler",
    "Calendar",
    "CatchUp",
    "Change",
    "ChangeOutcome",
    "ClockSkew",
    "CreateResult",
    "Cron",
    "Daily",
    "Every",
    "Gap",
    "InstantInPast",
    "InvalidSchedule",
    "Monthly",
    "NeverOccurs",
    "NewSchedule",
    "NewTimer",
    "NotInitialised",
    "Once",
    "OutcomeUnknown",
    "Overlap",
    "Overloaded",
    "PayloadTooLarge",
    "Recall",
    "Schedule",
    "ScheduleExists",
    "ScheduleNotFound",
    "Scheduler",
    "SendResult",
    "SettingsError",
    "State",
    "StoreUnavailable",
    "TocsinError",
    "TopicNotAllowed",
    "VersionConflict",
    "Weekday",
    "Weekly",
    "Workbench",
    "Yearly",
]


def __getattr__(name: str) -> Any:
    """Load the dispatcher's half only for tests that ask for the workbench."""
    if name == "Workbench":
        from tocsin.dispatcher.workbench import Workbench

        return Workbench
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
