"""A run and who is with it: its thread, who drives, what the consoles were shown last.

Consoles are served on the listener's thread, the run goes on in its own; between them lie the desk, the controls and
the last view, which is never changed but replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dba_console.agent.peer import Peer
from dba_console.agent.protocol import OpenRun, RunControl, RunRefused
from dba_console.agent.runs.conduct import Conduct
from dba_console.agent.runs.controls import Controls
from dba_console.agent.runs.defects import in_words
from dba_console.agent.runs.desk import Desk
from dba_console.agent.runs.past import keep_summary, usual_of
from dba_console.agent.runs.people import Person, difference
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.errors import ConsoleError, ExitCode
from dba_console.plans.view import ENDED, RunView
from dba_console.redact import redact
from dba_console.runbook.adhoc import confirms_itself
from dba_console.runbook.requests import Interrupt
from dba_console.runbook.summary import summarize
from dba_console.runbook.usual import Usual
from dba_console.runbook.viewing import Live, view
from dba_console.runbook.walk_records import took
from dba_console.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.side import RunSide

SHOW_US = 150_000
"""Between two views, where nothing waits for what they show."""
LEAVE_S = 3.0
"""The end of the agent waits so long for the run to write that it is interrupted."""
CONTINUE = "continue"
CONFIRMING = ("ack", "yes", "type")

Make = Callable[["UnderWay"], Conduct]
"""Raises ConsoleError where there can be no run."""


class UnderWay:
    """One run from the wish for it to its end."""

    def __init__(
        self, make: Make, peer: Peer, person: Person, around: Surroundings, side: RunSide, sessions: Path,
        reply_to: str, *, beside: bool = False,
    ) -> None:  # fmt: skip
        self._make, self.around, self.side, self._sessions = make, around, side, sessions
        self._reply_to = reply_to
        self.beside = beside
        """Begun while another one was under way: it puts settings back, or is refused once its document is read."""
        self.driver: Peer | None = peer
        self.person = person
        """Who drives, or did last."""
        self._answered_by: Peer | None = peer
        self.desk = Desk(around.clock, lambda: self._changed_at_desk())
        self.controls = Controls(around.clock, lambda: self._changed_at_desk())
        self.conduct: Conduct | None = None
        self.over = False
        """It has ended, or is no more: what its thread still does concerns nobody."""
        self.shown: RunView | None = None
        """None until the run is one."""
        self._shown_us = 0
        self._usual: dict[str, Usual] = {}
        self._about = ""
        self._thread = threading.Thread(target=self._run, name="run", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return not self.over and self._thread.is_alive()

    @property
    def run(self) -> str:
        return self.shown.run if self.shown is not None else ""

    def open_run(self) -> OpenRun | None:
        """As it is named to a console that attaches; None where it has ended, or is none yet."""
        now = self.shown
        if now is None or now.state in ENDED:
            return None
        return OpenRun(
            run=now.run, runbook=now.runbook, title=now.title, state=now.state, asks=now.question is not None
        )

    def leave(self) -> None:
        """The agent ends: the run is left as it is."""
        self.desk.leave()
        self._thread.join(LEAVE_S)

    # -- what consoles ask for, on the listener's thread ---------------------------------------------------------

    def answer(self, peer: Peer, person: Person, question: int, text: str) -> str | None:
        """None, or why the answer is not taken."""
        refusal = self.desk.answer(question, text, person, drives=peer is self.driver)
        if refusal is None:
            self._answered_by = peer
        return refusal

    def may_answer(self, peer: Peer, person: Person) -> str | None:
        """Why this console may not answer what is asked; None where it may."""
        return self.desk.why_not(person, drives=peer is self.driver)

    def control(self, peer: Peer, person: Person, wish: RunControl) -> str | None:
        """None, or why what is wanted is not done."""
        if wish.verb == "take":
            self._take(peer, person)
            return None
        if peer is not self.driver:
            return f"{self.person.name} drives this run; take it over first"
        self._answered_by = peer
        return self._control(person, wish)

    def adopt(self, peer: Peer, person: Person) -> None:
        """A console attaches: where nobody drives any more, the same person does again."""
        if not self.over and self.driver is None and not difference(self.person, person).two:
            self._take(peer, person)

    def give_up(self, peer: Peer, person: Person) -> bool:
        """End a run that was not started, for who planned it and wants another one. Whether it was such a run."""
        asked, conduct = self.desk.question, self.conduct
        his = peer is self.driver or (self.driver is None and not difference(self.person, person).two)
        if asked is None or conduct is None or not his:
            return False
        untouched = confirms_itself(conduct.plan) and not conduct.state.executions and asked.kind in CONFIRMING
        if asked.kind != "start" and not untouched:
            return False
        return self.desk.answer(asked.id, "no", person, drives=True) is None

    def abort(self, person: Person, reason: str) -> None:
        """Have it ended by the first thing it asks or does; a command of it that still runs is stopped."""
        self.desk.interrupt(Interrupt(verb="abort", who=person.name, reason=reason))

    def left(self, peer: Peer) -> None:
        """A console is gone. The run goes on, and waits with its next question."""
        if peer is self.driver:
            self.driver = None
            self.side.view(self)

    def _take(self, peer: Peer, person: Person) -> None:
        before, self.driver, self.person = self.person, peer, person
        if self.conduct is not None and before != person:
            self.conduct.errand(took(person.name, before.name))
        self.side.view(self)

    def _control(self, person: Person, wish: RunControl) -> str | None:
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
        self.desk.interrupt(Interrupt(verb=wish.verb, who=who, reason=wish.reason, step=wish.step, **wanted))  # type: ignore[arg-type]
        return None

    def _continue(self, person: Person) -> str | None:
        self.desk.forget("pause")
        if self.controls.pause(False):
            return None
        asked = self.desk.question
        if asked is not None and any(option.key == CONTINUE for option in asked.options):
            return self.desk.answer(asked.id, CONTINUE, person, drives=True)
        return "the run is not paused"

    # -- what the run has to tell, on its own thread -------------------------------------------------------------

    def changed(self, conduct: Conduct, force: bool) -> None:
        now = self.around.clock.mono_us()
        if not force and now - self._shown_us < SHOW_US:
            return
        self._shown_us = now
        self.shown = conduct.masked(view(conduct.plan, conduct.state, self._live(conduct)))
        self.side.view(self)

    def rejected(self, conduct: Conduct, text: str) -> None:
        self.side.refuse(self._answered_by, RunRefused(text=redact(text), reply_to=conduct.run))

    def _changed_at_desk(self) -> None:
        if self.conduct is not None:
            self.changed(self.conduct, True)

    def _live(self, conduct: Conduct) -> Live:
        return Live(
            now_us=self.around.clock.wall_us(),
            directory=str(conduct.directory),
            driver=self.person.login if self.driver is not None else "",
            question=self.desk.question,
            progress=self.controls.progress,
            can_stop=self.controls.active,
            journal=conduct.trouble,
            usual=self._usual,
        )

    # -- its thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._perform()
        except Exception as error:
            self.around.emit(self._defect(error))
        finally:
            self.over = True
            self.side.ended(self)

    def _perform(self) -> None:
        try:
            conduct = self._make(self)
        except ConsoleError as error:
            self._refuse(redact(error.message), error.hint, error.code)
            return
        except Exception as error:
            self._refuse(f"the run could not be begun: {in_words(error)}", None, ExitCode.UNSUPPORTED)
            return
        self.conduct = conduct
        try:
            self._about, self._usual = usual_of(
                self._sessions, conduct.plan, conduct.state.identity, conduct.order.values, self.around.clock
            )
            self.changed(conduct, True)
            conduct.walk()
        except Exception as error:
            # A defect of ours: the run stays as its journal has it, and can be gone on with.
            conduct.interrupt(f"a defect of this program: {in_words(error)}")
            self.around.emit(self._defect(error))
        finally:
            # Who sees that it has ended may begin another at once.
            self.over = conduct.ending is not None
            try:
                self.changed(conduct, True)
            finally:
                conduct.close()  # whatever is wrong with what is shown, the run can be gone on with
        if conduct.ending is not None:
            summary = conduct.masked(summarize(conduct.plan, conduct.state, self._usual, about=self._about))
            keep_summary(conduct.directory, summary, self.around.clock)

    def _refuse(self, text: str, hint: str | None, code: int) -> None:
        self.side.refuse(self.driver, RunRefused(text=text, hint=hint, code=int(code), reply_to=self._reply_to))

    def _defect(self, error: Exception) -> Event:
        clock, conduct = self.around.clock, self.conduct
        run = f"the run {conduct.run}" if conduct is not None else "a run"
        text = f"{run} was left by a defect of this program: {in_words(error)}"
        return Event(
            wall_us=clock.wall_us(), mono_us=clock.mono_us(), kind="run.interrupted", severity="warning", text=text
        )
