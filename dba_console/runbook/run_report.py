"""The story of a run, told from its records: what was planned, usual and taken, what happened when, who answered what,
what was done otherwise than written, and what can be said of it as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from dba_console.plans.plan import Plan
from dba_console.plans.run_view import RunTable
from dba_console.runbook.apply_records import replay_records, seconds
from dba_console.runbook.requests import JournalRecord
from dba_console.runbook.run_state import RunState
from dba_console.runbook.summary import RunSummary, as_table, summarize
from dba_console.runbook.typical_duration import TypicalDuration
from dba_console.units import human_duration

OMITTED_KINDS = frozenset({"block.asked"})
"""Kinds of which the record that follows says enough."""


def report_lines(
    plan: Plan,
    records: Sequence[JournalRecord],
    *,
    when: Callable[[int], str],
    usual: Mapping[str, TypicalDuration] | None = None,
) -> list[str]:
    """The run in lines. `when` writes a wall time given in microseconds."""
    state = replay_records(plan, records)
    summary = summarize(plan, state, usual)
    parts = [
        _head(state, summary, when),
        _titled("Steps", columns(as_table(summary))),
        _titled("Measured", columns(summary.measures) if summary.measures is not None else []),
        _titled("Otherwise than written", [f"- {one}" for one in summary.deviations]),
        _titled("What happened", list(_record_lines(records, when))),
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
        f"began {began}" + (f", lasted {lasted}" if lasted else "") + f"; {_times(summary)}",
    ]
    if plan.sha256:
        head.append(f"document {plan.source or plan.id}, sha256 {plan.sha256}")
    values = [f"{name}={value}" for name, value in summary.inputs.items()]
    values += [f"{one.name}=********" for one in plan.inputs if one.secret]
    return [*head, f"with {', '.join(values)}"] if values else head


def _times(summary: RunSummary) -> str:
    interruption = f", interrupted for {human_duration(summary.interrupted_s)}" if summary.interrupted_s else ""
    return f"machine {human_duration(summary.machine_s)}, people {human_duration(summary.human_s)}{interruption}"


def _titled(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def columns(table: RunTable) -> list[str]:
    """A table as aligned text."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _record_lines(records: Iterable[JournalRecord], when: Callable[[int], str]) -> Iterable[str]:
    """Each record in a line. An intent is told with what it was to send; one without only where nobody saw its end, for
    else its result says it."""
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
            open_end = ", and how it ended is not on record"
        round_ = f" (round {record.round})" if record.round > 1 and record.kind != "repeat.round" else ""
        yield f"{when(record.wall_us)}  {record.text}{round_}{open_end}{_duration_text(record)}"
        yield from (f"    {one}" for one in exact.splitlines())


def _exact(record: JournalRecord) -> str:
    """What an act was to send, word for word, as it was confirmed."""
    return str(record.fields.get("statement") or (record.fields.get("sight") or {}).get("exact") or "")


def _duration_text(record: JournalRecord) -> str:
    machine, human = seconds(record, "machine_s"), seconds(record, "human_s")
    parts = [human_duration(machine)] if machine else []
    parts += [f"a person took {human_duration(human)}"] if human else []
    return f"  [{', '.join(parts)}]" if parts else ""
