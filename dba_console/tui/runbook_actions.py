"""What keys do about runbooks: the list, one of them read, its inputs, the beginning of a run."""

from __future__ import annotations

from typing import Literal

from dba_console.agent.protocol import RunBegin, RunResume, RunWatch
from dba_console.frames.model import Finding
from dba_console.tui.agent_requests import AgentRequests
from dba_console.tui.known_runs import KnownRun
from dba_console.tui.runbooks import RunbookPage, RunbooksView


class RunbookActions(AgentRequests):
    """The actions of the list and the page of runbooks, and the way to a run."""

    _begin_when_loaded: tuple[RunbookPage, Literal["run", "rehearse"]] | None = None
    """Asked for before the runbooks were read."""

    def do_runbooks(self) -> None:
        self._runbook_loader.request_read()
        self._view_stack.show_runbooks()

    def do_walkthrough(self) -> None:
        known = self._navigator.runs.most_urgent
        if known is None:
            self._navigator.notice = "no run is under way; b shows the runbooks"
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
            self._view_stack.show_runbook(view.chosen_runbook)

    def _open_runbook(self, runbook_id: str, finding: Finding | None = None) -> None:
        self._runbook_loader.request_read()
        self._view_stack.show_runbook(runbook_id, finding)

    def _open_run(self, known: KnownRun) -> None:
        """Show a run; the agent is asked for how it stands, and told that somebody is here again."""
        if not known.ended and known.told.state != "interrupted" and self._feed.refusal is None:
            known.expect_resent_output()
            self._feed.send_request(RunWatch(run=known.run))
        self._view_stack.show_run(known.run)

    def open_awaited_run(self) -> bool:
        """Show the run that was begun here, once the agent has made it. True where it did."""
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
        """Begin, resume or show a run, as the command line asked."""
        if isinstance(request, RunBegin):
            self.request_run(request)
        else:
            self._ask_agent(request, "asked the agent for the run …")
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
                self._navigator.notice = "the runbooks are being read; it begins when they are"
            return
        plan = view.runbook.plan
        if plan is None:
            self._navigator.notice = "it does not compile, so it cannot be begun"
            return
        found = view.finding_inputs
        asked = [one for one in plan.inputs if (one.required and one.default is None) or one.name in found]
        missing = [one for one in asked if one.name not in view.given]
        self._ask_inputs(view.given, missing, lambda: self._send_begin(view, mode), found)

    def _send_begin(self, page: RunbookPage, mode: Literal["run", "rehearse"]) -> None:
        if (runbook := page.runbook) is not None:
            self.request_run(RunBegin(text=runbook.text, source=runbook.source, inputs=dict(page.given), mode=mode))

    def request_run(self, request: RunBegin) -> None:
        """Ask the agent for a run; it checks everything again and asks before it starts."""
        self._navigator.runs.expect_run()
        self._ask_agent(request, "asked the agent to prepare it …")
