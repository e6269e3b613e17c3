"""`tocsin create-many`: schedules from JSON lines, many at once, with a result for each."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tocsin.deploy.configuration import StoreOption
from tocsin.deploy.declaration import read_lines
from tocsin.deploy.main import exit_code
from tocsin.deploy.output import Output, OutputOption, notes, print_error, print_json
from tocsin.deploy.reading import why
from tocsin.deploy.scheduling import with_scheduler
from tocsin.producer.definition import NewSchedule
from tocsin.producer.scheduler import AsyncScheduler
from tocsin.schema.errors import InvalidSchedule, OutcomeUnknown, StoreUnavailable, TocsinError

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

    With -o json each line has its answer: its place, the id, and the error or null. Where the store is gone, nothing
    more is tried; the same command again goes on.
    """
    with _opened(file) as (lines, total):
        tally = Tally(output)
        with_scheduler(
            store, lambda scheduler: create_all(scheduler, itertools.starmap(Item, read_lines(lines)), tally, total)
        )
    tally.finish()


class Item(NamedTuple):
    """One item of a file, and where it stands there."""

    place: str
    schedule: NewSchedule | InvalidSchedule


class Tally:
    """Counts results, and tells of those that failed."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.created = 0
        self.errors: list[tuple[str, TocsinError]] = []
        self._failed = 0

    def take(self, place: str, schedule_id: str | None, error: TocsinError | None) -> None:
        """One more result."""
        if self._output is Output.JSON:
            print_json({"place": place, "id": schedule_id, "error": None if error is None else str(error)})
        if error is None:
            self.created += 1
            return
        self._failed += 1
        if len(self.errors) < TOLD_MAX:
            self.errors.append((place, error))

    def finish(self) -> None:
        """Sum up on standard error. Ends the command with the exit code of the first error."""
        for place, error in self.errors:
            # What is wrong with a line names it already.
            print_error(str(error) if str(error).startswith(place) else f"{place}: {error}", "")
        failed = f", {self._failed} failed" if self._failed else ""
        notes().print(Text(f"{self.created} created or there already{failed}", style="bold"))
        if self.errors:
            raise typer.Exit(exit_code(self.errors[0][1]))


async def create_all(scheduler: AsyncScheduler, items: Iterable[Item], tally: Tally, total: int | None) -> None:
    """Create what is no error already, with a progress bar on standard error; results are told in the items' order.

    Where the store is gone, that is told once and nothing more is tried: the same command again goes on.
    """
    places: deque[Item] = deque()

    def valid() -> Iterator[NewSchedule]:
        for item in items:
            places.append(item)
            if isinstance(item.schedule, NewSchedule):
                yield item.schedule

    def tell_refused() -> None:
        while places and isinstance(refusal := places[0].schedule, InvalidSchedule):
            tally.take(places.popleft().place, None, refusal)

    with _progress(total) as advance:
        told = 0
        async with aclosing(scheduler.create_many(valid())) as results:
            async for result in results:
                tell_refused()
                tally.take(places.popleft().place, result.schedule_id, result.error)
                told += 1
                advance(told)
                if isinstance(result.error, StoreUnavailable | OutcomeUnknown):
                    return
        tell_refused()


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
        raise InvalidSchedule("file", file, f"{file} cannot be read: {why(error)}") from error
