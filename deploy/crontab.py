"""Reading a crontab: which lines are jobs, and which schedule each of them becomes.

As crontab(5) of Debian's cron has it: blank lines and lines that begin with # count for nothing; `NAME = value` sets a
variable for the lines below it; all else is five fields or @hourly and the like, in a system's crontab the user, and
the command, up to the first % that has no backslash; what follows is the command's standard input, each further % a
new line.

The payload is JSON, {"command": …, "stdin": …, "environment": {…}, "user": …}, the last three where there are any: it
is for a consumer that runs it. CRON_TZ, or else TZ, is the zone of the lines below it. The id of a job comes of what
its line says, so the same line is the same schedule wherever it moves in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from tocsin.producer.definition import NewSchedule
from tocsin.schema.errors import InvalidSchedule
from tocsin.schema.recurrence import Cron

_VARIABLE: Final = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*|"[^"]+"|'[^']+')\s*=\s*(.*?)\s*""")
_INPUT: Final = re.compile(r"(?<!\\)%")
#: Nicknames that mean five fields; @reboot has no instant.
NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ZONES: Final = ("CRON_TZ", "TZ")


class Options(NamedTuple):
    """What holds for every job of the file."""

    topic: str
    #: The zone of lines above any CRON_TZ or TZ.
    tz: str = "UTC"
    #: A sixth field names the user, as in /etc/crontab.
    system: bool = False
    #: What ids begin with.
    prefix: str = "cron-"
    tenant: str = "default"


class Job(NamedTuple):
    """A line that is a job, and its schedule."""

    line: int
    expression: str
    command: str
    schedule: NewSchedule


def read_crontab(lines: Iterable[str], options: Options) -> Iterator[Job]:
    """The jobs of a crontab.

    Raises:
        InvalidSchedule: a line is refused; the field says which.
    """
    environment: dict[str, str] = {}
    seen: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        variable = _VARIABLE.fullmatch(line)
        if variable is not None:
            environment[_unquoted(variable[1])] = _unquoted(variable[2])
            continue
        try:
            yield _job(number, line, environment, options, seen)
        except InvalidSchedule as error:
            raise type(error)(f"line {number}: {error.field}", error.value, error.reason) from error


def _job(number: int, line: str, environment: dict[str, str], options: Options, seen: dict[str, int]) -> Job:
    nickname = line.startswith("@")
    parts = (1 if nickname else 5) + options.system
    words = line.split(maxsplit=parts)
    if len(words) <= parts:
        wanted = "a nickname" if nickname else "five fields"
        raise InvalidSchedule("crontab", line, f"needs {wanted}{', a user' if options.system else ''} and a command")
    *when, rest = words
    user = when.pop() if options.system else None
    expression = _expression(" ".join(when))
    tz = next((environment[name] for name in _ZONES if environment.get(name)), options.tz)
    command, stdin = _command(rest)
    told = {name: value for name, value in environment.items() if name not in _ZONES}
    said = json.dumps([expression, tz, user, command, stdin], ensure_ascii=False)
    name = options.prefix + blake2b(said.encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    seen[name] = seen.get(name, 0) + 1
    payload = {"command": command, "stdin": stdin, "environment": told or None, "user": user}
    return Job(
        number,
        expression,
        command,
        NewSchedule(
            # The same line twice is two jobs to cron too.
            schedule_id=name if seen[name] == 1 else f"{name}-{seen[name]}",
            recurrence=Cron(expression, tz=tz),
            topic=options.topic,
            payload=json.dumps({key: value for key, value in payload.items() if value is not None}).encode(),
            content_type="application/json",
            tenant=options.tenant,
            note=line[:4096],
        ),
    )


def _expression(when: str) -> str:
    if not when.startswith("@"):
        return when
    expression = NICKNAMES.get(when.lower())
    if expression is None:
        reason = "has no instant to run at; leave it to the system" if when.lower() == "@reboot" else "is no nickname"
        raise InvalidSchedule("crontab", when, f"{when} {reason}; take the line out")
    return expression


def _command(rest: str) -> tuple[str, str | None]:
    command, *stdin = _INPUT.split(rest)
    lines = [part.replace("\\%", "%") for part in (command, *stdin)]
    return lines[0].rstrip(), "\n".join(lines[1:]) + "\n" if stdin else None


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[-1] == text[0] else text
