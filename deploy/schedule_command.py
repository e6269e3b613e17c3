"""One command of an ingest topic: a CloudEvent, structured mode, in JSON, that says what to do with a schedule.

    {"specversion": "1.0", "id": "6f1c", "source": "/billing", "subject": "invoice-7",
     "type": "tocsin.schedule.create",
     "data": {"at": "2036-12-24T18:00+01:00", "topic": "dunning", "payload": "invoice 7"}}

The subject is the schedule's id; `source` and `id` together name the command, so that the same one twice is one. The
data of `create` and `update` have the names of a declared set (`declaration.py`); null in an update takes a field away.
`commands.schema.json`, which `tocsin ingest --schema` prints, says the same for other languages; a test holds the two
together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tocsin.deploy.declaration import read_changes, read_schedule
from tocsin.deploy.recurrence_options import read_instant
from tocsin.producer.definition import check_schedule_id
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.errors import InvalidSchedule

#: What a command's type begins with.
TYPE_PREFIX: Final = "tocsin.schedule."
ACTIONS: Final = ("create", "update", "pause", "resume", "cancel", "trigger")
#: Attributes of the CloudEvent that mean something here; others are allowed and passed over.
_TEXTS: Final = ("specversion", "id", "source", "type", "subject")
#: What the data of an action without fields of a schedule may hold.
_DATA: Final[Mapping[str, frozenset[str]]] = {
    "pause": frozenset({"note"}),
    "resume": frozenset({"from"}),
    "cancel": frozenset(),
    "trigger": frozenset(),
}


@dataclass(frozen=True)
class Command:
    """What somebody wants of a schedule."""

    #: Names this command and no other.
    name: str
    action: str
    schedule_id: str
    data: Mapping[str, Any]

    async def perform(self, scheduler: AsyncScheduler) -> None:
        """Do it; doing it again, as long as no later command of the schedule was done, changes nothing.

        Raises:
            TocsinError: the schedule does not take it, or the store does not answer.
        """
        if self.action == "create":
            new = read_schedule({**self.data, "id": self.schedule_id}, "data")
            async for result in scheduler.create_many([new]):
                if result.error is not None:
                    raise result.error
        elif self.action == "update":
            await scheduler.update(self.schedule_id, **read_changes(self.data))
        elif self.action == "pause":
            await scheduler.pause(self.schedule_id, note=self.data.get("note", ""))
        elif self.action == "resume":
            since = self.data.get("from")
            await scheduler.resume(self.schedule_id, resume_from=None if since is None else read_instant("from", since))
        elif self.action == "cancel":
            await scheduler.cancel(self.schedule_id)
        else:
            request_id = hashlib.blake2b(self.name.encode(), digest_size=16).hexdigest()
            await scheduler.trigger(self.schedule_id, request_id=request_id)


def read_command(value: bytes | None) -> Command:
    """The command of a record's value.

    Raises:
        InvalidSchedule: it is none; the field says where.
    """
    try:
        event = json.loads(value or b"")
    except ValueError as error:
        raise InvalidSchedule("value", None, f"is not JSON: {error}") from error
    if not isinstance(event, dict):
        raise InvalidSchedule("value", None, "is no JSON object; write a CloudEvent")
    for name in _TEXTS:
        if not isinstance(event.get(name), str) or not event[name]:
            raise InvalidSchedule(name, event.get(name), "must be text that is not empty")
    if event["specversion"] != "1.0":
        raise InvalidSchedule("specversion", event["specversion"], "must be 1.0")
    action = event["type"].removeprefix(TYPE_PREFIX)
    if event["type"] == action or action not in ACTIONS:
        known = ", ".join(ACTIONS)
        raise InvalidSchedule("type", event["type"], f"must be {TYPE_PREFIX} and one of {known}")
    check_schedule_id(event["subject"])
    if event.get("datacontenttype", "application/json") != "application/json" or "data_base64" in event:
        raise InvalidSchedule("data", None, "must be JSON, in the event itself")
    name = json.dumps([event["source"], event["id"]], ensure_ascii=False)
    return Command(name, action, event["subject"], _data(action, event.get("data", {})))


def _data(action: str, data: Any) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise InvalidSchedule("data", data, "must be an object of fields")
    known = _DATA.get(action)
    unknown = sorted(set(data) - known) if known is not None else [name for name in data if name == "id"]
    if unknown:
        raise InvalidSchedule(f"data.{unknown[0]}", data[unknown[0]], f"is no field of {action}")
    for name in known or ():
        if not isinstance(data.get(name, ""), str):
            raise InvalidSchedule(f"data.{name}", data[name], "must be text")
    return data
