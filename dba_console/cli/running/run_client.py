"""One end of a run without a screen: hears the agent, says what to tell, and answers by what was given or is typed.

Pure: the loop in client.py does the reading and writing.

It never answers by itself. What has no answer is asked of whoever types; where nobody can be asked, the run is ended,
or, where it would stay half done, left waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from dba_console.agent.protocol import (
    EventMessage,
    Notice,
    Request,
    RunAnswer,
    RunControl,
    RunLines,
    RunRefused,
    RunViewMessage,
)
from dba_console.cli.running.answers import AnswerMismatch, GivenAnswers
from dba_console.cli.running.changes import Change, is_over, record_change, view_changes
from dba_console.core.errors import ExitCode
from dba_console.runbooks.run_view import Question, RunTable, RunView
from dba_console.watch.samples.event import Event

REPEAT_INTERVAL_US = 10_000_000
"""Between two words of a wait or of progress, for people; JSON has each."""
MAX_EARLY_RECORDS = 300
"""Records kept until it is known which run is the one asked for; an agent sends its last 200 to who attaches."""
COMMANDS = {
    "/pause": "hold still at the next safe point",
    "/continue": "go on after a pause",
    "/skip REASON": "leave the step under way out",
    "/jump STEP REASON": "go on at another step",
    "/stop": "stop the command or action under way",
    "/abort [REASON]": "end the run",
    "/x NUMBER …": "leave rows out of what is acted on, or take them in again",
    "/take": "drive this run from here",
    "/leave": "leave it; the run goes on",
}


class ShowChange(NamedTuple):
    """Something to be told."""

    change: Change


class SendRequest(NamedTuple):
    """Something to be sent to the agent."""

    request: Request


class ExitClient(NamedTuple):
    """The end of this client."""

    code: int


Reaction = ShowChange | SendRequest | ExitClient


class RunClient:
    """Follows one run. `run` empty: the one it has just asked for."""

    def __init__(
        self,
        answers: GivenAnswers,
        *,
        can_ask: bool,
        run: str = "",
        every_change: bool = False,
        other_runs: Collection[str] = (),
    ) -> None:
        """`can_ask`: somebody can be asked. `every_change`: tell each word of a wait, however often. `other_runs`: runs
        that were there before; none of them is the one asked for.
        """
        self.run = run
        self.view: RunView | None = None
        self.code: int | None = None
        """Why this client ended the run; the exit code that stands for it."""
        self._answers, self._can_ask, self._every_change = answers, can_ask, every_change
        self._other_runs = frozenset(other_runs)
        self._run_existed = bool(run)
        """It was there before this client."""
        self._may_answer = False
        self._is_driver = False
        self._answered_id = 0
        self._is_reverting = False
        """What is asked is about taking back what `--confirm undo=…` names, which confirms each of it."""
        self._given_for: Question | None = None
        self._last_choice: tuple[str, int, tuple[int, ...]] | None = None
        """Preview, look and rows of the last choice by what was given beforehand."""
        self._last_shown_us = 0
        self._early_records: deque[Event] = deque(maxlen=MAX_EARLY_RECORDS)

    @property
    def _is_active(self) -> bool:
        """False while the run is interrupted: what its command printed meanwhile comes again once it is resumed."""
        return self.view is not None and self.view.state != "interrupted"

    @property
    def question(self) -> Question | None:
        """What this console may answer and has not answered yet."""
        question = None if self.view is None else self.view.question
        if question is None or not self._may_answer or question.id == self._answered_id:
            return None
        return question

    def receive(self, message: object, at_us: int = 0) -> list[Reaction]:
        """What follows from a message of the agent."""
        match message:
            case RunViewMessage():
                return self._update_view(message, at_us)
            case EventMessage(event=event) if isinstance(event.details.get("run"), str):
                return self._show_record(event)
            case RunLines(run=run) if run == self.run and self._is_active:
                return [
                    ShowChange(_line_change(message, place)) for place in range(len(message.lines))
                ] + _dropped_lines_message(message)
            case RunRefused(reply_to=reply_to) if reply_to == self.run:
                return self._handle_refusal(message)
            case Notice(kind="refused"):
                return self._handle_refusal(RunRefused(text=message.text))
        return []

    def handle_line(self, text: str) -> list[Reaction]:
        """What follows from a line that somebody typed."""
        line = text.strip()
        # A path is an answer: no command has a second slash.
        if line.startswith("/") and "/" not in line.partition(" ")[0][1:]:
            return self._handle_command(line)
        line = line.removeprefix("/") if line.startswith("//") else text.rstrip("\n")
        question = self.question
        if not line.strip():
            return []  # enter alone answers nothing
        if question is None:
            return [_message("nothing is asked of you now; /help names what you can say")]
        return [self._send_answer(question, line)]

    def leave(self, how: str) -> list[Reaction]:
        """Whoever typed is gone (`eof`), or wants to be (`interrupt`): the run goes on without them."""
        return [*self._leaving_message(), ExitClient(ExitCode.INTERRUPTED)]

    def _update_view(self, message: RunViewMessage, at_us: int) -> list[Reaction]:
        view = message.view
        if not self.run and message.yours and view.run not in self._other_runs:
            self.run = view.run
        if view.run != self.run:
            return []
        before, self.view = self.view, view
        could_answer = self._may_answer
        self._may_answer, self._is_driver = message.may_answer, message.yours
        out: list[Reaction] = [
            ShowChange(change) for change in view_changes(before, view) if self._is_due(change, at_us)
        ]
        if before is None:
            out[1:1] = [
                ShowChange(record_change(event)) for event in self._early_records if event.details["run"] == self.run
            ]
            self._early_records.clear()
        question = view.question
        # The view a console is welcomed with comes before it drives: what it asks is for us only once it is ours.
        may_now = self._may_answer and not could_answer and question is not None and question.id != self._answered_id
        if question is not None and (before is None or before.question != question or may_now):
            out += self._handle_question(question, message.why_not)
        if is_over(view):
            out.append(ExitClient(self._exit_code(view)))
        elif before is not None and before.state != view.state == "interrupted":
            out += [
                *self._leaving_message(),
                ExitClient(ExitCode.RUNBOOK_FAILED),
            ]  # by a defect: it goes on only when resumed
        return out

    def _show_record(self, event: Event) -> list[Reaction]:
        """A record of a run; those that come before it is known which run is meant are told with its first view."""
        if self.view is None:
            self._early_records.append(event)
            return []
        return [ShowChange(record_change(event))] if event.details["run"] == self.run else []

    def _is_due(self, change: Change, at_us: int) -> bool:
        if self._every_change or change["event"] not in ("waiting", "progress") or change["begins"]:
            return True
        if at_us - self._last_shown_us < REPEAT_INTERVAL_US:
            return False
        self._last_shown_us = at_us
        return True

    def _handle_question(self, question: Question, why_not: str) -> list[Reaction]:
        if not self._may_answer:
            # The second of two people is somebody else, at another console: that is waited for.
            who = self.view.driver if self.view is not None else ""
            if self._run_existed and not self._can_ask and question.kind != "second":
                return self._take_or_leave(who)
            other = (
                "a second person answers this"
                if question.kind == "second"
                else f"{who or 'another console'} answers it"
            )
            return [_message(why_not or other + ("" if self._is_driver else "; /take to drive the run from here"))]
        table = None if self.view is None else self.view.table
        try:
            if (
                self.code is None
                and table is not None
                and (rows := self._answers.rows_for(question, table)) is not None
            ):
                return self._choose_given_rows(question, table, rows)
            text = self._given_answer(question)
        except AnswerMismatch as unfit:
            return self._abort(str(unfit))
        if text is not None:
            self._given_for = question
            shown = "(a secret)" if question.secret else text
            return [ShowChange({"event": "answer", "run": self.run, "question": question.id, "text": shown}),
                    self._send_answer(question, text)]  # fmt: skip
        if self._can_ask:
            return []
        return self._abort(missing_answer_text(question))

    def _given_answer(self, question: Question) -> str | None:
        """The answer there is without asking anybody. Raises Unfit."""
        if question.kind == "undo":
            text = self._answers.answer_for(question) or (None if self.code is None else "none")
            self._is_reverting = text not in (None, "none")
            return text
        if self._is_reverting and question.kind in ("ack", "yes", "type"):
            return question.expects
        if self._is_reverting and question.kind == "failed" and not self._can_ask:
            return "skip nobody could be asked"
        if question.rows and question.kind == "choose":
            # No row is chosen, so there is nothing to confirm: whoever sits here may still choose one.
            return None if self._can_ask else question.options[0].key
        return self._answers.answer_for(question)

    def _choose_given_rows(self, question: Question, table: RunTable, rows: tuple[int, ...]) -> list[Reaction]:
        """Have the rows acted on that were named beforehand; the question is put again then."""
        if self._last_choice == (table.block, table.look, rows):
            return self._abort("the rows that were named were not chosen")
        self._last_choice, self._given_for = (table.block, table.look, rows), question
        return [self._send_choice(question, table, rows)]

    def _send_choice(self, question: Question, table: RunTable, rows: tuple[int, ...]) -> Reaction:
        self._answered_id = question.id
        return SendRequest(RunControl(run=self.run, verb="choose", block=table.block, look=table.look, rows=rows))

    def _toggle_rows(self, numbers: str) -> list[Reaction]:
        """Rows by their numbers, each left out or taken in again."""
        question, table = self.question, None if self.view is None else self.view.table
        if question is None or not question.rows or table is None or not table.chosen:
            return [_message("no rows are asked about now")]
        named = numbers.replace(",", " ").split()
        if not named or not all(one.isdecimal() and 1 <= int(one) <= len(table.chosen) for one in named):
            return [_message(f"/x NUMBER …: the rows have the numbers 1 to {len(table.chosen)}")]
        ticked = {int(one) - 1 for one in named}
        rows = tuple(place for place, chosen in enumerate(table.chosen) if chosen is not (place in ticked))
        return [self._send_choice(question, table, rows)]

    def _take_or_leave(self, who: str) -> list[Reaction]:
        """Come back with answers given beforehand: drive what nobody drives, and wait for no other console."""
        if not who:
            return [SendRequest(RunControl(run=self.run, verb="take"))]
        return [
            _message(f"{who} drives this run and answers it"),
            *self._leaving_message(),
            ExitClient(ExitCode.INTERRUPTED),
        ]

    def _send_answer(self, question: Question, text: str) -> Reaction:
        self._answered_id = question.id
        return SendRequest(RunAnswer(run=self.run, question=question.id, text=text))

    def _abort(self, why: str) -> list[Reaction]:
        """End the run because a question has no answer. Once: what is asked after that is the agent's last word.

        A run that would stay half done waits for somebody instead.
        """
        if self.code is not None:
            return [_message(why), *self._leaving_message(), ExitClient(self.code)]
        question = None if self.view is None else self.view.question
        failed = question is not None and question.kind in ("failed", "settle")
        self.code = ExitCode.RUNBOOK_FAILED if failed else ExitCode.REFUSED
        if self.view is not None and self.view.must_finish:
            half = "The run is past its point of no return: ended here it would stay half done, so it waits."
            return [_message(why), _message(half), *self._leaving_message(), ExitClient(self.code)]
        return [_message(why), SendRequest(RunControl(run=self.run, verb="abort", reason=_abort_reason(question)))]

    def _handle_refusal(self, message: RunRefused) -> list[Reaction]:
        hint = f"\nhint: {message.hint}" if message.hint else ""
        refusal = ShowChange({"event": "refused", "run": self.run, "text": message.text + hint, "code": message.code})
        if self.view is None:
            return [refusal, ExitClient(message.code)]
        given_for, self._given_for = self._given_for, None
        question = self.view.question
        if question is not None and question.id == self._answered_id:
            self._answered_id = 0  # it was not taken: the question still stands
        if given_for is not None or not self._can_ask:
            return [refusal, *self._abort("what was given does not answer it")]
        return [refusal]

    def _handle_command(self, line: str) -> list[Reaction]:
        verb, _, rest = line.partition(" ")
        rest = rest.strip()
        match verb:
            case "/leave" | "/quit" | "/detach":
                return self.leave("leave")
            case "/help" | "/?":
                return [_message("\n".join(f"{name:<18} {what}" for name, what in COMMANDS.items()))]
            case _ if not self.run:
                return [_message("the run has not begun yet")]
            case "/pause" | "/continue" | "/stop" | "/abort" | "/take":
                return [self._send_control(verb, rest)]
            case "/x":
                return self._toggle_rows(rest)
            case "/skip":
                return [
                    self._send_control(verb, rest)
                    if rest
                    else _message("a step is left out for a reason: /skip REASON")
                ]
            case "/jump":
                step, _, reason = rest.partition(" ")
                if not step or not reason.strip():
                    return [_message("/jump STEP REASON")]
                return [self._send_control(verb, reason.strip(), step)]
        return [_message(f"{verb} is none of {', '.join(name.partition(' ')[0] for name in COMMANDS)}")]

    def _send_control(self, verb: str, reason: str, step: str = "") -> Reaction:
        if verb != "/take" and (question := self.question) is not None:
            self._answered_id = question.id  # this is what is said to it; refused, it is asked again
        # Called with the commands of the match above only, whose names are the verbs behind a slash.
        return SendRequest(RunControl(run=self.run, verb=verb[1:], reason=reason, step=step))  # type: ignore[arg-type]

    def _leaving_message(self) -> list[Reaction]:
        if not self.run:
            return []
        text = f"the run {self.run} goes on; it waits where it needs an answer"
        return [
            _message(f"{text}\nhint: `dba-console attach` or `dba-console runbook resume {self.run}` comes back to it")
        ]

    def _exit_code(self, view: RunView) -> int:
        if self.code is not None:
            return self.code
        return ExitCode.OK if view.state == "done" else ExitCode.RUNBOOK_FAILED


def _abort_reason(question: Question | None) -> str:
    """What the journal says of it."""
    if question is None:
        return "no answer was given, and nobody can be asked"
    if question.kind in ("failed", "settle"):
        return "nobody could be asked what to do"
    return f"{question.block or question.step or question.kind} was not confirmed"


def missing_answer_text(question: Question) -> str:
    """Why the run cannot go on without somebody to ask, and what would have to be given."""
    match question.kind:
        case "failed" | "settle":
            return f"{question.text} Nobody can be asked what to do about it."
        case "ack":
            given = f"--yes or --confirm {question.step}=y"
        case "start":
            given = "--yes, or for a run --confirm start=yes"
        case "undo" | "journal":
            given = f"--confirm {question.kind}={'|'.join(option.key for option in question.options) or 'TEXT'}"
        case "choose":
            given = f"--confirm {question.step}={'|'.join(option.key for option in question.options)}"
        case "type":
            given = f"--confirm {question.step}={question.expects}"
        case "yes":
            given = f"--confirm {question.step}=yes"
        case _:
            given = f"--confirm {question.step}=TEXT"
    return f"no answer was given to: {question.text}\nhint: {given}"


def _message(text: str) -> ShowChange:
    return ShowChange({"event": "word", "text": text})


def _line_change(message: RunLines, place: int) -> Change:
    one = message.lines[place]
    return {"event": "line", "run": message.run, "block": message.block, "wall_us": one.wall_us,
            "stream": one.stream, "tag": one.tag, "text": one.text}  # fmt: skip


def _dropped_lines_message(message: RunLines) -> list[Reaction]:
    if not message.dropped:
        return []
    return [_message(f"… {message.dropped} lines not shown: they came too fast; they are in the run's directory")]
