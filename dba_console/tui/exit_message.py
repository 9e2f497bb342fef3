"""What is said after the screen was left, and the exit code: what goes on without it, and how to come back."""

from __future__ import annotations

import sys
from pathlib import Path

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.errors import ExitCode
from dba_console.tui.feed import Session
from dba_console.tui.known_runs import KnownRun, KnownRuns


def report_exit(
    session: Session | None, runs: KnownRuns, request: RunBegin | RunResume | RunWatch | None, *, lost: bool
) -> int:
    """Say on stderr what goes on; the exit code is that of the run which the command line asked for, else 0.

    `session`: the agent's, None for a recording. `lost`: no agent is attached.
    """
    for sentence in _exit_lines(session, runs, lost=lost):
        print(sentence, file=sys.stderr)
    return int(ExitCode.OK if request is None else _exit_code(runs, request))


def _exit_lines(session: Session | None, runs: KnownRuns, *, lost: bool) -> list[str]:
    run = runs.most_urgent
    if run is not None and not run.ended:
        return _open_run_lines(run, lost=lost)
    if session is None or lost:
        return []
    return [f"The agent goes on recording {_grace_text(session.grace_s)}; `dba-console attach` shows it again."]


def _open_run_lines(run: KnownRun, *, lost: bool) -> list[str]:
    resume = f"`dba-console runbook resume {run.run}`"
    if lost:
        return [
            f"No agent is running for the run of {run.told.runbook}: it is interrupted.",
            f"hint: {resume} starts an agent and resumes the run",
        ]
    if run.told.state == "interrupted":
        return [
            f"The run of {run.told.runbook} stays interrupted: nothing of it is done until it is resumed.",
            f"hint: {resume}, or `dba-console attach` and then w",
        ]
    return [
        f"The run of {run.told.runbook} continues until it needs an answer, and then waits for it.",
        f"hint: `dba-console attach` or {resume} shows it again",
    ]


def _grace_text(grace_s: float | None) -> str:
    from dba_console.units import human_duration

    return "until it is told to stop" if grace_s is None else f"for {human_duration(grace_s)}"


def _exit_code(runs: KnownRuns, request: RunBegin | RunResume | RunWatch) -> int:
    """As `runbook run` documents it."""
    name = runs.first_started if isinstance(request, RunBegin) else request.run
    run = None if name is None else runs.get(name)
    if run is None:
        return ExitCode.INTERRUPTED if runs.refusal_code is None else runs.refusal_code
    if not run.ended:
        return ExitCode.INTERRUPTED
    if run.told.state == "done":
        return ExitCode.OK
    from dba_console.session.run_reader import last_act_refused

    refused = run.view is not None and last_act_refused(Path(run.view.directory))
    return ExitCode.REFUSED if refused else ExitCode.RUNBOOK_FAILED
