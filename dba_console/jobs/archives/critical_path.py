"""The critical path of a restore: simulate pg_restore's order on N workers, find the longest chain.

The critical path is the dependency chain that takes longest: usually the largest table's data, its indexes, its keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from dba_console.jobs.archives.cost_model import RELATIVE_COSTS, CostModel
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject
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
    cost = rates.cost(item.entry) if rates is not None else None
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
