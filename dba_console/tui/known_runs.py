"""What this console knows of runs: the newest view of each, its last output, and which of them wants something.

Used by the screen's thread alone. What the agent sent last is the truth; nothing here is derived from keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from dba_console.agent.protocol import OpenRun, RunLines, RunRefused, RunReply, RunViewMessage
from dba_console.runbooks.run_view import ENDED_STATES, OutputLine, Question, RunView
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.tui.recorded_runs import RecordedRun

MAX_OUTPUT_LINES = 5_000
"""Of a run's output, kept to be looked at; all of it is in the run's directory."""
RUN_STREAM = "s"
"""In place of o or e: said by the run itself."""
SHOWN_RECORD_KINDS = (
    "run.", "step.", "block.intent", "block.result", "block.settled", "block.skipped", "choose.", "rows.", "deviation",
    "person.", "undo.", "repeat.", "journal.fallback", "journal.home",
)  # fmt: skip
"""Records that say what was done; what was merely seen and asked is on the screen anyway."""
MAX_ENDED_RUNS = 8
"""Ended runs that can still be looked at from this console."""


class KnownRun:
    """A run as it was last told of. `view` is None until the agent has sent one."""

    def __init__(self, summary: OpenRun) -> None:
        self.run = summary.run
        self.told = summary
        self.view: RunView | None = None
        self.yours = False
        self.may_answer = False
        self.why_not = ""
        self.output: list[OutputLine] = []
        self.dropped = 0
        self.refusal_count = 0
        """How often something that was asked of it was refused."""
        self._output_resent = False

    @property
    def ended(self) -> bool:
        return self.told.state in ENDED_STATES

    @property
    def question(self) -> Question | None:
        return None if self.view is None else self.view.question

    @property
    def needs_my_answer(self) -> bool:
        """There is a question that this console may answer."""
        return self.question is not None and self.may_answer

    def update_view(self, message: RunViewMessage) -> None:
        """Take its newest view."""
        view = message.view
        if self.told.state == "interrupted" != view.state:
            # Resumed: its agent sends again what it has not read yet of the command's log.
            self._output_resent = True
        self.view, self.yours = view, message.yours
        self.may_answer, self.why_not = message.may_answer, message.why_not
        self.told = OpenRun(
            run=view.run, runbook=view.runbook, title=view.title, state=view.state, asks=view.question is not None
        )

    def expect_resent_output(self) -> None:
        """Its last lines have been asked for: they take the place of those that are here already."""
        self._output_resent = True

    def add_output(self, message: RunLines) -> None:
        """Take lines of its output; those that were never sent, or fall out at the front, are counted."""
        if (self._output_resent or self.told.state == "interrupted") and message.lines:
            self._output_resent, from_us = False, message.lines[0].wall_us
            self.output = [one for one in self.output if one.wall_us < from_us or one.stream == RUN_STREAM]
        self._add(message.lines, message.dropped)

    def add_event(self, event: Event) -> None:
        """Take a word of its journal: it stands among the output, where it happened."""
        self._add([OutputLine(event.wall_us, RUN_STREAM, event.tag, event.text)])

    def _add(self, lines: Sequence[OutputLine], dropped: int = 0) -> None:
        late = self.output and lines and lines[0].wall_us < self.output[-1].wall_us
        self.output += lines
        if late:
            self.output.sort(key=lambda one: one.wall_us)
        over = max(0, len(self.output) - MAX_OUTPUT_LINES)
        del self.output[:over]
        self.dropped += dropped + over


class KnownRuns:
    """All runs told of, oldest first. `changed` counts what came; `opened` is a run this console has begun, once."""

    def __init__(self) -> None:
        self._known: dict[str, KnownRun] = {}
        self._not_reported: dict[str, KnownRun] = {}
        """Open runs the agent there is now has not spoken of: an agent that is new has to find them first."""
        self.changed = 0
        self.refusal: RunRefused | None = None
        """The newest refusal, until the screen has said it."""
        self.refusal_code: int | None = None
        """Exit code of the newest refusal to begin or resume a run."""
        self.first_started: str | None = None
        """The first run that this console has begun."""
        self.recorded: tuple[RecordedRun, ...] = ()
        """Those of a recording; empty where an agent tells of runs."""
        self._run_expected = False
        self._run_to_open: str | None = None

    # What arrives

    def attached(self, open_runs: Sequence[OpenRun]) -> None:
        """An agent was attached to, which names the runs it knows to be open: others that had not ended are not its."""
        named = {one.run for one in open_runs}
        self._not_reported |= {name: one for name, one in self._known.items() if not one.ended and name not in named}
        self._known = {name: one for name, one in self._known.items() if name not in self._not_reported}
        for open_run in open_runs:
            known = self._known.setdefault(open_run.run, self._restore_known(open_run))
            known.told, known.may_answer = open_run, False
            if known.view is not None:
                known.view = structs.replace(known.view, state=open_run.state, question=None, waiting=None)
        self._run_expected = False
        self.changed += 1

    def receive(self, message: RunReply) -> None:
        """Take what the agent says of a run."""
        self.changed += 1
        match message:
            case RunViewMessage():
                self._update_view(message)
            case RunLines():
                if (known := self._known.get(message.run)) is not None:
                    known.add_output(message)
            case RunRefused():
                self.refusal, self.refusal_code = message, message.code
                if (known := self._known.get(message.reply_to)) is not None:
                    known.refusal_count += 1
                self._run_expected = self._run_expected and bool(message.reply_to)

    def add_event(self, event: Event) -> None:
        """Take an event; those of a run's journal that say what was done stand among its output."""
        known = self._known.get(str(event.details.get("run")))
        if known is not None and event.kind.startswith(SHOWN_RECORD_KINDS):
            known.add_event(event)
            self.changed += 1

    def _update_view(self, message: RunViewMessage) -> None:
        view = message.view
        known = self._known.get(view.run)
        if known is None:
            summary = OpenRun(run=view.run, runbook=view.runbook, title=view.title, state=view.state)
            known = self._known[view.run] = self._restore_known(summary)
            if self._run_expected and message.yours:
                self._run_expected, self._run_to_open = False, view.run
                self.first_started = self.first_started or view.run
        known.update_view(message)
        ended = [name for name, one in self._known.items() if one.ended]
        for name in ended[:-MAX_ENDED_RUNS]:
            del self._known[name]

    def _restore_known(self, summary: OpenRun) -> KnownRun:
        """The run as this console knew it before its agent was gone, or a new one."""
        known = self._not_reported.pop(summary.run, None)
        return KnownRun(summary) if known is None else known

    def show_at(self, wall_us: int | None) -> None:
        """In a recording: know the runs as they stood at that moment."""
        if self.recorded and wall_us is not None:
            states = [run.at(wall_us) for run in self.recorded]
            self._known = {known.run: known for known in states if known is not None}
            self.changed += 1

    # What is asked of it

    def expect_run(self) -> None:
        """A run has been asked for: the first new one of this console's is the one to be opened."""
        self._run_expected = True

    def take_run_to_open(self) -> str | None:
        """The run that was begun here and shall be shown, once."""
        opened, self._run_to_open = self._run_to_open, None
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
        return sorted(newest_first, key=lambda one: (not one.needs_my_answer, one.ended))

    @property
    def most_urgent(self) -> KnownRun | None:
        """The run to look at first, None where none is known."""
        return next(iter(self.all), None)

    def header_status(self, *, agent_lost: bool = False) -> tuple[str, bool]:
        """What the header says of runs, and whether something is wanted: nothing where no run is open.

        `lost`: no agent is attached, so nothing can be said of what the run does now.
        """
        one = self.most_urgent
        if one is None or one.ended:
            return "", False
        if agent_lost:
            return f"{one.told.runbook}: NO AGENT", True
        if one.needs_my_answer:
            return "ANSWER WANTED: w", True
        if one.told.state == "interrupted":
            return "RUN INTERRUPTED: w", True
        if one.told.state == "paused":
            return f"{one.told.runbook} paused", False
        return f"{one.told.runbook} {'asks' if one.told.asks else 'runs'}", False
