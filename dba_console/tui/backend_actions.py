"""Cancel and terminate from the tables of sessions and locks: a run of one step on the exact rows chosen.

The screen names backends by pid and start and nothing else; the agent looks at them again, shows the set and asks.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dba_console.agent.protocol import RunBegin
from dba_console.errors import UsageError
from dba_console.tui.backends import BackendsView
from dba_console.tui.run_actions import RunActions


class BackendActions(RunActions):
    """The actions on backends."""

    def do_cancel(self) -> None:
        self._signal("cancel")

    def do_terminate(self) -> None:
        self._signal("terminate")

    def _signal(self, verb: Literal["cancel", "terminate"]) -> None:
        view = self._view_stack.view
        if not isinstance(view, BackendsView) or self._may_not_act():
            return
        rows, gone = view.chosen_backends()
        if not rows:
            self._navigator.notice = "choose a session first: ↑↓ selects one, x ticks several"
            return
        from dba_console.runbook.single_action import signal_plan  # loaded when it is used

        try:
            plan = signal_plan(verb, rows)
        except UsageError as error:
            self._navigator.notice = "; ".join(filter(None, (error.message, error.hint)))
            return
        view.untick()
        self.request_run(RunBegin(text="", source="screen", adhoc=msgspec.json.encode(plan)))
        if gone and self._feed.refusal is None:
            self._navigator.notice = f"asked the agent; {gone} of the ticked rows are gone and left out"
