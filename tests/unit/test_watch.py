"""When a dispatcher counts as dead, on the watcher's own monotonic clock."""

from __future__ import annotations

from tocsin.dispatcher.fleet import Watch
from tocsin.schema.store import Lease

TTL_MS = 6_000


def lease(owner: str | None = "a", epoch: int = 1) -> Lease:
    return Lease(shard_range=0, owner=owner, epoch=epoch, token=b"")


def test_a_range_may_be_taken_once_its_heartbeat_stood_still_for_the_ttl() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease()], {"a": 7}, 0)
    watch.see([lease()], {"a": 7}, TTL_MS - 1)
    assert not watch.may_take(lease(), TTL_MS - 1)
    assert watch.may_take(lease(), TTL_MS)


def test_a_new_heartbeat_starts_the_wait_again() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease()], {"a": 7}, 0)
    watch.see([lease()], {"a": 8}, 1_000)
    assert not watch.may_take(lease(), TTL_MS)
    assert watch.may_take(lease(), 1_000 + TTL_MS)


def test_a_new_epoch_starts_the_wait_again() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease()], {"a": 7}, 0)
    watch.see([lease(epoch=3)], {"a": 7}, 5_000)
    assert not watch.may_take(lease(epoch=3), TTL_MS)


def test_an_older_epoch_that_is_read_again_is_no_news() -> None:
    """A conditional write that only a minority has shows in some readings, for ever."""
    watch = Watch(TTL_MS)
    seen = [watch.see([lease("b", epoch=2 - run % 2)], {}, 1_000 * run) for run in range(8)]
    assert [each[0].epoch for each in seen] == [2] * 8
    assert watch.may_take(lease("b", epoch=2), TTL_MS)


def test_a_heartbeat_that_expired_is_no_new_sign_of_life() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease()], {"a": 7}, 0)
    watch.see([lease()], {}, TTL_MS - 500)
    assert watch.may_take(lease(), TTL_MS)


def test_an_owner_without_a_heartbeat_is_waited_for_once() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease()], {}, 0)
    assert not watch.may_take(lease(), TTL_MS - 1)
    watch.see([lease()], {}, TTL_MS)
    assert watch.may_take(lease(), TTL_MS)


def test_an_owner_whose_first_heartbeat_appears_late_is_waited_for_from_then_on() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease()], {}, 0)
    watch.see([lease()], {"a": 1}, 5_000)
    assert not watch.may_take(lease(), TTL_MS)


def test_a_free_range_may_be_taken_at_once() -> None:
    watch = Watch(TTL_MS)
    watch.see([lease(owner=None)], {}, 0)
    assert watch.may_take(lease(owner=None), 0)


def test_dispatchers_live_while_their_heartbeats_move() -> None:
    watch = Watch(TTL_MS)
    watch.see([], {"a": 1, "b": 1}, 0)
    watch.see([], {"a": 2, "b": 1}, 3_000)
    assert sorted(watch.living(5_999)) == ["a", "b"]
    assert watch.living(TTL_MS) == ["a"]
    watch.see([], {"b": 1}, TTL_MS)
    assert watch.living(TTL_MS) == []
