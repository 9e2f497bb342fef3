"""Runs that an agent before this one left unfinished: shown, offered to be resumed, and never resumed by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dba_console.agent.protocol import OpenRun, RunLines
from dba_console.agent.runs.output import newest_of
from dba_console.clock import Clock
from dba_console.keeping.look import look, wait
from dba_console.plans.plan import tag_of
from dba_console.plans.view import RunView
from dba_console.runbook.fold import fold
from dba_console.runbook.fold_state import RunState
from dba_console.runbook.viewing import Live, view
from dba_console.samples.event import Event
from dba_console.session.runlisting import unfinished_runs
from dba_console.session.runplaces import execution_directory
from dba_console.session.runread import RunPapers
from dba_console.session.runverify import against_sessions


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run without an end that no agent walks."""

    directory: Path
    view: RunView
    commands: tuple[Path, ...]
    """Directories of its commands that still run."""
    note: str = ""
    tag: str = "DBACONSOLE"
    outputs: tuple[tuple[str, Path], ...] = ()
    """Blocks whose end is not on record, with the directory of the command's log."""

    @property
    def run(self) -> str:
        return self.directory.name

    def printed(self) -> list[RunLines]:
        """What its commands have printed so far, the newest of it."""
        found = []
        for block, directory in self.outputs:
            try:
                lines, before = newest_of(directory, self.tag)
            except OSError:
                continue  # it has printed nothing, or its directory is gone
            if lines:
                found.append(RunLines(run=self.run, block=block, lines=lines, dropped=before))
        return found

    def open_run(self) -> OpenRun:
        return OpenRun(run=self.run, runbook=self.view.runbook, title=self.view.title, state="interrupted")

    def event(self, clock: Clock) -> Event:
        """That it is there, for who looks at the events."""
        at = f" in step {self.view.current}" if self.view.current else ""
        goes_on = "; its command goes on" if self.commands else ""
        text = f"run {self.run} was interrupted{at}{goes_on}; nothing of it is done until somebody resumes it"
        return Event(
            wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="run.interrupted", severity="warning", tag=self.tag,
            text=f"{text}{': ' + self.note if self.note else ''}", details={"run": self.run},
        )  # fmt: skip


def find(sessions: Path, target_key: str) -> Iterator[Unfinished]:
    """Those of a target, oldest first."""
    for found in unfinished_runs(sessions, target_key):
        papers = found
        try:
            papers = against_sessions(found)
            one = _of(papers)
        except Exception as error:  # of another version, or a defect: it is told, and hides none of the others
            one = _untold(papers, papers.damage or f"its records are not understood: {type(error).__name__}")
        yield one


def wait_for_commands(one: Unfinished) -> None:
    """Return when none of its commands runs any more."""
    for directory in one.commands:
        try:
            wait(directory)
        except OSError:
            continue


def _of(papers: RunPapers) -> Unfinished:
    if papers.plan is None:
        return _untold(papers, papers.damage or "")
    state = fold(papers.plan, papers.records)
    if not state.run:
        return _untold(papers, "its agent ended before its inputs were recorded: it cannot be resumed")
    state.interrupted = True
    shown = view(papers.plan, state, Live(now_us=papers.records[-1].wall_us, directory=str(papers.directory)))
    outputs = tuple(
        (execution.block, execution_directory(papers.directory, execution.block, execution.number))
        for execution in state.executions
        if execution.open
    )
    running = _running(papers, state)
    return Unfinished(papers.directory, shown, running, papers.damage or "", tag_of(papers.plan), outputs)


def _untold(papers: RunPapers, why: str) -> Unfinished:
    """One whose records say nothing."""
    about = papers.about
    shown = RunView(
        run=papers.directory.name, runbook=about.runbook, title=about.title, mode="run", state="interrupted",
        target=about.target, who=about.who, directory=str(papers.directory), ending=why,
    )  # fmt: skip
    return Unfinished(papers.directory, shown, (), why)


def _running(papers: RunPapers, state: RunState) -> tuple[Path, ...]:
    """Directories of the commands whose end is not on record, where they still run."""
    found = []
    for execution in state.executions:
        directory = execution_directory(papers.directory, execution.block, execution.number)
        try:
            if execution.open and look(directory).state == "running":
                found.append(directory)
        except OSError:
            continue
    return tuple(found)
