"""A console without a screen that runs a runbook: it answers by a script and keeps what it received."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from dba_console.agent.client import AgentClient, AgentConnectionLost
from dba_console.agent.protocol import (
    EventMessage,
    OpenRun,
    RunAnswer,
    RunBegin,
    RunControl,
    RunLines,
    RunRefused,
    RunResume,
    RunViewMessage,
    RunWatch,
)
from dba_console.runbooks.run_view import ENDED_STATES, OutputLine, Question, RunView
from dba_console.watch.samples.event import Event
from tests.agent.agents import RunningAgent

LIMIT_S = 120.0
"""For whatever is waited for: the machine may have other things to do."""

AnswerFunction = Callable[[Question], str | None]
"""Returns the answer to a question; None leaves it open."""


class WaitTimeout(AssertionError):
    """The awaited event did not come in time."""


class Operator:
    """One console. `yours` and `may_answer` are as the agent said last."""

    def __init__(self, client: AgentClient) -> None:
        self.client = client
        self.view: RunView | None = None
        self.yours = self.may_answer = False
        self.why_not = ""
        self.lines: list[OutputLine] = []
        self.refused: list[RunRefused] = []
        self.events: list[Event] = []
        self.asked: list[Question] = []
        self._answered: set[int] = set()
        """A view under way may still hold a question that was answered."""

    @classmethod
    def attach(cls, socket: Path) -> Operator:
        return cls(AgentClient.connect(socket, timeout_s=LIMIT_S))

    @classmethod
    def of(cls, running: RunningAgent) -> Operator:
        """A console that is closed with its agent."""
        return cls(running.client())

    @property
    def runs(self) -> list[OpenRun]:
        """Those that were open when this console attached."""
        return self.client.agent_description.runs

    def begin(self, text: str, inputs: Mapping[str, str] | None = None, *, rehearse: bool = False) -> RunView:
        """Ask for a run and wait for its first view. Raises WaitTimeout if it is refused."""
        self._answered.clear()
        mode = "rehearse" if rehearse else "run"
        self.view = None
        self.client.send(RunBegin(text=text, source="test.md", inputs=dict(inputs or {}), mode=mode))  # type: ignore[arg-type]
        return self.until(lambda: self.view is not None and self.yours, "the run begun")

    def resume(self, run: str, inputs: Mapping[str, str] | None = None) -> RunView:
        self.view = None
        self._answered.clear()
        self.client.send(RunResume(run=run, inputs=dict(inputs or {})))
        return self.until(lambda: self.view is not None and self.yours, "the run resumed")

    def watch(self, run: str) -> RunView:
        """Come to a run that is under way."""
        self.view = None
        self.client.send(RunWatch(run=run))
        return self.until(lambda: self.view is not None, "the run under way")

    def control(self, verb: str, *, reason: str = "", step: str = "") -> None:
        assert self.view is not None
        if self.view.question is not None and verb == "continue":
            self._answered.add(self.view.question.id)
        self.client.send(RunControl(run=self.view.run, verb=verb, reason=reason, step=step))  # type: ignore[arg-type]

    def answer(self, question: Question, text: str) -> None:
        assert self.view is not None
        self._answered.add(question.id)
        self.client.send(RunAnswer(run=self.view.run, question=question.id, text=text))

    def question(self, kind: str | None = None, *, again: bool = False) -> Question:
        """The question that is asked, waited for; of this kind. `again`: an answer of ours to it was refused."""

        def there() -> bool:
            asked = self.view.question if self.view is not None else None
            fresh = asked is not None and (again or asked.id not in self._answered)
            return fresh and asked is not None and kind in (None, asked.kind)

        view = self.until(there, f"a question of kind {kind}")
        assert view.question is not None
        return view.question

    def walk(self, script: Mapping[str, str] | AnswerFunction, limit_s: float = LIMIT_S) -> RunView:
        """Answer until the run has ended. A mapping answers by block, by kind, or by `*`."""
        answer = script if callable(script) else answers(script)

        def ended() -> bool:
            view = self.view
            if view is None:
                return False
            if view.state in ENDED_STATES:
                return True
            asked = view.question
            if asked is not None and asked.id not in self._answered and self.may_answer:
                text = answer(asked)
                if text is not None:
                    self.asked.append(asked)
                    self.answer(asked, text)
            return False

        return self.until(ended, "the end of the run", limit_s)

    def until(self, wanted: Callable[[], bool], what: str, limit_s: float = LIMIT_S) -> RunView:
        """Take what the agent sends until `wanted`; a refusal is an error of its own."""
        until = time.monotonic() + limit_s
        known = len(self.refused)
        while not wanted():
            if len(self.refused) > known:
                reported = self.asked[-1].text if self.asked else ""
                raise WaitTimeout(f"refused while waiting for {what}: {self.refused[-1].text}, asked: {reported}")
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{what} did not come; last view: {self.view}; events: {self.events[-5:]}")
            self.take(left)
        assert self.view is not None
        return self.view

    def refusal(self) -> RunRefused:
        """The next refusal, waited for."""
        until, known = time.monotonic() + LIMIT_S, len(self.refused)
        while len(self.refused) == known:
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"nothing was refused; last view: {self.view}")
            self.take(left)
        return self.refused[-1]

    def take(self, timeout_s: float) -> None:
        """One message, or none in that time."""
        message = self.client.receive(timeout_s)
        if isinstance(message, RunViewMessage):
            if self.yours and not message.yours and self.view is not None and message.view.run != self.view.run:
                return  # of a run beside the one this console drives
            self.view, self.yours = message.view, message.yours
            self.may_answer, self.why_not = message.may_answer, message.why_not
        elif isinstance(message, RunLines):
            self.lines += message.lines
        elif isinstance(message, RunRefused):
            self.refused.append(message)
        elif isinstance(message, EventMessage):
            self.events.append(message.event)

    def until_gone(self) -> None:
        """Take what comes until the agent is gone."""
        try:
            while True:
                self.take(LIMIT_S)
        except AgentConnectionLost:
            return

    def close(self) -> None:
        self.client.close()


def answers(by: Mapping[str, str]) -> AnswerFunction:
    """Answer by block, by kind of question, else by `*`; `=` types the expected text."""

    def say(asked: Question) -> str | None:
        text = by.get(asked.block, by.get(asked.kind, by.get("*")))
        return asked.expects if text == "=" else text

    return say


CONFIRM_ALL = answers({"ack": "y", "*": "="})
"""Confirms everything."""
