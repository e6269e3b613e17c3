"""The tables that are written under a condition, and the dead letters: the quieter half of the simulated store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from simulation.cluster import Client
from simulation.replica import Replica
from tocsin.schema.errors import ScheduleNotFound
from tocsin.schema.levels import hash32
from tocsin.schema.pages import Pages
from tocsin.schema.schedules import Calendar, ScheduleFilter, ScheduleRow
from tocsin.schema.store import DeadLetter

Row = TypeVar("Row")
Place = TypeVar("Place")


class ReplicatedTables(Client):
    """Schedules, calendars and dead letters of tocsin.schema.store.Store."""

    # Schedules

    async def read_schedules(self, schedule_ids: Sequence[str]) -> Mapping[str, ScheduleRow]:
        transactions = self._cluster.transactions
        wanted = tuple(schedule_ids)

        def rows() -> Mapping[str, ScheduleRow]:
            return {each: transactions.schedules[each] for each in wanted if each in transactions.schedules}

        return await self._call("read_schedules", lambda: transactions.read(rows))

    async def insert_schedule(self, row: ScheduleRow) -> ScheduleRow | None:
        transactions = self._cluster.transactions
        return await self._call("commit", lambda: transactions.submit(lambda: transactions.insert_schedule(row)))

    async def replace_schedule(self, row: ScheduleRow, expected_version: int) -> ScheduleRow | None:
        transactions = self._cluster.transactions
        apply = partial(transactions.replace_schedule, row, expected_version)
        found = await self._call("commit", lambda: transactions.submit(apply))
        if isinstance(found, bool):
            raise ScheduleNotFound(row.schedule_id)
        return found

    async def remove_schedule(self, schedule_id: str, expected_version: int) -> bool:
        transactions = self._cluster.transactions
        apply = partial(transactions.remove_schedule, schedule_id, expected_version)
        return await self._call("commit", lambda: transactions.submit(apply))

    async def insert_fresh_schedule(self, row: ScheduleRow) -> None:
        transactions = self._cluster.transactions
        await self._call("insert_fresh", lambda: transactions.submit(lambda: transactions.insert_schedule(row)))

    def list_schedules(self, wanted: ScheduleFilter) -> AsyncIterator[Sequence[ScheduleRow]]:
        def rows() -> list[tuple[str, ScheduleRow]]:
            kept = self._cluster.transactions.schedules
            return [(name, row) for name, row in sorted(kept.items()) if _fits(row, wanted)]

        return self._listed("list_schedules", rows)

    def walk_schedules(self, segment: int, segments: int) -> AsyncIterator[Sequence[str]]:
        def ids() -> list[tuple[str, str]]:
            kept = sorted(self._cluster.transactions.schedules)
            return [(name, name) for name in kept if hash32(name) * segments >> 32 == segment]

        return self._listed("walk_schedules", ids)

    def _listed(self, call: str, found: Callable[[], list[tuple[str, Row]]]) -> AsyncIterator[Sequence[Row]]:
        """Pages of rows by name, each looked up when it is asked for."""
        count = self._cluster.page_rows

        async def read_page(place: str | None) -> tuple[Sequence[Row], str | None]:
            def page() -> list[tuple[str, Row]]:
                return [(name, row) for name, row in found() if place is None or name > place][:count]

            rows = await self._call(call, lambda: self._cluster.transactions.read(page))
            return [row for _, row in rows], rows[-1][0] if len(rows) == count else None

        return Pages(read_page)

    # Requests

    async def keep_request(self, schedule_id: str, request_id: str, instant: int) -> int:
        transactions = self._cluster.transactions
        keep = partial(transactions.requests.setdefault, (schedule_id, request_id), instant)
        return await self._call("keep_request", lambda: transactions.submit(keep))

    # Calendars

    async def read_calendars(self) -> Sequence[Calendar]:
        transactions = self._cluster.transactions
        return await self._call(
            "read_calendars", lambda: transactions.read(lambda: list(transactions.calendars.values()))
        )

    async def read_calendar(self, name: str) -> Calendar | None:
        transactions = self._cluster.transactions
        return await self._call("read_calendar", lambda: transactions.read(lambda: transactions.calendars.get(name)))

    async def write_calendar(self, calendar: Calendar, expected_version: int) -> bool:
        transactions = self._cluster.transactions
        apply = partial(transactions.write_calendar, calendar, expected_version)
        return await self._call("write_calendar", lambda: transactions.submit(apply))

    # Dead letters

    async def write_dead_letter(self, letter: DeadLetter) -> None:
        await self._write("write_dead_letter", lambda node: node.dead_letters.add(letter))

    def read_dead_letters(self, shard_range: int, after: int, through: int) -> AsyncIterator[Sequence[DeadLetter]]:
        count = self._cluster.page_rows

        async def read_page(place: tuple[int, str] | None) -> tuple[Sequence[DeadLetter], tuple[int, str] | None]:
            def request(node: Replica) -> Sequence[DeadLetter]:
                return [letter for letter in node.dead_letters if letter.shard_range == shard_range]

            letters = {_place(letter): letter for letter in itertools.chain(*await self._read("letters", request))}
            chosen = sorted(key for key in letters if after < key[0] <= through and (place is None or key > place))[
                :count
            ]
            return [letters[key] for key in chosen], chosen[-1] if len(chosen) == count else None

        return Pages(read_page)


def _fits(row: ScheduleRow, wanted: ScheduleFilter) -> bool:
    found = {"tenant": row.tenant, "state": row.state.value, "topic": row.topic}
    given = wanted.given()
    return given.pop("tag", None) in {None, *row.tags} and all(found[name] == value for name, value in given.items())


def _place(letter: DeadLetter) -> tuple[int, str]:
    return letter.at, letter.occurrence_key
