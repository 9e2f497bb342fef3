"""How the screen asks the agent for something: in the present only, and saying what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dba_console.agent.protocol import RunRequest
from dba_console.errors import UsageError
from dba_console.plans.plan import Input
from dba_console.tui.feed import Feed
from dba_console.tui.navigator import Navigator
from dba_console.tui.prompt import Prompt
from dba_console.tui.shelf import Shelf
from dba_console.tui.stage import Stage

_NONE: Mapping[str, str] = {}


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

    def _ask_inputs(
        self, given: dict[str, str], inputs: Sequence[Input], done: Callable[[], None], found: Mapping[str, str] = _NONE
    ) -> None:
        """Ask for one input after the other; escape leaves the rest as they are. `found`: what the finding says."""
        if not inputs:
            done()
            return
        self._ask_input(given, inputs[0], found, lambda: self._ask_inputs(given, inputs[1:], done, found))

    def _ask_input(
        self, given: dict[str, str], one: Input, found: Mapping[str, str], then: Callable[[], None], *,
        wrong: str | None = None, why: str = "",
    ) -> None:  # fmt: skip
        """`wrong` was typed and does not do, for the reason `why`: it can be corrected where it stands."""
        from dba_console.runbook.values import as_written  # loaded when a runbook is used

        default = "" if one.secret or one.default is None else as_written(one, one.default)
        known = "" if one.secret else given.get(one.name, found.get(one.name, default))
        origin = ", from the finding" if known and one.name not in given and one.name in found else ""
        self._stage.prompt = Prompt(
            f"{one.name} ({one.type}){origin}",
            lambda text: self._take_input(given, one, text, found, then),
            text=known if wrong is None or one.secret else wrong,
            secret=one.secret,
            told="\n".join(filter(None, (one.help, why))),
            offered=bool(known) and wrong is None,
        )

    def _take_input(
        self, given: dict[str, str], one: Input, text: str, found: Mapping[str, str], then: Callable[[], None]
    ) -> None:
        from dba_console.runbook.values import value_of  # loaded when a runbook is used

        said = text if one.secret else text.strip()
        if not said and one.required and one.default is None:
            self._ask_input(given, one, found, then, wrong="", why=f"{one.name} has to be given; esc leaves it")
            return
        try:
            if said:
                value_of(one, said)
        except UsageError as error:
            self._ask_input(given, one, found, then, wrong=said, why=error.message)
            return
        if said:
            given[one.name] = said
        else:
            given.pop(one.name, None)
        then()
