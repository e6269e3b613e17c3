"""Tocsin: a scheduler for billions of schedules, on Cassandra and Kafka."""

from tocsin.producer.definition import NewSchedule
from tocsin.producer.results import Change, ChangeOutcome, Schedule
from tocsin.producer.scheduler import AsyncScheduler, Scheduler
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

__all__ = [
    "AsyncScheduler",
    "CatchUp",
    "Change",
    "ChangeOutcome",
    "ClockSkew",
    "Cron",
    "Daily",
    "Every",
    "Gap",
    "InstantInPast",
    "InvalidSchedule",
    "Monthly",
    "NeverOccurs",
    "NewSchedule",
    "NotInitialised",
    "Once",
    "OutcomeUnknown",
    "Overlap",
    "Overloaded",
    "PayloadTooLarge",
    "Schedule",
    "ScheduleExists",
    "ScheduleNotFound",
    "Scheduler",
    "SettingsError",
    "State",
    "StoreUnavailable",
    "TocsinError",
    "TopicNotAllowed",
    "VersionConflict",
    "Weekday",
    "Weekly",
    "Yearly",
]
