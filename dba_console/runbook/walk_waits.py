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
from dba_console.runbook.walk_acts import fail
from dba_console.runbook.walk_context import Turn, WalkContext
from dba_console.runbook.walk_questions import NotAnAnswer, chosen
from dba_console.units import human_duration

EVERY_S = 5.0
"""Between two looks, where the author says nothing else."""
TREND = 60
"""Looks that are kept for the trend."""
AGAIN = (Option(key="again", text="another round"), Option(key="enough", text="go on"))


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


def wait(course: WalkContext, block: Block) -> Turn[None]:
    """Look until it holds, or let time pass. What cannot be told is not taken for yes: the wait goes on."""
    settings = block.settings
    test = test_of(settings.get("until"))
    if test is None and block.language in ("expr", "sql") and block.body.strip():
        test = BlockCondition(language="sql" if block.language == "sql" else "expr", text=block.body)
    try:
        due = _due(course, block, test)
    except UsageError as error:
        yield from fail(course, block, error.message)
        return
    yield from course.write("wait.began", f"{block.id}: waiting {_for(test, settings)}", block=block, until_us=due)
    try:
        if test is None:
            yield from _until_due(course, block, due or course.now())
        else:
            yield from _until_it_holds(course, block, test, due)
    finally:
        course.state.waiting = None


def _for(test: BlockCondition | None, settings: dict[str, Any]) -> str:
    if test is not None:
        return f"until {' '.join(test.text.split())}"
    if settings.get("until_time"):
        return f"until {settings['until_time']}"
    return human_duration(number(settings, "hold_for_s"))


def _due(course: WalkContext, block: Block, test: BlockCondition | None) -> int | None:
    """When a wait for a point in time is over. One that was fixed before an interruption stays where it was."""
    known = course.state.blocks[block.id].due_us
    if known is not None:
        return known
    text = block.settings.get("until_time")
    if text:
        return parse_moment(str(text), course.now())
    if test is None:
        return course.now() + int((number(block.settings, "hold_for_s") or 0.0) * 1e6)
    return None


def _until_due(course: WalkContext, block: Block, due: int) -> Turn[None]:
    began = course.now()
    course.state.current = block.id
    while (left := (due - course.now()) / 1e6) > 0:
        course.state.waiting = WaitView(
            text=block.title or "time to pass", until_us=due, left=f"{human_duration(left)} (measured)"
        )
        yield from course.pause(left, due)
    yield from _record_held(course, block, began, "the time has come", {})


def _record_held(course: WalkContext, block: Block, began: int, note: str, values: dict[str, Any]) -> Turn[None]:
    waited = max(0.0, (course.now() - began) / 1e6)
    text = f"{block.id}: held after {human_duration(waited)}: {note}"
    yield from course.write("wait.held", text, block=block, state="ok", note=note, values=values, machine_s=waited)


def _until_it_holds(course: WalkContext, block: Block, test: BlockCondition, due: int | None) -> Turn[None]:
    every = number(block.settings, "every_s") or EVERY_S
    hold = number(block.settings, "hold_for_s") or 0.0
    timeout = number(block.settings, "timeout_s") or block.timeout_s
    began, since = course.now(), None
    trend: list[float | None] = []
    while True:
        seen = yield from course.read_block(block, "until", test)
        now = course.now()
        holds = seen.holds is True and not seen.error
        since = (since if since is not None else now) if holds else None
        trend = [*trend[1 - TREND :], _first(seen)]
        held = (now - since) / 1e6 if since is not None else 0.0
        if since is not None and held >= hold:
            yield from _record_held(course, block, began, seen.text, seen.values)
            return
        course.state.waiting = WaitView(
            text=" ".join(test.text.split()),
            values=seen.error or seen.text,
            trend=tuple(trend),
            holds_s=held if hold else None,
            hold_for_s=hold or None,
            until_us=due,
            timeout_s=timeout,
            left=_left(trend, every, hold - held if since is not None else None),
        )
        left = (began + timeout * 1e6 - now) / 1e6 if timeout is not None else every
        if left <= 0 or (due is not None and now >= due):
            waited = (now - began) / 1e6
            note = seen.append_to(f"not so after {human_duration(waited)}")
            yield from fail(course, block, note, timed_out=True, machine_s=waited)
            return
        yield from course.pause(min(every, left, hold - held if since is not None else every))


def _first(seen: ReadResult) -> float | None:
    """The first number looked at: what the trend is of."""
    for value in seen.values.values():
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _left(trend: list[float | None], every_s: float, to_hold_s: float | None) -> str:
    """What is left. Only what is counted down to zero is told with a time, and it is an estimate."""
    if to_hold_s is not None:
        return f"{human_duration(to_hold_s)} to hold"
    known = [value for value in trend[-10:] if value is not None]
    if len(known) < 3 or known[-1] <= 0 or known[0] <= known[-1]:
        return "unknown"
    per_s = (known[0] - known[-1]) / ((len(known) - 1) * every_s)
    return f"{known[-1]:.6g} left, about {human_duration(known[-1] / per_s)} to none (estimated)"


def repeat(course: WalkContext, block: Block) -> Turn[None]:
    """Another round from an earlier step, or on."""
    again = yield from _another(course, block)
    if not again:
        return
    first = str(block.settings.get("from") or course.plan.block(block.id)[0].id)
    step = course.plan.block(block.id)[0]
    number_of = course.state.steps[step.id].round + 1
    yield from course.write("repeat.round", f"{block.id}: round {number_of}, from {first}", block=block, back_to=first)


def _another(course: WalkContext, block: Block) -> Turn[bool]:
    settings, known = block.settings, course.state.blocks[block.id]
    rounds = course.state.steps[course.plan.block(block.id)[0].id].round
    times, test = settings.get("times"), test_of(settings.get("while"))
    if known.due_us is None:
        if isinstance(times, int) and rounds >= times:
            yield from _enough(course, block, f"{rounds} rounds")
            return False
        if test is not None:
            seen = yield from course.read_block(block, "while", test)
            if seen.holds is None or seen.error:
                why = seen.append_to("it cannot be told whether another round is needed")
                yield from fail(course, block, why, machine_s=seen.machine_s)
                return False
            if not seen.holds:
                yield from _enough(course, block, f"no longer so: {seen.text or test.text}")
                return False
        if settings.get("ask") or (times is None and test is None):
            wanted = yield from _ask_again(course, block)
            if not wanted:
                yield from _enough(course, block, "enough")
                return False
    yield from _until_next(course, block)
    return True


def _enough(course: WalkContext, block: Block, note: str) -> Turn[None]:
    yield from course.write("block.seen", f"{block.id}: no further round, {note}", block=block, state="ok", note=note)


def _ask_again(course: WalkContext, block: Block) -> Turn[bool]:
    text = block.title or str(block.settings.get("text") or "Another round?")
    while True:
        answer = yield from course.ask("choose", text, block=block, options=AGAIN)
        try:
            option, _ = chosen(AGAIN, answer.text)
        except NotAnAnswer as why:
            yield from course.reject(str(why))
            continue
        yield from course.answered(
            "choose", answer, f"{block.id}: {answer.who} chose {option.key}", block=block, answer=option.key
        )
        return option.key == "again"


def _until_next(course: WalkContext, block: Block) -> Turn[None]:
    """Let the time between two rounds pass; when it ends is on record, so that a kill does not begin it anew."""
    every = number(block.settings, "every_s") or 0.0
    due = course.state.blocks[block.id].due_us
    if due is None:
        due = course.now() + int(every * 1e6)
        text = f"{block.id}: next round in {human_duration(every)}"
        yield from course.write("wait.began", text, block=block, until_us=due)
    try:
        while (left := (due - course.now()) / 1e6) > 0:
            course.state.waiting = WaitView(
                text=block.title or "the next round", until_us=due, left=f"{human_duration(left)} (measured)"
            )
            yield from course.pause(left, due)
    finally:
        course.state.waiting = None
