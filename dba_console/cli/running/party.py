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
from dba_console.cli.running.answers import Answers, Unfit
from dba_console.cli.running.changes import Change, changes, over, record
from dba_console.errors import ExitCode
from dba_console.plans.run_view import Question, RunTable, RunView
from dba_console.samples.event import Event

OFTEN_US = 10_000_000
"""Between two words of a wait or of progress, for people; JSON has each."""
EARLY = 300
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


class Tell(NamedTuple):
    """Something to be told."""

    change: Change


class Send(NamedTuple):
    """Something to be sent to the agent."""

    request: Request


class Leave(NamedTuple):
    """The end of this client."""

    code: int


Out = Tell | Send | Leave


class Party:
    """Follows one run. `run` empty: the one it has just asked for."""

    def __init__(
        self, answers: Answers, *, asks: bool, run: str = "", every: bool = False, others: Collection[str] = ()
    ) -> None:
        """`asks`: somebody can be asked. `every`: tell each word of a wait, however often they come. `others`: runs
        that were there before; none of them is the one asked for.
        """
        self.run = run
        self.view: RunView | None = None
        self.code: int | None = None
        """Why this client ended the run; the exit code that stands for it."""
        self._answers, self._asks, self._every = answers, asks, every
        self._others = frozenset(others)
        self._came = bool(run)
        """It was there before this client."""
        self._may_answer = False
        self._yours = False
        self._answered = 0
        self._takes_back = False
        """What is asked is about taking back what `--confirm undo=…` names, which confirms each of it."""
        self._by_rule: Question | None = None
        self._chosen: tuple[str, int, tuple[int, ...]] | None = None
        """Preview, look and rows of the last choice by what was given beforehand."""
        self._last_word_us = 0
        self._early: deque[Event] = deque(maxlen=EARLY)

    @property
    def _walks(self) -> bool:
        """False while the run is interrupted: what its command printed meanwhile comes again once it is resumed."""
        return self.view is not None and self.view.state != "interrupted"

    @property
    def question(self) -> Question | None:
        """What this console may answer and has not answered yet."""
        asked = None if self.view is None else self.view.question
        if asked is None or not self._may_answer or asked.id == self._answered:
            return None
        return asked

    def hear(self, message: object, at_us: int = 0) -> list[Out]:
        """What follows from a message of the agent."""
        match message:
            case RunViewMessage():
                return self._see(message, at_us)
            case EventMessage(event=event) if isinstance(event.details.get("run"), str):
                return self._record(event)
            case RunLines(run=run) if run == self.run and self._walks:
                return [Tell(_line(message, place)) for place in range(len(message.lines))] + _lost(message)
            case RunRefused(reply_to=reply_to) if reply_to == self.run:
                return self._refused(message)
            case Notice(kind="refused"):
                return self._refused(RunRefused(text=message.text))
        return []

    def typed(self, text: str) -> list[Out]:
        """What follows from a line that somebody typed."""
        said = text.strip()
        # A path is an answer: no command has a second slash.
        if said.startswith("/") and "/" not in said.partition(" ")[0][1:]:
            return self._command(said)
        said = said.removeprefix("/") if said.startswith("//") else text.rstrip("\n")
        question = self.question
        if not said.strip():
            return []  # enter alone answers nothing
        if question is None:
            return [_word("nothing is asked of you now; /help names what you can say")]
        return [self._answer(question, said)]

    def gone(self, how: str) -> list[Out]:
        """Whoever typed is gone (`eof`), or wants to be (`interrupt`): the run goes on without them."""
        return [*self._farewell(), Leave(ExitCode.INTERRUPTED)]

    def _see(self, message: RunViewMessage, at_us: int) -> list[Out]:
        view = message.view
        if not self.run and message.yours and view.run not in self._others:
            self.run = view.run
        if view.run != self.run:
            return []
        before, self.view = self.view, view
        could_answer = self._may_answer
        self._may_answer, self._yours = message.may_answer, message.yours
        out: list[Out] = [Tell(change) for change in changes(before, view) if self._is_due(change, at_us)]
        if before is None:
            out[1:1] = [Tell(record(event)) for event in self._early if event.details["run"] == self.run]
            self._early.clear()
        asked = view.question
        # The view a console is welcomed with comes before it drives: what it asks is for us only once it is ours.
        may_now = self._may_answer and not could_answer and asked is not None and asked.id != self._answered
        if asked is not None and (before is None or before.question != asked or may_now):
            out += self._asked(asked, message.why_not)
        if over(view):
            out.append(Leave(self._end_code(view)))
        elif before is not None and before.state != view.state == "interrupted":
            out += [*self._farewell(), Leave(ExitCode.RUNBOOK_FAILED)]  # by a defect: it goes on only when resumed
        return out

    def _record(self, event: Event) -> list[Out]:
        """A record of a run; those that come before it is known which run is meant are told with its first view."""
        if self.view is None:
            self._early.append(event)
            return []
        return [Tell(record(event))] if event.details["run"] == self.run else []

    def _is_due(self, change: Change, at_us: int) -> bool:
        if self._every or change["event"] not in ("waiting", "progress") or change["begins"]:
            return True
        if at_us - self._last_word_us < OFTEN_US:
            return False
        self._last_word_us = at_us
        return True

    def _asked(self, asked: Question, why_not: str) -> list[Out]:
        if not self._may_answer:
            # The second of two people is somebody else, at another console: that is waited for.
            who = self.view.driver if self.view is not None else ""
            if self._came and not self._asks and asked.kind != "second":
                return self._take_or_leave(who)
            other = (
                "a second person answers this" if asked.kind == "second" else f"{who or 'another console'} answers it"
            )
            return [_word(why_not or other + ("" if self._yours else "; /take to drive the run from here"))]
        table = None if self.view is None else self.view.table
        try:
            if self.code is None and table is not None and (rows := self._answers.rows(asked, table)) is not None:
                return self._choose_given(asked, table, rows)
            text = self._given(asked)
        except Unfit as unfit:
            return self._give_up(str(unfit))
        if text is not None:
            self._by_rule = asked
            shown = "(a secret)" if asked.secret else text
            return [Tell({"event": "answer", "run": self.run, "question": asked.id, "text": shown}),
                    self._answer(asked, text)]  # fmt: skip
        if self._asks:
            return []
        return self._give_up(missing(asked))

    def _given(self, asked: Question) -> str | None:
        """The answer there is without asking anybody. Raises Unfit."""
        if asked.kind == "undo":
            text = self._answers.to(asked) or (None if self.code is None else "none")
            self._takes_back = text not in (None, "none")
            return text
        if self._takes_back and asked.kind in ("ack", "yes", "type"):
            return asked.expects
        if self._takes_back and asked.kind == "failed" and not self._asks:
            return "skip nobody could be asked"
        if asked.rows and asked.kind == "choose":
            # No row is chosen, so there is nothing to confirm: whoever sits here may still choose one.
            return None if self._asks else asked.options[0].key
        return self._answers.to(asked)

    def _choose_given(self, asked: Question, table: RunTable, rows: tuple[int, ...]) -> list[Out]:
        """Have the rows acted on that were named beforehand; the question is put again then."""
        if self._chosen == (table.block, table.look, rows):
            return self._give_up("the rows that were named were not chosen")
        self._chosen, self._by_rule = (table.block, table.look, rows), asked
        return [self._choose(asked, table, rows)]

    def _choose(self, asked: Question, table: RunTable, rows: tuple[int, ...]) -> Out:
        self._answered = asked.id
        return Send(RunControl(run=self.run, verb="choose", block=table.block, look=table.look, rows=rows))

    def _tick(self, numbers: str) -> list[Out]:
        """Rows by their numbers, each left out or taken in again."""
        question, table = self.question, None if self.view is None else self.view.table
        if question is None or not question.rows or table is None or not table.chosen:
            return [_word("no rows are asked about now")]
        named = numbers.replace(",", " ").split()
        if not named or not all(one.isdecimal() and 1 <= int(one) <= len(table.chosen) for one in named):
            return [_word(f"/x NUMBER …: the rows have the numbers 1 to {len(table.chosen)}")]
        ticked = {int(one) - 1 for one in named}
        rows = tuple(place for place, chosen in enumerate(table.chosen) if chosen is not (place in ticked))
        return [self._choose(question, table, rows)]

    def _take_or_leave(self, who: str) -> list[Out]:
        """Come back with answers given beforehand: drive what nobody drives, and wait for no other console."""
        if not who:
            return [Send(RunControl(run=self.run, verb="take"))]
        return [_word(f"{who} drives this run and answers it"), *self._farewell(), Leave(ExitCode.INTERRUPTED)]

    def _answer(self, question: Question, text: str) -> Out:
        self._answered = question.id
        return Send(RunAnswer(run=self.run, question=question.id, text=text))

    def _give_up(self, why: str) -> list[Out]:
        """End the run because a question has no answer. Once: what is asked after that is the agent's last word.

        A run that would stay half done waits for somebody instead.
        """
        if self.code is not None:
            return [_word(why), *self._farewell(), Leave(self.code)]
        asked = None if self.view is None else self.view.question
        failed = asked is not None and asked.kind in ("failed", "settle")
        self.code = ExitCode.RUNBOOK_FAILED if failed else ExitCode.REFUSED
        if self.view is not None and self.view.must_finish:
            half = "The run is past its point of no return: ended here it would stay half done, so it waits."
            return [_word(why), _word(half), *self._farewell(), Leave(self.code)]
        return [_word(why), Send(RunControl(run=self.run, verb="abort", reason=_reason(asked)))]

    def _refused(self, message: RunRefused) -> list[Out]:
        hint = f"\nhint: {message.hint}" if message.hint else ""
        told = Tell({"event": "refused", "run": self.run, "text": message.text + hint, "code": message.code})
        if self.view is None:
            return [told, Leave(message.code)]
        by_rule, self._by_rule = self._by_rule, None
        asked = self.view.question
        if asked is not None and asked.id == self._answered:
            self._answered = 0  # it was not taken: the question still stands
        if by_rule is not None or not self._asks:
            return [told, *self._give_up("what was given does not answer it")]
        return [told]

    def _command(self, said: str) -> list[Out]:
        verb, _, rest = said.partition(" ")
        rest = rest.strip()
        match verb:
            case "/leave" | "/quit" | "/detach":
                return self.gone("leave")
            case "/help" | "/?":
                return [_word("\n".join(f"{name:<18} {what}" for name, what in COMMANDS.items()))]
            case _ if not self.run:
                return [_word("the run has not begun yet")]
            case "/pause" | "/continue" | "/stop" | "/abort" | "/take":
                return [self._control(verb, rest)]
            case "/x":
                return self._tick(rest)
            case "/skip":
                return [self._control(verb, rest) if rest else _word("a step is left out for a reason: /skip REASON")]
            case "/jump":
                step, _, reason = rest.partition(" ")
                if not step or not reason.strip():
                    return [_word("/jump STEP REASON")]
                return [self._control(verb, reason.strip(), step)]
        return [_word(f"{verb} is none of {', '.join(name.partition(' ')[0] for name in COMMANDS)}")]

    def _control(self, verb: str, reason: str, step: str = "") -> Out:
        if verb != "/take" and (question := self.question) is not None:
            self._answered = question.id  # this is what is said to it; refused, it is asked again
        # Called with the commands of the match above only, whose names are the verbs behind a slash.
        return Send(RunControl(run=self.run, verb=verb[1:], reason=reason, step=step))  # type: ignore[arg-type]

    def _farewell(self) -> list[Out]:
        if not self.run:
            return []
        text = f"the run {self.run} goes on; it waits where it needs an answer"
        return [
            _word(f"{text}\nhint: `dba-console attach` or `dba-console runbook resume {self.run}` comes back to it")
        ]

    def _end_code(self, view: RunView) -> int:
        if self.code is not None:
            return self.code
        return ExitCode.OK if view.state == "done" else ExitCode.RUNBOOK_FAILED


def _reason(asked: Question | None) -> str:
    """What the journal says of it."""
    if asked is None:
        return "no answer was given, and nobody can be asked"
    if asked.kind in ("failed", "settle"):
        return "nobody could be asked what to do"
    return f"{asked.block or asked.step or asked.kind} was not confirmed"


def missing(asked: Question) -> str:
    """Why the run cannot go on without somebody to ask, and what would have to be given."""
    match asked.kind:
        case "failed" | "settle":
            return f"{asked.text} Nobody can be asked what to do about it."
        case "ack":
            given = f"--yes or --confirm {asked.step}=y"
        case "start":
            given = "--yes, or for a run --confirm start=yes"
        case "undo" | "journal":
            given = f"--confirm {asked.kind}={'|'.join(option.key for option in asked.options) or 'TEXT'}"
        case "choose":
            given = f"--confirm {asked.step}={'|'.join(option.key for option in asked.options)}"
        case "type":
            given = f"--confirm {asked.step}={asked.expects}"
        case "yes":
            given = f"--confirm {asked.step}=yes"
        case _:
            given = f"--confirm {asked.step}=TEXT"
    return f"no answer was given to: {asked.text}\nhint: {given}"


def _word(text: str) -> Tell:
    return Tell({"event": "word", "text": text})


def _line(message: RunLines, place: int) -> Change:
    one = message.lines[place]
    return {"event": "line", "run": message.run, "block": message.block, "wall_us": one.wall_us,
            "stream": one.stream, "tag": one.tag, "text": one.text}  # fmt: skip


def _lost(message: RunLines) -> list[Out]:
    if not message.dropped:
        return []
    return [_word(f"… {message.dropped} lines not shown: they came too fast; they are in the run's directory")]
