"""The run service: starts, resumes and shows runs, and finds the runs that an earlier agent left unfinished.

Everything else that a run needs is loaded with the first one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.console_connection import LINES, ConsoleConnection
from dba_console.agent.protocol import (
    Message,
    OpenRun,
    RunAnswer,
    RunBegin,
    RunControl,
    RunLines,
    RunRefused,
    RunResume,
    RunViewMessage,
    RunWatch,
    pack,
)
from dba_console.agent.runs.operator_identity import ConsoleOperator, person_of
from dba_console.agent.runs.run_context import RunContext
from dba_console.core.errors import ExitCode
from dba_console.runbooks.run_view import OutputLine, RunView

if TYPE_CHECKING:
    from dba_console.agent.runs.active_run import ActiveRun, StartExecution
    from dba_console.agent.runs.interrupted_runs import InterruptedRun
    from dba_console.agent.runs.run_execution import RunExecution

Give = Callable[[ConsoleConnection], None]


class RunService:
    """One per agent. Consoles are served on the listener's thread; `each` calls back there for every console."""

    def __init__(self, context: RunContext, sessions: Path, each: Callable[[Give], None]) -> None:
        self._context, self._sessions, self._each = context, sessions, each
        self._operators: dict[ConsoleConnection, ConsoleOperator] = {}
        self._runs: list[ActiveRun] = []
        """Active runs, and the last ended one. More than one only if the others revert settings."""
        self._unfinished: dict[str, InterruptedRun] = {}
        self._printed: dict[str, list[bytes]] = {}
        """Output of commands of unfinished runs, as last read."""
        self._next: tuple[ActiveRun, Callable[[], None]] | None = None
        """A run that is being cancelled, and what follows it."""
        self._lock = threading.Lock()
        self._searched = False
        self._early_resumes: list[tuple[ConsoleConnection, RunResume]] = []
        """Resume requests received before the search for interrupted runs ended."""
        self._commands_running = 0
        """Commands of unfinished runs that are still running."""

    @property
    def busy(self) -> bool:
        """Whether a run, or a command of one, is active: the agent then does not end without consoles."""
        return any(one.alive for one in self._runs) or self._commands_running > 0

    def search_interrupted_runs(self) -> None:
        """Find the runs left by earlier agents, in a thread, because the disk may be slow."""
        threading.Thread(target=self._search_interrupted, name="runs-unfinished", daemon=True).start()

    def open_runs(self) -> list[OpenRun]:
        """Return the open runs, for a new console."""
        current = [entry for one in self._runs if (entry := one.open_run()) is not None]
        return [*current, *(one.open_run() for one in list(self._unfinished.values()))]

    def welcome(self, peer: ConsoleConnection) -> list[bytes]:
        """Return the first messages for a new console."""
        login = peer.greeting.login if peer.greeting is not None else "unknown"
        self._operators[peer] = person_of(peer.pid, login)
        if peer.greeting is None or peer.greeting.role != "console":
            return []
        messages = []
        for one in list(self._unfinished.values()):
            messages += [pack(RunViewMessage(view=one.view)), *self._printed.get(one.run, ())]
        # Ended runs too: a console that lost the connection during a run sees how it ended.
        return [*messages, *(self._view_message(peer, one) for one in self._runs if one.shown is not None)]

    def console_left(self, peer: ConsoleConnection) -> None:
        for one in self._runs:
            one.console_left(peer)
        self._operators.pop(peer, None)

    def request(self, peer: ConsoleConnection, message: Message) -> bool:
        """Handle a request about runs; return whether it was one."""
        if isinstance(message, RunBegin):
            self._start_requested(peer, message)
        elif isinstance(message, RunResume):
            self._resume(peer, message)
        elif isinstance(message, RunAnswer | RunControl | RunWatch):
            self._handle_run_message(peer, message)
        else:
            return False
        return True

    def close(self) -> None:
        """End with the agent. Commands continue under their keepers; the run is left to the next agent."""
        for one in self._runs:
            one.abandon()

    # -- starting ------------------------------------------------------------------------------------------------

    def _start_requested(self, peer: ConsoleConnection, request: RunBegin) -> None:
        active_run = self._main_run()
        if active_run is not None and active_run.cancel_unstarted(peer, self._operators[peer]):
            self._next = active_run, lambda: self._if_attached(peer, lambda: self._start_requested(peer, request))
            return
        from dba_console.agent.runs.start_run import start_run

        person, active_text = self._operators[peer], _run_text(active_run)
        self._start(
            lambda one: start_run(one, request, person.name, active_text),
            peer,
            person,
            "",
            beside=active_run is not None,
        )

    def _resume(self, peer: ConsoleConnection, request: RunResume) -> None:
        with self._lock:
            if not self._searched and request.run not in self._unfinished:
                self._early_resumes.append((peer, request))
                return
        active_run = self._main_run()
        known = self._unfinished.get(request.run)
        if known is None:
            text = f"no interrupted run {request.run!r} of {self._context.target.name}"
            self.refuse(peer, RunRefused(text=text, hint="`dba-console runbook runs` lists them", reply_to=request.run))
            return
        from dba_console.agent.runs.start_run import resume_run

        person, active_text = self._operators[peer], _run_text(active_run)

        def make(one: ActiveRun) -> RunExecution:
            execution = resume_run(one, known.directory, request, person.name, active_text)
            self._unfinished.pop(request.run, None)
            return execution

        self._start(make, peer, person, request.run, beside=active_run is not None, abort=request.abort)

    def _main_run(self) -> ActiveRun | None:
        """Return the active run; only a run that reverts settings may start beside it."""
        return next((one for one in self._runs if one.alive and not one.beside), None)

    def _start(
        self,
        make: StartExecution,
        peer: ConsoleConnection,
        person: ConsoleOperator,
        reply_to: str,
        *,
        beside: bool,
        abort: str = "",
    ) -> None:
        from dba_console.agent.runs.active_run import ActiveRun

        made = ActiveRun(make, peer, person, self._context, self, self._sessions, reply_to, is_secondary=beside)
        self._runs = [*(one for one in self._runs if one.alive), made]
        if abort:
            made.abort(person, abort)
        made.start()

    # -- an active run -------------------------------------------------------------------------------------------

    def _handle_run_message(self, peer: ConsoleConnection, message: RunAnswer | RunControl | RunWatch) -> None:
        person = self._operators[peer]
        current = next((one for one in self._runs if one.shown is not None and one.run == message.run), None)
        if current is None:
            text = f"the run {message.run!r} is not active"
            if message.run in self._unfinished:
                text = f"the run {message.run} is interrupted: resume or abort it (r, e)"
            self.refuse(peer, RunRefused(text=text, reply_to=message.run))
            return
        if isinstance(message, RunWatch):
            current.reclaim(peer, person)
            self._if_attached(peer, lambda: self._push_view_and_lines(peer, current))
            return
        if isinstance(message, RunAnswer):
            refusal = current.answer(peer, person, message.question, message.text)
        else:
            refusal = current.control(peer, person, message)
        if refusal is not None:
            self.refuse(peer, RunRefused(text=refusal, code=int(ExitCode.REFUSED), reply_to=message.run))

    def _push_view_and_lines(self, peer: ConsoleConnection, current: ActiveRun) -> None:
        peer.push(self._view_message(peer, current), replaces_key=f"run {current.run}")
        if current.execution is not None:
            for block, lines in current.execution.lines.newest():
                peer.push(pack(RunLines(run=current.run, block=block, lines=lines)), replaces_key=LINES)

    def _view_message(self, peer: ConsoleConnection, current: ActiveRun) -> bytes:
        shown = current.shown
        assert shown is not None
        why_not = current.may_answer(peer, self._operators[peer])
        asked = shown.question is not None
        second = asked and shown.question is not None and shown.question.kind == "second"
        return pack(
            RunViewMessage(
                view=_with_driver(shown, current),
                yours=peer is current.driver,
                may_answer=asked and why_not is None,
                why_not=why_not or "" if second else "",
            )
        )

    # -- messages to consoles ------------------------------------------------------------------------------------

    def push_view(self, active_run: ActiveRun) -> None:
        """Send the current view of the run to every console."""

        def give(peer: ConsoleConnection) -> None:
            if active_run.shown is not None and _is_console(peer) and peer in self._operators:
                peer.push(self._view_message(peer, active_run), replaces_key=f"run {active_run.run}")

        self._each(give)

    def push_lines(self, run: str, block: str, lines: list[OutputLine], dropped: int) -> None:
        self._push_to_consoles(pack(RunLines(run=run, block=block, lines=lines, dropped=dropped)), LINES)

    def refuse(self, peer: ConsoleConnection | None, refused: RunRefused) -> None:
        if peer is not None:
            self._if_attached(peer, lambda: peer.push(pack(refused)))

    def _if_attached(self, peer: ConsoleConnection, call: Callable[[], None]) -> None:
        """Call on the listener's thread, like any request; not if the console has left."""
        self._each(lambda one: call() if one is peer else None)

    def _push_to_consoles(self, packed: bytes, replaces_key: str = "") -> None:
        self._each(lambda peer: peer.push(packed, replaces_key=replaces_key) if _is_console(peer) else None)

    def run_ended(self, active_run: ActiveRun) -> None:
        execution = active_run.execution
        if execution is not None and execution.ending is None and active_run.shown is not None:
            from dba_console.agent.runs.interrupted_runs import InterruptedRun

            self._unfinished[execution.run] = InterruptedRun(execution.directory, active_run.shown, ())
        if self._next is not None and self._next[0] is active_run:
            (_, follows), self._next = self._next, None
            follows()

    # -- unfinished runs -----------------------------------------------------------------------------------------

    def _search_interrupted(self) -> None:
        try:
            if _any_runs(self._sessions):
                self._find()
        finally:
            with self._lock:
                self._searched = True
            for peer, asked in self._early_resumes:
                self._if_attached(peer, partial(self._resume, peer, asked))
        for one in list(self._unfinished.values()):
            if one.commands:
                from dba_console.agent.runs.interrupted_runs import wait_for_commands

                wait_for_commands(one)
                self._commands_running -= len(one.commands)
                if one.run in self._unfinished:
                    self._push_printed(one)

    def _find(self) -> None:
        from dba_console.agent.runs.interrupted_runs import find_interrupted_runs

        for one in find_interrupted_runs(self._sessions, self._context.target.key):
            self._unfinished[one.run] = one
            self._commands_running += len(one.commands)
            self._context.emit(one.event(self._context.clock))
            self._push_to_consoles(pack(RunViewMessage(view=one.view)))
            self._push_printed(one)

    def _push_printed(self, one: InterruptedRun) -> None:
        packed = self._printed[one.run] = [pack(lines) for lines in one.printed_lines()]
        for lines in packed:
            self._push_to_consoles(lines)


def _is_console(peer: ConsoleConnection) -> bool:
    return peer.greeting is not None and peer.greeting.role == "console"


def _run_text(active_run: ActiveRun | None) -> str:
    """Return the text of the active run in a refusal; empty if there is none."""
    if active_run is None:
        return ""
    name = f"{active_run.shown.title} ({active_run.run})" if active_run.shown is not None else "another"
    return f"{name}, controlled by {active_run.person.name}"


def _with_driver(shown: RunView, current: ActiveRun) -> RunView:
    """Return the view with the current driver, which may change while the run's own thread is busy."""
    from msgspec.structs import replace

    return replace(shown, driver=current.person.console if current.driver is not None else "")


def _any_runs(sessions: Path) -> bool:
    """Return whether any session has runs. Checks names only, because the reader is large to load."""
    try:
        with os.scandir(sessions) as entries:
            return any(os.path.isdir(os.path.join(entry.path, "runs")) for entry in entries)
    except OSError:
        return False
