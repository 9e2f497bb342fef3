"""A client of one run without a screen: turns messages and input lines into output, requests and the exit code.

Pure: the loop in request_run.py reads and writes.

It never answers on its own. A question without a given answer goes to the operator; if no operator can be asked, the
run is aborted, or left waiting where it would stay half done.
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
from dba_console.cli.running.changes import (
    RunChange,
    answer_change,
    is_over,
    line_change,
    message_change,
    record_change,
    view_changes,
)
from dba_console.core.errors import ExitCode
from dba_console.runbooks.run_view import Question, RunTable, RunView
from dba_console.watch.samples.event import Event

REPEAT_INTERVAL_US = 10_000_000
"""Minimum interval between two wait or progress lines as text; JSON has every one."""
MAX_EARLY_RECORDS = 300
"""Records kept until the requested run is known; an agent sends its last 200 to a new client."""
COMMANDS = {
    "/pause": "pause at the next safe point",
    "/continue": "continue after a pause",
    "/skip REASON": "skip the current step",
    "/jump STEP REASON": "continue at another step",
    "/stop": "stop the running command or action",
    "/abort [REASON]": "abort the run",
    "/x NUMBER …": "exclude rows from the action, or include them again",
    "/take": "take control of this run",
    "/leave": "leave; the run continues",
}


class ShowChange(NamedTuple):
    """A change to print."""

    change: RunChange


class SendRequest(NamedTuple):
    """A request to send to the agent."""

    request: Request


class ExitClient(NamedTuple):
    """The end of this client."""

    code: int


Reaction = ShowChange | SendRequest | ExitClient


class RunClient:
    """Follows one run. `run` empty: the run it has just requested."""

    def __init__(
        self,
        answers: GivenAnswers,
        *,
        can_ask: bool,
        run: str = "",
        every_change: bool = False,
        other_runs: Collection[str] = (),
    ) -> None:
        """`can_ask`: an operator can be asked. `every_change`: print every update of a wait. `other_runs`: runs that
        existed before; none of them is the requested one.
        """
        self.run = run
        self.view: RunView | None = None
        self.code: int | None = None
        """Exit code if this client aborted the run."""
        self._answers, self._can_ask, self._every_change = answers, can_ask, every_change
        self._other_runs = frozenset(other_runs)
        self._run_existed = bool(run)
        """The run existed before this client."""
        self._may_answer = False
        self._is_driver = False
        self._answered_id = 0
        self._is_reverting = False
        """The question is about reverting what `--confirm undo=…` names, which confirms each revert."""
        self._given_for: Question | None = None
        self._last_choice: tuple[str, int, tuple[int, ...]] | None = None
        """Preview, observation and rows of the last choice made from options."""
        self._last_shown_us = 0
        self._early_records: deque[Event] = deque(maxlen=MAX_EARLY_RECORDS)

    @property
    def _is_active(self) -> bool:
        """False while the run is interrupted: the output of its command is sent again when it is resumed."""
        return self.view is not None and self.view.state != "interrupted"

    @property
    def question(self) -> Question | None:
        """The open question that this console may answer and has not answered yet."""
        question = None if self.view is None else self.view.question
        if question is None or not self._may_answer or question.id == self._answered_id:
            return None
        return question

    def receive(self, message: object, at_us: int = 0) -> list[Reaction]:
        """Return the reactions to a message of the agent."""
        match message:
            case RunViewMessage():
                return self._update_view(message, at_us)
            case EventMessage(event=event) if isinstance(event.details.get("run"), str):
                return self._show_record(event)
            case RunLines(run=run) if run == self.run and self._is_active:
                shown: list[Reaction] = [ShowChange(line_change(run, message.block, one)) for one in message.lines]
                return shown + _dropped_lines_message(message)
            case RunRefused(reply_to=reply_to) if reply_to == self.run:
                return self._handle_refusal(message)
            case Notice(kind="refused"):
                return self._handle_refusal(RunRefused(text=message.text))
        return []

    def handle_line(self, text: str) -> list[Reaction]:
        """Return the reactions to an input line."""
        line = text.strip()
        # A path is an answer: no command has a second slash.
        if line.startswith("/") and "/" not in line.partition(" ")[0][1:]:
            return self._handle_command(line)
        line = line.removeprefix("/") if line.startswith("//") else text.rstrip("\n")
        question = self.question
        if not line.strip():
            return []  # enter alone answers nothing
        if question is None:
            return [_message("no question is open; /help lists the commands")]
        return [self._send_answer(question, line)]

    def handle_early_line(self, text: str) -> list[Reaction]:
        """Return the reactions to a line that was entered before the open question was shown: only commands count."""
        line = text.strip()
        if line.startswith("/") and "/" not in line.partition(" ")[0][1:]:
            return self._handle_command(line)
        return [_message("a line entered before this question was shown is not an answer to it")] if line else []

    def leave(self) -> list[Reaction]:
        """Return the reactions to the end of input or Ctrl-C: the run continues."""
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
        # The first view is sent before this console drives the run: its question is ours only once the run is.
        may_now = self._may_answer and not could_answer and question is not None and question.id != self._answered_id
        if question is not None and (before is None or before.question != question or may_now):
            out += self._handle_question(question, message.why_not)
        if is_over(view):
            out.append(ExitClient(self._exit_code(view)))
        elif before is not None and before.state != view.state == "interrupted":
            out += [
                *self._leaving_message(),
                ExitClient(ExitCode.RUNBOOK_FAILED),
            ]  # after an internal error: it continues only when resumed
        return out

    def _show_record(self, event: Event) -> list[Reaction]:
        """Show a record of a run; records received before the run is known are shown with its first view."""
        if self.view is None:
            self._early_records.append(event)
            return []
        return [ShowChange(record_change(event))] if event.details["run"] == self.run else []

    def _is_due(self, change: RunChange, at_us: int) -> bool:
        if self._every_change or change.fields.get("begins", True):
            return True
        if at_us - self._last_shown_us < REPEAT_INTERVAL_US:
            return False
        self._last_shown_us = at_us
        return True

    def _handle_question(self, question: Question, why_not: str) -> list[Reaction]:
        if not self._may_answer:
            # The second operator is at another console: wait for that one.
            who = self.view.driver if self.view is not None else ""
            if self._run_existed and not self._can_ask and question.kind != "second":
                return self._take_or_leave(who)
            other = (
                "a second operator must answer this"
                if question.kind == "second"
                else f"{who or 'another console'} answers it"
            )
            return [_message(why_not or other + ("" if self._is_driver else "; /take takes control of the run"))]
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
            return [ShowChange(answer_change(self.run, question.id, shown)), self._send_answer(question, text)]
        if self._can_ask:
            return []
        return self._abort(missing_answer_text(question))

    def _given_answer(self, question: Question) -> str | None:
        """Return the answer available without asking. Raises AnswerMismatch."""
        if question.kind == "undo":
            text = self._answers.answer_for(question) or (None if self.code is None else "none")
            self._is_reverting = text not in (None, "none")
            return text
        if self._is_reverting and question.kind in ("ack", "yes", "type"):
            return question.expects
        if self._is_reverting and question.kind == "failed" and not self._can_ask:
            return "skip no operator could be asked"
        if question.rows and question.kind == "choose":
            # No row is chosen, so there is nothing to confirm; an operator may still choose one.
            return None if self._can_ask else question.options[0].key
        return self._answers.answer_for(question)

    def _choose_given_rows(self, question: Question, table: RunTable, rows: tuple[int, ...]) -> list[Reaction]:
        """Request the rows named by options; the question is then asked again."""
        if self._last_choice == (table.block, table.look, rows):
            return self._abort("the named rows were not chosen")
        self._last_choice, self._given_for = (table.block, table.look, rows), question
        return [self._send_choice(question, table, rows)]

    def _send_choice(self, question: Question, table: RunTable, rows: tuple[int, ...]) -> Reaction:
        self._answered_id = question.id
        return SendRequest(RunControl(run=self.run, verb="choose", block=table.block, look=table.look, rows=rows))

    def _toggle_rows(self, numbers: str) -> list[Reaction]:
        """Exclude rows by number, or include them again."""
        question, table = self.question, None if self.view is None else self.view.table
        if question is None or not question.rows or table is None or not table.chosen:
            return [_message("no open question is about rows")]
        named = numbers.replace(",", " ").split()
        if not named or not all(one.isdecimal() and 1 <= int(one) <= len(table.chosen) for one in named):
            return [_message(f"/x NUMBER …: the rows have the numbers 1 to {len(table.chosen)}")]
        ticked = {int(one) - 1 for one in named}
        rows = tuple(index for index, chosen in enumerate(table.chosen) if chosen is not (index in ticked))
        return [self._send_choice(question, table, rows)]

    def _take_or_leave(self, who: str) -> list[Reaction]:
        """Resume with given answers: take control of a run without a driver; do not wait for another console."""
        if not who:
            return [SendRequest(RunControl(run=self.run, verb="take"))]
        return [
            _message(f"{who} controls this run and answers it"),
            *self._leaving_message(),
            ExitClient(ExitCode.INTERRUPTED),
        ]

    def _send_answer(self, question: Question, text: str) -> Reaction:
        self._answered_id = question.id
        return SendRequest(RunAnswer(run=self.run, question=question.id, text=text))

    def _abort(self, why: str) -> list[Reaction]:
        """Abort the run because a question has no answer. Only once: a further question ends this client.

        A run that would stay half done waits for an operator instead.
        """
        if self.code is not None:
            return [_message(why), *self._leaving_message(), ExitClient(self.code)]
        question = None if self.view is None else self.view.question
        failed = question is not None and question.kind in ("failed", "settle")
        self.code = ExitCode.RUNBOOK_FAILED if failed else ExitCode.REFUSED
        if question is not None and question.kind == "settle":
            waits = "It is unknown what was done, so nothing is reverted: the run waits for an operator."
            return [_message(why), _message(waits), *self._leaving_message(), ExitClient(self.code)]
        if self.view is not None and self.view.must_finish:
            half_done = "The run is past its point of no return: aborted now it would stay half done, so it waits."
            return [_message(why), _message(half_done), *self._leaving_message(), ExitClient(self.code)]
        return [_message(why), SendRequest(RunControl(run=self.run, verb="abort", reason=_abort_reason(question)))]

    def _handle_refusal(self, message: RunRefused) -> list[Reaction]:
        hint = f"\nhint: {message.hint}" if message.hint else ""
        refusal = ShowChange(message_change(message.text + hint, "refused", run=self.run, code=message.code))
        if self.view is None:
            return [refusal, ExitClient(message.code)]
        given_for, self._given_for = self._given_for, None
        question = self.view.question
        if question is not None and question.id == self._answered_id:
            self._answered_id = 0  # the answer was refused: the question is still open
        if given_for is not None or not self._can_ask:
            return [refusal, *self._abort("the given answer does not fit the question")]
        return [refusal]

    def _handle_command(self, line: str) -> list[Reaction]:
        verb, _, rest = line.partition(" ")
        rest = rest.strip()
        match verb:
            case "/leave" | "/quit" | "/detach":
                return self.leave()
            case "/help" | "/?":
                return [_message("\n".join(f"{name:<18} {what}" for name, what in COMMANDS.items()))]
            case _ if not self.run:
                return [_message("the run has not started yet")]
            case "/pause" | "/continue" | "/stop" | "/abort" | "/take":
                return [self._send_control(verb, rest)]
            case "/x":
                return self._toggle_rows(rest)
            case "/skip":
                return [self._send_control(verb, rest) if rest else _message("a reason is required: /skip REASON")]
            case "/jump":
                step, _, reason = rest.partition(" ")
                if not step or not reason.strip():
                    return [_message("/jump STEP REASON")]
                return [self._send_control(verb, reason.strip(), step)]
        return [_message(f"{verb} is not one of {', '.join(name.partition(' ')[0] for name in COMMANDS)}")]

    def _send_control(self, verb: str, reason: str, step: str = "") -> Reaction:
        if verb != "/take" and (question := self.question) is not None:
            self._answered_id = question.id  # the command answers it; if refused, it is asked again
        # Only commands of the match above arrive here; their names are the verbs with a slash.
        return SendRequest(RunControl(run=self.run, verb=verb[1:], reason=reason, step=step))  # type: ignore[arg-type]

    def _leaving_message(self) -> list[Reaction]:
        if not self.run:
            return []
        text = f"the run {self.run} continues; it waits when it needs an answer"
        return [_message(f"{text}\nhint: return with `dba-console attach` or `dba-console runbook resume {self.run}`")]

    def _exit_code(self, view: RunView) -> int:
        if self.code is not None:
            return self.code
        return ExitCode.OK if view.state == "done" else ExitCode.RUNBOOK_FAILED


def _abort_reason(question: Question | None) -> str:
    """Return the reason recorded in the journal."""
    if question is None:
        return "no answer was given, and no operator can be asked"
    if question.kind in ("failed", "settle"):
        return "no operator could be asked what to do"
    return f"{question.block or question.step or question.kind} was not confirmed"


def missing_answer_text(question: Question) -> str:
    """Return why the run cannot continue without an operator, and which option would answer."""
    match question.kind:
        case "failed" | "settle":
            hint = "\nhint: `runbook resume --failed retry`, or abort" if question.kind == "failed" else ""
            return f"{question.text} No operator can be asked what to do about it.{hint}"
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
    return ShowChange(message_change(text))


def _dropped_lines_message(message: RunLines) -> list[Reaction]:
    if not message.dropped:
        return []
    return [_message(f"… {message.dropped} lines not shown: output too fast; they are in the run's directory")]
