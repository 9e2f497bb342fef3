"""What was given on the command line to answer questions with: `--confirm STEP[/BLOCK]=TEXT`, `--yes`. Pure.

A confirmation is of a step, or of one block of it; it answers what that step asks, each time it asks. Where several are
given for one place they are taken in order, the last one again and again. Nothing else is ever answered.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from dba_console.errors import UsageError
from dba_console.plans.plan import Plan
from dba_console.plans.view import Question

START, UNDO, JOURNAL = "start", "undo", "journal"
"""Questions that belong to no step."""
_FREE = (START, UNDO, JOURNAL)


class Unfit(Exception):
    """An answer was given, and it is not what is asked for; the text says so."""


class Answers:
    """Confirmations given beforehand. Remembers which of them it has used."""

    def __init__(self, confirmed: Iterable[tuple[str, str]] = (), *, yes: bool = False) -> None:
        self._given: dict[str, list[str]] = {}
        for place, text in confirmed:
            self._given.setdefault(place, []).append(text)
        self._used: dict[str, int] = {}
        self._yes = yes

    @property
    def any(self) -> bool:
        """Whoever gave one of them wants the run started: each act asks for its own besides."""
        return self._yes or bool(self._given)

    def to(self, question: Question) -> str | None:
        """The answer to a question, None where none was given. Raises Unfit."""
        given = self._next(question)
        if given is None:
            return self._implied(question)
        place, text = given
        wanted = _wanted(question)
        if wanted and text.strip() not in wanted:
            raise Unfit(f"--confirm {place}={text} does not fit: {wanted[0]!r} is asked for")
        return "y" if question.kind == "ack" else text

    def _next(self, question: Question) -> tuple[str, str] | None:
        """The next answer given for it, and what for."""
        for place in _places(question):
            given = self._given.get(place)
            if given:
                used = self._used.get(place, 0)
                self._used[place] = used + 1
                return place, given[min(used, len(given) - 1)]
        return None

    def _implied(self, question: Question) -> str | None:
        if question.kind == "start" and self.any:
            return "yes"
        return "y" if question.kind == "ack" and self._yes else None


def _places(question: Question) -> tuple[str, ...]:
    """Under which names an answer to it may have been given, the narrowest first."""
    match question.kind:
        case "start" | "undo" | "journal":
            return (question.kind,)
        case "failed" | "settle" | "second":
            # What to do about a failure is decided when it is seen, and two people are not one.
            return ()
        case _:
            return (question.block, question.step) if question.block else (question.step,)


def _wanted(question: Question) -> tuple[str, ...]:
    """What is taken for an answer; empty where the agent alone can tell."""
    match question.kind:
        case "ack":
            return ("y", "yes", "ack")
        case "yes" | "start":
            return ("yes",)
        case "type":
            return (question.expects,)
        case "choose":
            return tuple(option.key for option in question.options)
        case _:
            return ()


def confirmations(given: Sequence[str], plan: Plan | None) -> list[tuple[str, str]]:
    """`STEP=TEXT` and `STEP/BLOCK=TEXT` of the command line. Raises UsageError: it has no text, or the plan has no such
    step or block.
    """
    found = []
    for one in given:
        place, sign, text = one.partition("=")
        place, text = place.strip(), text.strip()
        if not sign or not place or not text:
            raise UsageError(f"--confirm {one!r} is not STEP=TEXT", hint="as in --confirm drop-it=db2")
        if plan is not None:
            place = _known(place, plan)
        found.append((place, text))
    return found


def _known(place: str, plan: Plan) -> str:
    steps = [step.id for step in plan.steps]
    blocks = [block.id for _, block in plan.blocks()]
    if place in steps or place in blocks or place in _FREE:
        return place
    close = difflib.get_close_matches(place, [*steps, *_FREE, *blocks], n=1)
    hint = f"did you mean {close[0]}?" if close else f"its steps are {', '.join(steps)}"
    raise UsageError(f"runbook {plan.id} has no step {place!r}", hint=hint)
