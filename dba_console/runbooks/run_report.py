"""Report of a run from its records: planned, typical and actual times, events, answers, deviations and verdict; and the
comparison of several runs of one runbook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.actions.action_preview import recorded_preview
from dba_console.core.units import UNKNOWN, human_duration
from dba_console.recording.plan import JournalRecord, Plan
from dba_console.runbooks.apply_records import replay_records, seconds
from dba_console.runbooks.result_tables import format_value
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.run_summary import BlockSummary, RunSummary, StepSummary, TypicalDuration, as_table, summarize
from dba_console.runbooks.run_view import RunTable

OMITTED_KINDS = frozenset({"block.asked"})
"""Kinds that are omitted because the next record says the same."""


def report_lines(
    plan: Plan,
    records: Sequence[JournalRecord],
    *,
    when: Callable[[int], str],
    usual: Mapping[str, TypicalDuration] | None = None,
) -> list[str]:
    """Return the report as lines. `when` formats a wall time in microseconds."""
    state = replay_records(plan, records)
    summary = summarize(plan, state, usual)
    parts = [
        _head(state, summary, when),
        _titled("Steps", columns(as_table(summary))),
        _titled("Measured", columns(summary.measures) if summary.measures is not None else []),
        _titled("Deviations", [f"- {one}" for one in summary.deviations]),
        _titled("Events", list(_record_lines(records, when))),
    ]
    lines = [line for part in parts if part for line in (*part, "")]
    return [*lines, f"Verdict: {summary.verdict}"]


def _head(state: RunState, summary: RunSummary, when: Callable[[int], str]) -> list[str]:
    plan = state.plan
    began = when(summary.started_us) if summary.started_us else "?"
    lasted = human_duration((summary.ended_us - summary.started_us) / 1e6) if summary.ended_us else None
    status = state.ended or ("interrupted" if state.interrupted else "has not ended")
    head = [
        f"{plan.id}: {plan.title}",
        f"{'rehearsal' if state.mode == 'rehearse' else 'run'} {state.run}: {status}",
        f"on {state.place or '?'}" + (f" ({state.identity})" if state.identity else "") + f", by {state.who or '?'}",
        f"started {began}" + (f", duration {lasted}" if lasted else "") + f"; {_times(summary)}",
    ]
    if plan.sha256:
        head.append(f"document {plan.source or plan.id}, sha256 {plan.sha256}")
    values = [f"{name}={value}" for name, value in summary.inputs.items()]
    values += [f"{one.name}=********" for one in plan.inputs if one.secret]
    return [*head, f"with {', '.join(values)}"] if values else head


def _times(summary: RunSummary) -> str:
    interruption = f", interrupted for {human_duration(summary.interrupted_s)}" if summary.interrupted_s else ""
    operator = f"waiting for the operator {human_duration(summary.human_s)}"
    return f"execution {human_duration(summary.machine_s)}, {operator}{interruption}"


def _titled(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def columns(table: RunTable) -> list[str]:
    """Return a table as aligned text."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _record_lines(records: Iterable[JournalRecord], when: Callable[[int], str]) -> Iterable[str]:
    """Yield one line per record. An intent is shown with its exact statement; without one, only if its outcome is not
    recorded, because otherwise the result says the same."""
    all_records = list(records)
    ended = {(one.block, one.execution) for one in all_records if one.kind in ("block.result", "block.settled")}
    for record in all_records:
        if record.kind in OMITTED_KINDS or record.kind.startswith("journal."):
            continue
        exact = _exact(record) if record.kind == "block.intent" else ""
        if record.kind == "block.intent" and not exact and (record.block, record.execution) in ended:
            continue
        open_end = ""
        if record.kind == "block.intent" and (record.block, record.execution) not in ended:
            open_end = ", outcome not recorded"
        round_ = f" (round {record.round})" if record.round > 1 and record.kind != "repeat.round" else ""
        yield f"{when(record.wall_us)}  {record.text}{round_}{open_end}{_duration_text(record)}"
        yield from (f"    {one}" for one in exact.splitlines())


def _exact(record: JournalRecord) -> str:
    """Return the exact statement of an intent, as it was confirmed."""
    preview = recorded_preview(record.fields)
    return str(record.fields.get("statement") or (preview and preview.exact) or "")


def _duration_text(record: JournalRecord) -> str:
    machine, human = seconds(record, "machine_s"), seconds(record, "human_s")
    parts = [human_duration(machine)] if machine else []
    parts += [f"operator {human_duration(human)}"] if human else []
    return f"  [{', '.join(parts)}]" if parts else ""


# Comparison of runs of one runbook: duration of each step in each run, and the change of the newest run. Machine time
# and operator time are separate rows, so a slow answer does not make a slow step.

Part = TypeVar("Part", StepSummary, BlockSummary)
BAD = frozenset({"failed", "unknown", "undone"})
"""States that are shown beside the time."""
LEAST_S = 0.05
"""Below it the answer was given in advance."""


class ComparisonRow(Struct, frozen=True, kw_only=True):
    """One value per run. Steps, blocks and totals are in seconds."""

    kind: str
    """step, block, people, machine_total, people_total, figure"""
    id: str
    """Id of the step or block; the name of a figure."""
    title: str
    values: tuple[float | None, ...]
    """By run, oldest first. None: not reached or not measured."""
    states: tuple[str, ...] = ()
    """State of the step or block in each run."""
    change: float | None = None
    """The newest minus the previous one, if both are known and successful."""


def compare(runs: Sequence[RunSummary]) -> list[ComparisonRow]:
    """Return the rows; `runs` are oldest first. Steps are in the order of the newest run's document."""
    rows: list[ComparisonRow] = []
    for step in _named(step for run in reversed(runs) for step in run.steps):
        there = [_of(step.id, run.steps) for run in runs]
        rows.append(_row("step", step, there))
        blocks = _named(block for one in reversed(there) if one is not None for block in one.blocks)
        if len(blocks) > 1:
            within = [one.blocks if one is not None else () for one in there]
            within_step = [_row("block", block, [_of(block.id, one) for one in within]) for block in blocks]
            rows += [row for row in within_step if any(value is not None for value in row.values)]
        people = [one.human_s if one is not None and one.rounds else None for one in there]
        if any(one is not None and one >= LEAST_S for one in people):
            rows.append(_figure("people", step.id, "operator", people))
    whole = all(run.state == "done" for run in runs[-2:])
    for kind, title, values in (
        ("machine_total", "all steps", [run.machine_s for run in runs]),
        ("people_total", "operator", [run.human_s for run in runs]),
    ):
        total = _figure(kind, kind, title, values)
        rows.append(total if whole else replace(total, change=None))
    names = dict.fromkeys(name for run in reversed(runs) for name in run.figures)
    rows += [_figure("figure", name, name, [run.figures.get(name) for run in runs]) for name in names]
    return rows


def table(runs: Sequence[RunSummary], rows: Sequence[ComparisonRow], when: Callable[[int], str]) -> list[list[str]]:
    """Return cells of text, the first line is the header; `when` formats a wall time in microseconds."""
    differing = [name for name in runs[-1].inputs if len({run.inputs.get(name) for run in runs}) > 1]
    lines = [
        ["run", *(run.run.rpartition("-")[2] for run in runs), "change"],
        ["started", *(when(run.started_us) for run in runs), ""],
        *([name, *(run.inputs.get(name, "") for run in runs), ""] for name in differing),
        ["ended", *(run.state for run in runs), ""],
    ]
    return lines + [_cells(row) for row in rows]


def _named(parts: Iterable[Part]) -> list[Part]:
    """Return the first part of each id."""
    found: dict[str, Part] = {}
    for part in parts:
        found.setdefault(part.id, part)
    return list(found.values())


def _of(id_: str, parts: Sequence[Part]) -> Part | None:
    return next((part for part in parts if part.id == id_), None)


def _row(kind: str, part: Part, there: Sequence[Part | None]) -> ComparisonRow:
    states = tuple("" if one is None else one.state for one in there)
    values = tuple(
        one.machine_s if one is not None and one.state not in ("pending", "skipped") else None for one in there
    )
    change = _change(values) if states[-2:] == ("ok", "ok") else None
    return ComparisonRow(
        kind=kind, id=part.id, title=part.title or part.id, values=values, states=states, change=change
    )


def _figure(kind: str, id_: str, title: str, values: Sequence[float | None]) -> ComparisonRow:
    return ComparisonRow(kind=kind, id=id_, title=title, values=tuple(values), change=_change(values))


def _change(values: Sequence[float | None]) -> float | None:
    if len(values) < 2 or (newest := values[-1]) is None or (before := values[-2]) is None:
        return None
    return newest - before


def _cells(row: ComparisonRow) -> list[str]:
    states = row.states or ("",) * len(row.values)
    cells = [
        state if value is None and state == "skipped" else _text(row, value) + (f" {state}" if state in BAD else "")
        for value, state in zip(row.values, states, strict=True)
    ]
    change = "" if row.change is None else ("+" if row.change >= 0 else "-") + _text(row, abs(row.change))
    return [("  " if row.kind in ("block", "people") else "") + row.title, *cells, change]


def _text(row: ComparisonRow, value: float | None) -> str:
    if value is None:
        return "" if row.kind != "figure" else UNKNOWN
    if row.kind == "figure" and not row.id.endswith("_s"):
        return format_value(row.id, value)
    # Hundredths of a second, because a promotion takes less than a second.
    return f"{value:.2f}s" if value < 9.95 else human_duration(value)
