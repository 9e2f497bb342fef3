"""Time in a run: waits that look until something holds, and rounds that are walked again. Neither holds a process: what
has to be known of them after a kill is on record.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from dba_console.decoding import convert
from dba_console.errors import UsageError
from dba_console.plans.plan import Block, BlockCondition
from dba_console.plans.run_view import Option, WaitView
from dba_console.runbook.requests import ReadResult
from dba_console.runbook.walk_actions import fail
from dba_console.runbook.walk_context import Turn, WalkContext
from dba_console.runbook.walk_questions import NotAnAnswer, chosen
from dba_console.units import human_duration

EVERY_S = 5.0
"""Between two looks, where the author says nothing else."""
TREND = 60
"""Looks that are kept for the trend."""
ROUND_OPTIONS = (Option(key="again", text="another round"), Option(key="enough", text="go on"))


def test_of(value: Any) -> BlockCondition | None:
    """The condition of a wait or a repeat as its settings hold it."""
    if value is None:
        return None
    return value if isinstance(value, BlockCondition) else convert(value, BlockCondition)


def number(settings: dict[str, Any], name: str) -> float | None:
    value = settings.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def parse_moment(text: str, now_us: int) -> int:
    """Wall time of `HH:MM` (the next one, in the host's time) or of an RFC 3339 time. Raises UsageError."""
    now = datetime.fromtimestamp(now_us / 1e6).astimezone()
    try:
        if len(text) <= 8:
            clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M")
            then = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0)
            then = then if then > now else then + timedelta(days=1)
        else:
            then = datetime.fromisoformat(text)
            then = then if then.tzinfo is not None else then.astimezone()
    except ValueError:
        raise UsageError(f"not a time: {text!r}", hint="write it as 23:30 or 2026-11-22T23:30:00Z") from None
    return int(then.timestamp() * 1e6)


def wait(context: WalkContext, block: Block) -> Turn[None]:
    """Look until it holds, or let time pass. What cannot be told is not taken for yes: the wait goes on."""
    settings = block.settings
    test = test_of(settings.get("until"))
    if test is None and block.language in ("expr", "sql") and block.body.strip():
        test = BlockCondition(language="sql" if block.language == "sql" else "expr", text=block.body)
    try:
        due = _due(context, block, test)
    except UsageError as error:
        yield from fail(context, block, error.message)
        return
    yield from context.write(
        "wait.began", f"{block.id}: waiting {_wait_text(test, settings)}", block=block, until_us=due
    )
    try:
        if test is None:
            yield from _until_due(context, block, due or context.now())
        else:
            yield from _until_it_holds(context, block, test, due)
    finally:
        context.state.waiting = None


def _wait_text(test: BlockCondition | None, settings: dict[str, Any]) -> str:
    if test is not None:
        return f"until {' '.join(test.text.split())}"
    if settings.get("until_time"):
        return f"until {settings['until_time']}"
    return human_duration(number(settings, "hold_for_s"))


def _due(context: WalkContext, block: Block, test: BlockCondition | None) -> int | None:
    """When a wait for a point in time is over. One that was fixed before an interruption stays where it was."""
    due_us = context.state.blocks[block.id].due_us
    if due_us is not None:
        return due_us
    text = block.settings.get("until_time")
    if text:
        return parse_moment(str(text), context.now())
    if test is None:
        return context.now() + int((number(block.settings, "hold_for_s") or 0.0) * 1e6)
    return None


def _until_due(context: WalkContext, block: Block, due: int) -> Turn[None]:
    began = context.now()
    context.state.current = block.id
    while (left := (due - context.now()) / 1e6) > 0:
        context.state.waiting = WaitView(
            text=block.title or "time to pass", until_us=due, left=f"{human_duration(left)} (measured)"
        )
        yield from context.pause(left, due)
    yield from _record_held(context, block, began, "the time has come", {})


def _record_held(context: WalkContext, block: Block, began: int, note: str, values: dict[str, Any]) -> Turn[None]:
    waited = max(0.0, (context.now() - began) / 1e6)
    text = f"{block.id}: held after {human_duration(waited)}: {note}"
    yield from context.write("wait.held", text, block=block, state="ok", note=note, values=values, machine_s=waited)


def _until_it_holds(context: WalkContext, block: Block, test: BlockCondition, due: int | None) -> Turn[None]:
    every = number(block.settings, "every_s") or EVERY_S
    hold = number(block.settings, "hold_for_s") or 0.0
    timeout = number(block.settings, "timeout_s") or block.timeout_s
    began, since = context.now(), None
    trend: list[float | None] = []
    while True:
        result = yield from context.read_block(block, "until", test)
        now = context.now()
        holds = result.holds is True and not result.error
        since = (since if since is not None else now) if holds else None
        trend = [*trend[1 - TREND :], _first_number(result)]
        held_s = (now - since) / 1e6 if since is not None else 0.0
        if since is not None and held_s >= hold:
            yield from _record_held(context, block, began, result.text, result.values)
            return
        context.state.waiting = WaitView(
            text=" ".join(test.text.split()),
            values=result.error or result.text,
            trend=tuple(trend),
            holds_s=held_s if hold else None,
            hold_for_s=hold or None,
            until_us=due,
            timeout_s=timeout,
            left=_remaining_text(trend, every, hold - held_s if since is not None else None),
        )
        left = (began + timeout * 1e6 - now) / 1e6 if timeout is not None else every
        if left <= 0 or (due is not None and now >= due):
            waited = (now - began) / 1e6
            note = result.append_to(f"not so after {human_duration(waited)}")
            yield from fail(context, block, note, timed_out=True, machine_s=waited)
            return
        yield from context.pause(min(every, left, hold - held_s if since is not None else every))


def _first_number(result: ReadResult) -> float | None:
    """The first number looked at: what the trend is of."""
    for value in result.values.values():
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _remaining_text(trend: list[float | None], every_s: float, to_hold_s: float | None) -> str:
    """What is left. Only what is counted down to zero is told with a time, and it is an estimate."""
    if to_hold_s is not None:
        return f"{human_duration(to_hold_s)} to hold"
    recent = [value for value in trend[-10:] if value is not None]
    if len(recent) < 3 or recent[-1] <= 0 or recent[0] <= recent[-1]:
        return "unknown"
    per_s = (recent[0] - recent[-1]) / ((len(recent) - 1) * every_s)
    return f"{recent[-1]:.6g} left, about {human_duration(recent[-1] / per_s)} to none (estimated)"


def repeat(context: WalkContext, block: Block) -> Turn[None]:
    """Another round from an earlier step, or on."""
    another_round = yield from _needs_another_round(context, block)
    if not another_round:
        return
    first = str(block.settings.get("from") or context.plan.block(block.id)[0].id)
    step = context.plan.block(block.id)[0]
    number_of = context.state.steps[step.id].round + 1
    yield from context.write("repeat.round", f"{block.id}: round {number_of}, from {first}", block=block, back_to=first)


def _needs_another_round(context: WalkContext, block: Block) -> Turn[bool]:
    settings, block_state = block.settings, context.state.blocks[block.id]
    rounds = context.state.steps[context.plan.block(block.id)[0].id].round
    times, test = settings.get("times"), test_of(settings.get("while"))
    if block_state.due_us is None:
        if isinstance(times, int) and rounds >= times:
            yield from _end_repeat(context, block, f"{rounds} rounds")
            return False
        if test is not None:
            result = yield from context.read_block(block, "while", test)
            if result.holds is None or result.error:
                why = result.append_to("it cannot be told whether another round is needed")
                yield from fail(context, block, why, machine_s=result.machine_s)
                return False
            if not result.holds:
                yield from _end_repeat(context, block, f"no longer so: {result.text or test.text}")
                return False
        if settings.get("ask") or (times is None and test is None):
            wanted_round = yield from _ask_again(context, block)
            if not wanted_round:
                yield from _end_repeat(context, block, "enough")
                return False
    yield from _until_next(context, block)
    return True


def _end_repeat(context: WalkContext, block: Block, note: str) -> Turn[None]:
    yield from context.write("block.seen", f"{block.id}: no further round, {note}", block=block, state="ok", note=note)


def _ask_again(context: WalkContext, block: Block) -> Turn[bool]:
    text = block.title or str(block.settings.get("text") or "Another round?")
    while True:
        answer = yield from context.ask("choose", text, block=block, options=ROUND_OPTIONS)
        try:
            option, _ = chosen(ROUND_OPTIONS, answer.text)
        except NotAnAnswer as why:
            yield from context.reject(str(why))
            continue
        yield from context.answered(
            "choose", answer, f"{block.id}: {answer.who} chose {option.key}", block=block, answer=option.key
        )
        return option.key == "again"


def _until_next(context: WalkContext, block: Block) -> Turn[None]:
    """Let the time between two rounds pass; when it ends is on record, so that a kill does not begin it anew."""
    every = number(block.settings, "every_s") or 0.0
    due = context.state.blocks[block.id].due_us
    if due is None:
        due = context.now() + int(every * 1e6)
        text = f"{block.id}: next round in {human_duration(every)}"
        yield from context.write("wait.began", text, block=block, until_us=due)
    try:
        while (left := (due - context.now()) / 1e6) > 0:
            context.state.waiting = WaitView(
                text=block.title or "the next round", until_us=due, left=f"{human_duration(left)} (measured)"
            )
            yield from context.pause(left, due)
    finally:
        context.state.waiting = None
