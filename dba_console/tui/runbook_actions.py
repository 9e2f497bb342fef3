"""What keys do about runbooks: the list, one of them read, its inputs, the beginning of a run."""

from __future__ import annotations

from typing import Literal

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.frames.model import Finding
from dba_console.tui.requests import Requests
from dba_console.tui.runbooks import RunbookPage, RunbooksView
from dba_console.tui.runs import KnownRun


class RunbookActions(Requests):
    """The actions of the list and the page of runbooks, and the way to a run."""

    _early: tuple[RunbookPage, Literal["run", "rehearse"]] | None = None
    """Asked for before the runbooks were read."""

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

    def _open_book(self, book_id: str, finding: Finding | None = None) -> None:
        self._shelf.want()
        self._stage.runbook(book_id, finding)

    def _open_run(self, known: KnownRun) -> None:
        """Show a run; the agent is asked for how it stands, and told that somebody is here again."""
        if not known.ended and known.told.state != "interrupted" and self._feed.refusal is None:
            known.refill()
            self._feed.ask(RunWatch(run=known.run))
        self._stage.walkthrough(known.run)

    def follow(self) -> bool:
        """Show the run that was begun here, once the agent has made it. True where it did."""
        if self._early is not None and self._navigator.books is not None:
            (page, mode), self._early = self._early, None
            if self._stage.view is page and self._stage.prompt is None:
                self._begin(mode)
                return True
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
            self._ask_inputs(view.given, view.book.plan.inputs, lambda: None, view.found)

    def do_begin(self) -> None:
        self._begin("run")

    def do_rehearse(self) -> None:
        self._begin("rehearse")

    def _begin(self, mode: Literal["run", "rehearse"]) -> None:
        view = self._stage.view
        if not isinstance(view, RunbookPage) or self._may_not_act():
            return
        if view.book is None:
            if self._navigator.books is None:
                self._early = (view, mode)
                self._navigator.notice = "the runbooks are being read; it begins when they are"
            return
        plan = view.book.plan
        if plan is None:
            self._navigator.notice = "it does not compile, so it cannot be begun"
            return
        found = view.found
        asked = [one for one in plan.inputs if (one.required and one.default is None) or one.name in found]
        missing = [one for one in asked if one.name not in view.given]
        self._ask_inputs(view.given, missing, lambda: self._send_begin(view, mode), found)

    def _send_begin(self, page: RunbookPage, mode: Literal["run", "rehearse"]) -> None:
        if (book := page.book) is not None:
            self.begin(RunBegin(text=book.text, source=book.source, inputs=dict(page.given), mode=mode))

    def begin(self, request: RunBegin) -> None:
        """Ask the agent for a run; it checks everything again and asks before it starts."""
        self._navigator.runs.expect()
        self._ask_agent(request, "asked the agent to prepare it …")
