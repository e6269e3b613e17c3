"""Goal: an expression without one sure meaning is refused quickly, with the place and the reason."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.schema.cron import Cron, parse
from tocsin.schema.errors import InvalidSchedule, NeverOccurs

#: A deadline would measure the machine, not the code.
unhurried = settings(deadline=None)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


REFUSED = [
    ("61 9 * * *", 0, 2, "61 is not a valid minute"),
    ("0 24 * * *", 2, 4, "24 is not a valid hour"),
    ("0 9 0 * *", 4, 5, "0 is not a valid day"),
    ("0 9 32 * *", 4, 6, "32 is not a valid day"),
    ("0 9 * 13 *", 6, 8, "13 is not a valid month"),
    ("0 9 * * 8", 8, 9, "8 is not a valid weekday"),
    ("0 9 * * FOO", 8, 11, "FOO is not a valid weekday"),
    ("0 9 * JANUARY *", 6, 13, "JANUARY is not"),
    ("0 MON * * *", 2, 5, "MON is not a valid hour"),
    ("0,61 9 * * *", 2, 4, "61 is not a valid minute"),
    ("0,,5 9 * * *", 0, 4, "empty place"),
    (",5 9 * * *", 0, 2, "empty place"),
    ("*/0 9 * * *", 0, 3, "step of 0"),
    ("*/90 9 * * *", 0, 4, "leaves only the first value"),
    ("1-5/10 9 * * *", 0, 6, "leaves only the first value"),
    ("5/15 9 * * *", 0, 4, "write 5-59/15"),
    ("*,5 9 * * *", 0, 1, "cannot be one of a list"),
    ("-5 9 * * *", 0, 2, "negative"),
    ("5- 9 * * *", 0, 2, "5- is not a valid minute"),
    ("1-2-3 9 * * *", 0, 5, "1-2-3 is not"),
    ("1/2/3 9 * * *", 0, 5, "1/2/3 is not"),
    ("1.5 9 * * *", 0, 3, "1.5 is not"),
    ("0 9 20-10 * *", 4, 9, "runs backwards"),
    ("0 9 31W * *", 4, 7, "write LW"),
    ("0 9 W * *", 4, 5, "W is not"),
    ("0 9 L-3 * *", 4, 7, "days before the last"),
    ("0 9 * * L", 8, 9, "needs a weekday"),
    ("0 9 * * 5LL", 8, 11, "is not a valid weekday"),
    ("0 9 * * L5L", 8, 11, "is not a valid weekday"),
    ("0 9 * * 5#6", 8, 11, "# is followed by 1 to 5"),
    ("0 9 * * 5#0", 8, 11, "# is followed by 1 to 5"),
    ("0 9 * * #3", 8, 10, "nothing is not a valid weekday"),
    ("L 9 * * *", 0, 1, "no such meaning"),
    ("? 9 * * *", 0, 1, "write * for any"),
    ("0 9 ? * *", 4, 5, "write * for any"),
    ("R 9 * * *", 0, 1, "random on each host"),
    ("H(5 9 * * *", 0, 3, "H is written"),
    ("H(0-99) 9 * * *", 0, 7, "within 0-59"),
    ("H(9-3) 9 * * *", 0, 6, "within 0-59"),
    ("0 9 H(20-31) * *", 4, 12, "within 1-28"),
    ("H/90 9 * * *", 0, 4, "step after H"),
    ("H/0 9 * * *", 0, 3, "step after H"),
    ("0 9 */2 * 1", 4, 7, "1-31/2"),
    ("0 9 1 * */2", 8, 11, "0-6/2"),
    ("0 9 */1 * 1", 4, 7, "AND or as OR"),
    ("0 9 * *", 8, 9, "4 fields"),
    ("", 1, 2, "0 fields"),
    ("0 0 9 * * *", 10, 11, "name the dialect"),
    ("@reboot", 0, 7, "no reboot"),
    ("@every 5m", 0, 9, "Every(period)"),
    ("@fortnightly", 0, 12, "@hourly"),
    ("\u0665 9 * * *", 0, 1, "does not belong"),
    ("\uff15 9 * * *", 0, 1, "does not belong"),
    ("0 9\u00a0* * *", 3, 4, "does not belong"),
    ("0 9 * * *\n", 9, 10, "does not belong"),
    ("0 9 * * \0", 8, 9, "does not belong"),
]


@pytest.mark.parametrize(("expression", "start", "end", "reason"), REFUSED)
def test_a_wrong_expression_is_refused_with_a_caret_under_the_wrong_part(
    expression: str, start: int, end: int, reason: str
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron(expression)
    text, shown, caret = str(refused.value).split("\n")
    assert reason in text
    assert refused.value.field == "expression"
    assert refused.value.value == expression
    assert len(shown) == len(expression) + 4
    assert caret == " " * (4 + start) + "^" * (end - start)


@pytest.mark.parametrize(
    ("expression", "options", "reason"),
    [
        ("0 0 0 1 * 2", {"dialect": "quartz"}, "leaves one of the two day fields open"),
        ("0 0 0 H * ? H", {"dialect": "quartz"}, "H would choose a year"),
        ("0 0 0 1 1 ? 2100", {"dialect": "quartz"}, "2100 is not a valid year"),
        ("0 0 0 1 1 ? 2030-2020", {"dialect": "quartz"}, "runs backwards"),
        ("0 9 * * *", {"dialect": "seconds-first"}, "5 fields"),
        ("0 9 * * *", {"dialect": "vixie"}, "unix, seconds-first, quartz"),
        ("0 9 * * *", {"dialect": ["unix"]}, "unix, seconds-first, quartz"),
        ("0 9 * * *", {"day_match": "any"}, "either, both"),
        ("0 9 15W * 1", {"day_match": "both"}, "W moves the day"),
        ("0 9 * * *", {"tz": "Europe/Lodnon"}, "Europe/London"),
        ("0 9 * * *", {"tz": "../etc/passwd"}, "no zone"),
        ("0 9 * * *", {"tz": None}, "must be the name of a zone"),
        ("0 9 * * *", {"gap": "jump"}, "Gap.SKIP"),
        ("0 9 * * *", {"overlap": None}, "Overlap.FIRST"),
        (None, {}, "must be a string"),
        (["0 9 * * *"], {}, "must be a string"),
        (b"0 9 * * *", {}, "must be a string"),
    ],
)
def test_a_wrong_option_is_refused_by_name(expression: Any, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSchedule, match=reason):
        Cron(expression, **options)


@pytest.mark.parametrize(
    ("expression", "options"),
    [
        ("0 0 30 2 *", {}),
        ("0 0 30,31 2 *", {}),
        ("0 0 31 2,4,6,9,11 *", {}),
        ("0 0 1-7 * 1#5", {"day_match": "both"}),
        ("0 0 1-7 * 1#5,2L", {"day_match": "both"}),
        ("0 0 0 29 2 ? 2023", {"dialect": "quartz"}),
        ("0 0 0 29 2 ? 2097-2099", {"dialect": "quartz"}),
    ],
)
def test_dates_that_never_come_are_refused(expression: str, options: dict[str, Any]) -> None:
    with pytest.raises(NeverOccurs, match="no date matches"):
        Cron(expression, **options)


def test_a_rule_that_the_clock_always_skips_is_refused_when_its_schedule_is_made() -> None:
    rule = Cron("30 2 * 3 0#2", tz="America/New_York")
    assert rule.after(NEW_YEAR) is None
    with pytest.raises(NeverOccurs, match="skips"):
        rule.resolve("s", int(NEW_YEAR.timestamp() * 1000))


HOSTILE = [
    "0" * 10_000,
    "* " * 5_000,
    "1," * 500 + "1 0 * * *",
    "*/1," * 240 + "*/2 0 * * *",
    "0 0 " + "LW," * 320 + "1W * *",
    "0 0 " + ",".join(f"{day}W" for day in range(1, 29)) + ",LW * *",
    "0 0 * * " + "1#1," * 240 + "2#2",
    "0 0 1-7 * 1#5,2#5,3#5,6",
    "0 0 * * " + ",".join(f"{day}#{nth}" for day in range(8) for nth in range(1, 6)),
    "1/1/1/1/1/1/1/1 * * * *",
    "9" * 1_000 + " * * * *",
    "0-" * 500 + "1 * * * *",
    "H(" * 300 + " * * * *",
    "\u0663" * 1_000,
    "\0" * 1_000,
    "\ud800 * * * *",
    "* * * * * " * 100,
    "0 0 30 2 *",
]


@pytest.mark.parametrize("day_match", ["either", "both"])
@pytest.mark.parametrize("expression", HOSTILE, ids=range(len(HOSTILE)))
def test_no_expression_takes_more_than_fifty_milliseconds(expression: str, day_match: Any) -> None:
    def ask() -> None:
        parse.cache_clear()
        with contextlib.suppress(InvalidSchedule):
            Cron(expression, day_match=day_match).after(NEW_YEAR)

    assert min(cpu_seconds(ask) for _ in range(2)) < 0.05


def cpu_seconds(work: Callable[[], None]) -> float:
    """What a call costs, whoever else is using the machine."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


@unhurried
@given(st.text(alphabet=" *,-/#?@0123456789HLWRMONJAN()", max_size=40))
def test_any_text_is_a_rule_or_refused_and_a_rule_moves_on(text: str) -> None:
    try:
        rule = Cron(text).bind("some id")
    except InvalidSchedule:
        return
    first = rule.after(NEW_YEAR)
    assert first is not None
    assert first > NEW_YEAR
    assert rule.after(first) > first
