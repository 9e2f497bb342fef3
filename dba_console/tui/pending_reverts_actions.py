"""What is offered before all else: to put back what runs have left changed."""

from __future__ import annotations

from dba_console.agent.protocol import RunBegin
from dba_console.tui.pending_reverts import RUNBOOK_ID, PendingRevertsView, pending_reverts_finding
from dba_console.tui.runbook_actions import RunbookActions

OFFER_PERIOD_US = 60_000_000
"""After its first picture a console shows it by itself for so long: an agent that was just started has to look first.
Later it would come between the operator and a key."""


class PendingRevertsActions(RunbookActions):
    """Offered once in the life of a console; the finding stays."""

    _first_us: int | None = None
    _offered = False
    _revert_requested = False
    """The runbook is being read, to be begun."""

    def offer_pending_reverts(self) -> bool:
        """Show it, where there is something and nothing else was begun. True where it did."""
        frame = (
            self._navigator.frame() if not self._offered and self._navigator.connection_state == "attached" else None
        )
        if frame is None:
            return False
        self._first_us = frame.at_us if self._first_us is None else self._first_us
        self._offered = frame.at_us - self._first_us > OFFER_PERIOD_US
        if pending_reverts_finding(frame) is None:
            return False
        self._offered = True
        if self._view_stack.view is not self._view_stack.overview or self._view_stack.prompt is not None:
            return False
        self._runbook_loader.request_read()
        self._view_stack.show_pending_reverts()
        return True

    def open_awaited_run(self) -> bool:
        if self._revert_requested and self._navigator.runbooks is not None:
            self._revert_requested = False
            self.do_put_back()
        return super().open_awaited_run()

    def do_put_back(self) -> None:
        if not isinstance(self._view_stack.view, PendingRevertsView) or self._may_not_act():
            return
        if pending_reverts_finding(self._navigator.frame()) is None:
            self._navigator.notice = "nothing is left to be put back"
            return
        runbooks = self._navigator.runbooks
        runbook = None if runbooks is None else runbooks.find(RUNBOOK_ID)
        if runbooks is None:
            self._revert_requested = True
            self._runbook_loader.request_read()
            self._navigator.notice = "reading the runbook …"
        elif runbook is None:
            self._navigator.notice = (
                f"there is no runbook {RUNBOOK_ID}{': ' + runbooks.problem if runbooks.problem else ''}"
            )
        else:
            self.request_run(RunBegin(text=runbook.text, source=runbook.source, mode="run"))
