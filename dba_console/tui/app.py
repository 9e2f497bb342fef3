"""Start the screen: check the terminal, start the feed, then load Textual.

Connecting and loading take similar time, so they run in parallel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.core.crash_report import summary, write_report
from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.core.fast_start import finish_fast_start
from dba_console.tui.feed import Feed, Session
from dba_console.tui.known_runs import KnownRun, KnownRuns
from dba_console.tui.terminal import ScreenOptions, configure_textual, require_terminal


def live_feed(first_socket: Callable[[], Path], later_socket: Callable[[], Path], name: str = "the target") -> Feed:
    """The feed of an agent: `first_socket` waits for its socket, `later_socket` finds or starts one after a loss."""
    from dba_console.agent.client import AgentClient
    from dba_console.tui.live_feed import LiveFeed

    sockets = iter((first_socket,))
    return LiveFeed(lambda: AgentClient.connect(next(sockets, later_socket)()), name)


def replay_feed(recordings: Sequence[tuple[Path, str]]) -> Feed:
    """The feed of recordings: of each the directory, and the name shown in the header."""
    from dba_console.tui.live_feed import ReplayFeed

    return ReplayFeed(*(Session(name, directory=directory) for directory, name in recordings))


def run_console(feed: Feed, options: ScreenOptions) -> int:
    """Show the screen until the operator leaves it. Returns an exit code.

    Raises Unsupported if the terminal cannot show a screen, and the error of the feed's first attempt to attach.
    """
    colours = require_terminal(options.colours)
    configure_textual(colours)
    feed.start()
    from dba_console.tui.console import ConsoleApp
    from dba_console.tui.terminal import TerminalGuard

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


# The crash message: three lines, printed after the terminal was restored.


def crash_message(error: BaseException) -> str:
    """Write the crash report and return: what failed, what continues, where the report is. Never raises."""
    path = _write_report(error)
    where = f"report (no secrets, please attach it): {path}" if path else "no report could be written"
    reason = summary(error, sys.argv)
    return f"dba-console: the screen failed: {reason}\nthe agent keeps recording; start the console again\n{where}"


def _write_report(error: BaseException) -> Path | None:
    try:
        return write_report(error, sys.argv)
    except Exception:
        return None  # a full disk must not hide the original error


# The exit message and exit code: what continues without the screen, and how to return to it.


def report_exit(
    session: Session | None, runs: KnownRuns, request: RunBegin | RunResume | RunWatch | None, *, lost: bool
) -> int:
    """Print what continues on stderr; return the exit code of the run started on the command line, else 0.

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
    return [f"The agent keeps recording {_grace_text(session.grace_s)}; `dba-console attach` shows it again."]


def _open_run_lines(run: KnownRun, *, lost: bool) -> list[str]:
    resume = f"`dba-console runbook resume {run.run}`"
    if lost:
        return [
            f"No agent is running for the run of {run.summary.runbook}: it is interrupted.",
            f"hint: {resume} starts an agent and resumes the run",
        ]
    if run.summary.state == "interrupted":
        return [
            f"The run of {run.summary.runbook} stays interrupted until it is resumed.",
            f"hint: {resume}, or `dba-console attach` and then w",
        ]
    return [
        f"The run of {run.summary.runbook} continues until it needs an answer, and then waits for it.",
        f"hint: `dba-console attach` or {resume} shows it again",
    ]


def _grace_text(grace_s: float | None) -> str:
    from dba_console.core.units import human_duration

    return "until it is stopped" if grace_s is None else f"for {human_duration(grace_s)}"


def _exit_code(runs: KnownRuns, request: RunBegin | RunResume | RunWatch) -> int:
    """Map to the exit codes that `runbook run` documents."""
    name = runs.first_started if isinstance(request, RunBegin) else request.run
    run = None if name is None else runs.get(name)
    if run is None:
        return ExitCode.INTERRUPTED if runs.refusal_code is None else runs.refusal_code
    if not run.ended:
        return ExitCode.INTERRUPTED
    if run.summary.state == "done":
        return ExitCode.OK
    from dba_console.recording.run_reader import last_act_refused

    refused = run.view is not None and last_act_refused(Path(run.view.directory))
    return ExitCode.REFUSED if refused else ExitCode.RUNBOOK_FAILED
