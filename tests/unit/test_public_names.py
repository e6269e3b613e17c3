"""The names that users import: those that are promised, and every one that a public method speaks of."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import tocsin
from tocsin.schema import errors

#: What is agreed for those who schedule; consumers' names stand in test_received.py and the inboxes' tests.
PROMISED = frozenset(
    {"AsyncScheduler", "Scheduler", "NewSchedule", "Schedule", "State", "Recurrence", "Once", "Every", "Daily"}
    | {"Weekly", "Monthly", "Yearly", "Cron", "Weekday", "CatchUp", "Gap", "Overlap", "CreateResult", "ApplyResult"}
    | {"Change", "ChangeOutcome", "Backfill", "Calendar", "NewTimer", "SendResult", "Recall", "OccurrenceKey"}
    | {"OccurrenceStatus", "Fate", "Workbench"}
)
#: Raised between a store and the protocol only.
INTERNAL = {errors.StoreTimeout}


def test_what_is_promised_is_there_once() -> None:
    assert set(tocsin.__all__) >= PROMISED
    assert len(tocsin.__all__) == len(set(tocsin.__all__))


def test_every_error_that_a_caller_can_meet_is_a_public_name() -> None:
    raised = {
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.TocsinError) and value not in INTERNAL
    }
    assert {error.__name__ for error in raised} <= set(tocsin.__all__)


def classes_of(annotation: Any) -> Iterator[type]:
    """Classes of ours in an annotation."""
    if inspect.isclass(annotation) and annotation.__module__.startswith("tocsin."):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from classes_of(argument)


def spoken_of(subject: Any) -> set[type]:
    """Classes of ours in the annotations of a class's fields, and of its public methods where it has no fields."""
    fields = typing.get_type_hints(subject)
    found = {each for hint in fields.values() for each in classes_of(hint)}
    for name, method in inspect.getmembers(subject, inspect.isfunction) if not fields else ():
        if not name.startswith("_"):
            found |= {each for hint in typing.get_type_hints(method).values() for each in classes_of(hint)}
    return found


def test_what_public_methods_take_and_give_can_be_imported() -> None:
    names = {getattr(tocsin, name) for name in tocsin.__all__}
    assert len(spoken_of(tocsin.AsyncScheduler)) > 10
    for subject in (tocsin.AsyncScheduler, tocsin.NewSchedule, tocsin.NewTimer, tocsin.Change, tocsin.Schedule):
        assert {each.__name__ for each in spoken_of(subject) - names} == set(), subject.__name__
