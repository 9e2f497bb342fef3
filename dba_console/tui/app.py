"""The screen's entrance: judges the terminal, starts the feed, and only then loads Textual.

Connecting and loading take about as long as each other, so they go on side by side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.core.crash_report import summary, write_report
from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.core.fast_start import finish_fast_start
from dba_console.tui.feed import Feed, Session
from dba_console.tui.known_runs import KnownRun, KnownRuns
from dba_console.tui.terminal import ScreenOptions, configure_textual, require_terminal


def live_feed(first_socket: Callable[[], Path], later_socket: Callable[[], Path], name: str = "the target") -> Feed:
    """The feed of an agent: `first` waits for its socket, `again` finds or starts one after it was lost."""
    from dba_console.agent.client import AgentClient
    from dba_console.tui.live_feed import LiveFeed

    sockets = iter((first_socket,))
    return LiveFeed(lambda: AgentClient.connect(next(sockets, later_socket)()), name)


def replay_feed(directory: Path, name: str) -> Feed:
    """The feed of a recording in `directory`; `name` is what the header calls it."""
    from dba_console.tui.live_feed import ReplayFeed

    return ReplayFeed(directory, name)


def run_console(feed: Feed, options: ScreenOptions) -> int:
    """Show the screen until the operator leaves it. Returns an exit code.

    Raises Unsupported where the terminal cannot hold a screen, and what the feed's first attempt to attach raised.
    """
    colours = require_terminal(options.colours)
    configure_textual(colours)
    feed.start()
    from dba_console.tui.console import ConsoleApp
    from dba_console.tui.terminal_guard import TerminalGuard

    app = ConsoleApp(feed, options, colours)
    guard = app.guard = TerminalGuard(app.end_from_thread)
    guard.start()
    finish_fast_start()
    try:
        code = app.run(mouse=options.mouse)
    finally:
        feed.close()
        guard.finish()
    if isinstance(app.failure, ConsoleError):
        raise app.failure
    if app.failure is not None:
        return _report_crash(app.failure)
    if guard.signal is not None or guard.hung_up:
        return int(ExitCode.INTERRUPTED)
    if code:
        return code

    navigator = app.navigator
    return report_exit(
        feed.session if feed.can_go_live else None,
        navigator.runs,
        options.run_request,
        lost=navigator.connection_state == "lost",
    )


def _report_crash(error: BaseException) -> int:
    from dba_console.core.crash_report import CRASH_EXIT_CODE

    print(crash_message(error), file=sys.stderr)
    return CRASH_EXIT_CODE


# What the operator is told when the screen itself failed: three lines on a terminal that is whole again.


def crash_message(error: BaseException) -> str:
    """Write the report of the defect; what failed, what goes on, where the report is. Never raises."""
    path = _write_report(error)
    where = f"report (no secrets, please attach it): {path}" if path else "no report could be written"
    reason = summary(error, sys.argv)
    return f"dba-console: the screen failed: {reason}\nthe agent goes on recording; start the console again\n{where}"


def _write_report(error: BaseException) -> Path | None:
    try:
        return write_report(error, sys.argv)
    except Exception:
        return None  # a full disk must not hide the cause


# What is said after the screen was left, and the exit code: what goes on without it, and how to come back.


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
    from dba_console.core.units import human_duration

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
    from dba_console.recording.run_reader import last_act_refused

    refused = run.view is not None and last_act_refused(Path(run.view.directory))
    return ExitCode.REFUSED if refused else ExitCode.RUNBOOK_FAILED
