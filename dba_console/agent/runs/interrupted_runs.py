"""Runs left unfinished by an earlier agent: shown and offered to be resumed, but never resumed automatically."""

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
    """A run without an end that no agent executes."""

    directory: Path
    view: RunView
    commands: tuple[Path, ...]
    """Directories of its commands that are still running."""
    note: str = ""
    tag: str = "DBACONSOLE"
    outputs: tuple[tuple[str, Path], ...] = ()
    """Blocks whose end is not recorded, with the directory of the command's log."""

    @property
    def run(self) -> str:
        return self.directory.name

    def printed_lines(self) -> list[RunLines]:
        """Return the latest output lines of its commands."""
        found = []
        for block, directory in self.outputs:
            try:
                lines, before = read_newest_lines(directory, self.tag)
            except OSError:
                continue  # no output yet, or its directory is gone
            if lines:
                found.append(RunLines(run=self.run, block=block, lines=lines, dropped=before))
        return found

    def open_run(self) -> OpenRun:
        return OpenRun(run=self.run, runbook=self.view.runbook, title=self.view.title, state="interrupted")

    def event(self, clock: Clock) -> Event:
        """Return the event that reports this run."""
        at = f" in step {self.view.current}" if self.view.current else ""
        continues = "; its command continues" if self.commands else ""
        text = f"run {self.run} was interrupted{at}{continues}; nothing else is done until an operator resumes it"
        return Event(
            wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="run.interrupted", severity="warning", tag=self.tag,
            text=f"{text}{': ' + self.note if self.note else ''}", details={"run": self.run},
        )  # fmt: skip


def find_interrupted_runs(sessions: Path, target_key: str) -> Iterator[InterruptedRun]:
    """Yield the interrupted runs of a target, oldest first."""
    for found in unfinished_runs(sessions, target_key):
        stored_run = found
        try:
            stored_run = compare_with_sessions(found)
            one = _make_interrupted_run(stored_run)
        except Exception as error:  # another version or an internal error: reported, and the other runs are still found
            one = _unreadable_run(
                stored_run, stored_run.damage or f"its records cannot be read: {type(error).__name__}"
            )
        yield one


def wait_for_commands(one: InterruptedRun) -> None:
    """Return when none of its commands runs any more."""
    for directory in one.commands:
        try:
            wait(directory)
        except OSError:
            continue


def _make_interrupted_run(stored_run: StoredRun) -> InterruptedRun:
    if stored_run.plan is None:
        return _unreadable_run(stored_run, stored_run.damage or "")
    state = replay_records(stored_run.plan, stored_run.records)
    if not state.run:
        return _unreadable_run(stored_run, "its agent ended before its inputs were recorded: it cannot be resumed")
    state.interrupted = True
    shown = run_view(
        stored_run.plan, state, LiveStatus(now_us=stored_run.records[-1].wall_us, directory=str(stored_run.directory))
    )
    outputs = tuple(
        (execution.block, execution_directory(stored_run.directory, execution.block, execution.number))
        for execution in state.executions
        if execution.open
    )
    running = _running_commands(stored_run, state)
    return InterruptedRun(
        stored_run.directory, shown, running, stored_run.damage or "", log_tag(stored_run.plan), outputs
    )


def _unreadable_run(stored_run: StoredRun, why: str) -> InterruptedRun:
    """Return a run whose records cannot be used."""
    about = stored_run.about
    shown = RunView(
        run=stored_run.directory.name, runbook=about.runbook, title=about.title, mode="run", state="interrupted",
        target=about.target, who=about.who, directory=str(stored_run.directory), ending=why,
    )  # fmt: skip
    return InterruptedRun(stored_run.directory, shown, (), why)


def _running_commands(stored_run: StoredRun, state: RunState) -> tuple[Path, ...]:
    """Return the directories of commands without a recorded end that are still running."""
    found = []
    for execution in state.executions:
        directory = execution_directory(stored_run.directory, execution.block, execution.number)
        try:
            if execution.open and read_status(directory).runs:
                found.append(directory)
        except OSError:
            continue
    return tuple(found)
