"""Kinds of blocks that only read: check, measure, preview, wait; also the repetition of steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, field

from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError, suggest
from dba_console.core.units import human_duration
from dba_console.recording.plan import ACTING_KINDS, Block, BlockCondition, Plan
from dba_console.runbooks.block_kind import BlockKind, fail, record_rehearsed
from dba_console.runbooks.problems import Problem, Problems
from dba_console.runbooks.result_tables import counted
from dba_console.runbooks.row_choice import choice_column_error, has_act, left_out_at_first, row_names
from dba_console.runbooks.run_view import Option, WaitView
from dba_console.runbooks.schema import Condition, CountOrInput, Name, SecondsOrInput, TextOrInput, YesNo
from dba_console.runbooks.values import WHOLE
from dba_console.runbooks.walk_context import Turn, WalkContext
from dba_console.runbooks.walk_requests import ReadResult

MOST_ROWS = 1000
"""Maximum rows of a preview: an operator cannot review more."""


class Check(BlockKind):
    name = "check"
    languages = ("expr", "sql", "sh")
    help = (
        "A condition that must hold; read-only. SQL: one row whose first column is true. A command: exit code 0. An "
        "error or an unknown value fails the check."
    )
    attributes = ("exit",)
    may_lead = True

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Run a check; it passes only if its condition is known to hold."""
        result = yield from context.read_block(block, "check")
        if result.holds is True and not result.error:
            yield from _record_ok(context, block, result, self.note(result))
            return
        what = "does not hold" if result.holds is False and not result.error else "unknown whether it holds"
        yield from fail(context, block, result.append_to(what), machine_s=result.machine_s)

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Run the check."""
        result = yield from context.read_block(block, "check")
        yield from _record_rehearsed_read(context, block, result, self.note(result), passed=result.holds is True)

    def note(self, result: ReadResult) -> str:
        """Return the result as text."""
        word = {True: "passed", False: "does not hold", None: "unknown whether it holds"}[result.holds]
        return f"{word}: {result.text}" if result.text else word


class Measure(BlockKind):
    name = "measure"
    languages = ("expr", "sql")
    help = (
        "Records numbers for a later comparison: lines `field` or `name = expression`, or SQL with one row whose "
        "columns are the names."
    )
    attributes = ("as", "against")
    may_be_empty = True
    may_lead = True

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Record the values of a measurement; a later one gives before and after."""
        result = yield from context.read_block(block, "measure")
        if result.error:
            yield from fail(context, block, result.error, machine_s=result.machine_s)
            return
        yield from _record_ok(context, block, result, result.text or "measured")

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Measure."""
        result = yield from context.read_block(block, "measure")
        yield from _record_rehearsed_read(context, block, result, result.text or "measured")


class Preview(BlockKind):
    name = "preview"
    languages = ("sql",)
    help = (
        "Shows the rows that the next `change` of the step acts on; it acts on no others. Before the confirmation the "
        "operator can deselect rows."
    )
    attributes = ("as", "at_most", "chosen", "empty", "databases")
    may_lead = True
    rule = "chosen-rows"

    def compile(self, fields: dict[str, Any], settings: dict[str, Any], line: int, problems: Problems) -> None:
        """Without rows, the change after it is skipped, unless the author wants it to fail."""
        settings.setdefault("empty", "skip")

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """`chosen=COLUMN` names a column of the preview's rows that preselects the rows to act on. A change or an
        action must use these rows."""
        column = block.settings.get("chosen")
        if column is None:
            return
        if not re.search(rf"\b{re.escape(column)}\b", block.body):
            yield Problem(line=block.line, text=f"chosen={column}, but the query has no column of that name",
                          hint=f"add … as {column}, true for the rows that are chosen at first")  # fmt: skip
        if not has_act(plan, block):
            yield Problem(line=block.line, text=f"chosen={column}, but nothing uses the rows",
                          hint="add a change after it in its step, or an action with rows = \"%(NAME)s\"")  # fmt: skip

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Record the exact rows that the next change may act on. Too many rows fail: they could not be reviewed."""
        result = yield from context.read_block(block, "preview")
        most = block.settings.get("at_most")
        most = min(most, MOST_ROWS) if isinstance(most, int) else MOST_ROWS
        if result.error:
            yield from fail(context, block, result.error, machine_s=result.machine_s)
        elif len(result.rows) > most:
            note = f"{len(result.rows)} rows, more than the maximum of {most}"
            yield from fail(context, block, note, machine_s=result.machine_s)
        elif not result.rows and block.settings.get("empty") == "fail":
            yield from fail(context, block, "it returned no rows", machine_s=result.machine_s)
        elif why := choice_column_error(block, result.rows):
            yield from fail(context, block, why, machine_s=result.machine_s)
        else:
            left_out = left_out_at_first(block, context.state.blocks[block.id], result.rows)
            note = counted(len(result.rows))
            if left_out:
                note += f", {len(result.rows) - len(left_out)} chosen; not chosen: {row_names(result.rows, left_out)}"
            yield from _record_ok(
                context, block, result, note, rows=result.rows, **({"left_out": left_out} if left_out else {})
            )

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Read the rows."""
        result = yield from context.read_block(block, "preview")
        if not result.error and (why := choice_column_error(block, result.rows)):
            result = ReadResult(error=why, machine_s=result.machine_s)
        rows = result.rows[:MOST_ROWS]
        left_out = [] if result.error else left_out_at_first(block, context.state.blocks[block.id], rows)
        note = counted(len(result.rows))
        yield from _record_rehearsed_read(context, block, result, note, rows=rows, left_out=left_out)

    def marks(self, block: Block) -> Iterator[str]:
        """Yield the parts of its description, with the column that preselects rows."""
        yield from super().marks(block)
        if column := block.settings.get("chosen"):
            yield f"rows whose {column} is true are chosen at first"


def _record_ok(context: WalkContext, block: Block, result: ReadResult, note: str, **fields: Any) -> Turn[None]:
    text = f"{block.id}: {note}"
    yield from context.write(
        "block.seen",
        text,
        block=block,
        state="ok",
        note=note,
        machine_s=result.machine_s,
        values=result.values,
        **fields,
    )


def _record_rehearsed_read(
    context: WalkContext, block: Block, result: ReadResult, note: str, *, passed: bool = True, **fields: Any
) -> Turn[None]:
    """Record what a rehearsal read. A failure after a change that was not executed does not count."""
    if result.error:
        note, passed = result.error, False
    if not passed and _after_an_act(context.plan, block):
        note = f"{note}; the changes before it were not executed"
        yield from record_rehearsed(context, block, note, machine_s=result.machine_s)
        return
    state, values = ("ok", {"values": result.values, **fields}) if passed else ("failed", {})
    text = f"{block.id}: {note}"
    yield from context.write(
        "block.seen", text, block=block, state=state, note=note, machine_s=result.machine_s, **values
    )


def _after_an_act(plan: Plan, block: Block) -> bool:
    """Return whether a changing or manual block comes before it."""
    for _, one in plan.blocks():
        if one.id == block.id:
            return False
        if one.kind in ACTING_KINDS or one.kind == "manual":
            return True
    return False


# Waits and repetitions. Their state is recorded, so they survive a kill of the agent.

EVERY_S = 5.0
"""Default interval between two checks of a wait."""
TREND = 60
"""Values kept for the trend."""
ROUND_OPTIONS = (Option(key="again", text="another round"), Option(key="enough", text="continue without it"))


def test_of(value: Any) -> BlockCondition | None:
    """Return the condition of a wait or a repeat from its settings."""
    if value is None:
        return None
    return value if isinstance(value, BlockCondition) else convert(value, BlockCondition)


def number(settings: dict[str, Any], name: str) -> float | None:
    value = settings.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def parse_moment(text: str, now_us: int) -> int:
    """Return the wall time in microseconds of `HH:MM` (the next one, in the host's time zone) or of an RFC 3339 time.
    Raises UsageError."""
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


_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?")


class WaitTable(Struct, forbid_unknown_fields=True, kw_only=True):
    until: Condition | None = None
    """condition to wait for"""
    hold_for_s: SecondsOrInput | None = field(name="hold_for", default=None)
    """time the condition must hold without a break; alone: wait that long"""
    until_time: TextOrInput | None = None
    """a time, `03:30` or RFC 3339"""
    every_s: SecondsOrInput = field(name="every", default="5s")
    """interval between checks"""
    timeout_s: SecondsOrInput | None = field(name="timeout", default=None)
    """time after which the operator is asked; required with `until`"""


class Wait(BlockKind):
    name = "wait"
    languages = ("toml",)
    help = "Waits until a condition holds; shows value, trend and remaining time."
    table = WaitTable
    inputs_replaced = True
    rule = "unbounded-wait"

    def compile(self, fields: dict[str, Any], settings: dict[str, Any], line: int, problems: Problems) -> None:
        """The timeout of its table is that of the block."""
        if isinstance(settings.get("timeout_s"), float):
            fields.setdefault("timeout_s", settings["timeout_s"])

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """A wait for a condition needs a timeout. When it is reached, the operator is asked; nothing is decided
        automatically."""
        settings = block.settings
        if "until" in settings and "timeout_s" not in settings and block.timeout_s is None:
            yield Problem(line=block.line, text="the wait has no timeout, and its condition may never hold",
                          hint='timeout = "10m"; the operator is then asked whether to wait longer')  # fmt: skip
        if not {"until", "hold_for_s", "until_time"} & set(settings):
            yield Problem(line=block.line, text="the wait has no condition, duration or time",
                          hint='until = "an expression", hold_for = "10m", or until_time = "03:30"')  # fmt: skip
        if "until_time" in settings and not _is_time(str(settings["until_time"])):
            yield Problem(line=block.line, text=f"{settings['until_time']!r} is not a time",
                          hint="03:30, or 2026-11-22T03:30:00Z")  # fmt: skip

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Wait until a condition holds, or for a time. An unknown condition does not count as true: the wait
        continues."""
        settings = block.settings
        test = test_of(settings.get("until"))
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
                began = context.now()
                yield from _until_due(context, block, due or began, "the time has passed")
                yield from _record_held(context, block, began, "the time has passed", {})
            else:
                yield from _until_it_holds(context, block, test, due)
        finally:
            context.state.waiting = None

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Read the condition once."""
        test = test_of(block.settings.get("until"))
        if test is None:
            yield from record_rehearsed(context, block, "would wait")
            return
        result = yield from context.read_block(block, "until", test)
        now = "true now" if result.holds and not result.error else "not true now"
        note = f"would wait until {test.text}; {now}: {result.error or result.text}"
        yield from record_rehearsed(context, block, note)


def _is_time(text: str) -> bool:
    if WHOLE.fullmatch(text) or _CLOCK.fullmatch(text):
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _wait_text(test: BlockCondition | None, settings: dict[str, Any]) -> str:
    if test is not None:
        return f"until {' '.join(test.text.split())}"
    if settings.get("until_time"):
        return f"until {settings['until_time']}"
    return human_duration(number(settings, "hold_for_s"))


def _due(context: WalkContext, block: Block, test: BlockCondition | None) -> int | None:
    """Return the end of a wait for a point in time. An end recorded before an interruption is kept."""
    due_us = context.state.blocks[block.id].due_us
    if due_us is not None:
        return due_us
    text = block.settings.get("until_time")
    if text:
        return parse_moment(str(text), context.now())
    if test is None:
        return context.now() + int((number(block.settings, "hold_for_s") or 0.0) * 1e6)
    return None


def _until_due(context: WalkContext, block: Block, due: int, text: str) -> Turn[None]:
    """Wait until a wall time; `text` is shown if the block has no title."""
    context.state.current = block.id
    while (left := (due - context.now()) / 1e6) > 0:
        context.state.waiting = WaitView(
            text=block.title or text, until_us=due, left=f"{human_duration(left)} (measured)"
        )
        yield from context.pause(left, due)


def _record_held(context: WalkContext, block: Block, began: int, note: str, values: dict[str, Any]) -> Turn[None]:
    waited = max(0.0, (context.now() - began) / 1e6)
    text = f"{block.id}: satisfied after {human_duration(waited)}: {note}"
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
            note = result.append_to(f"not satisfied after {human_duration(waited)}")
            yield from fail(context, block, note, timed_out=True, machine_s=waited)
            return
        yield from context.pause(min(every, left, hold - held_s if since is not None else every))


def _first_number(result: ReadResult) -> float | None:
    """Return the first number of a result; the trend shows it."""
    for value in result.values.values():
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _remaining_text(trend: list[float | None], every_s: float, to_hold_s: float | None) -> str:
    """Return what remains. A time is estimated only for a value that falls towards zero."""
    if to_hold_s is not None:
        return f"must hold {human_duration(to_hold_s)} more"
    recent = [value for value in trend[-10:] if value is not None]
    if len(recent) < 3 or recent[-1] <= 0 or recent[0] <= recent[-1]:
        return "unknown"
    per_s = (recent[0] - recent[-1]) / ((len(recent) - 1) * every_s)
    return f"{recent[-1]:.6g}, about {human_duration(recent[-1] / per_s)} to zero (estimated)"


class RepeatTable(Struct, forbid_unknown_fields=True, kw_only=True):
    from_: Name | None = field(name="from", default=None)
    """id of the first step of each round; default: this one"""
    every_s: SecondsOrInput = field(name="every")
    """time between two rounds"""
    times: CountOrInput | None = None
    """maximum number of rounds"""
    while_: Condition | None = field(name="while", default=None)
    """repeat while this condition holds"""
    ask: YesNo = False
    """`true`: ask before each round"""


class Repeat(BlockKind):
    name = "repeat"
    languages = ("toml",)
    help = "Repeats from a step, in rounds."
    table = RepeatTable
    inputs_replaced = True
    rule = "endless-repeat"

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """A repetition must end: after a number of rounds, when a condition fails, or on the operator's answer."""
        if not {"times", "while", "ask"} & set(block.settings):
            yield Problem(line=block.line, text="the repetition has no end",
                          hint='times = 10, while = "an expression", or ask = true')  # fmt: skip
        step, _ = plan.block(block.id)
        origin = block.settings.get("from", step.id)
        order = [one.id for one in plan.steps]
        if origin not in order:
            yield Problem(line=block.line, text=f"there is no step {origin!r} to repeat from",
                          hint=suggest(str(origin), order, what="available:"))  # fmt: skip
        elif order.index(origin) > order.index(step.id):
            yield Problem(line=block.line, text=f"step {origin!r} comes later; a repetition can only go back")

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Start another round from an earlier step, or continue."""
        another_round = yield from _needs_another_round(context, block)
        if not another_round:
            return
        first = str(block.settings.get("from") or context.plan.block(block.id)[0].id)
        step = context.plan.block(block.id)[0]
        number_of = context.state.steps[step.id].round + 1
        yield from context.write(
            "repeat.round", f"{block.id}: round {number_of}, from {first}", block=block, back_to=first
        )


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
                why = result.append_to("unknown whether another round is needed")
                yield from fail(context, block, why, machine_s=result.machine_s)
                return False
            if not result.holds:
                yield from _end_repeat(context, block, f"condition no longer true: {result.text or test.text}")
                return False
        if settings.get("ask") or (times is None and test is None):
            wanted_round = yield from _ask_again(context, block)
            if not wanted_round:
                yield from _end_repeat(context, block, "declined by the operator")
                return False
    yield from _until_next(context, block)
    return True


def _end_repeat(context: WalkContext, block: Block, note: str) -> Turn[None]:
    yield from context.write("block.seen", f"{block.id}: no further round, {note}", block=block, state="ok", note=note)


def _ask_again(context: WalkContext, block: Block) -> Turn[bool]:
    text = block.title or str(block.settings.get("text") or "Another round?")
    answer, option, _ = yield from context.choose("choose", text, ROUND_OPTIONS, block=block)
    record_text = f"{block.id}: {answer.who} chose {option.key}"
    yield from context.answered("choose", answer, record_text, block=block, answer=option.key)
    return option.key == "again"


def _until_next(context: WalkContext, block: Block) -> Turn[None]:
    """Wait until the next round; its start time is recorded, so a kill does not restart the wait."""
    every = number(block.settings, "every_s") or 0.0
    due = context.state.blocks[block.id].due_us
    if due is None:
        due = context.now() + int(every * 1e6)
        text = f"{block.id}: next round in {human_duration(every)}"
        yield from context.write("wait.began", text, block=block, until_us=due)
    try:
        yield from _until_due(context, block, due, "the next round starts")
    finally:
        context.state.waiting = None
