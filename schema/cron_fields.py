"""Cron expressions as text: what each field allows, and a refusal that points at what is wrong.

The parse is ours because a wrong guess here is silent for months. It turns an expression into plain sets of values, so
that nothing ambiguous reaches the calendar walk. Where public tools disagree about a form, it is refused with the
reason and the way to write what was meant; `tocsin.schema.cron` documents the readings chosen.

Every refusal is an InvalidSchedule whose text carries the expression and a caret under the part that is wrong:

    expression: 61 is not a valid minute: minutes go from 0 to 59
        0,61 9 * * *
          ^^
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal, NamedTuple, NoReturn

from tocsin.schema.errors import InvalidSchedule

Dialect = Literal["unix", "seconds-first", "quartz"]
DayMatch = Literal["either", "both"]

#: Longer expressions are refused unread; a list of all 60 minutes takes 169 characters.
LENGTH_MAX: Final = 1_024
#: H in the day of month stays at or below it: later days do not exist in every month.
HASHED_DAY_MAX: Final = 28

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_ITEM: Final = re.compile(
    r"(?:(?P<star>\*)|(?P<low>[A-Z]{3}|[0-9]{1,4})(?:-(?P<high>[A-Z]{3}|[0-9]{1,4}))?)(?:/(?P<step>[0-9]{1,4}))?"
)
_HASHED: Final = re.compile(r"H(?:\((?P<low>[0-9]{1,4})-(?P<high>[0-9]{1,4})\))?(?:/(?P<step>[0-9]{1,4}))?")


class Part(NamedTuple):
    """A piece of an expression, and where it stands."""

    expression: str
    start: int
    text: str
    #: How long it is where it stands; H is replaced by a value, and the caret still marks the H.
    length: int

    def refuse(self, reason: str, error: type[InvalidSchedule] = InvalidSchedule) -> NoReturn:
        """Raise InvalidSchedule, or a kind of it, with the expression and a caret under this part."""
        shown = "".join(sign if " " <= sign <= "~" else "?" for sign in self.expression)
        caret = " " * self.start + "^" * max(1, self.length)
        raise error("expression", self.expression, f"{reason}\n    {shown}\n    {caret}")

    def split(self, pattern: str) -> list[Part]:
        """The pieces that match, each with its own place."""
        found = re.finditer(pattern, self.text)
        return [Part(self.expression, self.start + m.start(), m[0], len(m[0])) for m in found]


class Field(NamedTuple):
    """One field of a dialect and its values, [low, high]."""

    name: str
    plural: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    #: What `*` and an open end reach; 7 is a second name of Sunday.
    star_high: int | None = None
    #: Whether a range may run past the end and go on at the start, as FRI-MON does.
    wraps: bool = True

    @property
    def last(self) -> int:
        """The highest value that is no alias."""
        return self.high if self.star_high is None else self.star_high

    def value(self, token: str, part: Part) -> int:
        """The number a token of this field stands for."""
        if token.isdigit():
            number = int(token)
            if self.low <= number <= self.high:
                return number
            part.refuse(f"{number} is not a valid {self.name}: {self.plural} go from {self.low} to {self.high}")
        if token in self.names:
            return self.low + self.names.index(token)
        allowed = f"; its names are {', '.join(self.names)}" if self.names else ""
        return part.refuse(f"{token or 'nothing'} is not a valid {self.name}{allowed}")

    def span(self, low: int, high: int, step: int, part: Part) -> list[int]:
        """The values of low-high/step, running past the end where the range does."""
        if low > high:
            if not self.wraps:
                part.refuse(f"the range runs backwards: {low} comes after {high}")
            high += self.last - self.low + 1
        if step > max(high - low, 1):
            part.refuse(f"a step of {step} leaves only the first value, {low}; write {low} alone if that is meant")
        size = self.last - self.low + 1
        return [self.low + (value - self.low) % size for value in range(low, high + 1, step)]


SECOND: Final = Field("second", "seconds", 0, 59)
MINUTE: Final = Field("minute", "minutes", 0, 59)
HOUR: Final = Field("hour", "hours", 0, 23)
DAY: Final = Field("day of the month", "days", 1, 31, wraps=False)
MONTH: Final = Field("month", "months", 1, 12, _MONTHS)
WEEKDAY: Final = Field("weekday", "weekdays", 0, 7, _WEEKDAYS, star_high=6)
#: Quartz counts weekdays from 1 = SUN to 7 = SAT.
QUARTZ_WEEKDAY: Final = Field("weekday", "Quartz weekdays (1 is SUN)", 1, 7, _WEEKDAYS)
YEAR: Final = Field("year", "years", 1970, 2099, wraps=False)

DIALECTS: Final[dict[str, tuple[Field, ...]]] = {
    "unix": (MINUTE, HOUR, DAY, MONTH, WEEKDAY),
    "seconds-first": (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY),
    "quartz": (SECOND, MINUTE, HOUR, DAY, MONTH, QUARTZ_WEEKDAY, YEAR),
}
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def split_fields(expression: str, dialect: str) -> list[tuple[Field, Part]]:
    """The fields of an expression with their text in capitals; raises InvalidSchedule where their number is wrong."""
    whole = _whole(expression)
    if whole.text.startswith("@"):
        return _split_alias(whole)
    fields, parts = DIALECTS[dialect], whole.split("[^ \t]+")
    least = len(fields) - (dialect == "quartz")
    if not least <= len(parts) <= len(fields):
        _refuse_count(whole, parts, fields, dialect)
    return [(field, part._replace(text=part.text.upper())) for field, part in zip(fields, parts, strict=False)]


def items(field: Field, part: Part) -> list[Part]:
    """The items of a comma-separated field."""
    found = part.split("[^,]+")
    if len(found) != part.text.count(",") + 1:
        part.refuse(f"a list of {field.plural} has an empty place")
    if len(found) > 1:
        for item in found:
            if item.text in {"*", "?"}:
                item.refuse(f"{item.text} stands for every {field.name} and cannot be one of a list")
    return found


def item_values(field: Field, item: Part, dialect: str) -> list[int]:
    """The values of one item: a number, name, range or step."""
    match = _ITEM.fullmatch(item.text)
    if match is None:
        _refuse_item(field, item)
    step = int(match["step"] or 1)
    if step == 0:
        item.refuse("a step of 0 never moves on")
    if match["star"]:
        return field.span(field.low, field.last, step, item)
    low = field.value(match["low"], item)
    if match["high"]:
        return field.span(low, field.value(match["high"], item), step, item)
    if match["step"] is None:
        return field.span(low, low, 1, item)
    if dialect == "unix":
        item.refuse(f"crons disagree about a step without a range; write {low}-{field.last}/{step}, or */{step}")
    return field.span(low, field.last, step, item)


def bound_item(field: Field, item: Part, schedule_id: str) -> Part:
    """The item itself, or where it is an H form the concrete one for this schedule id."""
    match = _HASHED.fullmatch(item.text)
    if match is None:
        return item
    most = HASHED_DAY_MAX if field is DAY else field.last
    if field is YEAR:
        item.refuse("H would choose a year by hash; name the years")
    low, high = int(match["low"] or field.low), int(match["high"] or most)
    if not field.low <= low < high <= most:
        item.refuse(f"H({low}-{high}) must be a range within {field.low}-{most}")
    if match["step"] is None:
        return item._replace(text=str(_hashed(schedule_id, field, low, high)))
    step = int(match["step"])
    if not 1 <= step <= high - low:
        item.refuse(f"the step after H must be from 1 to {high - low}")
    first = _hashed(schedule_id, field, low, low + step - 1)
    return item._replace(text=f"{first}-{high}/{step}" if first + step <= high else str(first))


def bound_text(expression: str, dialect: str, schedule_id: str) -> str:
    """The expression with each H form replaced by what it means for this schedule id, the same on every host."""
    text = expression
    for field, part in reversed(split_fields(expression, dialect)):
        for item in reversed(items(field, part)):
            bound = bound_item(field, item, schedule_id)
            if bound is not item:
                text = text[: item.start] + bound.text + text[item.start + item.length :]
    return text


def _hashed(schedule_id: str, field: Field, low: int, high: int) -> int:
    digest = hashlib.blake2b(f"{field.name}\0{schedule_id}".encode(), digest_size=8).digest()
    return low + int.from_bytes(digest) % (high - low + 1)


def _whole(expression: str) -> Part:
    """The expression as one part; refused where it is no line of printable ASCII within bounds."""
    if len(expression) > LENGTH_MAX:
        reason = f"has {len(expression)} characters; at most {LENGTH_MAX} are read"
        raise InvalidSchedule("expression", expression, reason)
    for place, sign in enumerate(expression):
        if sign != "\t" and not " " <= sign <= "~":
            Part(expression, place, sign, 1).refuse(f"{sign!a} does not belong in a cron expression")
    return Part(expression, 0, expression, len(expression))


def _split_alias(whole: Part) -> list[tuple[Field, Part]]:
    name = whole.text.strip().lower()
    if name not in ALIASES:
        hints = {"@reboot": "a schedule has no reboot", "@every": "use Every(period) for elapsed time"}
        whole.refuse(hints.get(name.split()[0], f"the names are {', '.join(ALIASES)}"))
    values = ALIASES[name].split(" ")
    return [(f, whole._replace(text=v)) for f, v in zip(DIALECTS["unix"], values, strict=True)]


def _refuse_count(whole: Part, parts: list[Part], fields: tuple[Field, ...], dialect: str) -> NoReturn:
    names = ", ".join(field.name for field in fields)
    count = f"{len(parts)} field{'' if len(parts) == 1 else 's'}"
    if len(parts) > len(fields):
        hint = "; for seconds or years name the dialect: seconds-first or quartz" if dialect == "unix" else ""
        parts[len(fields)].refuse(f"{count}, but {dialect} cron has {len(fields)}: {names}{hint}")
    end = whole._replace(start=len(whole.text.rstrip()) + 1, length=1)
    end.refuse(f"{count or 'no fields'}, but {dialect} cron has {len(fields)}: {names}")


def _refuse_item(field: Field, item: Part) -> NoReturn:
    hints = {
        "?": "? means something else in each cron; write * for any, H for a time spread by the schedule id",
        "R": "R is random on each host; H spreads by the schedule id and is the same everywhere",
        "H": "H is written H, H(a-b), H/n or H(a-b)/n",
        "L": f"L has no such meaning for a {field.name}",
        "-": "negative numbers and open ranges are not read",
    }
    item.refuse(hints.get(item.text[0], f"{item.text} is not a valid {field.name}, a list, a range or a step"))
