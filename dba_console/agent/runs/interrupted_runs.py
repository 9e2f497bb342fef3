"""Runs that an agent before this one left unfinished: shown, offered to be resumed, and never resumed by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dba_console.agent.protocol import OpenRun, RunLines
from dba_console.agent.runs.commands import read_newest_lines
from dba_console.core.clock import Clock
from dba_console.keeper.command_status import read_status, wait
from dba_console.recording.plan import log_tag
from dba_console.recording.run_paths import execution_directory
from dba_console.recording.run_reader import StoredRun, unfinished_runs
from dba_console.recording.run_verification import compare_with_sessions
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.run_view import RunView
from dba_console.runbooks.view_builder import LiveStatus, run_view
from dba_console.watch.samples.event import Event


@dataclass(frozen=True, slots=True)
class InterruptedRun:
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

    def printed_lines(self) -> list[RunLines]:
        """What its commands have printed so far, the newest of it."""
        found = []
        for block, directory in self.outputs:
            try:
                lines, before = read_newest_lines(directory, self.tag)
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


def find_interrupted_runs(sessions: Path, target_key: str) -> Iterator[InterruptedRun]:
    """Those of a target, oldest first."""
    for found in unfinished_runs(sessions, target_key):
        papers = found
        try:
            papers = compare_with_sessions(found)
            one = _make_interrupted_run(papers)
        except Exception as error:  # of another version, or a defect: it is told, and hides none of the others
            one = _unreadable_run(papers, papers.damage or f"its records are not understood: {type(error).__name__}")
        yield one


def wait_for_commands(one: InterruptedRun) -> None:
    """Return when none of its commands runs any more."""
    for directory in one.commands:
        try:
            wait(directory)
        except OSError:
            continue


def _make_interrupted_run(papers: StoredRun) -> InterruptedRun:
    if papers.plan is None:
        return _unreadable_run(papers, papers.damage or "")
    state = replay_records(papers.plan, papers.records)
    if not state.run:
        return _unreadable_run(papers, "its agent ended before its inputs were recorded: it cannot be resumed")
    state.interrupted = True
    shown = run_view(papers.plan, state, LiveStatus(now_us=papers.records[-1].wall_us, directory=str(papers.directory)))
    outputs = tuple(
        (execution.block, execution_directory(papers.directory, execution.block, execution.number))
        for execution in state.executions
        if execution.open
    )
    running = _running_commands(papers, state)
    return InterruptedRun(papers.directory, shown, running, papers.damage or "", log_tag(papers.plan), outputs)


def _unreadable_run(papers: StoredRun, why: str) -> InterruptedRun:
    """One whose records say nothing."""
    about = papers.about
    shown = RunView(
        run=papers.directory.name, runbook=about.runbook, title=about.title, mode="run", state="interrupted",
        target=about.target, who=about.who, directory=str(papers.directory), ending=why,
    )  # fmt: skip
    return InterruptedRun(papers.directory, shown, (), why)


def _running_commands(papers: StoredRun, state: RunState) -> tuple[Path, ...]:
    """Directories of the commands whose end is not on record, where they still run."""
    found = []
    for execution in state.executions:
        directory = execution_directory(papers.directory, execution.block, execution.number)
        try:
            if execution.open and read_status(directory).state == "running":
                found.append(directory)
        except OSError:
            continue
    return tuple(found)
