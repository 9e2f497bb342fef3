"""Build the view of a run for consoles from its state and its live status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec import Struct, structs

from dba_console.actions.action_preview import recorded_preview
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.recording.plan import Block, Plan, Prose, Step
from dba_console.runbooks.block_kind_registry import kind_of
from dba_console.runbooks.code_references import sql_references
from dba_console.runbooks.preview_rows import (
    bound_preview,
    code_shown,
    done_before,
    no_return_passed,
    runs_per_row,
    undo_of,
)
from dba_console.runbooks.result_tables import WHOLE_CHARACTERS, cell, comparison, counted, figures_of, table_of
from dba_console.runbooks.row_choice import chosen_count_text
from dba_console.runbooks.run_state import BlockState, RunState
from dba_console.runbooks.run_summary import TypicalDuration, as_table, results_of, summarize
from dba_console.runbooks.run_view import (
    BlockView,
    Option,
    Question,
    RunStatus,
    RunTable,
    RunView,
    StepState,
    StepView,
    WaitView,
)
from dba_console.runbooks.walk_requests import AskRequest

MOST_PROSE = 20_000
"""Maximum characters of the text of a step or of the document."""
MOST_NOTE = 2_000
"""Maximum characters of a text from servers and commands."""
CACHED = 256
"""Sanitized texts kept: a view is built several times per block, mostly from the same texts."""


class LiveStatus(Struct, frozen=True, kw_only=True):
    """Live status of a run, which is not in the records."""

    now_us: int
    """Wall clock."""
    directory: str = ""
    driver: str = ""
    question: Question | None = None
    progress: str = ""
    can_stop: bool = False
    journal: str = ""
    usual: Mapping[str, TypicalDuration] = {}


def question_view(ask: AskRequest, *, number: int, since_us: int, first_by: str = "") -> Question:
    """Return a question of the walk as it is sent to consoles."""
    return Question(
        id=number,
        kind="second" if first_by else ask.kind,
        text=lines(ask.text),
        step=ask.step,
        block=ask.block,
        expects=clean(ask.expects),
        options=tuple(Option(key=one.key, text=line(one.text), needs_reason=one.needs_reason) for one in ask.options),
        secret=ask.secret,
        rows=ask.rows,
        since_us=since_us,
        first_by=clean(first_by),
    )


def run_view(plan: Plan, state: RunState, live: LiveStatus) -> RunView:
    """Return everything a screen needs, of bounded size."""
    step, blocks = _current(plan, state)
    mode: Literal["run", "rehearse"] = "rehearse" if state.mode == "rehearse" else "run"
    return RunView(
        run=state.run,
        runbook=plan.id,
        title=line(plan.title),
        mode=mode,
        state=run_status(state, live),
        target=clean(state.target),
        place=clean(state.place),
        identity=line(state.identity),
        who=clean(state.who),
        driver=clean(live.driver),
        started_us=state.started_us or state.planned_us,
        directory=clean(live.directory),
        prose=_clean_prose(plan.prose),
        steps=tuple(_step(state, one, live) for one in plan.steps),
        current=step.id if step is not None else "",
        step_prose=_clean_prose(step.prose) if step is not None else (),
        blocks=tuple(_block(plan, state, block, live) for block in blocks),
        block=state.current,
        question=live.question,
        waiting=_clean_waiting(state.waiting),
        table=_clean_table(_table(plan, state)),
        measures=_clean_table(_measures(plan, state)),
        panels=step.panels if step is not None else (),
        progress=line(live.progress),
        can_stop=live.can_stop,
        journal=line(live.journal),
        must_finish=plan.reverts
        and any(step.point_of_no_return and no_return_passed(state, step) for step in plan.steps),
        ending=line(state.ending),
        summary=_clean_table(as_table(summarize(plan, state, live.usual), reached=True)) if state.ended else None,
        results=tuple(_results(plan, state)) if state.ended else (),
    )


def _results(plan: Plan, state: RunState) -> Iterator[str]:
    """Yield the results of the actions that measured something, and of the last one."""
    done = [block for _, block in plan.blocks() if block.action and state.blocks[block.id].status == "ok"]
    for block in done:
        if block is done[-1] or figures_of(state.values.get(block.name or "", {})):
            yield line(f"{block.title or block.action}: {state.blocks[block.id].note}")


def run_status(state: RunState, live: LiveStatus) -> RunStatus:
    """Return the state of the run."""
    if state.ended in ("done", "failed", "aborted"):
        return state.ended  # type: ignore[return-value]
    if state.paused:
        return "paused"
    if state.interrupted:
        return "interrupted"
    if live.question is not None:
        return "waiting"
    return "running" if state.started or state.mode == "rehearse" else "planned"


def _current(plan: Plan, state: RunState) -> tuple[Step | None, tuple[Block, ...]]:
    """Return the current step and its blocks; during its revert, its undo blocks."""
    if state.undo is not None and state.undo.active_step:
        step = plan.step(state.undo.active_step)
        return step, step.undo or step.blocks
    if not state.started and not state.ended and state.mode == "run":
        leading = [(step, block) for step, block in plan.blocks() if block.leading]
        leading_step = next(
            (step for step, block in leading if block.id == state.current), leading[-1][0] if leading else None
        )
        return leading_step, tuple(block for _, block in leading)
    under_way = state.active_step
    if under_way is None and state.current and not state.ended:
        under_way = plan.block(state.current)[0]
    return under_way, under_way.blocks if under_way is not None else ()


def _step(state: RunState, step: Step, live: LiveStatus) -> StepView:
    step_state = state.steps[step.id]
    usual = live.usual.get(step.id)
    author = [block.usual_s for block in step.blocks if block.usual_s is not None]
    elapsed = step_state.machine_s + step_state.human_s
    if step_state.status == "running" and not state.interrupted and step_state.last_us:
        elapsed += max(0.0, (live.now_us - step_state.last_us) / 1e6)
    return StepView(
        id=step.id,
        title=line(step.title),
        state=_step_state(state, step),
        note=_in_one_line(step_state.note),
        elapsed_s=elapsed if step_state.round or elapsed else None,
        human_s=step_state.human_s,
        usual_s=usual.seconds if usual is not None else sum(author) if author else None,
        usual_from=_usual_basis(usual) if usual is not None else "author" if author else "",
        point_of_no_return=step.point_of_no_return,
        round=step_state.round if step_state.round > 1 else 0,
    )


def _usual_basis(usual: TypicalDuration) -> str:
    runs = f"{usual.runs} run{'s' if usual.runs > 1 else ''}"
    return f"{runs}, last {human_duration(usual.last_s)}" if usual.runs > 1 else runs


def _step_state(state: RunState, step: Step) -> StepState:
    status = state.steps[step.id].status
    if status != "running":
        return status  # type: ignore[return-value]
    execution = state.open_execution
    if execution is not None and execution.state == "unknown":
        return "unknown"
    if state.failure is not None:
        return "failed"
    return "waiting" if state.asked is not None or state.paused else "running"


def _block(plan: Plan, state: RunState, block: Block, live: LiveStatus) -> BlockView:
    block_state, usual = state.blocks[block.id], live.usual.get(block.id)
    elapsed = block_state.machine_s + block_state.human_s
    return BlockView(
        id=block.id,
        kind=block.kind,
        title=line(block.title or kind_of(block).label or block.kind),
        state=_block_state(state, block, block_state),
        exact=code_text(plan, state, block),
        note=_in_one_line(block_state.note),
        usual_s=usual.seconds if usual is not None else block.usual_s,
        elapsed_s=elapsed or None,
    )


def _block_state(state: RunState, block: Block, block_state: BlockState) -> StepState:
    if block_state.status == "pending" and state.current == block.id and not state.ended:
        return "waiting" if state.asked is not None and state.asked.block == block.id else "running"
    return block_state.status  # type: ignore[return-value]


def code_text(plan: Plan, state: RunState, block: Block) -> str:
    """Return the exact text of what runs, with the values and rows it uses as comments."""
    block_state = state.blocks[block.id]
    action_preview = block_state.action_preview or recorded_preview(_last_intent_fields(state, block))
    exact = "" if action_preview is None else action_preview.exact
    if block.kind == "action" and (undone := undo_of(state, block)) is not None:
        what = [
            f"revert: {exact or code_shown(state, block)}",
            *(f"-- {name}: {_short(value)}" for name, value in undone.items()),
        ]
        return lines("\n".join(what), MOST_PROSE)
    if block.kind == "action" and exact:
        return lines(exact, MOST_PROSE)
    preview = bound_preview(plan, block)
    rows = state.blocks[preview.id].chosen if preview is not None else None
    text = code_shown(state, block)
    left = set(sql_references(text)) if block.language == "sql" else set(block.uses)
    beside = [f"{name}: {_short(state.values[name])}" for name in block.uses if name in state.values and name in left]
    if rows is not None:
        each = ", executed once per row" if runs_per_row(block) else ""
        many = (chosen_count_text(state.blocks[preview.id]) if preview else "") or counted(len(rows))
        beside.append(f"on {many} of {preview.id if preview else ''}{each}")
    return lines("\n".join([text, *(f"-- {one}" for one in beside)]), MOST_PROSE)


def _last_intent_fields(state: RunState, block: Block) -> Mapping[str, Any]:
    for one in reversed(state.executions):
        if one.block == block.id:
            return one.intent.fields
    return {}


_OF_OUTPUT = ("signal", "lines", "bytes", "seconds", "first_line", "last_line")


def _short(value: Any) -> str:
    """Return a short text for a value: the number of rows (the table shows them); the first line of a command."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        if "wall_s" in value:  # for a dump or restore, the times say more than its first message
            value = {name: item for name, item in value.items() if name not in _OF_OUTPUT}
        elif value.get("exit") == 0 and isinstance(value.get("first_line"), str):
            return str(value["first_line"])[:200]
        if isinstance(value.get("rows"), list | tuple):
            return counted(len(value["rows"]))
        return ", ".join(f"{name} {cell(one)}" for name, one in value.items())[:200]
    text = str(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _table(plan: Plan, state: RunState) -> RunTable | None:
    """Return the rows of the current question or change; else the rows read last, for the next decision."""
    if state.current and not state.ended:
        _, block = plan.block(state.current)
        preview = bound_preview(plan, block)
        if preview is not None and state.blocks[preview.id].table is not None:
            return _remaining_rows(state.blocks[preview.id], done_before(state, block))
        action_preview = state.blocks[block.id].action_preview
        if action_preview is not None and action_preview.rows:
            return table_of(action_preview.rows, block.title, block.id)
    return None if _acted_on(plan, state) else state.table


def _measures(plan: Plan, state: RunState) -> RunTable | None:
    """Return the comparison of measurements, with the id of the last measuring block."""
    table = comparison(results_of(plan, state) if state.ended else state.measures)
    measured = [
        block.id for _, block in plan.blocks() if block.kind == "measure" and state.blocks[block.id].status == "ok"
    ]
    return table if table is None or not measured else structs.replace(table, block=measured[-1])


def _remaining_rows(preview: BlockState, done: int) -> RunTable | None:
    """Return the remaining rows of a preview, of a change with `each`."""
    rows, table = preview.chosen or (), preview.table
    if table is None or not done:
        return table
    rows = tuple({name: row[name] for name in table.columns if name in row} for row in rows)
    return table_of(rows[done:], f"{table.title}: {done} of {len(rows)} done, remaining rows", table.block)


def _acted_on(plan: Plan, state: RunState) -> bool:
    """Return whether the rows read last have been acted on, so that they are outdated."""
    for _, block in plan.blocks():
        preview = bound_preview(plan, block) if state.blocks[block.id].executions else None
        if preview is not None and state.blocks[preview.id].table == state.table:
            return True
    return False


def _clean_prose(prose: Sequence[Prose]) -> tuple[Prose, ...]:
    shown, left = [], MOST_PROSE
    for one in prose:
        shown.append(structs.replace(one, text=lines(one.text, left)))
        left -= len(one.text)
        if left <= 0:
            break
    return tuple(shown)


def _clean_waiting(waiting: WaitView | None) -> WaitView | None:
    if waiting is None:
        return None
    return structs.replace(waiting, text=line(waiting.text), values=line(waiting.values), left=line(waiting.left))


def _clean_table(table: RunTable | None) -> RunTable | None:
    if table is None:
        return None
    rows = tuple(tuple(lines(cell, WHOLE_CHARACTERS) for cell in row) for row in table.rows)
    columns = tuple(line(column) for column in table.columns)
    return structs.replace(table, columns=columns, rows=rows, title=line(table.title))


@lru_cache(CACHED)
def line(text: str) -> str:
    """Return foreign text as one line, sanitized and redacted."""
    return clean(redact(text)[:MOST_NOTE])


def _in_one_line(text: str) -> str:
    """Return several lines of output joined into one readable line."""
    return line(" · ".join(" ".join(one.split()) for one in text.splitlines() if one.strip()))


@lru_cache(CACHED)
def lines(text: str, most: int = MOST_NOTE) -> str:
    """Return foreign text of several lines, sanitized and redacted."""
    return "\n".join(clean(one) for one in redact(text)[:most].replace("\t", "    ").split("\n"))
