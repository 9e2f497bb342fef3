"""How far a dump or restore is and when it ends, as far as that can be known, and how it is known.

The figure rests on what objects of the same kind took in this run, else in the run before; what is left is played
forward as pg_restore would work it off. Nothing is foretold below 5 %, nor while too much of what is left is of a
kind that nobody has measured. The part done never goes back and is not 100 before the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from dba_console.archives.entries import Phase
from dba_console.archives.items import Item
from dba_console.archives.ledger import Ledger
from dba_console.archives.phases import PhaseSum
from dba_console.archives.rates import OF_PHASE, SHARE_KNOWN, Cost, PhaseBefore, PhasesBefore, Rates, sure
from dba_console.archives.schedule import Task, makespan, shares

__all__ = ["Forecast", "Memory", "PhaseBefore", "PhaseForecast", "PhasesBefore", "forecast"]

_EARLIEST = 0.05
"""Part done below which nothing is foretold."""
_LATEST_PCT = 99.0
_SURE = 0.22
"""Of the whole time: how far off the end may be by what is assumed, for one to be foretold."""
_KEPT = 0.27
"""The same, once one has been foretold."""
_FOLLOWED = 400
"""Objects that are played forward one by one; the lighter rest is a sum."""
_OVERDUE = 0.05
"""Of what it has taken so far, what an object is given that took longer than was to be expected."""
_OF_VIEWS = "INDEX of a materialized view"
"""Which has no data in the archive, so nothing tells how large its index becomes."""
_EVEN = 0.1
"""Of the time passed since the start, over which a foretold end is smoothed."""


class PhaseForecast(Struct, frozen=True, kw_only=True, gc=False):
    """One phase: how far it is and when it ends."""

    name: Phase
    state: str
    pct: float | None
    grade: str
    eta_s: float | None
    eta_grade: str
    sums: PhaseSum


class Forecast(Struct, frozen=True, kw_only=True, gc=False):
    """Of the whole job."""

    pct: float | None
    """Never back, never 100 before the end."""
    grade: str
    """measured, estimated, unknown."""
    eta_s: float | None
    eta_grade: str
    """estimated: from this run's objects; history: from runs before; unknown."""
    phases: tuple[PhaseForecast, ...]
    reason: str | None = None
    """Why there is no eta, a sentence; None where there is one."""
    notes: tuple[str, ...] = ()
    """What the figure leaves out."""


@dataclass(slots=True)
class Memory:
    """What a forecast has to remember of one job from look to look; the caller holds it."""

    pct: float = 0.0
    phase_pct: dict[str, float] = field(default_factory=dict)
    end_us: float | None = None
    at_us: int = 0
    shown: bool = False
    followed: list[Item] | None = None
    of: object = None


@dataclass(slots=True)
class _Left:
    """What is left of the work, in seconds of one worker."""

    tasks: list[Task] = field(default_factory=list)
    lump_s: float = 0.0
    by_phase: dict[Phase, float] = field(default_factory=dict)
    lump_assumed_s: float = 0.0
    history_s: float = 0.0
    unknown: dict[str, int] = field(default_factory=dict)

    def add(self, phase: Phase, cost: Cost) -> None:
        self.by_phase[phase] = self.by_phase.get(phase, 0.0) + cost.seconds
        if cost.source == "history":
            self.history_s += cost.seconds

    def miss(self, desc: str, count: int = 1) -> None:
        self.unknown[desc] = self.unknown.get(desc, 0) + count

    @property
    def sum_s(self) -> float:
        return sum(self.by_phase.values())


def forecast(
    ledger: Ledger,
    now_us: int,
    *,
    jobs: int | None = None,
    before: PhasesBefore | None = None,
    memory: Memory | None = None,
) -> Forecast:
    """How far the job of `ledger` is at `now_us`; `jobs` None: as the ledger has it."""
    memory = memory if memory is not None else Memory()
    sums = ledger.phases(now_us)
    if ledger.ended_us is not None:
        return _over(ledger, sums)
    jobs = jobs or ledger.jobs or max(1, len(ledger.running_items))
    left = _left(ledger, now_us, before, memory)
    elapsed = 0.0 if ledger.began_us is None else max(0.0, (now_us - ledger.began_us) / 1e6)
    seconds, why = _seconds(ledger, left, jobs)
    if seconds is None:
        return _without_work(sums, elapsed, before, memory, left, jobs, why)
    early, late = _doubt(left, seconds, jobs)
    eta = _smoothed(seconds, elapsed, now_us, memory)
    reason = _reason(seconds, elapsed, max(late - seconds, seconds - early), shown=memory.shown)
    memory.shown = reason is None
    # while the end is in doubt the part done is told for a late one: it can be corrected upwards only
    whole = elapsed + (seconds if reason is None else (seconds + late) / 2)
    memory.pct = max(memory.pct, min(_LATEST_PCT, 100.0 * elapsed / whole if whole > 0 else 0.0))
    grade = "history" if left.history_s > left.sum_s / 2 else "estimated"
    return Forecast(
        pct=memory.pct,
        grade="estimated",
        eta_s=eta if reason is None else None,
        eta_grade=grade if reason is None else "unknown",
        phases=tuple(_phase(one, left, jobs, memory, shown=reason is None) for one in sums),
        reason=reason,
        notes=_notes(left),
    )


def item_eta_s(item: Item, now_us: int) -> float | None:
    """Seconds until one object's data is through, from its own pace; None where that is not known."""
    share = item.share
    if item.state != "running" or item.started_us is None or share is None or share < SHARE_KNOWN:
        return None
    elapsed = max(0, now_us - item.started_us) / 1e6
    if item.rate and item.total is not None and item.done is not None:
        return max(0.0, (item.total - item.done) / item.rate)
    return elapsed * (1 - share) / share


def _left(ledger: Ledger, now_us: int, before: PhasesBefore | None, memory: Memory) -> _Left:
    running = ledger.running_items
    rates = Rates(ledger.classes, running, now_us, before)
    left = _Left()
    alone: dict[str, tuple[int, float]] = {}
    for item in _followed(ledger, memory):
        if item.state == "waiting":
            count, weight = alone.get(item.entry.desc, (0, 0.0))
            alone[item.entry.desc] = (count + 1, weight + (item.entry.weight or 0.0))
            _follow(item, rates, left, _others(item, ledger))
    for item in running:
        _under_way(item, rates, now_us, left, _others(item, ledger))
    for desc, sums in ledger.classes.items():
        count, weight = alone.get(desc, (0, 0.0))
        _lump(desc, sums.waiting - count, max(0.0, sums.weight_waiting - weight), rates, left)
    return left


def _followed(ledger: Ledger, memory: Memory) -> list[Item]:
    """The heaviest objects, chosen once; those that ended are let go."""
    if memory.followed is None or memory.of is not ledger:
        worth = (item for item in ledger.items().values() if item.entry.desc in OF_PHASE and item.entry.weight)
        memory.followed = sorted(worth, key=lambda item: -(item.entry.weight or 0.0))[:_FOLLOWED]
        memory.of = ledger
    memory.followed = [item for item in memory.followed if item.state in ("waiting", "running")]
    return memory.followed


def _others(item: Item, ledger: Ledger) -> tuple[int, ...]:
    """The tables a foreign key refers to: pg_restore works at none of them beside it."""
    entry, items = item.entry, ledger.items()
    if entry.phase != "constraints":
        return ()
    tables = (need for need in entry.needs if need in items and items[need].entry.desc == "TABLE DATA")
    return tuple(table for table in tables if table != entry.table)


def _follow(item: Item, rates: Rates, left: _Left, others: tuple[int, ...]) -> None:
    cost = rates.cost(item.entry.desc, item.entry.weight or 0.0)
    if cost is None:
        left.miss(item.entry.desc)
    else:
        left.add(item.entry.phase, cost)
        left.tasks.append(_task(item, cost, others))


def _under_way(item: Item, rates: Rates, now_us: int, left: _Left, others: tuple[int, ...]) -> None:
    """What is left of an object: by its own pace where its share is known, else what it costs less what it has had."""
    entry = item.entry
    elapsed = 0.0 if item.started_us is None else max(0, now_us - item.started_us) / 1e6
    share = item.share if entry.phase == "data" else None
    cost = rates.cost(entry.desc, entry.weight) if entry.weight is not None else None
    if share is not None and share >= SHARE_KNOWN and item.started_us is not None:
        cost = sure(max(elapsed * (1 - share) / share, 0.01 * elapsed), "measured")
    elif cost is None:
        left.miss(entry.desc if entry.weight is not None else _OF_VIEWS)
        return
    elif share is not None:
        still = 1 - share
        cost = Cost(cost.seconds * still, cost.source, cost.least * still, cost.most * still)
    else:
        floor = _OVERDUE * elapsed
        rest = (max(one - elapsed, floor) for one in (cost.seconds, cost.least, cost.most))
        cost = Cost(next(rest), cost.source, *rest)
    left.add(entry.phase, cost)
    left.tasks.append(_task(item, cost, others))


def _task(item: Item, cost: Cost, others: tuple[int, ...]) -> Task:
    entry, running, assumed = item.entry, item.state == "running", cost.source == "assumed"
    return Task(
        dump_id=entry.dump_id,
        seconds=cost.seconds,
        weight=entry.weight or 0.0,
        needs=() if running else entry.needs,
        table=entry.table,
        shares=shares(entry.desc),
        phase=entry.phase,
        others=others,
        running=running,
        least=cost.least if assumed else None,
        most=cost.most if assumed else None,
    )


def _lump(desc: str, count: int, weight: float, rates: Rates, left: _Left) -> None:
    """The many light ones together."""
    if count <= 0:
        return
    rate = rates.of(desc)
    if rate is None:
        if weight > 0 or desc == "MATERIALIZED VIEW DATA":
            left.miss(desc, count)
        return
    seconds = rate.each_s * count + rate.per_byte_s * weight
    left.lump_s += seconds
    left.lump_assumed_s += seconds if rate.source == "assumed" else 0.0
    left.add(OF_PHASE.get(desc, "rest"), sure(seconds, rate.source))


def _seconds(ledger: Ledger, left: _Left, jobs: int) -> tuple[float | None, str]:
    """Until the end, as if nothing unknown were left; None where there is nothing to reckon with."""
    if not ledger.items():
        return None, "which objects there are is not known"
    heavy = [sums for desc, sums in ledger.classes.items() if desc in OF_PHASE]
    data = [sums for desc, sums in ledger.classes.items() if OF_PHASE.get(desc) == "data"]
    if sum(sums.weight for sums in heavy) <= 0 or any(sums.unweighed for sums in data):
        return None, "how large its objects are is not known"
    if any(desc in OF_PHASE for desc in left.unknown):
        return None, "nothing is finished yet that the rest could be measured by"
    return _played(left.tasks, left.lump_s, jobs), ""


def _played(tasks: list[Task], lump_s: float, jobs: int) -> float:
    """Seconds until the end: no less than the work shared out evenly."""
    return max((sum(task.seconds for task in tasks) + lump_s) / jobs, makespan(tasks, jobs))


def _smoothed(seconds: float, elapsed: float, now_us: int, memory: Memory) -> float:
    """The end foretold before moves towards the new one, over a small part of the time the job has taken."""
    end = now_us + seconds * 1e6
    if memory.end_us is not None and elapsed > 0:
        passed = max(0, now_us - memory.at_us) / 1e6
        share = min(1.0, passed / max(_EVEN * elapsed, 1.0))
        end = memory.end_us + (end - memory.end_us) * share
    memory.end_us, memory.at_us = end, now_us
    return max(0.0, (end - now_us) / 1e6)


def _doubt(left: _Left, seconds: float, jobs: int) -> tuple[float, float]:
    """Seconds until the end at least and at most, by what is assumed."""
    if not left.lump_assumed_s and not any(task.most is not None for task in left.tasks):
        return seconds, seconds
    late = [replace(task, seconds=task.most) if task.most is not None else task for task in left.tasks]
    early = [replace(task, seconds=task.least) if task.least is not None else task for task in left.tasks]
    return (
        _played(early, left.lump_s - left.lump_assumed_s / 2, jobs),
        _played(late, left.lump_s + left.lump_assumed_s, jobs),
    )


def _reason(seconds: float, elapsed: float, doubt: float, *, shown: bool) -> str | None:
    """Why no end is foretold; None where one is."""
    if elapsed < (elapsed + seconds) * _EARLIEST:
        return "less than 5 % is done: too little to measure the rest by"
    if doubt > (_KEPT if shown else _SURE) * (elapsed + seconds):
        return "too much of what is left is of a kind or size that none was finished of yet"
    return None


def _without_work(
    sums: tuple[PhaseSum, ...],
    elapsed: float,
    before: PhasesBefore | None,
    memory: Memory,
    left: _Left,
    jobs: int,
    why: str,
) -> Forecast:
    """By the clock of the run before, where the objects say nothing of the whole; otherwise of the phase alone."""
    eta = before.wall_s - elapsed if before is not None else None
    phases = tuple(_phase(one, left, jobs, memory, shown=False) for one in sums)
    if eta is None or eta <= 0 or before is None:
        late = "it takes longer than the run before" if eta is not None else why
        pct = memory.pct if memory.pct > 0 else None
        grade = "estimated" if pct is not None else "unknown"
        return Forecast(pct=pct, grade=grade, eta_s=None, eta_grade="unknown", phases=phases, reason=late)
    memory.pct = max(memory.pct, min(_LATEST_PCT, 100.0 * elapsed / before.wall_s))
    shown = memory.pct >= 100 * _EARLIEST
    return Forecast(
        pct=memory.pct,
        grade="estimated",
        eta_s=eta if shown else None,
        eta_grade="history" if shown else "unknown",
        phases=phases,
        reason=None if shown else "less than 5 % is done",
    )


def _phase(one: PhaseSum, left: _Left, jobs: int, memory: Memory, *, shown: bool) -> PhaseForecast:
    """Its own part done by the time its objects take; its end where it is not later than what runs beside it."""
    silent = _silent(one, memory)
    tasks = [task for task in left.tasks if task.phase == one.name]
    if one.state != "running" or not tasks or one.name not in left.by_phase:
        return silent
    if not shown and not (one.name == "data" and _data_is_known(one, tasks, left)):
        return silent
    eta = max(left.by_phase[one.name] / jobs, max((task.seconds for task in tasks if task.running), default=0.0))
    return PhaseForecast(
        name=one.name,
        state=one.state,
        pct=silent.pct,
        grade=silent.grade,
        eta_s=eta,
        eta_grade="estimated",
        sums=one,
    )


def _data_is_known(one: PhaseSum, tasks: list[Task], left: _Left) -> bool:
    """Whether the end of the data is, where that of the whole is not: all of it is measured, by this run."""
    assumed = any(task.most is not None for task in tasks)
    begun = bool(one.weight) and one.weight_done >= _EARLIEST * (one.weight or 0.0)
    return begun and not assumed and not any(OF_PHASE.get(desc) == "data" for desc in left.unknown)


def _silent(one: PhaseSum, memory: Memory) -> PhaseForecast:
    """By weight, as far as there is any."""
    pct: float | None = None
    if one.state == "done" and one.items:
        pct = 100.0
    elif one.weight:
        pct = min(_LATEST_PCT, 100.0 * one.weight_done / one.weight)
    if pct is not None:
        pct = memory.phase_pct[one.name] = max(memory.phase_pct.get(one.name, 0.0), pct)
    grade = "unknown" if pct is None else "measured" if one.state == "done" else "estimated"
    return PhaseForecast(
        name=one.name, state=one.state, pct=pct, grade=grade, eta_s=None, eta_grade="unknown", sums=one
    )


def _over(ledger: Ledger, sums: tuple[PhaseSum, ...]) -> Forecast:
    """After the end: whole only where it ended well."""
    good = ledger.exit == 0 or ledger.ignored is not None
    memory = Memory()
    return Forecast(
        pct=100.0 if good else None,
        grade="measured" if good else "unknown",
        eta_s=0.0 if good else None,
        eta_grade="measured" if good else "unknown",
        phases=tuple(_silent(one, memory) for one in sums),
        reason=None if good else "the program has gone",
    )


def _notes(left: _Left) -> tuple[str, ...]:
    views = left.unknown.get("MATERIALIZED VIEW DATA", 0)
    told = [f"how long the filling of {views} materialized view{'s' if views > 1 else ''} takes is not known"]
    if not views:
        told = ["how long an index of a materialized view takes is not known"] if _OF_VIEWS in left.unknown else []
    return tuple(told)
