"""How the screen asks the agent for something: in the present only, and saying what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dba_console.agent.protocol import RunRequest
from dba_console.errors import UsageError
from dba_console.plans.plan import Input
from dba_console.tui.feed import Feed
from dba_console.tui.navigator import Navigator
from dba_console.tui.prompt import Prompt
from dba_console.tui.shelf import Shelf
from dba_console.tui.stage import Stage


class Requests:
    """What actions on runbooks and on runs have in common."""

    _stage: Stage
    _navigator: Navigator
    _feed: Feed
    _shelf: Shelf

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

    def _confirmed(self, text: str, act: Callable[[], None]) -> None:
        if text.strip() == "yes":
            act()
        else:
            self._navigator.notice = "nothing was done"

    def _ask_inputs(self, given: dict[str, str], inputs: Sequence[Input], done: Callable[[], None]) -> None:
        """Ask for one input after the other; escape leaves the rest as they are."""
        if not inputs:
            done()
            return
        one, rest = inputs[0], inputs[1:]
        from dba_console.runbook.values import as_written  # loaded when a runbook is used

        default = "" if one.secret or one.default is None else as_written(one, one.default)
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
