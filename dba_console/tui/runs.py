"""What this console knows of runs: the newest view of each, its last output, and which of them wants something.

Used by the screen's thread alone. What the agent sent last is the truth; nothing here is derived from keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from dba_console.agent.protocol import OpenRun, RunLines, RunRefused, RunReply, RunViewMessage
from dba_console.plans.run_view import ENDED_STATES, OutputLine, Question, RunView
from dba_console.samples.event import Event

if TYPE_CHECKING:
    from dba_console.tui.recorded_runs import RecordedRun

LINES = 5_000
"""Of a run's output, kept to be looked at; all of it is in the run's directory."""
WORD = "s"
"""In place of o or e: said by the run itself."""
TOLD = (
    "run.", "step.", "block.intent", "block.result", "block.settled", "block.skipped", "choose.", "rows.", "deviation",
    "person.", "undo.", "repeat.", "journal.fallback", "journal.home",
)  # fmt: skip
"""Records that say what was done; what was merely seen and asked is on the screen anyway."""
ENDED_KEPT = 8
"""Ended runs that can still be looked at from this console."""


class KnownRun:
    """A run as it was last told of. `view` is None until the agent has sent one."""

    def __init__(self, told: OpenRun) -> None:
        self.run = told.run
        self.told = told
        self.view: RunView | None = None
        self.yours = False
        self.may_answer = False
        self.why_not = ""
        self.output: list[OutputLine] = []
        self.dropped = 0
        self.refused = 0
        """How often something that was asked of it was refused."""
        self._refilled = False

    @property
    def ended(self) -> bool:
        return self.told.state in ENDED_STATES

    @property
    def question(self) -> Question | None:
        return None if self.view is None else self.view.question

    @property
    def asks_me(self) -> bool:
        """There is a question that this console may answer."""
        return self.question is not None and self.may_answer

    def see(self, message: RunViewMessage) -> None:
        """Take its newest view."""
        view = message.view
        if self.told.state == "interrupted" != view.state:
            # Resumed: its agent sends again what it has not read yet of the command's log.
            self._refilled = True
        self.view, self.yours = view, message.yours
        self.may_answer, self.why_not = message.may_answer, message.why_not
        self.told = OpenRun(
            run=view.run, runbook=view.runbook, title=view.title, state=view.state, asks=view.question is not None
        )

    def refill(self) -> None:
        """Its last lines have been asked for: they take the place of those that are here already."""
        self._refilled = True

    def hear(self, message: RunLines) -> None:
        """Take lines of its output; those that were never sent, or fall out at the front, are counted."""
        if (self._refilled or self.told.state == "interrupted") and message.lines:
            self._refilled, from_us = False, message.lines[0].wall_us
            self.output = [one for one in self.output if one.wall_us < from_us or one.stream == WORD]
        self._add(message.lines, message.dropped)

    def happened(self, event: Event) -> None:
        """Take a word of its journal: it stands among the output, where it happened."""
        self._add([OutputLine(event.wall_us, WORD, event.tag, event.text)])

    def _add(self, lines: Sequence[OutputLine], dropped: int = 0) -> None:
        late = self.output and lines and lines[0].wall_us < self.output[-1].wall_us
        self.output += lines
        if late:
            self.output.sort(key=lambda one: one.wall_us)
        over = max(0, len(self.output) - LINES)
        del self.output[:over]
        self.dropped += dropped + over


class Runs:
    """All runs told of, oldest first. `changed` counts what came; `opened` is a run this console has begun, once."""

    def __init__(self) -> None:
        self._known: dict[str, KnownRun] = {}
        self._unheard: dict[str, KnownRun] = {}
        """Open runs the agent there is now has not spoken of: an agent that is new has to find them first."""
        self.changed = 0
        self.refusal: RunRefused | None = None
        """The newest refusal, until the screen has said it."""
        self.refused: int | None = None
        """Exit code of the newest refusal to begin or resume a run."""
        self.begun: str | None = None
        """The first run that this console has begun."""
        self.recorded: tuple[RecordedRun, ...] = ()
        """Those of a recording; empty where an agent tells of runs."""
        self._expected = False
        self._opened: str | None = None

    # What arrives

    def attached(self, open_runs: Sequence[OpenRun]) -> None:
        """An agent was attached to, which names the runs it knows to be open: others that had not ended are not its."""
        named = {told.run for told in open_runs}
        self._unheard |= {name: one for name, one in self._known.items() if not one.ended and name not in named}
        self._known = {name: one for name, one in self._known.items() if name not in self._unheard}
        for told in open_runs:
            known = self._known.setdefault(told.run, self._recalled(told))
            known.told, known.may_answer = told, False
            if known.view is not None:
                known.view = structs.replace(known.view, state=told.state, question=None, waiting=None)
        self._expected = False
        self.changed += 1

    def receive(self, word: RunReply) -> None:
        """Take what the agent says of a run."""
        self.changed += 1
        match word:
            case RunViewMessage():
                self._see(word)
            case RunLines():
                if (known := self._known.get(word.run)) is not None:
                    known.hear(word)
            case RunRefused():
                self.refusal, self.refused = word, word.code
                if (known := self._known.get(word.reply_to)) is not None:
                    known.refused += 1
                self._expected = self._expected and bool(word.reply_to)

    def happened(self, event: Event) -> None:
        """Take an event; those of a run's journal that say what was done stand among its output."""
        known = self._known.get(str(event.details.get("run")))
        if known is not None and event.kind.startswith(TOLD):
            known.happened(event)
            self.changed += 1

    def _see(self, message: RunViewMessage) -> None:
        view = message.view
        known = self._known.get(view.run)
        if known is None:
            told = OpenRun(run=view.run, runbook=view.runbook, title=view.title, state=view.state)
            known = self._known[view.run] = self._recalled(told)
            if self._expected and message.yours:
                self._expected, self._opened = False, view.run
                self.begun = self.begun or view.run
        known.see(message)
        ended = [name for name, one in self._known.items() if one.ended]
        for name in ended[:-ENDED_KEPT]:
            del self._known[name]

    def _recalled(self, told: OpenRun) -> KnownRun:
        """The run as this console knew it before its agent was gone, or a new one."""
        before = self._unheard.pop(told.run, None)
        return KnownRun(told) if before is None else before

    def show_at(self, wall_us: int | None) -> None:
        """In a recording: know the runs as they stood at that moment."""
        if self.recorded and wall_us is not None:
            then = [run.at(wall_us) for run in self.recorded]
            self._known = {known.run: known for known in then if known is not None}
            self.changed += 1

    # What is asked of it

    def expect(self) -> None:
        """A run has been asked for: the first new one of this console's is the one to be opened."""
        self._expected = True

    def take_opened(self) -> str | None:
        """The run that was begun here and shall be shown, once."""
        opened, self._opened = self._opened, None
        return opened

    def take_refusal(self) -> str | None:
        """Why the last thing asked of a run was not done, once."""
        refused, self.refusal = self.refusal, None
        return None if refused is None else "; ".join(filter(None, (refused.text, refused.hint)))

    def get(self, run: str) -> KnownRun | None:
        return self._known.get(run)

    @property
    def all(self) -> list[KnownRun]:
        """Every run known, those that want an answer first, then open ones, then ended ones; newest first in each."""
        newest_first = list(self._known.values())
        newest_first.reverse()
        return sorted(newest_first, key=lambda one: (not one.asks_me, one.ended))

    @property
    def foremost(self) -> KnownRun | None:
        """The run to look at first, None where none is known."""
        return next(iter(self.all), None)

    def sign(self, *, lost: bool = False) -> tuple[str, bool]:
        """What the header says of runs, and whether something is wanted: nothing where no run is open.

        `lost`: no agent is attached, so nothing can be said of what the run does now.
        """
        one = self.foremost
        if one is None or one.ended:
            return "", False
        if lost:
            return f"{one.told.runbook}: NO AGENT", True
        if one.asks_me:
            return "ANSWER WANTED: w", True
        if one.told.state == "interrupted":
            return "RUN INTERRUPTED: w", True
        if one.told.state == "paused":
            return f"{one.told.runbook} paused", False
        return f"{one.told.runbook} {'asks' if one.told.asks else 'runs'}", False
