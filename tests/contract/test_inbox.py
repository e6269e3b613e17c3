"""One suite, three inboxes: once for each subscription, whoever claims at once, dies, fails or comes late."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract import inboxes
from tests.contract.inboxes import InboxSubject
from tocsin import (
    CassandraInbox,
    ClaimHeld,
    ClaimLost,
    Kind,
    MemoryInbox,
    NotInitialised,
    Received,
    SettingsError,
    SqliteInbox,
)
from tocsin.deploy.stack import LocalStack
from tocsin.dispatcher import inbox_memory, inbox_sqlite
from tocsin.dispatcher.inbox import ClaimingInbox
from tocsin.dispatcher.inbox_blocks import Concurrency
from tocsin.dispatcher.inbox_claims import Place

AT = datetime(2026, 12, 1, 8, tzinfo=UTC)
_numbers = itertools.count()


@pytest.fixture(params=["memory", "sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def subject(request: pytest.FixtureRequest) -> InboxSubject:
    """A kind of inbox; a test that uses it runs once on each."""
    found: InboxSubject = getattr(inboxes, request.param)(request)
    return found


def terms(subject: InboxSubject, **others: timedelta) -> dict[str, Any]:
    abandoned_after = timedelta(seconds=subject.abandoned_after)
    given = {"abandoned_after": abandoned_after, "remembered_for": timedelta(seconds=subject.remembered_for)}
    return given | {"patience": 4 * abandoned_after} | others


@pytest.fixture
async def inbox(subject: InboxSubject) -> AsyncIterator[ClaimingInbox]:
    async with subject.another(**terms(subject)) as inbox:
        yield inbox


@pytest.fixture
async def second(subject: InboxSubject) -> AsyncIterator[ClaimingInbox]:
    """Another consumer's inbox on the same claims."""
    async with subject.another(**terms(subject)) as inbox:
        yield inbox


@pytest.fixture
def received() -> Received:
    """An occurrence that no other test has met."""
    schedule_id = f"inbox-{next(_numbers)}"
    return Received(
        key=f"{schedule_id}@2026-12-01T08:00:00.000Z",
        topic="t",
        payload=b"\x00work",
        headers={"k": "v"},
        content_type=None,
        schedule_id=schedule_id,
        scheduled_for=AT,
        due=AT,
        version=7,
        kind=Kind.ARM,
        missed=0,
        tenant="default",
        definition="two",
    )


async def entered(inbox: ClaimingInbox, received: Received, subscription: str = "s") -> bool:
    async with inbox.once(received, subscription=subscription) as first:
        return first


async def test_the_first_time_is_told_from_every_other_for_each_subscription(
    inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    assert [await entered(inbox, received), await entered(inbox, received), await entered(second, received)] == [
        True,
        False,
        False,
    ]
    assert await entered(second, received, "another") is True
    later = replace(received, key=f"{received.key}!again")
    assert await entered(second, later) is True


async def test_what_fails_is_not_recorded_and_free_at_once(
    inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    block = inbox.once(received, subscription="s")
    assert await block.__aenter__() is True
    with pytest.raises(ZeroDivisionError):
        async with inbox.once(replace(received, key="another"), subscription="s"):
            _ = 1 / 0
    await block.__aexit__(None, KeyboardInterrupt(), None)
    assert await entered(second, received) is True
    assert await entered(inbox, received) is False


async def test_of_many_at_once_one_works_and_the_others_learn_that_it_was_done(
    subject: InboxSubject, inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    working, waiting = asyncio.Event(), 5
    may_end = asyncio.Event()
    at_work = 0

    async def work(inbox: ClaimingInbox) -> bool:
        nonlocal at_work
        async with inbox.once(received, subscription="s") as first:
            if first:
                at_work += 1
                working.set()
                await may_end.wait()
            return first

    tasks = [asyncio.create_task(work(each)) for each in (inbox, second) * 3]
    await working.wait()
    await subject.pass_seconds(waiting + 1, 0.3)  # All look once more, and wait on.
    await subject.pass_seconds(waiting + 1, 0)
    assert sum(task.done() for task in tasks) == 0
    may_end.set()
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await subject.pass_seconds(waiting, 0.3)
    assert sorted(await asyncio.gather(*tasks)) == [False] * waiting + [True]
    assert at_work == 1


async def test_what_a_dead_consumer_began_is_taken_over_once_it_counts_as_abandoned(
    subject: InboxSubject, inbox: ClaimingInbox, received: Received
) -> None:
    dead, place = subject.claims(), Place("s", "once", received.key)
    await dead.open()
    claim_ms = subject.abandoned_after * 1000
    assert (await dead.take(place, b"dead", claim_ms)).holder == b"dead"
    successor = asyncio.create_task(entered(inbox, received))
    await subject.pass_seconds(1, subject.abandoned_after / 3)
    assert not successor.done()
    await subject.pass_seconds(1, subject.abandoned_after)
    assert await successor is True
    # It was only slow: it learns that its claim is gone, and can neither keep it nor record.
    assert await dead.record(place, b"dead", claim_ms) is False
    assert (await dead.keep(place, b"dead", claim_ms)).holder != b"dead"
    await dead.close()


async def test_work_that_takes_long_keeps_its_claim_and_others_lose_patience(
    subject: InboxSubject, inbox: ClaimingInbox, received: Received
) -> None:
    hasty = subject.another(**terms(subject, patience=timedelta(milliseconds=100)))
    async with hasty:
        async with inbox.once(received, subscription="s") as first:
            assert first
            for _ in range(5):
                await subject.pass_seconds(1, subject.abandoned_after / 3)
            refused = asyncio.create_task(entered(hasty, received))
            await subject.pass_seconds(2, 0.3)
            with pytest.raises(ClaimHeld) as told:
                await refused
            assert told.value.retriable
        assert await entered(hasty, received) is False


async def test_a_consumer_that_stood_still_is_told_that_others_may_have_done_the_same(
    subject: InboxSubject, inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    block = inbox.once(received, subscription="s")
    assert await block.__aenter__() is True
    assert block._hold is not None
    await block._hold._stop()  # Its renewals do not get through.
    await subject.pass_seconds(0, subject.abandoned_after + 1)
    assert await entered(second, received) is True
    with pytest.raises(ClaimLost):
        await block.__aexit__(None, None, None)
    assert await entered(inbox, received) is False


async def test_what_was_recorded_is_forgotten_in_the_end(
    subject: InboxSubject, inbox: ClaimingInbox, received: Received
) -> None:
    assert await entered(inbox, received) is True
    await subject.pass_seconds(0, subject.remembered_for - 2)
    assert await entered(inbox, received) is False
    await subject.pass_seconds(0, 3)
    assert await entered(inbox, received) is True


async def test_what_is_for_another_definition_is_set_aside_until_a_consumer_of_it_takes_it_up(
    inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    subscription = received.schedule_id
    for _ in range(2):
        async with inbox.once(received, subscription=subscription, definition="one") as first:
            assert not first
    assert [each async for each in inbox.awaiting_async(subscription=subscription, definition="one")] == []
    taken = []
    async for each in second.awaiting_async(subscription=subscription, definition="two"):
        with pytest.raises(ZeroDivisionError):
            async with second.once(each, subscription=subscription, definition="two"):
                _ = 1 / 0
        taken.append(each)
    async for each in second.awaiting_async(subscription=subscription, definition="two"):  # It failed: it is there.
        async with second.once(each, subscription=subscription, definition="two") as first:
            assert first
        taken.append(each)
    assert taken == [received, received]
    assert [each async for each in inbox.awaiting_async(subscription=subscription, definition="two")] == []


async def test_an_occurrence_that_overlaps_is_passed_over_or_runs_as_the_policy_says(
    inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    allowing = replace(received, headers={"concurrency": "allow"})
    async with inbox.guard(received, subscription="s") as turn:
        assert turn
        assert not turn.replaced
        async with second.guard(received, subscription="s") as other:
            assert not other
        async with second.guard(allowing, subscription="s") as other:
            assert other
        async with second.guard(received, subscription="s", concurrency=Concurrency.ALLOW) as other:
            assert other
        async with second.guard(received, subscription="another") as other:
            assert other
    async with second.guard(received, subscription="s") as turn:
        assert turn
    with pytest.raises(SettingsError, match="concurrency"):
        inbox.guard(replace(received, headers={"concurrency": "maybe"}), subscription="s")


async def test_a_later_occurrence_replaces_the_one_at_work_and_of_those_that_wait_the_last(
    subject: InboxSubject, inbox: ClaimingInbox, second: ClaimingInbox, received: Received
) -> None:
    running: list[str] = []

    async def work(name: str, inbox: ClaimingInbox, until: asyncio.Event) -> bool:
        async with inbox.guard(received, subscription="s", concurrency=Concurrency.REPLACE) as turn:
            if turn:
                assert running == []  # Never two at once.
                running.append(name)
                await until.wait()
                running.remove(name)
            return bool(turn)

    claims, place = subject.claims(), Place("s", "turn", received.schedule_id)
    await claims.open()

    async def successor_after(before: bytes) -> bytes:
        successor = before
        while successor == before:
            successor = (await claims.keep(place, b"nobody", 1_000)).successor
            await asyncio.sleep(0)
        return successor

    async with inbox.guard(received, subscription="s", concurrency=Concurrency.REPLACE) as turn:
        waits = asyncio.create_task(work("waits", second, asyncio.Event()))
        asked = await successor_after(b"")
        last_may_end = asyncio.Event()
        last = asyncio.create_task(work("last", inbox, last_may_end))
        await successor_after(asked)
        await subject.pass_seconds(3, 0.3)
        assert await waits is False  # A later one has asked since.
        while not turn.replaced:
            await subject.pass_seconds(2, subject.abandoned_after / 3)
            await subject.pass_seconds(2, 0)
        assert running == []
    await claims.close()
    await subject.pass_seconds(1, 0.3)
    last_may_end.set()
    assert await last is True


async def test_a_turn_that_a_dead_consumer_had_is_free_once_it_counts_as_abandoned(
    subject: InboxSubject, inbox: ClaimingInbox, received: Received
) -> None:
    dead = subject.claims()
    await dead.open()
    await dead.take(Place("s", "turn", received.schedule_id), b"dead", subject.abandoned_after * 1000)
    async with inbox.guard(received, subscription="s") as turn:
        assert not turn
    await subject.pass_seconds(0, subject.abandoned_after + 1)
    async with inbox.guard(received, subscription="s") as turn:
        assert turn
    await dead.close()


async def test_code_without_an_event_loop_has_the_same(subject: InboxSubject, received: Received) -> None:
    def consume() -> list[bool]:
        found = []
        with subject.another(**terms(subject)) as inbox:
            for each in (received, received, replace(received, key="other")):
                with inbox.once(each, subscription="sync") as first, inbox.guard(each, subscription="sync") as turn:
                    found += [first, bool(turn)]
            with inbox.once(received, subscription=received.schedule_id, definition="one") as first:
                found.append(first)
            for each in inbox.awaiting(subscription=received.schedule_id, definition="two"):
                with inbox.once(each, subscription=received.schedule_id, definition="two") as first:
                    found.append(first)
        return found

    assert await asyncio.to_thread(consume) == [True, True, False, True, True, True, False, True]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_threads_share_an_inbox_and_one_of_them_works(kind: str, received: Received, tmp_path: Path) -> None:
    inbox = MemoryInbox() if kind == "memory" else SqliteInbox(f"sqlite:///{tmp_path}/inbox.db")

    def consume(number: int) -> bool:
        with inbox.once(replace(received, key=str(number % 4)), subscription="s") as first:
            return first

    with ThreadPoolExecutor(8) as threads, inbox:
        assert sorted(threads.map(consume, range(32))) == [False] * 28 + [True] * 4


@pytest.mark.cassandra
async def test_tables_that_are_missing_are_not_made_and_told(cassandra_stack: LocalStack, received: Received) -> None:
    inbox = CassandraInbox(cassandra_stack.store_url("never_made"))
    with pytest.raises(NotInitialised, match="run: tocsin init"):
        await inbox.once(received, subscription="s").__aenter__()


async def test_a_file_that_cannot_be_made_is_told_and_can_be_there_later(tmp_path: Path, received: Received) -> None:
    inbox = SqliteInbox(f"sqlite:///{tmp_path}/later/inbox.db")
    with pytest.raises(SettingsError, match="does not exist"):
        await entered(inbox, received)
    (tmp_path / "later").mkdir()
    async with inbox:
        assert await entered(inbox, received)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lease": timedelta(seconds=1)}, "no lease"),
        ({"abandoned_after": timedelta(milliseconds=1500)}, "whole seconds"),
        ({"abandoned_after": timedelta(0)}, "at least one"),
        ({"remembered_for": timedelta(seconds=1)}, "remembered_for"),
    ],
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, timedelta], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        MemoryInbox(**wrong)


@pytest.mark.parametrize("subscription", ["", "x" * 256])
def test_a_subscription_has_a_name(subscription: str, received: Received) -> None:
    with pytest.raises(SettingsError, match="subscription"):
        MemoryInbox().once(received, subscription=subscription)


async def test_an_inbox_belongs_to_one_event_loop(inbox: ClaimingInbox, received: Received) -> None:
    with pytest.raises(SettingsError, match="loop"):
        await asyncio.to_thread(lambda: inbox.run(entered(inbox, received)))
    assert inbox._thread is not None
    inbox._thread.close()
    inbox._thread = None


async def test_what_has_expired_is_swept_out_of_a_file_and_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: Received
) -> None:
    monkeypatch.setattr(inbox_memory, "SWEEP_EVERY", 10)
    clock = inboxes.TurnedClock()
    in_memory = inbox_memory.MemoryClaims(clock)
    in_file = inbox_sqlite.SqliteClaims(f"sqlite:///{tmp_path}/inbox.db", clock)
    for claims in (ClaimingInbox(in_memory, clock=clock), ClaimingInbox(in_file, clock=clock)):
        async with claims as inbox:
            for number in range(30):
                assert await entered(inbox, replace(received, key=str(number)))
            clock.turn(15 * 86_400_000)
            for number in range(20):
                assert await entered(inbox, replace(received, key=f"later-{number}"))
            if claims._means.claims is in_file:
                await in_file.recorded(Place("s", "once", "any"))  # Behind the purge, which was begun before.
                (kept,) = await in_file._execute("SELECT count(*) FROM inbox", {})
                assert kept == (20,)
    assert 20 <= len(in_memory._places) < 40
