"""The chain that decides when a restore ends: the largest table's data, its indexes, the keys that wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from dba_console.archives.entries import Entry, Plan
from dba_console.archives.items import Item
from dba_console.archives.ledger import Ledger
from dba_console.archives.rates import OF_PHASE, PRIOR, Rates
from dba_console.archives.schedule import Task, longest_chain, shares

_MOST = 2000


class Link(Struct, frozen=True, kw_only=True, gc=False):
    """One object of the chain."""

    entry: Entry
    seconds: float | None
    """What it took, or is reckoned to take; None where only its size is known."""
    measured: bool
    state: str


def critical_path(of: Plan | Ledger | Mapping[int, Item], now_us: int | None = None) -> tuple[Entry, ...]:
    """The entries of the longest chain of needs, first to last; empty where no sizes are known."""
    return tuple(link.entry for link in critical_links(of, now_us))


def critical_links(of: Plan | Ledger | Mapping[int, Item], now_us: int | None = None) -> tuple[Link, ...]:
    """The same with what each took, or is reckoned to take."""
    items: Iterable[Item]
    if isinstance(of, Plan):
        items, rates = (Item(entry=entry) for entry in of.entries if _counts(entry)), None
    elif isinstance(of, Ledger):
        items = (item for item in of.items().values() if _counts(item.entry))
        rates = Rates(of.classes, of.running_items, now_us or of.ended_us or 0, None)
    else:
        items, rates = (item for item in of.values() if _counts(item.entry)), None
    heaviest = sorted(items, key=lambda item: -(item.entry.weight or item.seconds or 0.0))[:_MOST]
    timed = {item.entry.dump_id: _seconds(item, rates) for item in heaviest}
    worth = any(seconds is not None for seconds in timed.values())
    tasks = [_task(item, timed[item.entry.dump_id], worth=worth) for item in heaviest]
    by_id = {item.entry.dump_id: item for item in heaviest}
    chain = longest_chain(_locked(tasks)) if any(task.seconds > 0 for task in tasks) else ()
    return tuple(
        Link(
            entry=by_id[dump_id].entry,
            seconds=timed[dump_id],
            measured=by_id[dump_id].seconds is not None,
            state=by_id[dump_id].state,
        )
        for dump_id in chain
    )


def _counts(entry: Entry) -> bool:
    return entry.desc in OF_PHASE


def _seconds(item: Item, rates: Rates | None) -> float | None:
    if item.seconds is not None:
        return item.seconds
    cost = rates.cost(item.entry.desc, item.entry.weight or 0.0) if rates is not None else None
    return cost.seconds if cost is not None else None


def _task(item: Item, seconds: float | None, *, worth: bool) -> Task:
    entry = item.entry
    if seconds is None:
        seconds = 0.0 if worth else (entry.weight or 0.0) * PRIOR[entry.desc][1]
    return Task(
        dump_id=entry.dump_id,
        seconds=seconds,
        weight=entry.weight or 0.0,
        needs=entry.needs,
        table=entry.table,
        shares=shares(entry.desc),
        phase=entry.phase,
    )


def _locked(tasks: list[Task]) -> list[Task]:
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
    chained = [_needing(task, after.get(task.dump_id, ())) for task in tasks]
    ends = {table: tuple(task.dump_id for task in same) for table, same in builds.items()}
    return [
        _needing(task, ends.get(task.table, ())) if task.phase == "constraints" and task.table is not None else task
        for task in chained
    ]


def _needing(task: Task, more: tuple[int, ...]) -> Task:
    if not more:
        return task
    return replace(task, needs=(*task.needs, *more))
