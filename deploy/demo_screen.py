"""How the demo tells its story: lines only, so that it reads the same on any terminal and in a log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tocsin.deploy.demo_plan import HEARTBEAT_EVERY, REPORT_CRON, Plan
from tocsin.deploy.output import console, span
from tocsin.loadtest.verdict import Seen, Verdict
from tocsin.producer.results import Change, ChangeOutcome
from tocsin.schema.entries import parse_occurrence_key
from tocsin.schema.instants import SECOND_MS

#: A line shows a block for so many records, and so many blocks at most; the number beside them is exact.
RECORDS_A_BLOCK = 2
BAR_MAX = 24
#: A second's worst lateness stands out from here.
LATE_MS = 1_000
#: Keys that a failed verdict names.
NAMED_MAX = 5


class Screen:
    """The story, line by line."""

    def __init__(self) -> None:
        self._console = console()
        self._block = "#" if self._console.options.ascii_only else "█"

    def opened(self, directory: Path, pid: int) -> None:
        """Store and dispatcher are there."""
        self._console.print("[bold]Tocsin[/]: never early, at least once, nothing lost. See for yourself.\n")
        self._console.print(f"An embedded store in {escape(str(directory))},", soft_wrap=True)
        self._console.print(f"and dispatcher {pid}, a process of its own that writes records to a file.")

    def created(self, plan: Plan) -> None:
        """Everything is scheduled."""
        self._console.print(
            f"Scheduled: {plan.once_count} one-shots ([cyan]reminder-…[/]), one every {span(HEARTBEAT_EVERY)} "
            f"([cyan]heartbeat[/]), one by\n"
            f'cron "{REPORT_CRON}" ([cyan]report[/]), and one that we shall [cyan]regret[/]. Each occurrence\n'
            f"has a key; the first one is [cyan]{next(iter(plan.expected()))}[/].\n"
        )
        self._console.print("[dim]until     dispatched[/]")

    def second(self, end: datetime, records: Sequence[Seen], plan: Plan) -> None:
        """What was dispatched within the second that ended then."""
        if end <= plan.start:
            return
        due = plan.expected()
        late_ms = max((at_ms - due.get(key, at_ms) for key, at_ms in records), default=0)
        named = {parse_occurrence_key(key)[0] for key, _ in records}
        recurring = sorted(name for name in named if not name.startswith("reminder-"))
        line = Text(f"{end:%H:%M:%S}  ", style="dim")
        if records:
            bar = self._block * min(-(-len(records) // RECORDS_A_BLOCK), BAR_MAX)
            line.append(f"{bar:{BAR_MAX}} {len(records):4}  ", style="not dim green")
            line.append(" ".join(recurring), style="not dim cyan")
            if late_ms >= LATE_MS:
                line.append(f"  up to {late_ms / SECOND_MS:.1f} s late", style="not dim yellow")
        else:
            line.append("nothing", style="not dim yellow")
        self._console.print(line)

    def cancelled(self, change: Change) -> None:
        """One was cancelled before its due."""
        prevented = change.outcome is ChangeOutcome.PREVENTED
        told = "prevented, it will not be dispatched" if prevented else "it may have been dispatched already"
        self._event(f"cancelled {change.schedule.schedule_id}: {told}", "cyan")

    def killed(self, killed: int, started: int, lease_ttl_ms: int) -> None:
        """The dispatcher is dead, another one waits."""
        self._event(f"kill -9 {killed}: the dispatcher is dead, in the middle of its work", "bold red")
        self._event(
            f"started {started}: it takes over once the dead one was silent for {lease_ttl_ms / SECOND_MS:g} s",
            "yellow",
        )

    def verdict(self, verdict: Verdict) -> None:
        """The sum, and what it means."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column()
        table.add_column(justify="right")
        table.add_column(style="dim")
        for name, value, told, good in _rows(verdict):
            table.add_row(name, Text(value, style="bold green" if good else "bold red" if good is False else ""), told)
        self._console.print("\n[bold]Compared with what the recurrences yield[/]")
        self._console.print(table)
        for name in ("lost", "early", "unexpected"):
            for key in getattr(verdict, name)[:NAMED_MAX]:
                self._console.print(Text(f"{name}: {key}", style="red"))
        if verdict.holds:
            self._console.print("\nNothing was lost, nothing was early. Next: [bold]tocsin dev[/]")
        else:
            self._console.print("\n[bold red]The promise was broken.[/] Please report it.")

    def kept(self, directory: Path) -> None:
        """Something went wrong: the evidence stays."""
        self._console.print(f"[dim]Store, sink and log are kept in {escape(str(directory))}.[/]")

    def _event(self, text: str, style: str) -> None:
        self._console.print(Text.assemble("          ", (text, style)))


def _rows(verdict: Verdict) -> list[tuple[str, str, str, bool | None]]:
    """Name, value, what it means, and whether it is as it should be; None: neither good nor bad."""
    percentiles = {percent: verdict.lateness_ms_at(percent) for percent in (50, 99)}
    told = {
        50: "half of the occurrences were within",
        99: "those that fell due while nobody dispatched included",
    }
    dispatched = f"of {verdict.expected_count} expected"
    rows: list[tuple[str, str, str, bool | None]] = [
        ("dispatched", str(verdict.dispatched_count), dispatched, not verdict.lost),
        ("lost", str(len(verdict.lost)), "expected, but not in the sink", not verdict.lost),
        ("early", str(len(verdict.early)), "in the sink before they were due", not verdict.early),
        ("unexpected", str(len(verdict.unexpected)), "the cancelled one, or of no schedule", not verdict.unexpected),
        ("repeats", str(verdict.repeat_count), "the same key again: consumers dedupe on it", None),
    ]
    rows += [
        (f"lateness p{percent}", "—" if value is None else f"{value / SECOND_MS:.3f} s", told[percent], None)
        for percent, value in percentiles.items()
    ]
    return rows
