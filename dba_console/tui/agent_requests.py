"""How the screen asks the agent for something: in the present only, and saying what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dba_console.agent.protocol import RunRequest
from dba_console.errors import UsageError
from dba_console.plans.plan import Input
from dba_console.tui.feed import Feed
from dba_console.tui.prompt import Prompt
from dba_console.tui.runbook_loader import RunbookLoader
from dba_console.tui.time_travel import TimeNavigator
from dba_console.tui.view_stack import ViewStack

_NONE: Mapping[str, str] = {}


class AgentRequests:
    """What actions on runbooks and on runs have in common."""

    _view_stack: ViewStack
    _navigator: TimeNavigator
    _feed: Feed
    _runbook_loader: RunbookLoader

    def _ask_agent(self, request: RunRequest, sent_notice: str) -> None:
        self._navigator.notice = self._feed.send_request(request) or sent_notice
        self._navigator.sent_notice = sent_notice

    def _may_not_act(self) -> bool:
        """True where nothing can be done from this screen now; why is said."""
        if (why := self._feed.refusal) is not None:
            self._navigator.notice = why
        elif not self._navigator.cursor.live:
            self._navigator.notice = "this is the past: end brings you back to what is now"
        else:
            return False
        return True

    def _act_if_confirmed(self, text: str, act: Callable[[], None]) -> None:
        if text.strip() == "yes":
            act()
        else:
            self._navigator.notice = "nothing was done"

    def _ask_inputs(
        self,
        given: dict[str, str],
        inputs: Sequence[Input],
        on_done: Callable[[], None],
        found: Mapping[str, str] = _NONE,
    ) -> None:
        """Ask for one input after the other; escape leaves the rest as they are. `found`: what the finding says."""
        if not inputs:
            on_done()
            return
        self._ask_input(given, inputs[0], found, lambda: self._ask_inputs(given, inputs[1:], on_done, found))

    def _ask_input(
        self, given: dict[str, str], one: Input, found: Mapping[str, str], on_done: Callable[[], None], *,
        rejected: str | None = None, problem: str = "",
    ) -> None:  # fmt: skip
        """`wrong` was typed and does not do, for the reason `why`: it can be corrected where it stands."""
        from dba_console.runbook.values import as_written  # loaded when a runbook is used

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
        )

    def _take_input(
        self, given: dict[str, str], one: Input, text: str, found: Mapping[str, str], on_done: Callable[[], None]
    ) -> None:
        from dba_console.runbook.values import value_of  # loaded when a runbook is used

        entered = text if one.secret else text.strip()
        if not entered and one.required and one.default is None:
            self._ask_input(
                given, one, found, on_done, rejected="", problem=f"{one.name} has to be given; esc leaves it"
            )
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
