"""An active run: its thread, its driver, and the last view that consoles were shown.

Consoles are served on the listener's thread, the run has its own. They share the questions, the action control and the
last view, which is never modified but replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.console_connection import ConsoleConnection
from dba_console.agent.protocol import OpenRun, RunControl, RunRefused
from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.operator_answers import OperatorQuestions
from dba_console.agent.runs.operator_identity import ConsoleOperator, difference
from dba_console.agent.runs.run_context import RunContext, internal_error_text
from dba_console.agent.runs.run_execution import RunExecution
from dba_console.agent.runs.step_durations import read_typical_durations, write_summary
from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.core.redact import redact
from dba_console.runbooks.run_summary import TypicalDuration, summarize
from dba_console.runbooks.run_view import ENDED_STATES, RunView
from dba_console.runbooks.single_action import confirms_itself
from dba_console.runbooks.view_builder import LiveStatus, run_view
from dba_console.runbooks.walk_context import taken_over
from dba_console.runbooks.walk_requests import OperatorInterrupt
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.run_service import RunService

SHOW_US = 150_000
"""Minimum interval between two views, unless something must be shown at once."""
LEAVE_S = 3.0
"""Maximum wait at the end of the agent for the run to record that it is interrupted."""
CONTINUE = "continue"
CONFIRMING = ("ack", "yes", "type")

StartExecution = Callable[["ActiveRun"], RunExecution]
"""Raises ConsoleError if the run cannot be created."""


class ActiveRun:
    """One run from its request to its end."""

    def __init__(
        self, make: StartExecution, peer: ConsoleConnection, person: ConsoleOperator, context: RunContext,
        service: RunService, sessions: Path,
        reply_to: str, *, is_secondary: bool = False,
    ) -> None:  # fmt: skip
        self._make = make
        self.context = context
        self.service = service
        self._sessions = sessions
        self._reply_to = reply_to
        self.beside = is_secondary
        """Started beside another run: it reverts settings, or is refused once its document is read."""
        self.driver: ConsoleConnection | None = peer
        self.person = person
        """The driver, or the last one."""
        self._answered_by: ConsoleConnection | None = peer
        self.questions = OperatorQuestions(context.clock, lambda: self._questions_changed())
        self.controls = ActionControl(context.clock, lambda: self._questions_changed())
        self.execution: RunExecution | None = None
        self.is_over = False
        """It has ended, though its thread may still run."""
        self.shown: RunView | None = None
        """None until the run exists."""
        self._shown_us = 0
        self._usual: dict[str, TypicalDuration] = {}
        self._about = ""
        self._thread = threading.Thread(target=self._run, name="run", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return not self.is_over and self._thread.is_alive()

    @property
    def run(self) -> str:
        return self.shown.run if self.shown is not None else ""

    def open_run(self) -> OpenRun | None:
        """Return the entry for a new console; None if it has ended or does not exist yet."""
        now = self.shown
        if now is None or now.state in ENDED_STATES:
            return None
        return OpenRun(
            run=now.run, runbook=now.runbook, title=now.title, state=now.state, asks=now.question is not None
        )

    def abandon(self) -> None:
        """Leave the run as it is, because the agent ends."""
        self.questions.abandon()
        self._thread.join(LEAVE_S)

    # -- what consoles ask for, on the listener's thread ---------------------------------------------------------

    def answer(self, peer: ConsoleConnection, person: ConsoleOperator, question: int, text: str) -> str | None:
        """Return None, or why the answer is refused."""
        refusal = self.questions.answer(question, text, person, drives=peer is self.driver)
        if refusal is None:
            self._answered_by = peer
        return refusal

    def may_answer(self, peer: ConsoleConnection, person: ConsoleOperator) -> str | None:
        """Return why this console may not answer the open question; None if it may."""
        return self.questions.why_not(person, drives=peer is self.driver)

    def control(self, peer: ConsoleConnection, person: ConsoleOperator, request: RunControl) -> str | None:
        """Return None, or why the request is refused."""
        if request.verb == "take":
            self._set_driver(peer, person)
            return None
        if peer is not self.driver:
            return f"{self.person.name} controls this run; take control first"
        self._answered_by = peer
        return self._control(person, request)

    def reclaim(self, peer: ConsoleConnection, person: ConsoleOperator) -> None:
        """On attach: if the run has no driver, the same operator drives it again."""
        if not self.is_over and self.driver is None and not difference(self.person, person).two:
            self._set_driver(peer, person)

    def cancel_unstarted(self, peer: ConsoleConnection, person: ConsoleOperator) -> bool:
        """Cancel a run that was not started if the same operator wants another one. Returns whether it was one."""
        question, execution = self.questions.question, self.execution
        is_driver = peer is self.driver or (self.driver is None and not difference(self.person, person).two)
        if question is None or execution is None or not is_driver:
            return False
        untouched = confirms_itself(execution.plan) and not execution.state.executions and question.kind in CONFIRMING
        if question.kind != "start" and not untouched:
            return False
        return self.questions.answer(question.id, "no", person, drives=True) is None

    def abort(self, person: ConsoleOperator, reason: str) -> None:
        """Request an abort at the next question or action; a command that still runs is stopped."""
        self.questions.add_interrupt(OperatorInterrupt(verb="abort", who=person.name, reason=reason))

    def console_left(self, peer: ConsoleConnection) -> None:
        """Handle a console that has left. The run continues, and waits at its next question."""
        if peer is self.driver:
            self.driver = None
            self.service.push_view(self)

    def _set_driver(self, peer: ConsoleConnection, person: ConsoleOperator) -> None:
        before, self.driver, self.person = self.person, peer, person
        if self.execution is not None and before != person:
            self.execution.queue_record(taken_over(person.name, before.name))
        self.service.push_view(self)

    def _control(self, person: ConsoleOperator, request: RunControl) -> str | None:
        who = person.name
        if request.verb == "continue":
            return self._continue(person)
        if request.verb == "stop":
            return None if self.controls.stop(who) else "nothing to stop is running"
        if request.verb == "pause":
            self.controls.pause(True)
        if request.verb == "abort":
            self.controls.stop(who)
        if request.verb in ("skip", "jump") and not request.reason.strip():
            return f"a {request.verb} needs a reason"
        # Only the verbs of an OperatorInterrupt remain: the others returned above, and `take` does not arrive here.
        choice = (
            {"block": request.block, "look": request.look, "rows": request.rows} if request.verb == "choose" else {}
        )
        interrupt = OperatorInterrupt(
            verb=request.verb, who=who, reason=request.reason, step=request.step, **choice  # type: ignore[arg-type]
        )  # fmt: skip
        self.questions.add_interrupt(interrupt)
        return None

    def _continue(self, person: ConsoleOperator) -> str | None:
        self.questions.drop_pauses()
        if self.controls.pause(False):
            return None
        question = self.questions.question
        if question is not None and any(option.key == CONTINUE for option in question.options):
            return self.questions.answer(question.id, CONTINUE, person, drives=True)
        return "the run is not paused"

    # -- views, on the run's thread ------------------------------------------------------------------------------

    def changed(self, execution: RunExecution, force: bool) -> None:
        now = self.context.clock.mono_us()
        if not force and now - self._shown_us < SHOW_US:
            return
        self._shown_us = now
        self.shown = execution.masked(run_view(execution.plan, execution.state, self._live_state(execution)))
        self.service.push_view(self)

    def rejected(self, execution: RunExecution, text: str) -> None:
        self.service.refuse(self._answered_by, RunRefused(text=redact(text), reply_to=execution.run))

    def _questions_changed(self) -> None:
        if self.execution is not None:
            self.changed(self.execution, True)

    def _live_state(self, execution: RunExecution) -> LiveStatus:
        return LiveStatus(
            now_us=self.context.clock.wall_us(),
            directory=str(execution.directory),
            driver=self.person.console if self.driver is not None else "",
            question=self.questions.question,
            progress=self.controls.progress,
            can_stop=self.controls.active,
            journal=execution.journal_error,
            usual=self._usual,
        )

    # -- its thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._execute()
        except Exception as error:
            self.context.emit(self._internal_error_event(error))
        finally:
            self.is_over = True
            self.service.run_ended(self)

    def _execute(self) -> None:
        try:
            execution = self._make(self)
        except ConsoleError as error:
            self._refuse(redact(error.message), error.hint, error.code)
            return
        except Exception as error:
            self._refuse(f"cannot start the run: {internal_error_text(error)}", None, ExitCode.UNSUPPORTED)
            return
        self.execution = execution
        try:
            self._about, self._usual = read_typical_durations(
                self._sessions, execution.plan, execution.state.identity, execution.order.values, self.context.clock
            )
            self.changed(execution, True)
            execution.walk()
        except Exception as error:
            # The run stays as its journal has it, and can be resumed.
            execution.interrupt(f"internal error: {internal_error_text(error)}")
            self.context.emit(self._internal_error_event(error))
        finally:
            # A client that sees the end may start another run at once.
            self.is_over = execution.ending is not None
            try:
                self.changed(execution, True)
            finally:
                execution.close()  # even if showing fails, so that the run can be resumed
        if execution.ending is not None:
            summary = execution.masked(summarize(execution.plan, execution.state, self._usual, about=self._about))
            write_summary(execution.directory, summary, self.context.clock)

    def _refuse(self, text: str, hint: str | None, code: int) -> None:
        self.service.refuse(self.driver, RunRefused(text=text, hint=hint, code=int(code), reply_to=self._reply_to))

    def _internal_error_event(self, error: Exception) -> Event:
        clock, execution = self.context.clock, self.execution
        run = f"the run {execution.run}" if execution is not None else "a run"
        text = f"{run} was interrupted by an internal error: {internal_error_text(error)}"
        return Event(
            wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="run.interrupted", severity="warning", text=text
        )
