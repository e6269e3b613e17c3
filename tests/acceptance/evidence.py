"""The history of a real run, put together from what it left behind, for the checkers of the simulation.

    topic           what was dispatched, when and of which version
    clients' words  what was promised, and every version that they saw take effect
    tables          the last version of every schedule, change markers, what still waits
    the test        which faults it caused, and when

What nobody outside can see is left out: which process dispatched a record, and when a pack or register was written.
Checkers that need those are not asked. All processes share one clock, since they run on one machine.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from acceptance.processes import Running, Said
from acceptance.records import Received, Topic
from simulation import check_dispatch, check_store
from simulation.check_dispatch import Violation
from simulation.history import Acknowledged, Applied, Delivery, Disturbance, History, Pack
from simulation.scenario import TIMING

from tocsin.schema.entries import Kind, decode_pack, parse_instant
from tocsin.schema.levels import Bucket, Level, Levels
from tocsin.schema.schedules import Marker, ScheduleRow
from tocsin.schema.store import PackRow, Settings, Store

#: Which checkers of the simulation can be asked about a real run.
CHECKERS = (
    check_dispatch.never_early,
    check_dispatch.only_what_took_effect,
    check_dispatch.nothing_lost,
    check_dispatch.prevented_is_prevented,
    check_dispatch.ended_stays_ended,
    check_dispatch.repeats_have_a_reason,
    check_store.one_armed_each,
    check_store.no_chain_of_an_old_version,
)
PACKS = {
    Level.FAR: "SELECT day, due, pack_id, body FROM far",
    Level.MINUTE: "SELECT minute, due, pack_id, body FROM occurrences",
    Level.NEAR: "SELECT slot, position, pack_id, body FROM near",
}


def now_ms() -> float:
    return time.time() * 1000


class Evidence:
    """Collects what a run leaves behind."""

    def __init__(self, settings: Settings) -> None:
        self._levels = Levels(TIMING, settings.shard_ranges, settings.layouts)
        self.history = History(now_ms, self._levels.shard_range)

    @contextmanager
    def disturbed(self, what: str, whom: str = "") -> Iterator[None]:
        """Something is broken on purpose meanwhile."""
        start_ms = now_ms()
        yield
        self.history.disturbances.append(Disturbance(start_ms, now_ms(), what, whom))

    def hear(self, clients: Iterable[Running]) -> None:
        """Take what clients said."""
        rows: dict[tuple[str, int], ScheduleRow] = {}
        for line in (line for client in clients for line in client.said):
            if line["action"] == "acknowledged":
                self.history.promised(_promise(line))
            elif line["action"] == "failed":
                # Its repeat may have armed the same occurrence again.
                self.history.doubled.add(line["schedule_id"])
            elif line["action"] == "applied":
                row = msgspec.msgpack.decode(base64.b64decode(line["row"]), type=ScheduleRow)
                rows[row.schedule_id, row.version] = row
        self._add(rows)

    def read_topic(self, topic: Topic) -> None:
        """Take what is on the topic."""
        records = sorted(topic.records, key=lambda record: record.sent_ms)
        self.history.deliveries = [_delivery(number, record) for number, record in enumerate(records)]

    async def read_store(self, store: Store, session: Any, keyspace: str) -> None:
        """Take what the tables hold; nothing may run meanwhile."""
        ids = sorted(row.schedule_id for row in session.execute(f"SELECT schedule_id FROM {keyspace}.schedules"))
        found: dict[tuple[str, int], ScheduleRow] = {}
        for start in range(0, len(ids), 100):
            rows = await store.read_schedules(ids[start : start + 100])
            found |= {(row.schedule_id, row.version): row for row in rows.values()}
        self._add(found)
        for row in session.execute(f"SELECT * FROM {keyspace}.changes"):
            marker = Marker(
                schedule_id=row.schedule_id,
                version=row.version,
                from_ms=row.from_ms,
                until_ms=row.until_ms,
                verify=row.verify,
            )
            self.history.markers.append((row.position, row.shard_range, marker))
        for level, text in PACKS.items():
            for start, position, pack_id, body in session.execute(text.replace("FROM ", f"FROM {keyspace}.")):
                pack = Pack(Bucket(level, start, 0, 0), PackRow(position, pack_id, body), 0, "", 0, stored=True)
                pack.entries = decode_pack(body)
                self.history.packs[pack_id] = pack

    def violations(self) -> list[Violation]:
        """Every promise that was broken."""
        return [*(found for check in CHECKERS for found in check(self.history)), *self._unexplained_repeats()]

    @property
    def repeat_count(self) -> int:
        """Records beyond the first of their occurrence."""
        return len(self.history.deliveries) - len({_key(each) for each in self.history.deliveries})

    def lateness_ms(self, percent: int) -> float:
        """The lateness that so many percent of all records stay within."""
        late = sorted(each.at_ms - each.due for each in self.history.deliveries)
        return late[max(-(-percent * len(late) // 100), 1) - 1]

    def _unexplained_repeats(self) -> Iterator[Violation]:
        """A repeat needs a fault between its two records, or so shortly before that a takeover was still under way."""
        first: dict[object, Delivery] = {}
        for delivery in self.history.deliveries:
            before = first.setdefault(_key(delivery), delivery)
            start_ms = before.at_ms - 2 * TIMING.lease_ttl_ms
            if before is not delivery and not any(
                each.start_ms <= delivery.at_ms and start_ms <= each.end_ms for each in self.history.disturbances
            ):
                yield Violation(
                    "repeated without a fault", delivery.schedule_id, f"{before} {delivery}", delivery.at_ms
                )

    def _add(self, rows: dict[tuple[str, int], ScheduleRow]) -> None:
        known = {(applied.row.schedule_id, applied.row.version) for applied in self.history.applied}
        # A version is drawn before it takes effect, so its instant is a lower bound of when it did.
        self.history.applied += [Applied(row.updated_at, row) for key, row in rows.items() if key not in known]
        self.history.applied.sort(key=lambda applied: applied.row.version)


def _promise(line: Said) -> Acknowledged:
    fields = ("at_ms", "operation", "schedule_id", "version", "prevented", "uncertain")
    return Acknowledged(*(line[name] for name in fields))


def _delivery(number: int, record: Received) -> Delivery:
    headers = record.headers
    return Delivery(
        at_ms=record.sent_ms,
        schedule_id=headers["ce_scheduleid"],
        scheduled_for=parse_instant(headers["ce_scheduledfor"]),
        request="",
        version=int(headers["ce_version"]),
        due=parse_instant(headers["ce_time"]),
        topic="",
        # Not known; no two are taken for the same.
        process=str(number),
        arrived=True,
        acknowledged=True,
        store_clock_ms=record.sent_ms,
        missed=int(headers["ce_missed"]),
        kind=Kind[headers["ce_kind"].upper()],
    )


def _key(delivery: Delivery) -> tuple[str, int, int]:
    return delivery.schedule_id, delivery.scheduled_for, delivery.version
