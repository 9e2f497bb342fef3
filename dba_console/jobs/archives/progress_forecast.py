"""Estimate the progress and ETA of a dump or restore, with the grade of each value.

The estimate uses the time of objects of the same kind in this run, else in the previous run, and simulates the
remaining work in pg_restore's order. No ETA below 5 %, nor while too much of the remaining work is of an unmeasured
kind. The percentage never decreases and is below 100 before the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import asdict, replace

from dba_console.core.sanitize import clean
from dba_console.jobs.archives.cost_model import MIN_SHARE_KNOWN, Cost, CostModel, certain_cost, relative_cost
from dba_console.jobs.archives.critical_path import Task, can_share_table, makespan
from dba_console.jobs.archives.object_durations import PreviousRun
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject, PhaseSum
from dba_console.jobs.archives.toc import Phase

_MIN_SHARE_DONE = 0.05
"""Share done below which no ETA is given."""
_MAX_PCT = 99.0
_MAX_DOUBT = 0.6
"""Maximum uncertainty of the end, as a share of the total time, to show an ETA."""
_MAX_DOUBT_SHOWN = 0.8
"""The same, once an ETA has been shown."""
_MAX_SIMULATED = 400
"""Objects simulated one by one; the lighter rest is one sum."""
_OVERDUE_SHARE = 0.1
"""Remaining time of an object that has taken longer than estimated, as a share of its time so far."""
_MAX_OVERDUE_SHARE = 0.6
"""The same, at most."""
_OVERDUE_FACTOR = 1.25
"""Time of such an object as a multiple of the estimate, from which its end is unknown."""
_SMALL_REST = 0.1
"""Work left beside it, as a share of the job's time, that does not matter."""
_AVERAGE_SHARE = 0.5
"""Weight of the average of a dump against the rates of its tables."""
_LEAST_ETA_S = 1.0
"""While something runs."""
_DATA_KINDS = frozenset({"TABLE DATA", "TABLE DATA compressed", "BLOBS"})
_VIEW_INDEX = "INDEX of a materialized view"
"""A materialized view has no data in the archive, so the size of its index is unknown."""
_SMOOTHING_SHARE = 0.1
"""Time constant for smoothing the ETA, as a share of the elapsed time."""


class PhaseForecast(PhaseSum, frozen=True, kw_only=True, gc=False):
    """State, progress and ETA of one phase."""

    pct: float | None
    grade: str
    eta_s: float | None = None
    eta_grade: str = "unknown"


class ProgressForecast(Struct, frozen=True, kw_only=True, gc=False):
    """Progress and ETA of the whole job."""

    pct: float | None
    """Never decreases, below 100 before the end."""
    grade: str
    """measured, estimated, unknown."""
    eta_s: float | None
    eta_grade: str
    """estimated: from this run's objects; history: from previous runs; unknown."""
    phases: tuple[PhaseForecast, ...]
    reason: str | None = None
    """Why there is no ETA, a sentence; None with an ETA."""
    notes: tuple[str, ...] = ()
    """What the estimate does not include."""


@dataclass(slots=True)
class ForecastState:
    """State of one job kept between forecasts, owned by the caller."""

    pct: float = 0.0
    phase_pct: dict[str, float] = field(default_factory=dict)
    end_us: float | None = None
    updated_us: int = 0
    eta_shown: bool = False
    news: tuple[float, ...] = ()
    """What was known at the last forecast of how far it is."""
    simulated: list[DumpObject] | None = None
    source: object = None


@dataclass(slots=True)
class _RemainingWork:
    """The remaining work, in seconds of one worker."""

    tasks: list[Task] = field(default_factory=list)
    small_objects_s: float = 0.0
    by_phase: dict[Phase, float] = field(default_factory=dict)
    small_objects_assumed_s: float = 0.0
    history_s: float = 0.0
    overdue: list[DumpObject] = field(default_factory=list)
    """Objects that have taken longer than estimated, without a measure of how far they are."""
    overdue_s: float = 0.0
    unseen_s: float = 0.0
    """Of objects that may have ended since they were looked for."""
    unknown: dict[str, int] = field(default_factory=dict)

    def add(self, phase: Phase, cost: Cost) -> None:
        self.by_phase[phase] = self.by_phase.get(phase, 0.0) + cost.seconds
        if cost.source == "history":
            self.history_s += cost.seconds

    def add_unknown(self, desc: str, count: int = 1) -> None:
        self.unknown[desc] = self.unknown.get(desc, 0) + count

    @property
    def total_s(self) -> float:
        return sum(self.by_phase.values())


def forecast(
    progress: ObjectProgress,
    now_us: int,
    *,
    jobs: int | None = None,
    previous: PreviousRun | None = None,
    state: ForecastState | None = None,
) -> ProgressForecast:
    """Return progress and ETA of the job at `now_us`; `jobs` None: as in `progress`."""
    state = state if state is not None else ForecastState()
    sums = progress.phases(now_us)
    if progress.ended_us is not None:
        return _forecast_ended(progress, sums)
    jobs = jobs or progress.jobs or max(1, len(progress.running_objects))
    remaining = _remaining_work(progress, now_us, previous, state)
    elapsed = 0.0 if progress.began_us is None else max(0.0, (now_us - progress.began_us) / 1e6)
    seconds, reason_unknown = _estimate_seconds(progress, remaining, jobs, now_us)
    if seconds is None:
        return _forecast_from_previous(sums, elapsed, previous, state, remaining, jobs, reason_unknown)
    if progress.dumps:
        average = _average_share(progress, remaining)
        seconds += average * (_linear_seconds(sums, elapsed, seconds) - seconds)
    early, late = _seconds_range(remaining, seconds, jobs)
    eta = _smooth_eta(seconds, elapsed, now_us, state, news=_news(progress))
    reason = _overdue_reason(remaining, elapsed, jobs) or _missing_eta_reason(
        seconds, elapsed, max(late - seconds, seconds - early), eta_shown=state.eta_shown
    )
    state.eta_shown = reason is None
    # without an ETA compute the percentage for a late end, because it can only be corrected upwards
    whole = elapsed + (eta if reason is None else (seconds + late) / 2)
    _advance_pct(sums, elapsed, whole, state, dumps=progress.dumps)
    grade = "history" if remaining.history_s > remaining.total_s / 2 else "estimated"
    return ProgressForecast(
        pct=state.pct,
        grade="estimated",
        eta_s=eta if reason is None else None,
        eta_grade=grade if reason is None else "unknown",
        phases=tuple(
            _forecast_phase(one, remaining, jobs, state, eta_s=eta if reason is None else None) for one in sums
        ),
        reason=reason,
        notes=_notes(remaining),
    )


def _linear_seconds(sums: tuple[PhaseSum, ...], elapsed: float, otherwise: float) -> float:
    """Return the seconds left of a dump if it goes on as it did on average. The rates of its tables do not include what
    slows it down: the disk it writes to, once the memory of the host is full of it."""
    data = next(one for one in sums if one.name == "data")
    share = data.weight_done / data.weight if data.weight else 0.0
    return elapsed * (1 - share) / share if share >= _MIN_SHARE_DONE else otherwise


def _average_share(progress: ObjectProgress, remaining: _RemainingWork) -> float:
    """Return how much the average of a dump counts: nothing if its data are of several kinds, whose rates differ, nor
    for what runs and is measured itself."""
    data = progress.sums("data")
    kinds = sum(
        sums.phase == "data"
        and (sums.weight > _SMALL_REST * data.weight or sums.busy_us > _SMALL_REST * max(1, data.busy_us))
        for sums in progress.classes.values()
    )
    if kinds > 1 or not remaining.total_s:
        return 0.0
    running_s = sum(task.seconds for task in remaining.tasks if task.running)
    return _AVERAGE_SHARE * max(0.0, 1 - running_s / remaining.total_s)


def _advance_pct(
    sums: tuple[PhaseSum, ...], elapsed: float, whole: float, state: ForecastState, *, dumps: bool
) -> None:
    """Advance the percentage: of a dump the share of its data, of a restore that of the time."""
    pct = 100.0 * elapsed / whole if whole > 0 else 0.0
    data = next((one for one in sums if one.name == "data"), None)
    if dumps and data is not None and data.weight:
        pct = 100.0 * data.weight_done / data.weight
    state.pct = max(state.pct, min(_MAX_PCT, pct))


def _news(progress: ObjectProgress) -> tuple[float, ...]:
    """Return what changes with each object that starts or ends, and with the measured progress of a running one."""
    shares = (
        (item.share or 0.0) + (0.0 if item.stage is None else len(item.stage.name) + (item.stage.share or 0.0))
        for item in progress.running_objects
    )
    return (*progress.counts(), sum(shares))


def _remaining_work(
    progress: ObjectProgress, now_us: int, previous: PreviousRun | None, state: ForecastState
) -> _RemainingWork:
    running = progress.running_objects
    rates = CostModel(progress.classes, running, now_us, previous, _busy_s(progress, now_us))
    remaining = _RemainingWork()
    simulated: dict[str, tuple[int, float]] = {}
    for item in _simulated_objects(progress, state):
        if item.state == "waiting":
            count, weight = simulated.get(item.entry.kind, (0, 0.0))
            simulated[item.entry.kind] = (count + 1, weight + (item.entry.weight or 0.0))
            _add_waiting(item, rates, remaining, _referenced_tables(item, progress))
    for item in running:
        _add_running(item, rates, now_us, remaining, _referenced_tables(item, progress))
    for kind, sums in progress.classes.items():
        count, weight = simulated.get(kind, (0, 0.0))
        _add_small_objects(
            kind, sums.phase, sums.waiting - count, max(0.0, sums.weight_waiting - weight), rates, remaining
        )
    return remaining


def _busy_s(progress: ObjectProgress, now_us: int) -> float | None:
    """Return the seconds all workers had for the objects that are known to have ended since the data began."""
    began_us, upto_us = progress.sums("data").started_us, progress.unseen_us or now_us
    if began_us is None:
        return None
    running = sum(max(0, upto_us - item.started_us) for item in progress.running_objects if item.started_us is not None)
    return max(0.0, (upto_us - began_us) * (progress.jobs or 1) - running) / 1e6


def _simulated_objects(progress: ObjectProgress, state: ForecastState) -> list[DumpObject]:
    """Return the heaviest objects, chosen once, without those that ended."""
    if state.simulated is None or state.source is not progress:
        worth = (item for item in progress.objects().values() if item.entry.weight and relative_cost(item.entry.kind))
        state.simulated = sorted(worth, key=lambda item: -(item.entry.weight or 0.0))[:_MAX_SIMULATED]
        state.source = progress
    state.simulated = [item for item in state.simulated if item.state in ("waiting", "running")]
    return state.simulated


def _referenced_tables(item: DumpObject, progress: ObjectProgress) -> tuple[int, ...]:
    """Return the tables a foreign key references: pg_restore runs nothing else on them meanwhile."""
    entry, items = item.entry, progress.objects()
    if entry.phase != "constraints":
        return ()
    tables = (need for need in entry.needs if need in items and items[need].entry.desc == "TABLE DATA")
    return tuple(table for table in tables if table != entry.table)


def _add_waiting(item: DumpObject, rates: CostModel, remaining: _RemainingWork, others: tuple[int, ...]) -> None:
    cost = rates.cost(item.entry)
    if cost is None:
        remaining.add_unknown(item.entry.desc)
    else:
        rate = rates.rate(item.entry.kind)
        remaining.unseen_s += cost.seconds if rate is not None and rate.unseen else 0.0
        remaining.add(item.entry.phase, cost)
        remaining.tasks.append(_task(item, cost, others))


def _add_running(
    item: DumpObject, rates: CostModel, now_us: int, remaining: _RemainingWork, others: tuple[int, ...]
) -> None:
    cost = _running_cost(item, rates, now_us, remaining)
    if cost is None:
        remaining.add_unknown(item.entry.desc if item.entry.weight is not None else _VIEW_INDEX)
    else:
        remaining.add(item.entry.phase, cost)
        remaining.tasks.append(_task(item, cost, others))


def _running_cost(item: DumpObject, rates: CostModel, now_us: int, remaining: _RemainingWork) -> Cost | None:
    """Return the rest of a running object: by its own progress if that is known, else its cost minus its time so far.

    What has taken longer than estimated is near its end or is not: its rest is a share of its time so far.
    """
    entry = item.entry
    elapsed = 0.0 if item.started_us is None else max(0, now_us - item.started_us) / 1e6
    share = item.share if entry.phase == "data" else None
    if share is not None and share >= MIN_SHARE_KNOWN and item.started_us is not None:
        since = 0.0 if item.done_us is None else max(0, now_us - item.done_us) / 1e6
        left = (elapsed - since) * (1 - share) / share / item.speed_up - since
        return certain_cost(max(left, 0.01 * elapsed), "measured")
    plain = rates.rate("INDEX")
    build = item.remaining_build(now_us, None if plain is None else plain.seconds_for(entry.weight or 0.0))
    if build is not None:
        return Cost(build.seconds, "measured", build.least, build.most)
    cost = None
    if entry.weight is not None and (entry.weight or entry.phase in ("indexes", "constraints", "data")):
        cost = rates.cost(entry)
    if cost is None:
        return None
    if share is not None:
        still = 1 - share
        return Cost(cost.seconds * still, cost.source, cost.least * still, cost.most * still)
    least = max(cost.least - elapsed, 0.0)
    if cost.seconds > elapsed:
        return Cost(cost.seconds - elapsed, cost.source, least, max(cost.most - elapsed, cost.seconds - elapsed))
    rest = _OVERDUE_SHARE * elapsed
    if elapsed > _OVERDUE_FACTOR * cost.seconds:
        remaining.overdue.append(item)
        remaining.overdue_s += rest
    late = elapsed - cost.seconds  # the longer it has been late, the less is known about its end
    return Cost(rest, cost.source, least, max(cost.most - elapsed, min(late, _MAX_OVERDUE_SHARE * elapsed)))


def _task(item: DumpObject, cost: Cost, others: tuple[int, ...]) -> Task:
    entry, running = item.entry, item.state == "running"
    return Task(
        dump_id=entry.dump_id,
        seconds=cost.seconds,
        weight=entry.weight or 0.0,
        needs=() if running else entry.needs,
        table=entry.table,
        shares=can_share_table(entry.desc),
        phase=entry.phase,
        others=others,
        running=running,
        least=cost.least if cost.least < cost.seconds else None,
        most=cost.most if cost.most > cost.seconds else None,
    )


def _add_small_objects(
    kind: str, phase: Phase, count: int, weight: float, rates: CostModel, remaining: _RemainingWork
) -> None:
    """Add the small objects of one kind as a sum."""
    if count <= 0:
        return
    rate = rates.rate(kind)
    if rate is None or (kind == "MATERIALIZED VIEW DATA" and not weight):
        if weight > 0 or kind == "MATERIALIZED VIEW DATA":
            remaining.add_unknown(kind, count)
        return
    seconds = rate.each_s * count + rate.per_byte_s * weight
    remaining.small_objects_s += seconds
    remaining.unseen_s += seconds if rate.unseen else 0.0
    remaining.small_objects_assumed_s += seconds if rate.source == "assumed" else 0.0
    remaining.add(phase, certain_cost(seconds, rate.source))


def _estimate_seconds(
    progress: ObjectProgress, remaining: _RemainingWork, jobs: int, now_us: int
) -> tuple[float | None, str]:
    """Return the seconds until the end, ignoring unknown work; None with a reason if it cannot be estimated."""
    if not progress.objects():
        return None, "the list of objects is unknown"
    heavy = [sums for kind, sums in progress.classes.items() if relative_cost(kind)]
    data = [sums for sums in heavy if sums.phase == "data"]
    if sum(sums.weight for sums in heavy) <= 0 or any(sums.unknown_weight for sums in data):
        return None, "the sizes of its objects are unknown"
    if any(relative_cost(kind) and kind != "MATERIALIZED VIEW DATA" for kind in remaining.unknown):
        return None, "no object is finished yet to estimate the rest from"
    if progress.counts()[0] == 0 and not remaining.total_s:
        return None, "all its objects are done, and it is ending"
    seconds = _simulate_seconds(remaining.tasks, remaining.small_objects_s, jobs)
    unseen_s = 0.0 if progress.unseen_us is None else max(0, now_us - progress.unseen_us) / 1e6
    return max(0.0, seconds - min(unseen_s, remaining.unseen_s / jobs)), ""


def _simulate_seconds(tasks: list[Task], small_s: float, jobs: int) -> float:
    """Return the simulated seconds until the end, at least the work divided evenly among the workers. What is left for
    the end, such as materialized views, begins when all else is done."""
    last = [task for task in tasks if task.phase == "rest"]
    first = [task for task in tasks if task.phase != "rest"] if last else tasks
    main = max((sum(task.seconds for task in first) + small_s) / jobs, makespan(first, jobs))
    return main + makespan(last, jobs)


def _smooth_eta(seconds: float, elapsed: float, now_us: int, state: ForecastState, *, news: tuple[float, ...]) -> float:
    """Move the previous ETA towards the new one, over a small share of the elapsed time.

    Without news of how far it is only time has passed: then the predicted end moves at most as far as time itself.
    """
    end = now_us + seconds * 1e6
    if state.end_us is not None and elapsed > 0:
        passed = max(0, now_us - state.updated_us) / 1e6
        share = min(1.0, passed / max(_SMOOTHING_SHARE * elapsed, 1.0))
        end = state.end_us + (end - state.end_us) * share
        if news == state.news:
            end = min(end, state.end_us + passed * 1e6)
    end = max(end, now_us + _LEAST_ETA_S * 1e6)
    state.end_us, state.updated_us, state.news = end, now_us, news
    return (end - now_us) / 1e6


def _seconds_range(remaining: _RemainingWork, seconds: float, jobs: int) -> tuple[float, float]:
    """Return the minimum and maximum seconds until the end, from the ranges of assumed costs."""
    if not remaining.small_objects_assumed_s and not any(task.most is not None for task in remaining.tasks):
        return seconds, seconds
    late = [replace(task, seconds=task.most) if task.most is not None else task for task in remaining.tasks]
    early = [replace(task, seconds=task.least) if task.least is not None else task for task in remaining.tasks]
    return (
        _simulate_seconds(early, remaining.small_objects_s - remaining.small_objects_assumed_s / 2, jobs),
        _simulate_seconds(late, remaining.small_objects_s + remaining.small_objects_assumed_s, jobs),
    )


def _overdue_reason(remaining: _RemainingWork, elapsed: float, jobs: int) -> str | None:
    """Return why the end is unknown if it depends on objects that have taken longer than estimated."""
    if not remaining.overdue or (remaining.total_s - remaining.overdue_s) / jobs > _SMALL_REST * elapsed:
        return None
    named = clean(remaining.overdue[0].entry.qualified_name)
    return f"{named} takes longer than estimated, and how far it is cannot be measured"


def _missing_eta_reason(seconds: float, elapsed: float, doubt: float, *, eta_shown: bool) -> str | None:
    """Return why there is no ETA; None if there is one."""
    if elapsed < (elapsed + seconds) * _MIN_SHARE_DONE:
        return "less than 5 % is done: too little to estimate the rest"
    if doubt > (_MAX_DOUBT_SHOWN if eta_shown else _MAX_DOUBT) * (elapsed + seconds):
        return "too much of the remaining work is of a kind or size not measured yet"
    return None


def _forecast_from_previous(
    sums: tuple[PhaseSum, ...],
    elapsed: float,
    previous: PreviousRun | None,
    state: ForecastState,
    remaining: _RemainingWork,
    jobs: int,
    reason_unknown: str,
) -> ProgressForecast:
    """Use the duration of the previous run if the objects give no estimate for the whole job."""
    eta = previous.wall_s - elapsed if previous is not None else None
    phases = tuple(_forecast_phase(one, remaining, jobs, state, eta_s=None) for one in sums)
    if eta is None or eta <= 0 or previous is None:
        late = "it takes longer than the previous run" if eta is not None else reason_unknown
        pct = state.pct if state.pct > 0 else None
        grade = "estimated" if pct is not None else "unknown"
        return ProgressForecast(pct=pct, grade=grade, eta_s=None, eta_grade="unknown", phases=phases, reason=late)
    state.pct = max(state.pct, min(_MAX_PCT, 100.0 * elapsed / previous.wall_s))
    shown = state.pct >= 100 * _MIN_SHARE_DONE
    return ProgressForecast(
        pct=state.pct,
        grade="estimated",
        eta_s=eta if shown else None,
        eta_grade="history" if shown else "unknown",
        phases=phases,
        reason=None if shown else "less than 5 % is done",
    )


def _forecast_phase(
    one: PhaseSum, remaining: _RemainingWork, jobs: int, state: ForecastState, *, eta_s: float | None
) -> PhaseForecast:
    """Return progress of a phase, and its ETA if its own remaining work is known, at most that of the job (`eta_s`)."""
    without_eta = _phase_without_eta(one, state)
    tasks = [task for task in remaining.tasks if task.phase == one.name]
    if one.state != "running" or not tasks or one.name not in remaining.by_phase:
        return without_eta
    if eta_s is None and not (one.name == "data" and _data_is_known(one, tasks, remaining)):
        return without_eta
    eta = max(remaining.by_phase[one.name] / jobs, max((task.seconds for task in tasks if task.running), default=0.0))
    return replace(without_eta, eta_s=eta if eta_s is None else min(eta, eta_s), eta_grade="estimated")


def _data_is_known(one: PhaseSum, tasks: list[Task], remaining: _RemainingWork) -> bool:
    """Check whether the end of the data phase is known without that of the whole job: all measured in this run."""
    assumed = any(task.most is not None for task in tasks)
    begun = bool(one.weight) and one.weight_done >= _MIN_SHARE_DONE * (one.weight or 0.0)
    return begun and not assumed and not remaining.unknown.keys() & _DATA_KINDS


def _phase_without_eta(one: PhaseSum, state: ForecastState) -> PhaseForecast:
    """Return progress of a phase by weight, if known."""
    pct: float | None = None
    if one.state == "done" and one.objects:
        pct = 100.0
    elif one.weight:
        pct = min(_MAX_PCT, 100.0 * one.weight_done / one.weight)
    if pct is not None:
        pct = state.phase_pct[one.name] = max(state.phase_pct.get(one.name, 0.0), pct)
    grade = "unknown" if pct is None else "measured" if one.state == "done" else "estimated"
    return PhaseForecast(**asdict(one), pct=pct, grade=grade)


def _forecast_ended(progress: ObjectProgress, sums: tuple[PhaseSum, ...]) -> ProgressForecast:
    """Return the forecast after the end: 100 % only after success."""
    good = progress.exit == 0 or progress.ignored is not None
    state = ForecastState()
    return ProgressForecast(
        pct=100.0 if good else None,
        grade="measured" if good else "unknown",
        eta_s=0.0 if good else None,
        eta_grade="measured" if good else "unknown",
        phases=tuple(_phase_without_eta(one, state) for one in sums),
        reason=None if good else "the program has ended",
    )


def _notes(remaining: _RemainingWork) -> tuple[str, ...]:
    views = remaining.unknown.get("MATERIALIZED VIEW DATA", 0)
    notes = [f"the time to fill {views} materialized view{'s' if views > 1 else ''} is unknown"]
    if not views:
        notes = ["the time for an index of a materialized view is unknown"] if _VIEW_INDEX in remaining.unknown else []
    return tuple(notes)
