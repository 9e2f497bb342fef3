"""Where a run goes: waits that end, repetitions that end, decisions that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from dba_console.plans.plan import Plan
from dba_console.runbook.problems import Problem, suggest
from dba_console.runbook.values import WHOLE

WORDS = ("next", "end")
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")


def unbounded_wait(plan: Plan) -> Iterator[Problem]:
    """A wait for something has a timeout: it does not decide anything, but it asks."""
    for _, block in plan.blocks():
        if block.kind != "wait":
            continue
        settings = block.settings
        if "until" in settings and "timeout_s" not in settings and block.timeout_s is None:
            yield Problem(line=block.line, text="the wait has no end: what it waits for may never come",
                          hint='timeout = "10m"; then it asks whether to go on waiting')  # fmt: skip
        if not {"until", "hold_for_s", "until_time"} & set(settings):
            yield Problem(line=block.line, text="the wait waits for nothing",
                          hint='until = "an expression", hold_for = "10m", or until_time = "03:30"')  # fmt: skip
        if "until_time" in settings and not _is_time(str(settings["until_time"])):
            yield Problem(line=block.line, text=f"{settings['until_time']!r} is no time",
                          hint="03:30, or 2026-11-22T03:30:00Z")  # fmt: skip


def _is_time(text: str) -> bool:
    if WHOLE.fullmatch(text) or _CLOCK.fullmatch(text):
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def endless_repeat(plan: Plan) -> Iterator[Problem]:
    """A repetition ends: after so many times, when something no longer holds, or because a person says so."""
    for step in plan.steps:
        for block in step.blocks:
            if block.kind != "repeat":
                continue
            if not {"times", "while", "ask"} & set(block.settings):
                yield Problem(line=block.line, text="the repetition has no end",
                              hint='times = 10, while = "an expression", or ask = true')  # fmt: skip
            origin = block.settings.get("from", step.id)
            order = [one.id for one in plan.steps]
            if origin not in order:
                yield Problem(line=block.line, text=f"there is no step {origin!r} to repeat from",
                              hint=suggest(str(origin), order, what="there are"))  # fmt: skip
            elif order.index(origin) > order.index(step.id):
                yield Problem(line=block.line, text=f"step {origin!r} comes later; a repetition goes back")


def no_such_step(plan: Plan) -> Iterator[Problem]:
    """Decisions and `then` lead forward, to a step that is there, to `next` or to `end`."""
    order = [step.id for step in plan.steps]
    for at, step in enumerate(plan.steps):
        targets = [(step.line, step.then)] if step.then is not None and step.then != "end" else []
        for block in step.blocks:
            if block.kind == "choose":
                options = block.settings.get("options", [])
                targets += [(block.line, one["goto"]) for one in options if one["goto"] not in WORDS]
                keys = [one["key"] for one in options]
                if len(set(keys)) != len(keys):
                    yield Problem(line=block.line, text="two options have the same key")
        for line, target in targets:
            if target not in order:
                yield Problem(line=line, text=f"there is no step {target!r}",
                              hint=suggest(str(target), order[at + 1 :], what="later steps are"))  # fmt: skip
            elif order.index(target) <= at:
                yield Problem(line=line, text=f"step {target!r} does not come later",
                              hint="decisions lead forward; a block repeat goes back")  # fmt: skip


def unreached(plan: Plan) -> Iterator[Problem]:
    """A branch that no decision leads to is never walked."""
    reached = {
        option["goto"]
        for _, block in plan.blocks() if block.kind == "choose"
        for option in block.settings.get("options", [])
    }  # fmt: skip
    reached.update(step.then for step in plan.steps if step.then)
    for step in plan.steps:
        if step.branch and step.id not in reached:
            yield Problem(line=step.line, text=f"no decision leads to the branch {step.id!r}",
                          hint="an option with goto, or no {branch}")  # fmt: skip


def empty_step(plan: Plan) -> Iterator[Problem]:
    """A step has a block that runs; what is only read stands under the title or in a step that does something."""
    for step in plan.steps:
        if not step.blocks:
            yield Problem(line=step.line, text=f"step {step.id} has no block: nothing would happen in it",
                          hint="`toml {manual}` for what a person does; headings of level three for text")  # fmt: skip
