"""The runs this console knows: the latest view of each, its last output, and which of them needs an answer.

Runs of a recording are read from disk. Used by the screen's thread only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from dba_console.agent.protocol import OpenRun, RunLines, RunRefused, RunReply, RunViewMessage
from dba_console.runbooks.run_view import ENDED_STATES, OutputLine, Question, RunView
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.recording.plan import JournalRecord, Plan
    from dba_console.runbooks.run_state import RunState

MAX_OUTPUT_LINES = 5_000
"""Lines of a run's output kept for the screen; the run's directory has all of it."""
RUN_STREAM = "s"
"""Stream letter of the run's own records, in place of o or e."""
SHOWN_RECORD_KINDS = (
    "run.", "step.", "block.intent", "block.result", "block.settled", "block.skipped", "choose.", "rows.", "deviation",
    "person.", "undo.", "repeat.", "journal.fallback", "journal.home",
)  # fmt: skip
"""Kinds of records that say what was done; observations and questions are on the screen anyway."""
MAX_ENDED_RUNS = 8
"""Ended runs that this console keeps."""


class KnownRun:
    """A run as last reported. `view` is None until the agent has sent one."""

    def __init__(self, summary: OpenRun) -> None:
        self.run = summary.run
        self.summary = summary
        self.view: RunView | None = None
        self.yours = False
        self.may_answer = False
        self.why_not = ""
        self.output: list[OutputLine] = []
        self.dropped = 0
        self.refusal_count = 0
        """Number of refused requests for this run."""
        self._output_resent = False

    @property
    def ended(self) -> bool:
        return self.summary.state in ENDED_STATES

    @property
    def question(self) -> Question | None:
        return None if self.view is None else self.view.question

    @property
    def needs_my_answer(self) -> bool:
        """True if a question is open that this console may answer."""
        return self.question is not None and self.may_answer

    def update_view(self, message: RunViewMessage) -> None:
        """Take its latest view."""
        view = message.view
        if self.summary.state == "interrupted" != view.state:
            # Resumed: its agent resends the part of the command's log that it has not read yet.
            self._output_resent = True
        self.view, self.yours = view, message.yours
        self.may_answer, self.why_not = message.may_answer, message.why_not
        self.summary = OpenRun(
            run=view.run, runbook=view.runbook, title=view.title, state=view.state, asks=view.question is not None
        )

    def expect_resent_output(self) -> None:
        """The last lines were requested again: they replace those that are here already."""
        self._output_resent = True

    def add_output(self, message: RunLines) -> None:
        """Append lines of its output; lines that were never sent or fall out at the front are counted."""
        if (self._output_resent or self.summary.state == "interrupted") and message.lines:
            self._output_resent, from_us = False, message.lines[0].wall_us
            self.output = [one for one in self.output if one.wall_us < from_us or one.stream == RUN_STREAM]
        self._add(message.lines, message.dropped)

    def add_event(self, event: Event) -> None:
        """Append a record of its journal among the output, at its time."""
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
    """All runs reported, oldest first. `changed` counts updates."""

    def __init__(self) -> None:
        self._known: dict[str, KnownRun] = {}
        self._not_reported: dict[str, KnownRun] = {}
        """Open runs not yet reported by the agent now attached: a new agent must find them first."""
        self.changed = 0
        self.refusal: RunRefused | None = None
        """The latest refusal, until it was shown."""
        self.refusal_code: int | None = None
        """Exit code of the latest refusal to start or resume a run."""
        self.first_started: str | None = None
        """The first run started from this console."""
        self.recorded: tuple[RecordedRun, ...] = ()
        """The runs of a recording; empty if an agent reports runs."""
        self._run_expected = False
        self._run_to_open: str | None = None

    # Arrivals

    def attached(self, open_runs: Sequence[OpenRun]) -> None:
        """An agent was attached, with the runs it knows to be open; other open runs are not its own."""
        named = {one.run for one in open_runs}
        self._not_reported |= {name: one for name, one in self._known.items() if not one.ended and name not in named}
        self._known = {name: one for name, one in self._known.items() if name not in self._not_reported}
        for open_run in open_runs:
            known = self._known.setdefault(open_run.run, self._restore_known(open_run))
            known.summary, known.may_answer = open_run, False
            if known.view is not None:
                known.view = structs.replace(known.view, state=open_run.state, question=None, waiting=None)
        self._run_expected = False
        self.changed += 1

    def receive(self, message: RunReply) -> None:
        """Take a message of the agent about a run."""
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
        """Take an event; those of a run's journal that say what was done appear among its output."""
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
        """Return the run as known before its agent was lost, or a new one."""
        known = self._not_reported.pop(summary.run, None)
        return KnownRun(summary) if known is None else known

    def show_recorded(self, recorded: tuple[RecordedRun, ...]) -> None:
        """In a recording: show the runs of this session, and none of another host's."""
        self.recorded, self._known = recorded, {}
        self.changed += 1

    def show_at(self, wall_us: int | None) -> None:
        """In a recording: load the runs as they were at that time."""
        if self.recorded and wall_us is not None:
            states = [run.at(wall_us) for run in self.recorded]
            self._known = {known.run: known for known in states if known is not None}
            self.changed += 1

    # Queries

    def expect_run(self) -> None:
        """A run was requested: the next new run of this console is the one to open."""
        self._run_expected = True

    def take_run_to_open(self) -> str | None:
        """Return the run started here that must be shown, once."""
        opened, self._run_to_open = self._run_to_open, None
        return opened

    def take_refusal(self) -> str | None:
        """Return why the latest request for a run was refused, once."""
        refused, self.refusal = self.refusal, None
        return None if refused is None else "; ".join(filter(None, (refused.text, refused.hint)))

    def get(self, run: str) -> KnownRun | None:
        return self._known.get(run)

    @property
    def all(self) -> list[KnownRun]:
        """All known runs: those that need an answer, then open ones, then ended ones; newest first in each."""
        newest_first = list(self._known.values())
        newest_first.reverse()
        return sorted(newest_first, key=lambda one: (not one.needs_my_answer, one.ended))

    @property
    def most_urgent(self) -> KnownRun | None:
        """The run to show first, None if no run is known."""
        return next(iter(self.all), None)

    def header_status(self, *, agent_lost: bool = False) -> tuple[str, bool]:
        """Return the header text about runs, and whether an answer is needed; empty if no run is open.

        `agent_lost`: no agent is attached, so the run's current state is unknown.
        """
        one = self.most_urgent
        if one is None or one.ended:
            return "", False
        if agent_lost:
            return f"{one.summary.runbook}: NO AGENT", True
        if one.needs_my_answer:
            return "ANSWER NEEDED: w", True
        if one.summary.state == "interrupted":
            return "RUN INTERRUPTED: w", True
        if one.summary.state == "paused":
            return f"{one.summary.runbook} paused", False
        return f"{one.summary.runbook} {'asks' if one.summary.asks else 'runs'}", False


# Runs of a recorded session as they were at any time, replayed from their journals.
#
# Journals and logs are read once, in a thread of the feed; the state at a time is computed from them.

RECORDING_NOTICE = "this is a recording: runs cannot be answered"


@dataclass(slots=True, eq=False)
class RecordedRun:
    """One run: its plan, its records, its commands' output. After reading, used by the screen's thread only."""

    directory: Path
    plan: Plan
    records: tuple[JournalRecord, ...]
    output: tuple[OutputLine, ...]
    """In order of time, with the records that say what was done."""
    _count: int = -1
    """Number of records before the time last shown, and the state computed from them."""
    _state: RunState | None = None
    _known: KnownRun | None = None

    def at(self, wall_us: int) -> KnownRun | None:
        """Return the run as it was then; None if it did not exist yet or its records cannot be interpreted."""
        count = bisect_right(self.records, wall_us, key=lambda record: record.wall_us)
        try:
            if count != self._count:
                self._count, self._state, self._known = count, None, None
                self._state = self._replay(count)
            if self._state is None:
                return None
            # An ended run does not change with time alone.
            if self._known is None or not self._known.ended:
                self._known = self._known_run(self._state, wall_us)
        except Exception:  # of another version, or a bug: the other runs are shown
            return None
        self._known.output = list(self.output[: bisect_right(self.output, wall_us, key=lambda line: line.wall_us)])
        return self._known

    def _replay(self, count: int) -> RunState | None:
        from dba_console.runbooks.apply_records import replay_records

        state = replay_records(self.plan, self.records[:count])
        return state if state.run else None

    def _known_run(self, state: RunState, wall_us: int) -> KnownRun:
        from dba_console.core.decoding import convert
        from dba_console.runbooks.run_view import Question
        from dba_console.runbooks.view_builder import LiveStatus, run_view

        asked = state.asked
        question = None
        if asked is not None:
            fields = {"id": 0, "kind": asked.fields.get("question", ""), "text": asked.text, "since_us": asked.wall_us}
            question = convert({**fields, "step": asked.step, "block": asked.block}, Question)
        now_us = self.records[self._count - 1].wall_us if state.ended else wall_us
        live = LiveStatus(now_us=now_us, directory=str(self.directory), question=question, driver=state.who)
        view = run_view(self.plan, state, live)
        summary = OpenRun(run=view.run, runbook=view.runbook, title=view.title, state=view.state, asks=bool(asked))
        known = KnownRun(summary)
        known.view, known.why_not = view, RECORDING_NOTICE
        return known


@dataclass(frozen=True, slots=True)
class RecordedRunsArrived:
    """The runs of the session, oldest first."""

    runs: tuple[RecordedRun, ...]
    host: int = 0
    """Which of the recorded hosts they are of."""


def read_runs(session: Path, put: Callable[[RecordedRunsArrived], None], host: int = 0) -> None:
    """Read the runs and pass them to `put`; unreadable ones are left out, `runbook runs` names them."""
    from dba_console.recording.run_paths import run_directories

    try:
        directories = sorted(run_directories(session))
    except OSError:
        return
    if directories:
        put(
            RecordedRunsArrived(
                tuple(run for directory in directories if (run := _read_recorded_run(directory)) is not None), host
            )
        )


def _read_recorded_run(directory: Path) -> RecordedRun | None:
    from dba_console.core.errors import SessionError
    from dba_console.recording.plan import log_tag
    from dba_console.recording.run_reader import read_run

    try:
        stored_run = read_run(directory)
    except SessionError:
        return None
    if stored_run.plan is None:
        return None
    tag = log_tag(stored_run.plan)
    done = [
        OutputLine(one.wall_us, RUN_STREAM, tag, one.text)
        for one in stored_run.records
        if one.kind.startswith(SHOWN_RECORD_KINDS)
    ]
    output = sorted([*done, *_command_output(directory, tag)], key=lambda line: line.wall_us)
    return RecordedRun(directory, stored_run.plan, stored_run.records, tuple(output))


def _command_output(directory: Path, tag: str) -> list[OutputLine]:
    """Return the newest output lines of each command."""
    from dba_console.agent.runs.commands import read_newest_lines
    from dba_console.recording.run_paths import STEPS

    try:
        log_directories = sorted((directory / STEPS).iterdir())
    except OSError:
        return []  # no command of it ran
    found: list[OutputLine] = []
    for log_directory in log_directories:
        with suppress(OSError):  # its log is gone or not readable
            found += read_newest_lines(log_directory, tag)[0]
    return found
