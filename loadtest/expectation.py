"""What a topic must hold: from the file a run left, or from the schedules that a store has now.

From a store every schedule of the topic is asked for its nominal times in a stretch of time, by the rule of its current
version and from where that version begins. What earlier versions owed, timers, triggers and backfills are not known
there; records of them count as neither lost nor unexpected, but are judged for being early by what they say of
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from tocsin.schema.entries import occurrence_key
from tocsin.schema.errors import SettingsError
from tocsin.schema.schedules import ScheduleFilter, State, decode_spec
from tocsin.schema.store import Store


class Line(msgspec.Struct):
    """One line of the file of a run."""

    key: str
    due: int


def read_expected(path: Path) -> Mapping[str, int]:
    """The dues of the keys in a file of JSON lines, `{"key": …, "due": ms}`.

    Raises:
        SettingsError: the file cannot be read, or a line is none of these.
    """
    decoder = msgspec.json.Decoder(Line)
    expected = {}
    try:
        with path.open("rb") as file:
            for text in file:
                line = decoder.decode(text)
                expected[line.key] = line.due
    except OSError as error:
        raise SettingsError(f"{path} cannot be read ({error.strerror}); name another --expected.") from error
    except msgspec.MsgspecError as error:
        told = f"line {len(expected) + 1} of {path} is not what a load test wrote: {error}"
        raise SettingsError(f"{told}; name the file beside its report.") from error
    return expected


async def expected_of_store(store: Store, topic: str, first: int, end: int) -> Mapping[str, int]:
    """The dues of what the topic's active schedules owe in [first, end), ms UTC; the store is open.

    Raises:
        StoreUnavailable, StoreTimeout: the store did not answer.
    """
    expected = {}
    wanted = ScheduleFilter(topic=topic)
    async for page in store.list_schedules(wanted):
        for row in page:
            if row.state is not State.ACTIVE:
                continue
            spec = decode_spec(row.spec)
            for nominal in spec.nominal_times(max(first, row.since), end):
                due = spec.due_of(row.schedule_id, nominal)
                if first <= due < end:
                    expected[occurrence_key(row.schedule_id, nominal)] = due
    return expected
