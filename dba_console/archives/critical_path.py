"""The chain that decides when a restore ends: the largest table's data, its indexes, the keys that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from dba_console.archives.dump_plan import DumpEntry, DumpPlan
from dba_console.archives.object_cost import PHASE_OF_DESC, RELATIVE_COSTS, CostModel
from dba_console.archives.object_progress import ObjectProgress
from dba_console.archives.objects import DumpObject
from dba_console.archives.worker_schedule import Task, can_share_table, longest_chain

_MAX_OBJECTS = 2000


class CriticalObject(Struct, frozen=True, kw_only=True, gc=False):
    """One object of the chain."""

    entry: DumpEntry
    seconds: float | None
    """What it took, or is reckoned to take; None where only its size is known."""
    measured: bool
    state: str


def critical_path(
    source: DumpPlan | ObjectProgress | Mapping[int, DumpObject], now_us: int | None = None
) -> tuple[DumpEntry, ...]:
    """The entries of the longest chain of needs, first to last; empty where no sizes are known."""
    return tuple(link.entry for link in critical_objects(source, now_us))


def critical_objects(
    source: DumpPlan | ObjectProgress | Mapping[int, DumpObject], now_us: int | None = None
) -> tuple[CriticalObject, ...]:
    """The same with what each took, or is reckoned to take."""
    items: Iterable[DumpObject]
    if isinstance(source, DumpPlan):
        items, rates = (DumpObject(entry=entry) for entry in source.entries if _takes_time(entry)), None
    elif isinstance(source, ObjectProgress):
        items = (item for item in source.objects().values() if _takes_time(item.entry))
        rates = CostModel(source.classes, source.running_objects, now_us or source.ended_us or 0, None)
    else:
        items, rates = (item for item in source.values() if _takes_time(item.entry)), None
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
    """A table's keys and constraints come one after the other and beside no build of its indexes: the chain passes
    its primary key, then the longest of its indexes, then what needs them."""
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
