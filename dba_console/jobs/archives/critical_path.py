"""The critical path of a restore, and its parts: simulate pg_restore's order on N workers, model the cost per object.

The critical path is the dependency chain that takes longest: usually the largest table's data, its indexes, its keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject, ObjectSums
from dba_console.jobs.archives.previous_run import PreviousRun
from dba_console.jobs.archives.toc import PHASE_OF_DESC, DumpEntry, Phase

# Simulate the remaining work on N workers in pg_restore's order.
#
# The heaviest ready object starts first; an object waits for its dependencies, and a key or constraint for other work
# on its table. Dividing the sum by N would miss one large table whose data, key and indexes run one after the other.

_SHARING_DESCS = frozenset({"TABLE DATA", "BLOBS", "INDEX"})
"""Objects whose locks on the same table do not conflict."""
_MAX_TRIED = 64
"""Ready objects tried to find one that does not conflict with a running one."""


class Task(Struct, frozen=True, gc=False):
    """The remaining work of one object."""

    dump_id: int
    seconds: float
    weight: float
    needs: tuple[int, ...]
    table: int | None
    shares: bool
    """Other objects that share too may use its table meanwhile."""
    phase: Phase = "data"
    others: tuple[int, ...] = ()
    """Other tables it locks: those referenced by a foreign key."""
    running: bool = False
    least: float | None = None
    """Range of seconds, if estimated from objects of another kind or size."""
    most: float | None = None

    @property
    def tables(self) -> tuple[int, ...]:
        return self.others if self.table is None else (self.table, *self.others)


def can_share_table(desc: str) -> bool:
    return desc in _SHARING_DESCS


def makespan(tasks: Sequence[Task], jobs: int) -> float:
    """Return the seconds until all tasks are done on `jobs` workers; needs outside `tasks` count as done."""
    if jobs <= 1:
        return sum(task.seconds for task in tasks)
    open_needs, after = _open_needs(tasks)
    busy: list[tuple[float, int, Task]] = []
    ready: list[tuple[float, int, Task]] = []
    tables: dict[int, list[Task]] = {}
    for task in tasks:
        if task.running:
            _start_task(task, 0.0, busy, tables)
        elif not open_needs[task.dump_id]:
            heapq.heappush(ready, (-task.weight, task.dump_id, task))
    now = 0.0
    while busy or ready:
        while ready and len(busy) < jobs and (chosen := _next_task(ready, tables, idle=not busy)) is not None:
            _start_task(chosen, now, busy, tables)
        if not busy:
            break
        now, _, ended = heapq.heappop(busy)
        for table in ended.tables:
            tables[table].remove(ended)
        for one in after.get(ended.dump_id, ()):
            open_needs[one.dump_id] -= 1
            if not open_needs[one.dump_id] and not one.running:
                heapq.heappush(ready, (-one.weight, one.dump_id, one))
    return now


def longest_chain(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Return the dump ids of the dependency chain that takes longest, first to last."""
    by_id = {task.dump_id: task for task in tasks}
    best: dict[int, tuple[float, int | None]] = {}
    for task in tasks:
        _find_longest(task.dump_id, by_id, best)
    if not best:
        return ()
    last: int | None = max(best, key=lambda dump_id: best[dump_id][0])
    chain: list[int] = []
    while last is not None:
        chain.append(last)
        last = best[last][1]
    return tuple(reversed(chain))


def _find_longest(start: int, by_id: Mapping[int, Task], best: dict[int, tuple[float, int | None]]) -> None:
    """Find the longest path to an object, without recursion; a cycle, which no archive has, is cut."""
    open_: list[int] = [start]
    on_way: set[int] = set()
    while open_:
        dump_id = open_[-1]
        if dump_id in best:
            open_.pop()
            continue
        needs = [need for need in by_id[dump_id].needs if need in by_id]
        missing = [need for need in needs if need not in best and need not in on_way]
        if missing and dump_id not in on_way:
            on_way.add(dump_id)
            open_.extend(missing)
            continue
        known = [(best[need][0], need) for need in needs if need in best]
        before, via = max(known, default=(0.0, None))
        best[dump_id] = (before + by_id[dump_id].seconds, via)
        open_.pop()


def _open_needs(tasks: Sequence[Task]) -> tuple[dict[int, int], dict[int, list[Task]]]:
    """Return the number of open needs per task, and the tasks that wait for each."""
    there = {task.dump_id for task in tasks}
    after: dict[int, list[Task]] = {}
    open_needs: dict[int, int] = {}
    for task in tasks:
        needs = [need for need in task.needs if need in there]
        open_needs[task.dump_id] = len(needs)
        for need in needs:
            after.setdefault(need, []).append(task)
    return open_needs, after


def _start_task(task: Task, now: float, busy: list[tuple[float, int, Task]], tables: dict[int, list[Task]]) -> None:
    heapq.heappush(busy, (now + task.seconds, task.dump_id, task))
    for table in task.tables:
        tables.setdefault(table, []).append(task)


def _next_task(ready: list[tuple[float, int, Task]], tables: Mapping[int, list[Task]], *, idle: bool) -> Task | None:
    """Return the heaviest ready task without a conflict with a running one; if all workers are idle, the heaviest."""
    passed: list[tuple[float, int, Task]] = []
    chosen: Task | None = None
    while ready and len(passed) < _MAX_TRIED:
        one = heapq.heappop(ready)
        task = one[2]
        others = [other for table in task.tables for other in tables.get(table, ())]
        if idle or not others or (task.shares and all(other.shares for other in others)):
            chosen = task
            break
        passed.append(one)
    for one in passed:
        heapq.heappush(ready, one)
    return chosen


# The cost model: seconds by weight, from finished and running objects of this run, else from the previous run.
#
# A kind of object has a cost per object and a cost per byte: with a single number, ten thousand empty tables would
# determine the rate of the large one.

MIN_SHARE_KNOWN = 0.05
"""Share done of a running object, from which its own rate is better than that of others."""
_MAX_EXTRAPOLATION = 20.0
"""A rate is used up to this multiple of the heaviest object measured."""
_MAX_EXTRAPOLATION_BY_SIZE = 500.0
"""The same, if their time depended on their size, not their number."""
_AGREEMENT_FACTOR = 1.2
"""Error allowed for each of two estimates that agree."""
_MIN_SPREAD = 0.05
"""Relative squared spread of weights below which they count as equal."""
_MIN_MEASURED = 3
RELATIVE_COSTS: dict[str, tuple[float, float, float]] = {
    "TABLE DATA": (1.0, 1.0, 1.0),
    "BLOBS": (0.5, 1.0, 2.0),
    "CONSTRAINT": (0.12, 0.2, 0.36),
    "INDEX": (0.27, 0.5, 0.8),
    "FK CONSTRAINT": (0.15, 0.33, 0.95),
    "CHECK CONSTRAINT": (0.05, 0.1, 0.3),
    "ANALYZE": (0.02, 0.05, 0.2),
}
"""Seconds per table byte as a multiple of its data's: at least, likely, at most. The range measured in restores of
tables with a key, two indexes and a foreign key each, with one and two jobs, default and tuned. Used (and marked as
assumed) only until one of the kind is measured: the width of the range decides whether an ETA is shown. A foreign key
on small rows, or checked without enough memory for its join, takes longer: 1.2 was measured."""


class CostRate(Struct, frozen=True, kw_only=True, gc=False):
    """The cost of one kind of object."""

    each_s: float
    per_byte_s: float
    source: str
    """measured: in this run; history; assumed: from another kind."""
    max_weight: float
    """Bytes of the heaviest object measured."""
    by_size: bool = False
    """Most of the measured time depends on size."""
    many_measured: bool = False
    """Measured on several objects, so that one slow object of similar size does not matter: it may have waited."""

    def seconds_for(self, weight: float) -> float:
        return self.each_s + self.per_byte_s * weight


class Cost(Struct, frozen=True, gc=False):
    """The cost of one object in seconds, with a range if it is assumed."""

    seconds: float
    source: str
    """As CostRate.source."""
    least: float
    most: float


def certain_cost(seconds: float, source: str) -> Cost:
    return Cost(seconds, source, seconds, seconds)


class CostModel:
    """Cost rates by kind of object, at one moment."""

    def __init__(
        self, classes: dict[str, ObjectSums], running: Iterable[DumpObject], now_us: int, previous: PreviousRun | None
    ) -> None:
        self._classes = classes
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._previous = previous
        self._found: dict[str, CostRate | None] = {}
        self._overdue: dict[str, float] = {}
        """Seconds per byte that a running object has already taken: a minimum for its kind."""
        for item in running:
            if item.started_us is not None and item.entry.weight and item.entry.phase != "data":
                taken = max(0, now_us - item.started_us) / 1e6 / item.entry.weight
                self._overdue[item.entry.desc] = max(taken, self._overdue.get(item.entry.desc, 0.0))
            point = _point(item, now_us)
            if point is not None:
                self._points.setdefault(item.entry.desc, []).append(point)

    def rate(self, desc: str) -> CostRate | None:
        """Return the rate of a kind; None if nothing is known, not even for similar kinds."""
        if desc not in self._found:
            self._found[desc] = (
                self._measured_rate(desc) or self._rate_from_previous(desc) or self._rate_from_similar(desc)
            )
        return self._found[desc]

    def cost(self, desc: str, weight: float) -> Cost | None:
        """Return the cost of one object. A rate measured on much lighter objects is not used if the previous run, or
        the time of its data, gives a better estimate."""
        rate = self.rate(desc)
        if rate is None:
            return None
        if rate.source == "assumed":
            return self._assumed_cost(desc, rate, weight)
        if rate.many_measured and weight <= rate.max_weight:
            return certain_cost(rate.seconds_for(weight), rate.source)
        if weight <= rate.max_weight * (_MAX_EXTRAPOLATION_BY_SIZE if rate.by_size else _MAX_EXTRAPOLATION):
            return certain_cost(max(rate.seconds_for(weight), self._overdue.get(desc, 0.0) * weight), rate.source)
        other = self._rate_from_previous(desc)
        if other is not None:
            return certain_cost(other.seconds_for(weight), "history")
        similar = self._rate_from_similar(desc)
        if similar is None or weight > similar.max_weight * _MAX_EXTRAPOLATION:
            return self._assumed_cost(desc, rate, weight)
        return self._mean_cost(desc, rate.seconds_for(weight), similar.seconds_for(weight), weight)

    def _mean_cost(self, desc: str, light: float, similar: float, weight: float) -> Cost:
        """Combine the estimates from lighter objects and from its data: the more they differ, the wider the range."""
        taken = self._overdue.get(desc, 0.0) * weight
        lower, upper = min(light, similar) / _AGREEMENT_FACTOR, max(light, similar) * _AGREEMENT_FACTOR
        return Cost(max((light + similar) / 2, taken), "assumed", max(lower, taken), max(upper, taken))

    def _assumed_cost(self, desc: str, rate: CostRate, weight: float) -> Cost:
        least, likely, most = RELATIVE_COSTS.get(desc, (0.3, 1.0, 3.0))
        taken = self._overdue.get(desc, 0.0) * weight
        whole = max(rate.seconds_for(weight), taken)
        return Cost(whole, "assumed", max(whole * least / likely, taken), whole * most / likely)

    def _measured_rate(self, desc: str) -> CostRate | None:
        sums, points = self._classes.get(desc), self._points.get(desc, [])
        if sums is None or not (sums.timed or points):
            return None
        n = sums.timed + len(points)
        w = sums.timed_weight + sum(weight for weight, _ in points)
        t = sums.timed_us / 1e6 + sum(seconds for _, seconds in points)
        ww = sums.squares + sum(weight * weight for weight, _ in points)
        wt = sums.products + sum(weight * seconds for weight, seconds in points)
        each, per_byte = _fit(n, w, t, ww, wt)
        if each == 0 and desc not in ("TABLE DATA", "BLOBS") and n * (least := self._min_seconds(desc)) < t / 2:
            each, per_byte = least, (t - n * least) / w if w > 0 else 0.0
        heaviest = max([sums.heaviest, *(weight for weight, _ in points)])
        if heaviest <= 0 and sums.weight > 0:
            return None  # only empty ones so far: the cost per byte is unknown
        several = n >= _MIN_MEASURED
        by_size = several and per_byte * w > t / 2
        return CostRate(
            each_s=each,
            per_byte_s=per_byte,
            source="measured",
            max_weight=heaviest,
            by_size=by_size,
            many_measured=several,
        )

    def _min_seconds(self, desc: str) -> float:
        """Return the minimum cost of an object of any kind: that of an empty table's data."""
        data = self._measured_rate("TABLE DATA") if desc != "TABLE DATA" else None
        return data.each_s if data is not None else 0.0

    def _rate_from_previous(self, desc: str) -> CostRate | None:
        phase = PHASE_OF_DESC.get(desc)
        if self._previous is None or phase is None:
            return None
        known = next((one for one in self._previous.phases if one.name == phase), None)
        if known is None:
            return None
        kinds = [
            (kind, self._classes[kind].weight)
            for kind, of in PHASE_OF_DESC.items()
            if of == phase and kind in self._classes
        ]
        weight = known.bytes if known.bytes is not None else sum(weight for _, weight in kinds)
        if weight <= 0:
            return None
        return CostRate(each_s=0.0, per_byte_s=known.busy_s / weight, source="history", max_weight=float("inf"))

    def _rate_from_similar(self, desc: str) -> CostRate | None:
        if desc not in RELATIVE_COSTS:
            return None
        for kind in ("TABLE DATA", "INDEX", "CONSTRAINT", "BLOBS"):
            known = self._measured_rate(kind) if kind != desc else None
            if known is not None and known.per_byte_s > 0:
                per_byte = known.per_byte_s * RELATIVE_COSTS[desc][1] / RELATIVE_COSTS[kind][1]
                return CostRate(each_s=known.each_s, per_byte_s=per_byte, source="assumed", max_weight=known.max_weight)
        return None


def _point(item: DumpObject, now_us: int) -> tuple[float, float] | None:
    """Return weight and seconds so far of data being copied, if its share is known."""
    weight, share = item.entry.weight, item.share
    if item.started_us is None or not weight or share is None or share < MIN_SHARE_KNOWN or item.entry.phase != "data":
        return None
    return weight * share, max(0, now_us - item.started_us) / 1e6


def _fit(n: int, w: float, t: float, ww: float, wt: float) -> tuple[float, float]:
    """Fit seconds per object and seconds per byte, both >= 0, by least squares; equal weights give only the latter.

    >>> _fit(2, 30.0, 5.0, 500.0, 80.0)
    (1.0, 0.1)
    """
    if w <= 0:
        return t / n, 0.0
    spread = ww / n - (w / n) ** 2
    if spread <= _MIN_SPREAD * (w / n) ** 2:
        return 0.0, t / w
    per_byte = (wt / n - w * t / n / n) / spread
    each = (t - per_byte * w) / n
    if per_byte <= 0:
        return t / n / 2, t / w / 2  # the larger ones took less: the two values cannot be separated
    return (0.0, t / w) if each < 0 else (round(each, 12), round(per_byte, 18))


_MAX_OBJECTS = 2000


class CriticalObject(Struct, frozen=True, kw_only=True, gc=False):
    """An object on the critical path."""

    entry: DumpEntry
    seconds: float | None
    """Measured or estimated; None if only its size is known."""
    measured: bool
    state: str


def critical_path(plan: DumpPlan) -> tuple[DumpEntry, ...]:
    """Return the entries on the critical path, first to last; empty if no sizes are known."""
    return tuple(link.entry for link in critical_objects(plan))


def critical_objects(source: DumpPlan | ObjectProgress, now_us: int | None = None) -> tuple[CriticalObject, ...]:
    """Return the objects on the critical path, with measured or estimated seconds."""
    items: Iterable[DumpObject]
    if isinstance(source, DumpPlan):
        items, rates = (DumpObject(entry=entry) for entry in source.entries if _takes_time(entry)), None
    else:
        items = (item for item in source.objects().values() if _takes_time(item.entry))
        rates = CostModel(source.classes, source.running_objects, now_us or source.ended_us or 0, None)
    heaviest = sorted(items, key=lambda item: -(item.entry.weight or item.seconds or 0.0))[:_MAX_OBJECTS]
    timed = {item.entry.dump_id: _seconds(item, rates) for item in heaviest}
    any_timed = any(seconds is not None for seconds in timed.values())
    tasks = [_task(item, timed[item.entry.dump_id], any_timed=any_timed) for item in heaviest]
    by_id = {item.entry.dump_id: item for item in heaviest}
    chain = longest_chain(_with_lock_order(tasks)) if any(task.seconds > 0 for task in tasks) else ()
    return tuple(
        CriticalObject(
            entry=by_id[dump_id].entry,
            seconds=timed[dump_id],
            measured=by_id[dump_id].seconds is not None,
            state=by_id[dump_id].state,
        )
        for dump_id in chain
    )


def _takes_time(entry: DumpEntry) -> bool:
    return entry.desc in PHASE_OF_DESC


def _seconds(item: DumpObject, rates: CostModel | None) -> float | None:
    if item.seconds is not None:
        return item.seconds
    cost = rates.cost(item.entry.desc, item.entry.weight or 0.0) if rates is not None else None
    return cost.seconds if cost is not None else None


def _task(item: DumpObject, seconds: float | None, *, any_timed: bool) -> Task:
    entry = item.entry
    if seconds is None:
        seconds = 0.0 if any_timed else (entry.weight or 0.0) * RELATIVE_COSTS[entry.desc][1]
    return Task(
        dump_id=entry.dump_id,
        seconds=seconds,
        weight=entry.weight or 0.0,
        needs=entry.needs,
        table=entry.table,
        shares=can_share_table(entry.desc),
        phase=entry.phase,
    )


def _with_lock_order(tasks: list[Task]) -> list[Task]:
    """Add the order that locks impose: a table's keys and constraints run one after the other and not beside its index
    builds. The path passes its primary key, then its longest index, then their dependents."""
    builds: dict[int, list[Task]] = {}
    for task in tasks:
        if task.table is not None and task.phase == "indexes":
            builds.setdefault(task.table, []).append(task)
    after: dict[int, tuple[int, ...]] = {}
    for same in builds.values():
        keys = tuple(task.dump_id for task in same if not task.shares)
        for previous, key in pairwise(keys):
            after[key] = (previous,)
        for task in same:
            if task.shares and keys:
                after[task.dump_id] = keys[-1:]
    chained = [_with_more_needs(task, after.get(task.dump_id, ())) for task in tasks]
    ends = {table: tuple(task.dump_id for task in same) for table, same in builds.items()}
    return [
        _with_more_needs(task, ends.get(task.table, ()))
        if task.phase == "constraints" and task.table is not None
        else task
        for task in chained
    ]


def _with_more_needs(task: Task, more: tuple[int, ...]) -> Task:
    if not more:
        return task
    return replace(task, needs=(*task.needs, *more))
