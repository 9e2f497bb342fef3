"""A run and who is with it: its thread, who drives, what the consoles were shown last.

Consoles are served on the listener's thread, the run goes on in its own; between them lie the desk, the controls and
the last view, which is never changed but replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.console_connection import ConsoleConnection
from dba_console.agent.protocol import OpenRun, RunControl, RunRefused
from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.earlier_runs import read_typical_durations, write_summary
from dba_console.agent.runs.operators import ConsoleOperator, difference
from dba_console.agent.runs.questions import OperatorQuestions
from dba_console.agent.runs.run_context import RunContext, internal_error_text
from dba_console.agent.runs.run_execution import RunExecution
from dba_console.core.errors import ConsoleError, ExitCode
from dba_console.core.redact import redact
from dba_console.runbooks.requests import OperatorInterrupt
from dba_console.runbooks.run_summary import TypicalDuration, summarize
from dba_console.runbooks.run_view import ENDED_STATES, RunView
from dba_console.runbooks.single_action import confirms_itself
from dba_console.runbooks.view_builder import LiveStatus, run_view
from dba_console.runbooks.walk_context import taken_over
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.run_service import RunService

SHOW_US = 150_000
"""Between two views, where nothing waits for what they show."""
LEAVE_S = 3.0
"""The end of the agent waits so long for the run to write that it is interrupted."""
CONTINUE = "continue"
CONFIRMING = ("ack", "yes", "type")

StartExecution = Callable[["ActiveRun"], RunExecution]
"""Raises ConsoleError where there can be no run."""


class ActiveRun:
    """One run from the wish for it to its end."""

    def __init__(
        self, make: StartExecution, peer: ConsoleConnection, person: ConsoleOperator, context: RunContext,
        service: RunService, sessions: Path,
        reply_to: str, *, is_secondary: bool = False,
    ) -> None:  # fmt: skip
        self._make, self.around, self.side, self._sessions = make, context, service, sessions
        self._reply_to = reply_to
        self.beside = is_secondary
        """Begun while another one was under way: it puts settings back, or is refused once its document is read."""
        self.driver: ConsoleConnection | None = peer
        self.person = person
        """Who drives, or did last."""
        self._answered_by: ConsoleConnection | None = peer
        self.questions = OperatorQuestions(context.clock, lambda: self._questions_changed())
        self.controls = ActionControl(context.clock, lambda: self._questions_changed())
        self.execution: RunExecution | None = None
        self.is_over = False
        """It has ended, or is no more: what its thread still does concerns nobody."""
        self.shown: RunView | None = None
        """None until the run is one."""
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
        """As it is named to a console that attaches; None where it has ended, or is none yet."""
        now = self.shown
        if now is None or now.state in ENDED_STATES:
            return None
        return OpenRun(
            run=now.run, runbook=now.runbook, title=now.title, state=now.state, asks=now.question is not None
        )

    def abandon(self) -> None:
        """The agent ends: the run is left as it is."""
        self.questions.abandon()
        self._thread.join(LEAVE_S)

    # -- what consoles ask for, on the listener's thread ---------------------------------------------------------

    def answer(self, peer: ConsoleConnection, person: ConsoleOperator, question: int, text: str) -> str | None:
        """None, or why the answer is not taken."""
        refusal = self.questions.answer(question, text, person, drives=peer is self.driver)
        if refusal is None:
            self._answered_by = peer
        return refusal

    def may_answer(self, peer: ConsoleConnection, person: ConsoleOperator) -> str | None:
        """Why this console may not answer what is asked; None where it may."""
        return self.questions.why_not(person, drives=peer is self.driver)

    def control(self, peer: ConsoleConnection, person: ConsoleOperator, wish: RunControl) -> str | None:
        """None, or why what is wanted is not done."""
        if wish.verb == "take":
            self._set_driver(peer, person)
            return None
        if peer is not self.driver:
            return f"{self.person.name} drives this run; take it over first"
        self._answered_by = peer
        return self._control(person, wish)

    def reclaim(self, peer: ConsoleConnection, person: ConsoleOperator) -> None:
        """A console attaches: where nobody drives any more, the same person does again."""
        if not self.is_over and self.driver is None and not difference(self.person, person).two:
            self._set_driver(peer, person)

    def cancel_unstarted(self, peer: ConsoleConnection, person: ConsoleOperator) -> bool:
        """End a run that was not started, for who planned it and wants another one. Whether it was such a run."""
        asked, conduct = self.questions.question, self.execution
        his = peer is self.driver or (self.driver is None and not difference(self.person, person).two)
        if asked is None or conduct is None or not his:
            return False
        untouched = confirms_itself(conduct.plan) and not conduct.state.executions and asked.kind in CONFIRMING
        if asked.kind != "start" and not untouched:
            return False
        return self.questions.answer(asked.id, "no", person, drives=True) is None

    def abort(self, person: ConsoleOperator, reason: str) -> None:
        """Have it ended by the first thing it asks or does; a command of it that still runs is stopped."""
        self.questions.add_interrupt(OperatorInterrupt(verb="abort", who=person.name, reason=reason))

    def console_left(self, peer: ConsoleConnection) -> None:
        """A console is gone. The run goes on, and waits with its next question."""
        if peer is self.driver:
            self.driver = None
            self.side.push_view(self)

    def _set_driver(self, peer: ConsoleConnection, person: ConsoleOperator) -> None:
        before, self.driver, self.person = self.person, peer, person
        if self.execution is not None and before != person:
            self.execution.queue_record(taken_over(person.name, before.name))
        self.side.push_view(self)

    def _control(self, person: ConsoleOperator, wish: RunControl) -> str | None:
        who = person.name
        if wish.verb == "continue":
            return self._continue(person)
        if wish.verb == "stop":
            return None if self.controls.stop(who) else "nothing is under way that could be stopped"
        if wish.verb == "pause":
            self.controls.pause(True)
        if wish.verb == "abort":
            self.controls.stop(who)
        if wish.verb in ("skip", "jump") and not wish.reason.strip():
            return f"a {wish.verb} needs a reason"
        # What is left of the verbs are those of an Interrupt: the others returned above, `take` is not brought here.
        wanted = {"block": wish.block, "look": wish.look, "rows": wish.rows} if wish.verb == "choose" else {}
        interrupt = OperatorInterrupt(verb=wish.verb, who=who, reason=wish.reason, step=wish.step, **wanted)  # type: ignore[arg-type]
        self.questions.add_interrupt(interrupt)
        return None

    def _continue(self, person: ConsoleOperator) -> str | None:
        self.questions.drop_interrupts("pause")
        if self.controls.pause(False):
            return None
        asked = self.questions.question
        if asked is not None and any(option.key == CONTINUE for option in asked.options):
            return self.questions.answer(asked.id, CONTINUE, person, drives=True)
        return "the run is not paused"

    # -- what the run has to tell, on its own thread -------------------------------------------------------------

    def changed(self, conduct: RunExecution, force: bool) -> None:
        now = self.around.clock.mono_us()
        if not force and now - self._shown_us < SHOW_US:
            return
        self._shown_us = now
        self.shown = conduct.masked(run_view(conduct.plan, conduct.state, self._live_state(conduct)))
        self.side.push_view(self)

    def rejected(self, conduct: RunExecution, text: str) -> None:
        self.side.refuse(self._answered_by, RunRefused(text=redact(text), reply_to=conduct.run))

    def _questions_changed(self) -> None:
        if self.execution is not None:
            self.changed(self.execution, True)

    def _live_state(self, conduct: RunExecution) -> LiveStatus:
        return LiveStatus(
            now_us=self.around.clock.wall_us(),
            directory=str(conduct.directory),
            driver=self.person.login if self.driver is not None else "",
            question=self.questions.question,
            progress=self.controls.progress,
            can_stop=self.controls.active,
            journal=conduct.journal_error,
            usual=self._usual,
        )

    # -- its thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._execute()
        except Exception as error:
            self.around.emit(self._internal_error_event(error))
        finally:
            self.is_over = True
            self.side.run_ended(self)

    def _execute(self) -> None:
        try:
            conduct = self._make(self)
        except ConsoleError as error:
            self._refuse(redact(error.message), error.hint, error.code)
            return
        except Exception as error:
            self._refuse(f"the run could not be begun: {internal_error_text(error)}", None, ExitCode.UNSUPPORTED)
            return
        self.execution = conduct
        try:
            self._about, self._usual = read_typical_durations(
                self._sessions, conduct.plan, conduct.state.identity, conduct.order.values, self.around.clock
            )
            self.changed(conduct, True)
            conduct.walk()
        except Exception as error:
            # A defect of ours: the run stays as its journal has it, and can be gone on with.
            conduct.interrupt(f"a defect of this program: {internal_error_text(error)}")
            self.around.emit(self._internal_error_event(error))
        finally:
            # Who sees that it has ended may begin another at once.
            self.is_over = conduct.ending is not None
            try:
                self.changed(conduct, True)
            finally:
                conduct.close()  # whatever is wrong with what is shown, the run can be gone on with
        if conduct.ending is not None:
            summary = conduct.masked(summarize(conduct.plan, conduct.state, self._usual, about=self._about))
            write_summary(conduct.directory, summary, self.around.clock)

    def _refuse(self, text: str, hint: str | None, code: int) -> None:
        self.side.refuse(self.driver, RunRefused(text=text, hint=hint, code=int(code), reply_to=self._reply_to))

    def _internal_error_event(self, error: Exception) -> Event:
        clock, conduct = self.around.clock, self.execution
        run = f"the run {conduct.run}" if conduct is not None else "a run"
        text = f"{run} was left by a defect of this program: {internal_error_text(error)}"
        return Event(
            wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="run.interrupted", severity="warning", text=text
        )
