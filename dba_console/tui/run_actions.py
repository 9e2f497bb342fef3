"""What keys do about runbooks and runs. The agent walks; the screen asks it and types what the operator decides.

Upheld here: enter alone sends nothing, an answer goes to the very question that was on the screen when it was begun,
and whatever ends, skips or takes over needs a typed word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from dba_console.agent.protocol import RunAnswer, RunBegin, RunControl, RunRequest, RunResume, RunWatch
from dba_console.errors import UsageError
from dba_console.plans.plan import Input
from dba_console.plans.view import ENDED, Question
from dba_console.tui.feed import Feed
from dba_console.tui.navigator import Navigator
from dba_console.tui.prompt import Prompt
from dba_console.tui.runbooks import RunbookPage, RunbooksView
from dba_console.tui.runs import KnownRun
from dba_console.tui.shelf import Shelf
from dba_console.tui.stage import Stage
from dba_console.tui.walkthrough import WalkthroughView
from dba_console.walkthrough.text import prompt_of

Verb = Literal["skip", "abort"]
_NOTHING_SAID = "nothing was sent: enter alone confirms nothing"


class RunActions:
    """The actions of runbooks, for whichever view shows one."""

    _stage: Stage
    _navigator: Navigator
    _feed: Feed
    _shelf: Shelf

    # Reading and beginning

    def do_runbooks(self) -> None:
        self._shelf.want()
        self._stage.runbooks()

    def do_walkthrough(self) -> None:
        known = self._navigator.runs.foremost
        if known is None:
            self._navigator.notice = "no run is under way; b shows the runbooks"
        else:
            self._open_run(known)

    def do_choose(self) -> None:
        view = self._stage.view
        if not isinstance(view, RunbooksView):
            return
        known = None if view.chosen_run is None else self._navigator.runs.get(view.chosen_run)
        if known is not None:
            self._open_run(known)
        elif view.chosen_book is not None:
            self._stage.runbook(view.chosen_book)

    def _open_book(self, book_id: str) -> None:
        self._shelf.want()
        self._stage.runbook(book_id)

    def _open_run(self, known: KnownRun) -> None:
        """Show a run; the agent is asked for how it stands, and told that somebody is here again."""
        if not known.ended and known.told.state != "interrupted" and self._feed.refusal is None:
            known.refill()
            self._feed.ask(RunWatch(run=known.run))
        self._stage.walkthrough(known.run)

    def follow(self) -> bool:
        """Show the run that was begun here, once the agent has made it. True where it did."""
        opened = self._navigator.runs.take_opened()
        if opened is None:
            return False
        if self._stage.prompt is None:
            self._stage.walkthrough(opened)
        else:
            self._navigator.notice = "the run is prepared; w shows it"
        return True

    def ask_for_run(self, request: RunBegin | RunResume | RunWatch) -> None:
        """Begin, resume or show a run, as the command line asked."""
        if isinstance(request, RunBegin):
            self.begin(request)
        else:
            self._ask_agent(request, "asked the agent for the run …")
            self._stage.walkthrough(request.run)

    def do_inputs(self) -> None:
        view = self._stage.view
        if isinstance(view, RunbookPage) and view.book is not None and view.book.plan is not None:
            self._ask_inputs(view.given, view.book.plan.inputs, lambda: None)

    def do_begin(self) -> None:
        self._begin("run")

    def do_rehearse(self) -> None:
        self._begin("rehearse")

    def _begin(self, mode: Literal["run", "rehearse"]) -> None:
        view = self._stage.view
        if not isinstance(view, RunbookPage) or view.book is None or self._may_not_act():
            return
        plan = view.book.plan
        if plan is None:
            self._navigator.notice = "it does not compile, so it cannot be begun"
            return
        missing = [one for one in plan.inputs if one.required and one.default is None and one.name not in view.given]
        self._ask_inputs(view.given, missing, lambda: self._send_begin(view, mode))

    def _send_begin(self, page: RunbookPage, mode: Literal["run", "rehearse"]) -> None:
        if (book := page.book) is not None:
            self.begin(RunBegin(text=book.text, source=book.source, inputs=dict(page.given), mode=mode))

    def begin(self, request: RunBegin) -> None:
        """Ask the agent for a run; it checks everything again and asks before it starts."""
        self._navigator.runs.expect()
        self._ask_agent(request, "asked the agent to prepare it …")

    def _ask_inputs(self, given: dict[str, str], inputs: Sequence[Input], done: Callable[[], None]) -> None:
        """Ask for one input after the other; escape leaves the rest as they are."""
        if not inputs:
            done()
            return
        one, rest = inputs[0], inputs[1:]
        default = "" if one.secret or one.default is None else str(one.default)
        self._stage.prompt = Prompt(
            f"{one.name} ({one.type})",
            lambda text: self._take_input(given, one, text, lambda: self._ask_inputs(given, rest, done)),
            text="" if one.secret else given.get(one.name, default),
            secret=one.secret,
        )

    def _take_input(self, given: dict[str, str], one: Input, text: str, then: Callable[[], None]) -> None:
        from dba_console.runbook.values import value_of  # loaded when a runbook is used

        said = text if one.secret else text.strip()
        if not said and one.required and one.default is None:
            self._navigator.notice = f"{one.name} has to be given"
            return
        try:
            if said:
                value_of(one, said)
        except UsageError as error:
            self._navigator.notice = "; ".join(filter(None, (error.message, error.hint)))
            return
        if said:
            given[one.name] = said
        else:
            given.pop(one.name, None)
        then()

    # Walking

    @property
    def _run(self) -> KnownRun | None:
        view = self._stage.view
        return view.known if isinstance(view, WalkthroughView) else None

    def do_answer(self) -> None:
        known = self._run
        if known is None or (question := self._question(known)) is None:
            return
        self._stage.prompt = Prompt(
            prompt_of(question), lambda text: self._answer(known, question, text), secret=question.secret
        )

    def do_read(self) -> None:
        known = self._run
        if known is None or (question := self._question(known)) is None:
            return
        if question.kind == "ack":
            self._answer(known, question, "y")
        else:
            self._navigator.notice = "this wants more than a letter: enter, then type it"

    def _question(self, known: KnownRun) -> Question | None:
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
        said = text if question.secret else text.strip()
        if not said:
            self._navigator.notice = _NOTHING_SAID
        elif known.question is None or known.question.id != question.id:
            self._navigator.notice = "that is not asked any more; nothing was sent"
        else:
            self._ask_agent(RunAnswer(run=known.run, question=question.id, text=said), "sent …")

    def do_hold(self) -> None:
        if (known := self._driven()) is not None:
            held = known.told.state == "paused"
            self._control(known, "continue" if held else "pause")

    def do_skip(self) -> None:
        self._with_reason("skip", "skip what is under way, because")

    def do_abort(self) -> None:
        self._with_reason("abort", "end the run here, because")

    def _with_reason(self, verb: Verb, question: str) -> None:
        if (known := self._driven()) is not None:
            self._stage.prompt = Prompt(question, lambda text: self._send_reason(known, verb, text.strip()))

    def _send_reason(self, known: KnownRun, verb: Verb, reason: str) -> None:
        if reason:
            self._ask_agent(RunControl(run=known.run, verb=verb, reason=reason), "sent …")
        else:
            self._navigator.notice = f"nothing was sent: {verb} needs a reason"

    def do_jump(self) -> None:
        if (known := self._driven()) is not None:
            self._stage.prompt = Prompt("go on at step (number, then why)", lambda text: self._jump(known, text))

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
        known = self._driven()
        if known is None:
            return
        if known.view is None or not known.view.can_stop:
            self._navigator.notice = "nothing runs now that can be stopped"
            return
        block = known.view.block
        self._stage.prompt = Prompt("stop what runs now? type stop", lambda text: self._stop(known, block, text))

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
        if known.yours or known.ended:
            self._navigator.notice = "this console drives it already" if known.yours else "it has ended"
            return
        driver = (known.view and known.view.driver) or "nobody"
        self._stage.prompt = Prompt(
            f"take over from {driver}? type yes",
            lambda text: self._confirmed(text, lambda: self._control(known, "take")),
        )

    def do_undo(self) -> None:
        known = self._run
        if known is not None and not self._may_not_act():
            self._control(known, "undo")

    def do_resume(self) -> None:
        known = self._run
        if known is None or self._may_not_act():
            return
        if known.told.state != "interrupted":
            self._navigator.notice = "it was not interrupted"
            return
        self._shelf.want()
        self._stage.prompt = Prompt(
            "go on with it? what is not known is settled first; type yes",
            lambda text: self._confirmed(text, lambda: self._resume(known)),
        )

    def _resume(self, known: KnownRun) -> None:
        """Go on with it. What was secret is written nowhere: it is asked for anew."""
        books = self._navigator.books
        book = None if books is None else books.find(known.told.runbook)
        secrets = [] if book is None or book.plan is None else [one for one in book.plan.inputs if one.secret]
        given: dict[str, str] = {}
        self._ask_inputs(
            given, secrets, lambda: self._ask_agent(RunResume(run=known.run, inputs=given), "asked the agent …")
        )

    # The details

    def _confirmed(self, text: str, act: Callable[[], None]) -> None:
        if text.strip() == "yes":
            act()
        else:
            self._navigator.notice = "nothing was done"

    def _driven(self) -> KnownRun | None:
        """The run shown, where this console drives it and it goes on; why not is said."""
        known = self._run
        if known is None or self._may_not_act():
            return None
        if known.ended or not known.yours:
            self._navigator.notice = "it has ended" if known.ended else "another console drives it; t takes over"
            return None
        return known

    def _control(self, known: KnownRun, verb: Literal["pause", "continue", "undo", "take", "stop"]) -> None:
        self._ask_agent(RunControl(run=known.run, verb=verb), "sent …")

    def _ask_agent(self, request: RunRequest, said: str) -> None:
        self._navigator.notice = self._feed.ask(request) or said
        self._navigator.sent = said

    def _may_not_act(self) -> bool:
        """True where nothing can be done from this screen now; why is said."""
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
        elif not self._navigator.cursor.live:
            self._navigator.notice = "this is the past: end brings you back to what is now"
        else:
            return False
        return True

    def _say_that_it_goes_on(self) -> None:
        known = self._run
        if known is not None and known.view is not None and known.view.state not in ENDED:
            self._navigator.notice = "the run goes on, or waits for an answer; w shows it again"
