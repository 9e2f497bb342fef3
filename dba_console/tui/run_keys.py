"""Key actions on runbooks and runs. The agent executes the run; the screen sends requests and the typed answers.

Enter alone sends nothing; an answer goes only to the question that was shown when typing began; everything that ends,
skips or takes over needs a typed word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from dba_console.agent.protocol import RunAnswer, RunBegin, RunControl, RunRequest, RunResume, RunWatch
from dba_console.core.errors import UsageError
from dba_console.recording.plan import Input
from dba_console.runbooks.run_view import ENDED_STATES, Question
from dba_console.runbooks.walkthrough_text import answer_letters, prompt_of
from dba_console.tui.feed import Feed
from dba_console.tui.findings import find_by_runbook
from dba_console.tui.known_runs import KnownRun
from dba_console.tui.loaders import BackgroundLoader, RunbooksArrived
from dba_console.tui.prompt import Prompt, QuestionPrompt
from dba_console.tui.runbooks import RunbookPage, RunbooksView, values_for_input, values_in_frame
from dba_console.tui.terminal import with_idle_time
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack
from dba_console.tui.walkthrough import WalkthroughView
from dba_console.watch.frames.model import Finding

# Requests to the agent: only live, with a notice of the result.

_NONE: Mapping[str, str] = {}


class AgentRequests:
    """Shared by all actions: what they act on."""

    def __init__(
        self,
        view_stack: ViewStack,
        navigator: TimeNavigator,
        feed: Feed,
        runbook_loader: BackgroundLoader[RunbooksArrived],
    ) -> None:
        self._view_stack, self._navigator, self._feed = view_stack, navigator, feed
        self._runbook_loader = runbook_loader

    def _ask_agent(self, request: RunRequest, sent_notice: str) -> None:
        self._navigator.notice = self._feed.send_request(request) or sent_notice
        self._navigator.sent_notice = sent_notice

    def _may_not_act(self) -> bool:
        """True, with a notice of the reason, if nothing can be done from this screen now."""
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
        elif not self._navigator.cursor.live:
            self._navigator.notice = "this is the past: press end to return to live"
        else:
            return False
        return True

    def _act_if_confirmed(self, text: str, act: Callable[[], None]) -> None:
        if text.strip() == "yes":
            act()
        else:
            self._navigator.notice = "nothing was changed"

    def _ask_inputs(
        self,
        given: dict[str, str],
        inputs: Sequence[Input],
        on_done: Callable[[], None],
        found: Mapping[str, str] = _NONE,
    ) -> None:
        """Prompt for one input after the other; escape keeps the rest as they are. `found`: values from the finding."""
        if not inputs:
            on_done()
            return
        self._ask_input(given, inputs[0], found, lambda: self._ask_inputs(given, inputs[1:], on_done, found))

    def _ask_input(
        self, given: dict[str, str], one: Input, found: Mapping[str, str], on_done: Callable[[], None], *,
        rejected: str | None = None, problem: str = "",
    ) -> None:  # fmt: skip
        """`rejected` was typed and is invalid because of `problem`: the operator can correct it in the prompt."""
        from dba_console.runbooks.values import as_written  # imported when a runbook is used

        default = "" if one.secret or one.default is None else as_written(one, one.default)
        known = "" if one.secret else given.get(one.name, found.get(one.name, default))
        origin = ", from the finding" if known and one.name not in given and one.name in found else ""
        self._view_stack.prompt = Prompt(
            f"{one.name} ({one.type}){origin}",
            lambda text: self._take_input(given, one, text, found, on_done),
            text=known if rejected is None or one.secret else rejected,
            secret=one.secret,
            explanation="\n".join(filter(None, (one.help, problem))),
            offered=bool(known) and rejected is None,
            values=values_in_frame(self._navigator.frame(), one),
        )

    def _take_input(
        self, given: dict[str, str], one: Input, text: str, found: Mapping[str, str], on_done: Callable[[], None]
    ) -> None:
        from dba_console.runbooks.values import value_of  # imported when a runbook is used

        entered = text if one.secret else text.strip()
        if not entered and one.required and one.default is None:
            self._ask_input(given, one, found, on_done, rejected="", problem=f"{one.name} is required; esc cancels")
            return
        try:
            if entered:
                value_of(one, entered)
        except UsageError as error:
            self._ask_input(given, one, found, on_done, rejected=entered, problem=error.message)
            return
        if entered:
            given[one.name] = entered
        else:
            given.pop(one.name, None)
        on_done()


# Runbooks: the list, the page of one, its inputs, the start of a run.


class RunbookActions(AgentRequests):
    """The actions of the list and the page of runbooks, and how to get to a run."""

    _begin_when_loaded: tuple[RunbookPage, Literal["run", "rehearse"]] | None = None
    """Requested before the runbooks were read."""

    def do_runbooks(self) -> None:
        self._runbook_loader.request_read()
        self._view_stack.show_runbooks()

    def do_walkthrough(self) -> None:
        known = self._navigator.runs.most_urgent
        if known is None:
            self._navigator.notice = "no run is open; b shows the runbooks"
        else:
            self._open_run(known)

    def do_choose(self) -> None:
        view = self._view_stack.view
        if not isinstance(view, RunbooksView):
            return
        known = None if view.chosen_run is None else self._navigator.runs.get(view.chosen_run)
        if known is not None:
            self._open_run(known)
        elif view.chosen_runbook is not None:
            frame = self._navigator.frame()
            self._view_stack.show_runbook(view.chosen_runbook, find_by_runbook(frame, view.chosen_runbook))

    def open_runbook(self, runbook_id: str, finding: Finding | None = None) -> None:
        self._runbook_loader.request_read()
        self._view_stack.show_runbook(runbook_id, finding)

    def _open_run(self, known: KnownRun) -> None:
        """Show a run; request its state, and report to the agent that an operator is here again."""
        if not known.ended and known.summary.state != "interrupted" and self._feed.refusal is None:
            known.expect_resent_output()
            self._feed.send_request(RunWatch(run=known.run))
        self._view_stack.show_run(known.run)

    def open_awaited_run(self) -> bool:
        """Show the run that was started here, once the agent has created it. True if shown."""
        if self._begin_when_loaded is not None and self._navigator.runbooks is not None:
            (page, mode), self._begin_when_loaded = self._begin_when_loaded, None
            if self._view_stack.view is page and self._view_stack.prompt is None:
                self._begin_run(mode)
                return True
        opened = self._navigator.runs.take_run_to_open()
        if opened is None:
            return False
        if self._view_stack.prompt is None:
            self._view_stack.show_run(opened)
        else:
            self._navigator.notice = "the run is prepared; w shows it"
        return True

    def ask_for_run(self, request: RunBegin | RunResume | RunWatch) -> None:
        """Start, resume or show a run, as requested on the command line."""
        if isinstance(request, RunBegin):
            self.request_run(request)
        else:
            self._ask_agent(request, "sent to the agent …")
            self._view_stack.show_run(request.run)

    def do_inputs(self) -> None:
        view = self._view_stack.view
        if isinstance(view, RunbookPage) and view.runbook is not None and view.runbook.plan is not None:
            self._ask_inputs(view.given, view.runbook.plan.inputs, lambda: None, view.finding_inputs)

    def do_begin(self) -> None:
        self._begin_run("run")

    def do_rehearse(self) -> None:
        self._begin_run("rehearse")

    def _begin_run(self, mode: Literal["run", "rehearse"]) -> None:
        view = self._view_stack.view
        if not isinstance(view, RunbookPage) or self._may_not_act():
            return
        if view.runbook is None:
            if self._navigator.runbooks is None:
                self._begin_when_loaded = (view, mode)
                self._navigator.notice = "reading the runbooks; the run starts after that"
            return
        plan = view.runbook.plan
        if plan is None:
            self._navigator.notice = "cannot start: the runbook has errors"
            return
        found = view.finding_inputs
        asked = [one for one in plan.inputs if (one.required and one.default is None) or one.name in found]
        missing = [one for one in asked if one.name not in view.given]
        self._ask_inputs(view.given, missing, lambda: self._send_begin(view, mode), found)

    def _send_begin(self, page: RunbookPage, mode: Literal["run", "rehearse"]) -> None:
        if (runbook := page.runbook) is not None:
            source, inputs = str(runbook.entry.path), dict(page.given)
            self.request_run(RunBegin(text=runbook.text, source=source, inputs=inputs, mode=mode))

    def request_run(self, request: RunBegin) -> None:
        """Request a run from the agent, which checks everything again and requires a confirmation before the start."""
        self._navigator.runs.expect_run()
        self._ask_agent(request, "sent; the agent prepares the run …")


_INTERRUPTED = "the run is interrupted: R resumes it, E ends it"
SETTLED_US = 400_000
"""Time a question must have been on the screen before one letter answers it: an earlier key may have been meant for
the previous screen.
"""
REST_US = 1_500_000
"""Time in which the rest of an answer that was sent at its first letter is ignored."""
_NOTHING_SENT = "nothing was sent: enter alone confirms nothing"


def _view_keys(question: Question) -> list[str]:
    """Return the keys of the screen that cannot start an answer to the question."""
    tick = ["x"] if question.rows and not question.expects.startswith("x") else []
    return [*tick, *(["question_mark"] if question.kind not in ("manual", "input") else [])]


def _reading_key(known: KnownRun, question: Question) -> tuple[str, str, str]:
    """Identify a question across repetitions: with other rows, or after a refused answer, it is the same question."""
    return known.run, question.block, question.kind


class RunActions(AgentRequests):
    """The actions of the walkthrough."""

    @property
    def _run(self) -> KnownRun | None:
        view = self._view_stack.view
        return view.known if isinstance(view, WalkthroughView) else None

    _prompted: tuple[QuestionPrompt, KnownRun, Question] | None = None
    """The prompt opened for a question."""
    _reading: tuple[str, str, str] | None = None
    """Run, block and kind of the question whose prompt the operator closed in order to read."""
    _sent: tuple[str, int, int] | None = None
    """Run, question and refusals so far of the last answer sent: its prompt stays closed until it is refused."""
    _answer_rest = ""
    """The rest of an answer that was sent at its first letter, and enter: ignored if typed."""
    _rest_until_us = 0

    def do_answer(self) -> None:
        known = self._run
        if known is not None and (question := self._answerable_question(known)) is not None:
            self._reading = None
            self._open_question(known, question)

    def update_question_prompt(self) -> None:
        """Open the prompt of the question on the screen, unless the operator closed it in order to read; close that
        of a question that is closed. Called before each layout.
        """
        known = self._run
        question = None if known is None or self._feed.refusal is not None or not known.may_answer else known.question
        if self._prompted is not None:
            prompt, of_run, of_question = self._prompted
            if self._view_stack.prompt is not prompt:
                self._prompted = None
            elif known is not of_run or question is None or question.id != of_question.id:
                self._view_stack.prompt = self._prompted = None
                if prompt.text and known is of_run:
                    self._navigator.notice = "the question is no longer open; nothing was sent"
        if question is None:
            self._sent = None
        if known is None or question is None or self._view_stack.prompt is not None:
            return
        if self._sent == (known.run, question.id, known.refusal_count) or self._reading == _reading_key(
            known, question
        ):
            return
        self._open_question(known, question)

    def _open_question(self, known: KnownRun, question: Question) -> None:
        opened_us = self._navigator.mono_us
        prompt = QuestionPrompt(
            prompt_of(question),
            lambda text: self._answer(known, question, text),
            on_cancel=lambda: self._read_on(known, question),
            choices=answer_letters(question),
            is_settled=lambda: self._navigator.mono_us - opened_us >= SETTLED_US,
            values=self._values_for(known),
            secret=question.secret,
            view_keys=_view_keys(question),
        )
        self._view_stack.prompt, self._prompted = prompt, (prompt, known, question)

    def _values_for(self, known: KnownRun) -> list[str]:
        runbooks = self._navigator.runbooks
        runbook = None if runbooks is None else runbooks.find(known.summary.runbook)
        return [] if known.view is None or runbook is None else values_for_input(known.view, runbook.plan)

    def _read_on(self, known: KnownRun, question: Question) -> None:
        self._reading = _reading_key(known, question)

    def is_rest_of_answer(self, name: str, character: str | None) -> bool:
        """Check whether a key is the rest of a word that was sent as an answer at its first letter."""
        rest, self._answer_rest = self._answer_rest, ""
        if not rest or self._navigator.mono_us > self._rest_until_us:
            return False
        if character == rest[0]:
            self._answer_rest = rest[1:]
            return True
        if name == "enter" and self._prompted is not None:  # the next question has opened meanwhile
            self._navigator.notice = "enter ended the answer before; this question is still open"
        return name == "enter"

    def _answerable_question(self, known: KnownRun) -> Question | None:
        """The question this console may answer now; None, with a notice of the reason, if it may not."""
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
        elif known.question is None:
            self._navigator.notice = "no question is open now"
        elif not known.may_answer:
            self._navigator.notice = known.why_not or "another console controls the run; T takes over"
        else:
            return known.question
        return None

    def _answer(self, known: KnownRun, question: Question, text: str) -> None:
        answer = text if question.secret else text.strip()
        if not answer:
            self._navigator.notice = _NOTHING_SENT
        elif known.question is None or known.question.id != question.id:
            self._navigator.notice = "the question is no longer open; nothing was sent"
        else:
            self._sent = (known.run, question.id, known.refusal_count)
            self._ask_agent(RunAnswer(run=known.run, question=question.id, text=answer), "sent …")
            if self._prompted is not None and self._prompted[0].by_letter:
                self._answer_rest, self._rest_until_us = answer[1:] + "\r", self._navigator.mono_us + REST_US

    def do_tick(self) -> None:
        """Exclude the row under the cursor from the action, or include it again; the agent repeats the question."""
        view, known = self._view_stack.view, self._run
        if not isinstance(view, WalkthroughView) or known is None or self._may_not_act():
            return
        if (table := view.selectable_rows) is None or not known.yours:
            self._navigator.notice = "no rows to choose now; E ends the run"
        elif (rows := view.tick(known, table)) is not None:
            self._ask_agent(
                RunControl(run=known.run, verb="choose", block=table.block, look=table.look, rows=rows), "sent …"
            )

    def do_hold(self) -> None:
        if (known := self._driven_run()) is not None:
            is_paused = known.summary.state == "paused"
            self._control(known, "continue" if is_paused else "pause")

    def do_skip(self) -> None:
        self._ask_reason("skip", "skip the current step, because")

    def do_abort(self) -> None:
        known = self._run
        if known is None or known.summary.state != "interrupted":
            self._ask_reason("abort", "end the run here, because")
        elif not self._may_not_act():
            self._view_stack.prompt = Prompt(
                "end the interrupted run here, because",
                lambda text: self._send_reason(
                    text, lambda reason: RunResume(run=known.run, abort=reason), "sent; the agent ends the run …"
                ),
            )

    def _ask_reason(self, verb: Literal["skip", "abort"], question: str) -> None:
        if (known := self._driven_run()) is not None:
            self._view_stack.prompt = Prompt(
                question,
                lambda text: self._send_reason(
                    text, lambda reason: RunControl(run=known.run, verb=verb, reason=reason), "sent …"
                ),
            )

    def _send_reason(self, text: str, request: Callable[[str], RunRequest], sent_notice: str) -> None:
        if reason := text.strip():
            self._ask_agent(request(reason), sent_notice)
        else:
            self._navigator.notice = "nothing was sent: this needs a reason"

    def do_jump(self) -> None:
        if (known := self._driven_run()) is not None:
            self._view_stack.prompt = Prompt(
                "continue at step (number, then why)", lambda text: self._jump(known, text)
            )

    def _jump(self, known: KnownRun, text: str) -> None:
        number, _, reason = text.strip().partition(" ")
        steps = () if known.view is None else known.view.steps
        ids = {str(index): step.id for index, step in enumerate(steps, 1)} | {step.id: step.id for step in steps}
        if number not in ids or not reason.strip():
            self._navigator.notice = "nothing was sent: type a step's number and the reason, e.g. 5 already done"
        else:
            request = RunControl(run=known.run, verb="jump", step=ids[number], reason=reason.strip())
            self._ask_agent(request, "sent …")

    def do_stop(self) -> None:
        known = self._driven_run()
        if known is None:
            return
        if known.view is None or not known.view.can_stop:
            self._navigator.notice = "no running action can be stopped now"
            return
        block = known.view.block
        self._view_stack.prompt = Prompt(
            "stop the running action? type `stop`", lambda text: self._stop(known, block, text)
        )

    def _stop(self, known: KnownRun, block: str, text: str) -> None:
        if text.strip() != "stop":
            self._navigator.notice = "nothing was stopped"
        elif known.view is None or known.view.block != block:
            self._navigator.notice = "it has ended already; nothing was stopped"
        else:
            self._control(known, "stop")

    def do_take(self) -> None:
        known = self._run
        if known is None or self._may_not_act():
            return
        if known.summary.state == "interrupted":
            self._navigator.notice = _INTERRUPTED
            return
        if known.yours or known.ended:
            self._navigator.notice = "this console already controls the run" if known.yours else "the run has ended"
            return
        driver = with_idle_time(known.view.driver) if known.view is not None and known.view.driver else "no console"
        self._view_stack.prompt = Prompt(
            f"take over from {driver}? type `yes`",
            lambda text: self._act_if_confirmed(text, lambda: self._control(known, "take")),
        )

    def do_undo(self) -> None:
        known = self._driven_run()
        if known is not None:
            self._view_stack.prompt = Prompt(
                "end the run and choose which steps to revert? type `yes`",
                lambda text: self._act_if_confirmed(text, lambda: self._control(known, "undo")),
            )

    def do_resume(self) -> None:
        known = self._run
        if known is None or self._may_not_act():
            return
        if known.summary.state != "interrupted":
            self._navigator.notice = "the run is not interrupted"
            return
        self._runbook_loader.request_read()
        self._view_stack.prompt = Prompt(
            "resume? unknown outcomes are determined first; type `yes`",
            lambda text: self._act_if_confirmed(text, lambda: self._resume(known)),
        )

    def _resume(self, known: KnownRun) -> None:
        """Resume the run. Secrets are not stored anywhere, so they must be entered again."""
        runbooks = self._navigator.runbooks
        runbook = None if runbooks is None else runbooks.find(known.summary.runbook)
        secrets = [] if runbook is None or runbook.plan is None else [one for one in runbook.plan.inputs if one.secret]
        given: dict[str, str] = {}
        self._ask_inputs(
            given, secrets, lambda: self._ask_agent(RunResume(run=known.run, inputs=given), "sent to the agent …")
        )

    # Internals

    def _driven_run(self) -> KnownRun | None:
        """The run shown, if this console controls it and it is open; else None, with a notice of the reason."""
        known = self._run
        if known is None or self._may_not_act():
            return None
        if known.summary.state == "interrupted":
            self._navigator.notice = _INTERRUPTED
            return None
        if known.ended or not known.yours:
            self._navigator.notice = (
                "the run has ended" if known.ended else "another console controls the run; T takes over"
            )
            return None
        return known

    def _control(self, known: KnownRun, verb: Literal["pause", "continue", "undo", "take", "stop"]) -> None:
        self._ask_agent(RunControl(run=known.run, verb=verb), "sent …")

    def report_run_continues(self) -> None:
        known = self._run
        if known is not None and known.view is not None and known.view.state not in ENDED_STATES:
            self._navigator.notice = "the run continues or waits for an answer; w shows it again"
