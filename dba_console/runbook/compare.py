"""Runs of one runbook side by side: what each step took in each, and how the newest differs from the one before.

Pure. Machine time and the time people took are rows of their own: a slow answer makes no slow step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dba_console.runbook.quantities import format_value
from dba_console.runbook.summary import BlockSummary, RunSummary, StepSummary
from dba_console.units import UNKNOWN, human_duration

Part = TypeVar("Part", StepSummary, BlockSummary)
BAD = frozenset({"failed", "unknown", "undone"})
"""States that are shown beside the time."""
LEAST_S = 0.05
"""Below it nobody was waited for: the answer was given beforehand."""


class ComparisonRow(Struct, frozen=True, kw_only=True):
    """One figure in each run. Steps, blocks and totals are in seconds."""

    kind: str
    """step, block, people, machine_total, people_total, figure"""
    id: str
    """Of the step or block; the name of a figure."""
    title: str
    values: tuple[float | None, ...]
    """By run, oldest first. None: the run did not come to it, or did not measure it."""
    states: tuple[str, ...] = ()
    """Of steps and blocks: what became of each."""
    change: float | None = None
    """The newest less the one before it, where both are known and ended well."""


def compare(runs: Sequence[RunSummary]) -> list[ComparisonRow]:
    """The rows; `runs` are oldest first. Steps stand in the order of the newest run's document."""
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
            rows.append(_figure("people", step.id, "people", people))
    whole = all(run.state == "done" for run in runs[-2:])
    for kind, title, values in (
        ("machine_total", "all steps", [run.machine_s for run in runs]),
        ("people_total", "all people", [run.human_s for run in runs]),
    ):
        total = _figure(kind, kind, title, values)
        rows.append(total if whole else replace(total, change=None))
    names = dict.fromkeys(name for run in reversed(runs) for name in run.figures)
    rows += [_figure("figure", name, name, [run.figures.get(name) for run in runs]) for name in names]
    return rows


def table(runs: Sequence[RunSummary], rows: Sequence[ComparisonRow], when: Callable[[int], str]) -> list[list[str]]:
    """Cells of text, the first line is the head; `when` writes a wall time given in microseconds."""
    differing = [name for name in runs[-1].inputs if len({run.inputs.get(name) for run in runs}) > 1]
    lines = [
        ["run", *(run.run.rpartition("-")[2] for run in runs), "change"],
        ["began", *(when(run.started_us) for run in runs), ""],
        *([name, *(run.inputs.get(name, "") for run in runs), ""] for name in differing),
        ["ended", *(run.state for run in runs), ""],
    ]
    return lines + [_cells(row) for row in rows]


def _named(parts: Iterable[Part]) -> list[Part]:
    """The first of each id."""
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
    # Two runs are told apart by hundredths: a promotion takes less than a second.
    return f"{value:.2f}s" if value < 9.95 else human_duration(value)
