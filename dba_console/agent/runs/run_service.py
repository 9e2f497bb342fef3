"""The runs' side of the agent: who asks for a run, who watches it, which ones an agent before this one left unfinished.

All a run needs is loaded with the first one; until then this module is all there is of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
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
from dba_console.agent.runs.operators import ConsoleOperator, person_of
from dba_console.core.clock import Clock
from dba_console.core.config import Config
from dba_console.core.errors import ExitCode
from dba_console.core.target import Target
from dba_console.runbooks.run_view import OutputLine, RunView
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.active_run import ActiveRun, StartExecution
    from dba_console.agent.runs.interrupted_runs import InterruptedRun
    from dba_console.agent.runs.run_context import RunContext
    from dba_console.agent.runs.run_execution import RunExecution
    from dba_console.recording.journal import LogLine
    from dba_console.watch.frames.model import Frame

Give = Callable[[ConsoleConnection], None]


class RunService:
    """One per agent. Consoles are served on the listener's thread; `each` has it call back for every console."""

    def __init__(
        self,
        target: Target,
        config: Config,
        clock: Clock,
        *,
        sessions: Path,
        session: Callable[[], Path | None],
        frame: Callable[[int], Frame | None],
        here: Callable[[], bool],
        emit: Callable[[Event], None],
        put_lines: Callable[[Sequence[LogLine]], None],
        each: Callable[[Give], None],
    ) -> None:
        self._target, self._config, self._clock = target, config, clock
        self._sessions, self._session, self._frame, self._here = sessions, session, frame, here
        self._emit, self._put_lines, self._each = emit, put_lines, each
        self._operators: dict[ConsoleConnection, ConsoleOperator] = {}
        self._runs: list[ActiveRun] = []
        """Those under way, and the last that ended. More than one only where the others put settings back."""
        self._unfinished: dict[str, InterruptedRun] = {}
        self._printed: dict[str, list[bytes]] = {}
        """What commands of unfinished runs had printed when it was last read."""
        self._next: tuple[ActiveRun, Callable[[], None]] | None = None
        """A run that is being given up, and what comes after it."""
        self._lock = threading.Lock()
        self._searched = False
        self._early_resumes: list[tuple[ConsoleConnection, RunResume]] = []
        """Asked for before it was known what there is to resume."""
        self._commands_running = 0
        """Commands of unfinished runs that still run."""

    @property
    def busy(self) -> bool:
        """A run is under way, or a command of one: the agent does not end for want of consoles."""
        return any(one.alive for one in self._runs) or self._commands_running > 0

    def search_interrupted_runs(self) -> None:
        """See what an agent before this one left, in a thread of its own: the disk may take its time."""
        threading.Thread(target=self._search_interrupted, name="runs-unfinished", daemon=True).start()

    def open_runs(self) -> list[OpenRun]:
        """For a console that attaches."""
        current = [told for one in self._runs if (told := one.open_run()) is not None]
        return [*current, *(one.open_run() for one in list(self._unfinished.values()))]

    def welcome(self, peer: ConsoleConnection) -> list[bytes]:
        """What a console that attaches starts with."""
        told = peer.greeting.login if peer.greeting is not None else "unknown"
        self._operators[peer] = person_of(peer.pid, told)
        if peer.greeting is None or peer.greeting.role != "console":
            return []
        words = []
        for one in list(self._unfinished.values()):
            words += [pack(RunViewMessage(view=one.view)), *self._printed.get(one.run, ())]
        # One that has ended too: whoever lost the line in its middle learns how.
        return [*words, *(self._view_message(peer, one) for one in self._runs if one.shown is not None)]

    def console_left(self, peer: ConsoleConnection) -> None:
        for one in self._runs:
            one.console_left(peer)
        self._operators.pop(peer, None)

    def request(self, peer: ConsoleConnection, message: Message) -> bool:
        """Do what a console asks of runs; whether it was that."""
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
        """The agent ends. Commands go on with their keepers; the run is left to the next agent."""
        for one in self._runs:
            one.abandon()

    # -- beginning -----------------------------------------------------------------------------------------------

    def _start_requested(self, peer: ConsoleConnection, asked: RunBegin) -> None:
        taken = self._main_run()
        if taken is not None and taken.cancel_unstarted(peer, self._operators[peer]):

            def begin_again() -> None:
                self._each(lambda one: self._start_requested(one, asked) if one is peer else None)

            self._next = (taken, begin_again)
            return
        from dba_console.agent.runs.start_run import start_run

        person, beside = self._operators[peer], _run_text(taken)
        self._start(lambda one: start_run(one, asked, person.name, beside), peer, person, "", beside=taken is not None)

    def _resume(self, peer: ConsoleConnection, asked: RunResume) -> None:
        with self._lock:
            if not self._searched and asked.run not in self._unfinished:
                self._early_resumes.append((peer, asked))
                return
        taken = self._main_run()
        known = self._unfinished.get(asked.run)
        if known is None:
            text = f"there is no interrupted run {asked.run!r} of {self._target.name}"
            self.refuse(peer, RunRefused(text=text, hint="`dba-console runbook runs` lists them", reply_to=asked.run))
            return
        from dba_console.agent.runs.start_run import resume_run

        person, beside = self._operators[peer], _run_text(taken)

        def make(one: ActiveRun) -> RunExecution:
            conduct = resume_run(one, known.directory, asked, person.name, beside)
            self._unfinished.pop(asked.run, None)
            return conduct

        self._start(make, peer, person, asked.run, beside=taken is not None, abort=asked.abort)

    def _main_run(self) -> ActiveRun | None:
        """The run beside which only one that puts settings back may begin."""
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

        made = ActiveRun(make, peer, person, self._make_context(), self, self._sessions, reply_to, is_secondary=beside)
        self._runs = [*(one for one in self._runs if one.alive), made]
        if abort:
            made.abort(person, abort)
        made.start()

    def _make_context(self) -> RunContext:
        from dba_console.agent.runs.run_context import RunContext

        return RunContext(
            target=self._target, config=self._config, clock=self._clock, session=self._session, frame=self._frame,
            is_server_here=self._here, emit=self._emit, put_lines=self._put_lines,
        )  # fmt: skip

    # -- a run under way -----------------------------------------------------------------------------------------

    def _handle_run_message(self, peer: ConsoleConnection, message: RunAnswer | RunControl | RunWatch) -> None:
        person = self._operators[peer]
        current = next((one for one in self._runs if one.shown is not None and one.run == message.run), None)
        if current is None:
            text = f"no run {message.run!r} is under way"
            if message.run in self._unfinished:
                text = f"the run {message.run} is interrupted: resume it, or end it (r, e)"
            self.refuse(peer, RunRefused(text=text, reply_to=message.run))
            return
        if isinstance(message, RunWatch):
            current.reclaim(peer, person)
            self._each(lambda one: self._push_view_and_lines(one, current) if one is peer else None)
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

    # -- Telling -------------------------------------------------------------------------------------------------

    def push_view(self, under_way: ActiveRun) -> None:
        """Have every console shown the run as it stands."""

        def give(peer: ConsoleConnection) -> None:
            if under_way.shown is not None and _is_console(peer) and peer in self._operators:
                peer.push(self._view_message(peer, under_way), replaces_key=f"run {under_way.run}")

        self._each(give)

    def push_lines(self, run: str, block: str, lines: list[OutputLine], dropped: int) -> None:
        packed = pack(RunLines(run=run, block=block, lines=lines, dropped=dropped))
        self._each(lambda peer: peer.push(packed, replaces_key=LINES) if _is_console(peer) else None)

    def refuse(self, peer: ConsoleConnection | None, refused: RunRefused) -> None:
        packed = pack(refused)
        self._each(lambda one: one.push(packed) if one is peer else None)

    def run_ended(self, under_way: ActiveRun) -> None:
        conduct = under_way.execution
        if conduct is not None and conduct.ending is None and under_way.shown is not None:
            from dba_console.agent.runs.interrupted_runs import InterruptedRun

            self._unfinished[conduct.run] = InterruptedRun(conduct.directory, under_way.shown, ())
        if self._next is not None and self._next[0] is under_way:
            (_, follows), self._next = self._next, None
            follows()

    # -- what was left -------------------------------------------------------------------------------------------

    def _search_interrupted(self) -> None:
        try:
            if _any_runs(self._sessions):
                self._find()
        finally:
            with self._lock:
                self._searched = True
            for peer, asked in self._early_resumes:
                self._resume_where_asked(peer, asked)
        for one in list(self._unfinished.values()):
            if one.commands:
                from dba_console.agent.runs.interrupted_runs import wait_for_commands

                wait_for_commands(one)
                self._commands_running -= len(one.commands)
                if one.run in self._unfinished:
                    self._push_printed(one)

    def _find(self) -> None:
        from dba_console.agent.runs.interrupted_runs import find_interrupted_runs

        for one in find_interrupted_runs(self._sessions, self._target.key):
            self._unfinished[one.run] = one
            self._commands_running += len(one.commands)
            self._emit(one.event(self._clock))
            self._push_to_consoles(pack(RunViewMessage(view=one.view)))
            self._push_printed(one)

    def _push_printed(self, one: InterruptedRun) -> None:
        packed = self._printed[one.run] = [pack(lines) for lines in one.printed_lines()]
        for lines in packed:
            self._push_to_consoles(lines)

    def _resume_where_asked(self, asker: ConsoleConnection, asked: RunResume) -> None:
        """On the listener's thread, as any request; not where the asker has left meanwhile."""

        def give(peer: ConsoleConnection) -> None:
            if peer is asker:
                self._resume(peer, asked)

        self._each(give)

    def _push_to_consoles(self, packed: bytes) -> None:
        def give(peer: ConsoleConnection) -> None:
            if _is_console(peer):
                peer.push(packed)

        self._each(give)


def _is_console(peer: ConsoleConnection) -> bool:
    return peer.greeting is not None and peer.greeting.role == "console"


def _run_text(taken: ActiveRun | None) -> str:
    """A run as who asks for another one is told of it; empty where there is none."""
    if taken is None:
        return ""
    name = f"{taken.shown.title} ({taken.run})" if taken.shown is not None else "another"
    return f"{name}, driven by {taken.person.name}"


def _with_driver(shown: RunView, current: ActiveRun) -> RunView:
    """The view with who drives now: that may change while the run's own thread is busy."""
    from msgspec.structs import replace

    return replace(shown, driver=current.person.login if current.driver is not None else "")


def _any_runs(sessions: Path) -> bool:
    """Whether any session has runs: a look at names, for what reads them is large."""
    try:
        with os.scandir(sessions) as entries:
            return any(os.path.isdir(os.path.join(entry.path, "runs")) for entry in entries)
    except OSError:
        return False
