"""What keys do about a run. The agent walks; the screen asks it and types what the operator decides.

Upheld here: enter alone sends nothing, an answer goes to the very question that was on the screen when it was begun,
and whatever ends, skips or takes over needs a typed word.
"""

from __future__ import annotations

from typing import Literal

from dba_console.agent.protocol import RunAnswer, RunControl, RunResume
from dba_console.plans.run_view import ENDED_STATES, Question
from dba_console.tui.known_runs import KnownRun
from dba_console.tui.prompt import Prompt
from dba_console.tui.runbook_actions import RunbookActions
from dba_console.tui.walkthrough import WalkthroughView
from dba_console.walkthrough.text import prompt_of

Verb = Literal["skip", "abort"]
_INTERRUPTED = "the run is interrupted, and no console drives it: r resumes it, e ends it"
_NOTHING_SENT = "nothing was sent: enter alone confirms nothing"


class RunActions(RunbookActions):
    """The actions of the walkthrough."""

    @property
    def _run(self) -> KnownRun | None:
        view = self._view_stack.view
        return view.known if isinstance(view, WalkthroughView) else None

    def do_answer(self) -> None:
        known = self._run
        if known is None or (question := self._answerable_question(known)) is None:
            return
        self._view_stack.prompt = Prompt(
            prompt_of(question), lambda text: self._answer(known, question, text), secret=question.secret
        )

    def do_read(self) -> None:
        known = self._run
        if known is None or (question := self._answerable_question(known)) is None:
            return
        if question.kind == "ack":
            self._answer(known, question, "y")
        else:
            self._navigator.notice = "this wants more than a letter: enter, then type it"

    def _answerable_question(self, known: KnownRun) -> Question | None:
        """The question this console may answer now; why it may not is said."""
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
        elif known.question is None:
            self._navigator.notice = "it asks nothing now"
        elif not known.may_answer:
            self._navigator.notice = known.why_not or "another console answers; t takes over"
        else:
            return known.question
        return None

    def _answer(self, known: KnownRun, question: Question, text: str) -> None:
        answer = text if question.secret else text.strip()
        if not answer:
            self._navigator.notice = _NOTHING_SENT
        elif known.question is None or known.question.id != question.id:
            self._navigator.notice = "that is not asked any more; nothing was sent"
        else:
            self._ask_agent(RunAnswer(run=known.run, question=question.id, text=answer), "sent …")

    def do_tick(self) -> None:
        """Leave the row under the cursor out of what is acted on, or take it in again; the agent asks anew."""
        view, known = self._view_stack.view, self._run
        if not isinstance(view, WalkthroughView) or known is None or self._may_not_act():
            return
        if (table := view.selectable_rows) is None or not known.yours:
            self._navigator.notice = "there are no rows to choose here now; e ends the run"
        elif (rows := view.tick(known, table)) is not None:
            self._ask_agent(
                RunControl(run=known.run, verb="choose", block=table.block, look=table.look, rows=rows), "sent …"
            )

    def do_hold(self) -> None:
        if (known := self._driven_run()) is not None:
            is_paused = known.told.state == "paused"
            self._control(known, "continue" if is_paused else "pause")

    def do_skip(self) -> None:
        self._ask_reason("skip", "skip what is under way, because")

    def do_abort(self) -> None:
        known = self._run
        if known is None or known.told.state != "interrupted":
            self._ask_reason("abort", "end the run here, because")
        elif not self._may_not_act():
            self._view_stack.prompt = Prompt(
                "end the interrupted run here, because", lambda text: self._end_interrupted(known, text.strip())
            )

    def _end_interrupted(self, known: KnownRun, reason: str) -> None:
        if reason:
            self._ask_agent(RunResume(run=known.run, abort=reason), "asked the agent to end it …")
        else:
            self._navigator.notice = "nothing was sent: abort needs a reason"

    def _ask_reason(self, verb: Verb, question: str) -> None:
        if (known := self._driven_run()) is not None:
            self._view_stack.prompt = Prompt(question, lambda text: self._send_reason(known, verb, text.strip()))

    def _send_reason(self, known: KnownRun, verb: Verb, reason: str) -> None:
        if reason:
            self._ask_agent(RunControl(run=known.run, verb=verb, reason=reason), "sent …")
        else:
            self._navigator.notice = f"nothing was sent: {verb} needs a reason"

    def do_jump(self) -> None:
        if (known := self._driven_run()) is not None:
            self._view_stack.prompt = Prompt("go on at step (number, then why)", lambda text: self._jump(known, text))

    def _jump(self, known: KnownRun, text: str) -> None:
        number, _, reason = text.strip().partition(" ")
        steps = () if known.view is None else known.view.steps
        ids = {str(place): step.id for place, step in enumerate(steps, 1)} | {step.id: step.id for step in steps}
        if number not in ids or not reason.strip():
            self._navigator.notice = "nothing was sent: a step's number, a blank and the reason, as in 5 already done"
        else:
            request = RunControl(run=known.run, verb="jump", step=ids[number], reason=reason.strip())
            self._ask_agent(request, "sent …")

    def do_stop(self) -> None:
        known = self._driven_run()
        if known is None:
            return
        if known.view is None or not known.view.can_stop:
            self._navigator.notice = "nothing runs now that can be stopped"
            return
        block = known.view.block
        self._view_stack.prompt = Prompt("stop what runs now? type `stop`", lambda text: self._stop(known, block, text))

    def _stop(self, known: KnownRun, block: str, text: str) -> None:
        if text.strip() != "stop":
            self._navigator.notice = "nothing was stopped"
        elif known.view is None or known.view.block != block:
            self._navigator.notice = "it has ended meanwhile; nothing was stopped"
        else:
            self._control(known, "stop")

    def do_take(self) -> None:
        known = self._run
        if known is None or self._may_not_act():
            return
        if known.told.state == "interrupted":
            self._navigator.notice = _INTERRUPTED
            return
        if known.yours or known.ended:
            self._navigator.notice = "this console drives it already" if known.yours else "it has ended"
            return
        driver = (known.view and known.view.driver) or "nobody"
        self._view_stack.prompt = Prompt(
            f"take over from {driver}? type `yes`",
            lambda text: self._act_if_confirmed(text, lambda: self._control(known, "take")),
        )

    def do_undo(self) -> None:
        known = self._driven_run()
        if known is not None:
            self._view_stack.prompt = Prompt(
                "end the run, and be asked which steps are taken back? type `yes`",
                lambda text: self._act_if_confirmed(text, lambda: self._control(known, "undo")),
            )

    def do_resume(self) -> None:
        known = self._run
        if known is None or self._may_not_act():
            return
        if known.told.state != "interrupted":
            self._navigator.notice = "it was not interrupted"
            return
        self._runbook_loader.request_read()
        self._view_stack.prompt = Prompt(
            "go on with it? what is not known is settled first; type `yes`",
            lambda text: self._act_if_confirmed(text, lambda: self._resume(known)),
        )

    def _resume(self, known: KnownRun) -> None:
        """Go on with it. What was secret is written nowhere: it is asked for anew."""
        runbooks = self._navigator.runbooks
        runbook = None if runbooks is None else runbooks.find(known.told.runbook)
        secrets = [] if runbook is None or runbook.plan is None else [one for one in runbook.plan.inputs if one.secret]
        given: dict[str, str] = {}
        self._ask_inputs(
            given, secrets, lambda: self._ask_agent(RunResume(run=known.run, inputs=given), "asked the agent …")
        )

    # The details

    def _driven_run(self) -> KnownRun | None:
        """The run shown, where this console drives it and it goes on; why not is said."""
        known = self._run
        if known is None or self._may_not_act():
            return None
        if known.told.state == "interrupted":
            self._navigator.notice = _INTERRUPTED
            return None
        if known.ended or not known.yours:
            self._navigator.notice = "it has ended" if known.ended else "another console drives it; t takes over"
            return None
        return known

    def _control(self, known: KnownRun, verb: Literal["pause", "continue", "undo", "take", "stop"]) -> None:
        self._ask_agent(RunControl(run=known.run, verb=verb), "sent …")

    def _report_run_continues(self) -> None:
        known = self._run
        if known is not None and known.view is not None and known.view.state not in ENDED_STATES:
            self._navigator.notice = "the run goes on, or waits for an answer; w shows it again"
