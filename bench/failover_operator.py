"""An operator who walks a runbook and does what the screen says: types what it asks for, waits, retries, powers a host
off when told to, runs it again for the node it names. He has no knowledge of his own."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.trio import NAME, Trio
from dba_console.agent.client import AgentConnectionLost
from dba_console.core.errors import ConnectError
from dba_console.runbooks.run_view import ENDED_STATES, Question, RunView
from tests.agent.agents import RunningAgent, agent
from tests.agent.runs.scripted_console import Operator, WaitTimeout

RUNBOOKS = Path(__file__).resolve().parent.parent / "runbooks"
UNKNOWN = "go-on-although-something-is-unknown"
"""The step that asks for a name where evidence is missing."""
RETRY_S = 3.0
RUN_S = 240.0
"""A run that lasts longer counts as one that cannot be ended."""
RUNS = 3
"""Times the runbook is run, as its own words advise."""


class Asked(NamedTuple):
    after_s: float
    question: Question
    answer: str

    def __str__(self) -> str:
        return (
            f"{self.after_s:6.1f} s  {self.question.kind} {self.question.block}: {self.question.text} → {self.answer}"
        )


class Walk(NamedTuple):
    """One run to its end, or to the end of the operator's patience."""

    state: str
    ending: str
    asked: list[Asked]
    seconds: float

    @property
    def typed_loss(self) -> str:
        """What was typed at the promotion; empty: it was not reached."""
        typed = [one for one in self.asked if one.question.kind == "type" and one.question.step == "promote"]
        return typed[-1].answer if typed else ""

    def __str__(self) -> str:
        return "\n".join([*map(str, self.asked), f"{self.state} after {self.seconds:.1f} s: {self.ending}"])


class Hands:
    """What the operator does away from the screen. `patience_s`: how long he waits when told to wait. `fixes`: pattern
    of a text that is shown -> what it says, done once. `at`: a question's step or block -> what happens to the
    cluster while it is open, once. `comes_back`: his choice for the old primary. `knows`: he can find out away from
    the screen that the old primary accepts no writes, because he can cut it off himself."""

    def __init__(
        self, trio: Trio | None = None, *, patience_s: float = 60.0, comes_back: str = "rewind",
        fixes: Mapping[str, Callable[[Trio], object]] | None = None,
        at: Mapping[str, Callable[[Trio], object]] | None = None,
        knows: bool = True, cut_off: Callable[[Trio], object] = lambda trio: trio.power_off("db1"),
        before: Callable[[Question], None] = lambda question: None,
    ) -> None:  # fmt: skip
        self._trio, self.patience_s, self.comes_back, self.to = trio, patience_s, comes_back, ""
        self._fixes, self._at, self._before, self._cut_off = dict(fixes or {}), dict(at or {}), before, cut_off
        self._failed: dict[str, list[float]] = {}
        self._knows, self.shown = knows, ""

    @property
    def trio(self) -> Trio:
        """The cluster at his hands; where a manager runs it there is none, for nothing has to be done by hand."""
        assert self._trio is not None
        return self._trio

    def begin(self, to: str) -> None:
        """Another run, with patience again."""
        self.to = to
        self._failed.clear()

    def answer(self, asked: Question) -> str:
        for key in [key for key in self._at if key in (asked.step, asked.block)]:
            self._at.pop(key)(self.trio)
        self._before(asked)
        if asked.kind == "ack":
            return "y"
        if asked.kind == "manual":
            return self._by_hand(asked.text)
        if asked.kind == "choose":
            keys = [one.key for one in asked.options]
            return self.comes_back if self.comes_back in keys else keys[-1]
        if asked.kind in ("failed", "settle"):
            return self._after_failure(asked)
        if asked.kind == "type" and asked.step == UNKNOWN:
            return self._although_unknown(asked)
        return asked.expects or "yes"

    def _although_unknown(self, asked: Question) -> str:
        """He goes on only if he knows from elsewhere that the old primary accepts no writes."""
        if self._fixed(f"{asked.text} {self.shown}") or not self._knows:
            return "no"
        self._cut_off(self.trio)
        return asked.expects

    def _fixed(self, text: str) -> bool:
        """Do what the text says, once; whether there was something."""
        found = [pattern for pattern in self._fixes if re.search(pattern, text, re.I)]
        for pattern in found:
            self._fixes.pop(pattern)(self.trio)
        return bool(found)

    def _by_hand(self, text: str) -> str:
        if "pooler" in text.lower() and "power off" not in text.lower():
            pooler, to = self.trio.pooler, self.trio.nodes[self.to]
            pooler.lead_to(to)
            pooler.stop()
            if pooler.host.has_power:
                pooler.launch()
            return f"changed pgbouncer.ini by hand, it leads to {self.to}"
        cut = re.search("power(ed)? off|cut off", text, re.I)
        if cut is not None:
            self._cut_off(self.trio)
            return "db1 was cut off, and seen to be down"
        return "done by hand"

    def _after_failure(self, asked: Question) -> str:
        fixed = self._fixed(asked.text)
        times = self._failed.setdefault(asked.block, [])
        times.append(time.monotonic())
        keys = [one.key for one in asked.options]
        waits = re.search(r"\bwait(?! are)|recover|starts up", asked.text) is not None
        patient = times[-1] - times[0] < self.patience_s if waits else len(times) <= 2
        other = re.search(r"fail over to (db\d)", asked.text)
        if "retry" in keys and (fixed or (patient and not other)):
            if not fixed and len(times) > 1:
                time.sleep(RETRY_S)
            return "retry"
        for one in asked.options:
            if one.key == "skip":
                return "skip it is done by hand later" if one.needs_reason else "skip"
        return "abort" if "abort" in keys else keys[-1]


@contextmanager
def console(
    variables: Mapping[str, str], place: Path, *, kill: Mapping[str, str] | None = None
) -> Iterator[RunningAgent]:
    """An agent of an operator whose directories are in `place`; with `kill`, one that kills itself. `variables` are
    those of the environment that name the cluster."""
    place.mkdir(exist_ok=True)
    nowhere = f"host={place} port=1 user=nobody dbname=none"
    program = "tests.agent.runs.agent_that_kills_itself" if kill else "dba_console"
    with agent(nowhere, place, extra={**variables, **(kill or {})}, program=program) as running:
        yield running


def walk(running: RunningAgent, runbook: str, to: str, hands: Hands, cluster: str = NAME) -> Walk:
    """Walk the runbook to its end."""
    begun = time.monotonic()
    hands.begin(to)
    operator = Operator.of(running)
    asked: list[Asked] = []
    try:
        if runbook == "resume":
            operator.until(lambda: operator.view is not None or bool(operator.runs), "the run")
            operator.resume(operator.runs[0].run if operator.runs else operator.view.run)  # type: ignore[union-attr]
        else:
            operator.begin((RUNBOOKS / f"{runbook}.md").read_text(), {"cluster": cluster, "to": to})
        view = _to_end(operator, hands, asked, begun)
        return Walk(view.state, view.ending, asked, time.monotonic() - begun)
    except (AgentConnectionLost, ConnectError):
        return Walk("killed", "the agent was killed", asked, time.monotonic() - begun)
    except WaitTimeout as error:
        return Walk("stuck", str(error)[:1000], asked, time.monotonic() - begun)
    finally:
        operator.close()


def _to_end(operator: Operator, hands: Hands, asked: list[Asked], begun: float) -> RunView:
    answered: set[int] = set()
    while True:
        view = operator.view
        assert view is not None
        if view.state in ENDED_STATES:
            return view
        if time.monotonic() > begun + RUN_S:
            last = view.question.text if view.question is not None else view.progress or view.block
            raise WaitTimeout(f"not ended after {RUN_S:g} s, at: {last}")
        question = view.question
        if question is not None and question.id not in answered and operator.may_answer:
            answered.add(question.id)
            hands.shown = _shown(view)
            text = hands.answer(question)
            asked.append(Asked(time.monotonic() - begun, question, text))
            refused = len(operator.refused)
            operator.answer(question, text)
            operator.take(0.5)
            if len(operator.refused) > refused:
                raise WaitTimeout(f"the answer {text!r} to {question.text!r} was refused: {operator.refused[-1].text}")
        else:
            operator.take(1.0)


def _shown(view: RunView) -> str:
    """What is on the screen beside the question."""
    rows = [" ".join(row) for row in view.table.rows] if view.table is not None else []
    return " ".join([*(block.note for block in view.blocks), *rows])


def other_target(walked: Walk) -> str | None:
    """The node that the screen says to fail over to."""
    texts = [walked.ending, *(one.question.text for one in walked.asked)]
    found = [match[1] for text in texts if (match := re.search(r"fail over to (db\d)", text)) is not None]
    return found[-1] if found else None
