"""A store call is repeated until it is answered, with growing pauses, and no further than a deadline."""

from __future__ import annotations

import pytest
from unit.manual_clock import ManualClock

from tocsin.producer.persistence import Persistence
from tocsin.schema.errors import ScheduleNotFound, StoreTimeout, StoreUnavailable
from tocsin.schema.timing import Timing


class Answers:
    """Raises or returns what was laid down, call by call; the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls = 0

    async def __call__(self) -> object:
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def persistence(clock: ManualClock) -> Persistence:
    return Persistence(clock, Timing())


async def test_an_answer_is_returned_at_once(persistence: Persistence, clock: ManualClock) -> None:
    assert await persistence.until_answered(Answers(None)) is None
    assert clock.slept_ms == []


async def test_both_kinds_of_silence_are_asked_again(persistence: Persistence) -> None:
    ask = Answers(StoreTimeout(), StoreUnavailable(), StoreTimeout(), "answer")
    assert await persistence.until_answered(ask) == "answer"
    assert ask.calls == 4


async def test_pauses_double_up_to_the_longest(persistence: Persistence, clock: ManualClock) -> None:
    await persistence.until_answered(Answers(*[StoreTimeout()] * 9, "answer"))
    assert clock.slept_ms == [50, 100, 200, 400, 800, 1_600, 2_000, 2_000, 2_000]


async def test_a_refusal_is_an_answer(persistence: Persistence) -> None:
    ask = Answers(ScheduleNotFound("s"))
    with pytest.raises(ScheduleNotFound):
        await persistence.until_answered(ask)
    assert ask.calls == 1


async def test_nothing_is_repeated_past_the_deadline(persistence: Persistence, clock: ManualClock) -> None:
    deadline = clock.monotonic_ms() + 1_000
    ask = Answers(StoreTimeout())
    with pytest.raises(StoreTimeout):
        await persistence.until_answered(ask, deadline)
    assert clock.monotonic_ms() <= deadline
    assert ask.calls == 5


async def test_no_call_begins_after_the_deadline(persistence: Persistence, clock: ManualClock) -> None:
    ask = Answers(StoreUnavailable())
    with pytest.raises(StoreTimeout):
        await persistence.until_answered(ask, clock.monotonic_ms() - 1)
    assert ask.calls == 0
