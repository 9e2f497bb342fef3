"""How long what is left will take on j workers: pg_restore's own order, played forward.

The heaviest ready object goes first; an object waits for what it needs, and a key or constraint for whoever else
works at its table. A sum divided by j knows nothing of the one big table whose data, key and indexes come one after
the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from msgspec import Struct

from dba_console.archives.dump_plan import Phase

_SHARING_DESCS = frozenset({"TABLE DATA", "BLOBS", "INDEX"})
"""What takes no lock that shuts out another of these on the same table."""
_MAX_TRIED = 64
"""Ready objects that are tried for one that no running one shuts out."""


class Task(Struct, frozen=True, gc=False):
    """What is left of one object."""

    dump_id: int
    seconds: float
    weight: float
    needs: tuple[int, ...]
    table: int | None
    shares: bool
    """Others may work at its table meanwhile, as far as they share too."""
    phase: Phase = "data"
    others: tuple[int, ...] = ()
    """Further tables it works at: those a foreign key refers to."""
    running: bool = False
    least: float | None = None
    """Seconds it may take as well, where they rest on objects of another kind or size."""
    most: float | None = None

    @property
    def tables(self) -> tuple[int, ...]:
        return self.others if self.table is None else (self.table, *self.others)


def can_share_table(desc: str) -> bool:
    return desc in _SHARING_DESCS


def makespan(tasks: Sequence[Task], jobs: int) -> float:
    """Seconds until all of them are done, on `jobs` workers; what they need and is not among them is done."""
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
    """Dump ids of the chain of needs that takes longest, first to last."""
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
    """The longest way to an object, without recursion; a circle, which no archive has, is cut."""
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
    """How many needs of each are open, and who waits for each."""
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
    """The heaviest ready one that no running one shuts out; with all workers idle, the heaviest."""
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
