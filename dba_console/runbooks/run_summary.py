"""Summary of a run: planned, typical and actual time per step, machine and operator time separately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.core.atomic_files import read_small
from dba_console.core.decoding import from_json
from dba_console.core.units import human_duration
from dba_console.recording.plan import ACTING_KINDS, Plan, Step
from dba_console.recording.run_paths import SUMMARY, parse_run_id
from dba_console.recording.run_reader import all_run_directories
from dba_console.runbooks.outline import input_text
from dba_console.runbooks.result_tables import comparison
from dba_console.runbooks.run_state import RunState
from dba_console.runbooks.run_view import RunTable

# Typical and last duration of steps and blocks: machine time of earlier runs, without operator time.

MOST_RUNS = 20
"""Only the newest runs count: a host changes."""


class TypicalDuration(Struct, frozen=True):
    """Typical duration of a step or block."""

    seconds: float
    """Median."""
    runs: int
    last_s: float
    """In the newest of these runs."""


class ComparisonKey(Struct, frozen=True):
    """What two comparable runs have in common."""

    runbook: str
    identity: str = ""
    """Identity of the server as text (`Identity.words`)."""
    about: str = ""
    """The cluster or the databases it is given, or the database whose dump it restores."""

    def matches(self, one: RunSummary) -> bool:
        same_subject = (self.runbook, self.about) == (one.runbook, one.about)
        return same_subject and _server(self.identity) == _server(one.identity)


def _server(identity: str) -> str:
    """Return what a promotion or an update does not change: the system identifier, if it could be read.

    >>> _server("system identifier 7412, primary, timeline 1, PG 15.18"), _server("system identifier ?, primary")
    ('system identifier 7412', 'system identifier ?, primary')
    """
    identifier = identity.partition(", ")[0]
    return identity if identifier.endswith("?") else identifier


def typical_durations(subject: ComparisonKey, earlier: Iterable[RunSummary]) -> dict[str, TypicalDuration]:
    """Return typical durations by id of step and block. Only successful steps of runs (not rehearsals) of the same
    server and database, or cluster, count. A step with several rounds in a run counts with the mean of its rounds."""
    newest = sorted(
        (one for one in earlier if subject.matches(one) and one.mode == "run"), key=lambda one: one.started_us
    )[-MOST_RUNS:]
    durations: dict[str, list[float]] = {}
    for summary in newest:
        for step in summary.steps:
            if step.state == "ok" and step.rounds:
                times = {step.id: step.machine_s}
                times |= {block.id: block.machine_s for block in step.blocks if block.state == "ok"}
                for part, seconds in times.items():
                    durations.setdefault(part, []).append(seconds / step.rounds)
    return {
        part: TypicalDuration(median(durations_s), len(durations_s), durations_s[-1])
        for part, durations_s in durations.items()
    }


FORMAT = 1
"""Format number of summary.json."""
TIMED = frozenset({*ACTING_KINDS, "wait"})
"""Kinds of blocks whose time is recorded separately."""
_SIZE_LIMIT = 4 << 20
"""Maximum bytes read of summary.json."""
MOST_INPUT = 120
"""Maximum characters of an input's value."""


class BlockSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Duration of a changing block or a wait; seconds of machine time."""

    id: str
    title: str = ""
    state: str
    machine_s: float = 0.0


class StepSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Duration of a step, in seconds. Waiting for the operator is `human_s` and not part of `machine_s`."""

    id: str
    title: str
    state: str
    planned_s: float | None = None
    """Sum of the durations in the document; None if it has none."""
    usual_s: float | None = None
    """Median of machine time in earlier runs."""
    usual_runs: int = 0
    last_s: float | None = None
    """In the newest of these runs."""
    machine_s: float = 0.0
    human_s: float = 0.0
    interrupted_s: float = 0.0
    """From the last record before each interruption to the resumption. A command that continued meanwhile also counts
    in `machine_s`.
    """
    rounds: int = 1
    executions: int = 0
    note: str = ""
    blocks: tuple[BlockSummary, ...] = ()
    """Its changing blocks and waits that were reached."""

    @property
    def actual_s(self) -> float:
        return self.machine_s + self.human_s


class RunSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of `summary.json`, stored beside the journal."""

    format: int = FORMAT
    run: str
    runbook: str
    title: str = ""
    mode: str = "run"
    state: str
    """done, failed, aborted; interrupted if it has not ended."""
    verdict: str = ""
    target: str = ""
    identity: str = ""
    about: str = ""
    """The cluster or the databases it was given, or the database whose dump it restored."""
    inputs: dict[str, str] = {}
    """Without secret ones."""
    who: str = ""
    sha256: str = ""
    started_us: int = 0
    ended_us: int = 0
    machine_s: float = 0.0
    human_s: float = 0.0
    interrupted_s: float = 0.0
    steps: tuple[StepSummary, ...] = ()
    deviations: tuple[str, ...] = ()
    measures: RunTable | None = None
    figures: dict[str, float] = {}
    """Values measured by its actions, by name: `write_outage_s`."""


def read_summary(directory: Path) -> RunSummary | None:
    """Return the summary stored beside a run's journal. None if the run did not end, or if another version wrote it:
    it then does not count for typical durations."""
    try:
        return from_json(read_small(directory / SUMMARY, _SIZE_LIMIT), RunSummary)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def summaries_of(runbook: str, sessions: Path) -> Iterator[RunSummary]:
    """Yield the summaries of the ended runs of a runbook, newest first."""
    for directory in reversed(all_run_directories(sessions)):
        name = parse_run_id(directory.name)
        if name is not None and name.runbook == runbook and (summary := read_summary(directory)) is not None:
            yield summary


def summarize(
    plan: Plan, state: RunState, usual: Mapping[str, TypicalDuration] | None = None, *, about: str = ""
) -> RunSummary:
    """Return the summary of a run from its state; `about`: as in `RunSummary`."""
    usual = usual or {}
    steps = tuple(_step(state, step, usual.get(step.id)) for step in plan.steps)
    return RunSummary(
        run=state.run,
        runbook=plan.id,
        title=plan.title,
        mode=state.mode,
        state=state.ended or "interrupted",
        verdict=verdict(plan, state),
        target=state.target,
        identity=state.identity,
        about=about,
        who=state.who,
        sha256=plan.sha256,
        started_us=state.started_us or state.planned_us,
        ended_us=state.ended_us,
        machine_s=sum(step.machine_s for step in steps),
        human_s=sum(step.human_s for step in steps) + state.start_human_s,
        interrupted_s=state.interrupted_s,
        steps=steps,
        deviations=tuple(record.text for record in state.deviations),
        measures=comparison(results_of(plan, state)),
        inputs={
            one.name: input_text(one, value)[:MOST_INPUT]
            for one in plan.inputs
            if not one.secret and (value := state.values.get(one.name)) is not None
        },
        figures=state.figures,
    )


def results_of(plan: Plan, state: RunState) -> dict[str, list[dict[str, Any]]]:
    """Return the measurements that are results: taken twice, or not only taken because a later block uses them."""
    used = {name for _, block in plan.blocks() for name in block.uses}
    return {name: taken for name, taken in state.measures.items() if len(taken) > 1 or name not in used}


def _step(state: RunState, step: Step, usual: TypicalDuration | None) -> StepSummary:
    step_state = state.steps[step.id]
    planned = [block.usual_s for block in step.blocks if block.usual_s is not None]
    return StepSummary(
        id=step.id,
        title=step.title,
        state=step_state.status,
        planned_s=sum(planned) if planned else None,
        usual_s=usual.seconds if usual is not None else None,
        usual_runs=usual.runs if usual is not None else 0,
        last_s=usual.last_s if usual is not None else None,
        machine_s=step_state.machine_s,
        human_s=step_state.human_s,
        interrupted_s=step_state.interrupted_s,
        rounds=step_state.round,
        executions=sum(state.blocks[block.id].executions for block in step.blocks),
        note=step_state.note,
        blocks=tuple(
            BlockSummary(id=one.id, title=one.title, state=block.status, machine_s=block.machine_s)
            for one in step.blocks
            if one.kind in TIMED and (block := state.blocks[one.id]).status != "pending"
        ),
    )


def verdict(plan: Plan, state: RunState) -> str:
    """Return how the run ended and how it deviates from the document."""
    if not state.ended:
        return "has not ended"
    parts = [state.ending or state.ended]
    unknown = [step.id for step in plan.steps if state.steps[step.id].status == "unknown"]
    never = [step.id for step in plan.steps if state.steps[step.id].status == "pending"]
    if unknown:
        parts.append(f"outcome of {', '.join(unknown)} unknown")
    if never and state.started:
        parts.append(f"not reached: {', '.join(never)}")
    if state.deviations:
        parts.append(f"{len(state.deviations)} deviation{'s' if len(state.deviations) > 1 else ''} from the document")
    elif state.mode == "run" and state.ended == "done":
        parts.append("no deviations")
    return "; ".join(parts)


def as_table(summary: RunSummary, *, reached: bool = False) -> RunTable:
    """Return the summary as a table; with a column for interruptions if there was one. `reached`: without steps that
    were skipped or not reached."""
    steps = [one for one in summary.steps if not reached or one.state not in ("skipped", "pending")]
    interrupted = any(step.interrupted_s for step in steps)
    return RunTable(
        columns=(
            "step",
            "state",
            "planned",
            "typical",
            "actual",
            "execution",
            "operator wait",
            *(("interrupted",) if interrupted else ()),
        ),
        rows=tuple(
            (
                step.title or step.id,
                step.state,
                _seconds(step.planned_s),
                _seconds(step.usual_s) + usual_basis(step.usual_runs, step.last_s),
                _seconds(step.actual_s if step.rounds else None),
                _seconds(step.machine_s if step.rounds else None),
                _seconds(step.human_s if step.rounds else None),
                *((_seconds(step.interrupted_s or None),) if interrupted else ()),
            )
            for step in steps
        ),
        total=len(steps),
    )


def usual_basis(runs: int, last_s: float | None) -> str:
    """Return the basis of a typical duration: the number of runs, and the last one.

    >>> usual_basis(0, None), usual_basis(1, 2.0), usual_basis(3, 2.0)
    ('', ' (1)', ' (3, last 2.0s)')
    """
    last = f", last {human_duration(last_s)}" if runs > 1 and last_s is not None else ""
    return f" ({runs}{last})" if runs else ""


def _seconds(value: float | None) -> str:
    return "" if value is None else human_duration(value)
