"""`tocsin create-many`: schedules from JSON lines, many at once, with a result for each."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.declaration import read_lines
from tocsin.deploy.main import exit_code
from tocsin.deploy.output import Output, OutputOption, notes, print_error, print_json
from tocsin.deploy.scheduling import with_scheduler
from tocsin.producer.definition import NewSchedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.errors import InvalidSchedule, TocsinError

#: Refusals told one by one; of more only their number.
TOLD_MAX = 20


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command(name="create-many")(create_many)


def create_many(
    *,
    file: Annotated[str, typer.Option("-f", "--file", metavar="FILE", help="JSON lines, or - for standard input.")],
    store: StoreOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a schedule for each line, a JSON object with the names that `apply` knows; again is harmless.

    With -o json each line has its answer: the id, and the error or null.
    """
    with _opened(file) as (lines, total):
        tally = Tally(output)
        with_scheduler(store, lambda scheduler: create_all(scheduler, read_lines(lines), tally, total))
    tally.finish()


class Tally:
    """Counts results, and tells of those that failed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.created = 0
        self.errors: list[TocsinError] = []
        self._failed = 0

    def take(self, schedule_id: str | None, error: TocsinError | None) -> None:
        """One more result."""
        if self._output is Output.JSON:
            print_json({"id": schedule_id, "error": None if error is None else str(error)})
        if error is None:
            self.created += 1
            return
        self._failed += 1
        if len(self.errors) < TOLD_MAX:
            self.errors.append(error)

    def finish(self) -> None:
        """Sum up on standard error. Ends the command with the exit code of the first error."""
        for error in self.errors:
            print_error(str(error), "")
        failed = f", {self._failed} failed" if self._failed else ""
        notes().print(Text(f"{self.created} created or there already{failed}", style="bold"))
        if self.errors:
            raise typer.Exit(exit_code(self.errors[0]))


async def create_all(
    scheduler: AsyncScheduler,
    items: Iterator[NewSchedule | InvalidSchedule],
    tally: Tally,
    total: int | None,
) -> None:
    """Create what is no error already, with a progress bar on standard error; results are told in the items' order."""
    refused: deque[tuple[int, InvalidSchedule]] = deque()
    taken = 0

    def valid() -> Iterator[NewSchedule]:
        nonlocal taken
        for item in items:
            if isinstance(item, InvalidSchedule):
                refused.append((taken, item))
            else:
                taken += 1
                yield item

    def take_refused(told: int) -> None:
        while refused and refused[0][0] <= told:
            tally.take(None, refused.popleft()[1])

    with _progress(total) as advance:
        told = 0
        async for result in scheduler.create_many(valid()):
            take_refused(told)
            tally.take(result.schedule_id, result.error)
            told += 1
            advance(told)
        take_refused(told)


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where somebody looks at it; the function moves it on."""
    columns = (TextColumn("creating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    screen = notes()
    with Progress(*columns, console=screen, disable=not screen.is_terminal, transient=True) as progress:
        task = progress.add_task("creating", total=total)
        yield lambda completed: progress.update(task, completed=completed)


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file, and how many lines it has where that can be known before."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        with Path(file).open("rb") as lines:
            total = None
            if lines.seekable():
                total = sum(1 for line in lines if line.strip())
                lines.seek(0)
            yield lines, total
    except OSError as error:
        raise InvalidSchedule("file", file, f"{file} cannot be read: {error}") from error
