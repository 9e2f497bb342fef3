"""A job's ledger as it is told: its phases, and the objects worth a line: running, failed, largest waiting, last done.

Of 50,000 objects only those told are touched at each look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from dba_console.agent.jobs.object_activity import ObjectActivity
from dba_console.archives.critical_path import CriticalObject
from dba_console.archives.dump_plan import DumpEntry, DumpPlan
from dba_console.archives.object_progress import ObjectProgress
from dba_console.archives.objects import DumpObject
from dba_console.archives.progress_forecast import PhaseForecast
from dba_console.samples.jobs import OBJECTS_LISTED, ObjectNow, PhaseNow
from dba_console.sanitize import clean
from dba_console.units import human_duration

MAX_FAILED_ROWS = 20
MAX_WAITING_ROWS = 30
MAX_DONE_ROWS = 20
MAX_CHAIN_ROWS = 12
NAME_LENGTH = 200
MIN_SHARE = 0.05
"""Below this share of an object no time left is told of it."""
MAX_RUNNING_PCT = 99.0
"""What is under way is never all done."""


class LargestWaiting:
    """The entries by weight, largest first. Each is taken from the order once; what has begun never waits again."""

    def __init__(self, plan: DumpPlan) -> None:
        heavy = (entry for entry in plan.entries if entry.weight)
        self._order = iter(sorted(heavy, key=lambda entry: -(entry.weight or 0.0)))
        self._largest: list[DumpEntry] = []

    def largest(self, items: Mapping[int, DumpObject]) -> list[DumpEntry]:
        """The largest that wait."""
        self._largest = [entry for entry in self._largest if _waits(items, entry)]
        while len(self._largest) < MAX_WAITING_ROWS and (entry := next(self._order, None)) is not None:
            if _waits(items, entry):
                self._largest.append(entry)
        return list(self._largest)


def _waits(items: Mapping[int, DumpObject], entry: DumpEntry) -> bool:
    item = items.get(entry.dump_id)
    return item is not None and item.state == "waiting"


def phases_now(phases: Iterable[PhaseForecast], *, measured: bool, planned: bool) -> tuple[PhaseNow, ...]:
    """The phases that have objects. `measured`: bytes of data are those of the files that are read; `planned`: all
    objects are known, not only those seen so far.
    """
    return tuple(_phase(one, measured and one.name == "data", planned) for one in phases if one.sums.objects)


def _phase(one: PhaseForecast, measured: bool, planned: bool) -> PhaseNow:
    sums = one.sums
    weight = sums.weight if planned and one.name not in ("schema", "rest") else None
    pct = one.pct if planned else None
    known = "measured" if measured or one.state == "done" else one.grade
    return PhaseNow(
        name=one.name, state=one.state if planned or sums.running else "unknown",
        items=sums.objects if planned else None, items_done=sums.done + sums.failed, items_running=sums.running,
        done=None if weight is None else sums.weight_done, total=weight, unit=None if weight is None else "bytes",
        pct=pct, grade="unknown" if pct is None else known, started_us=sums.started_us, wall_s=sums.wall_s,
        busy_s=sums.busy_s, eta_s=one.eta_s, eta_grade=one.eta_grade,
    )  # fmt: skip


def objects_now(
    ledger: ObjectProgress,
    sights: Mapping[int, ObjectActivity],
    waiting: LargestWaiting | None,
    done: Iterable[int],
    now_us: int,
) -> tuple[ObjectNow, ...]:
    """The objects worth a line, at most OBJECTS_TOLD."""
    items = ledger.objects()
    return tuple(islice(_object_rows(ledger, items, sights, waiting, done, now_us), OBJECTS_LISTED))


def _object_rows(
    ledger: ObjectProgress,
    items: Mapping[int, DumpObject],
    sights: Mapping[int, ObjectActivity],
    waiting: LargestWaiting | None,
    done: Iterable[int],
    now_us: int,
) -> Iterator[ObjectNow]:
    running = sorted(ledger.running_objects, key=lambda item: -(item.entry.weight or 0.0))
    for item in running:
        yield _object(item, sights.get(item.entry.dump_id), now_us)
    for item in ledger.failed_objects[-MAX_FAILED_ROWS:]:
        yield _object(item, None, now_us)
    for entry in () if waiting is None else waiting.largest(items):
        yield _object(items[entry.dump_id], None, now_us)
    for dump_id in islice(reversed(tuple(done)), MAX_DONE_ROWS):
        if (ended := items.get(dump_id)) is not None and ended.state == "done":
            yield _object(ended, None, now_us)


def chain_now(links: Iterable[CriticalObject]) -> tuple[str, ...]:
    """The chain that decides when it ends, as it is told."""
    return tuple(_link(link) for link in islice(links, MAX_CHAIN_ROWS))


def _link(link: CriticalObject) -> str:
    name = f"{link.entry.desc} {name_of(link.entry)}"
    if link.seconds is None:
        return name
    return f"{name}, {'' if link.measured else 'about '}{human_duration(link.seconds)}"


def name_of(entry: DumpEntry) -> str:
    """An object as it is shown: with its schema, harmless."""
    return clean(f"{entry.schema}.{entry.tag}" if entry.schema else entry.tag)[:NAME_LENGTH]


def _object(item: DumpObject, sight: ObjectActivity | None, now_us: int) -> ObjectNow:
    entry, running = item.entry, item.state == "running"
    elapsed_s = item.seconds
    if running and item.started_us is not None:
        elapsed_s = max(0.0, (now_us - item.started_us) / 1e6)
    share = item.share if running else None
    pct = 100.0 if item.state == "done" else None if share is None else min(MAX_RUNNING_PCT, 100.0 * share)
    measured = item.state == "done" or (sight is not None and sight.measured)
    note = clean(item.error) if item.error is not None else None if sight is None else sight.note
    return ObjectNow(
        name=name_of(entry), what=entry.desc, phase=entry.phase,
        state=item.state if item.state != "unknown" else "failed", weight=entry.weight,
        done=item.done if running else None, total=item.total if running else None, unit=item.unit if running else None,
        pct=pct, grade="unknown" if pct is None else "measured" if measured else "estimated",
        rate_per_s=_rate(item, elapsed_s) if running else None, started_us=item.started_us, elapsed_s=elapsed_s,
        eta_s=_remaining_s(share, elapsed_s), pid=item.pid if running else None, note=note,
    )  # fmt: skip


def _rate(item: DumpObject, elapsed_s: float | None) -> float | None:
    return item.done / elapsed_s if item.done and elapsed_s and elapsed_s >= 1.0 else None


def _remaining_s(share: float | None, elapsed_s: float | None) -> float | None:
    """Of an object by its own course so far."""
    if share is None or elapsed_s is None or share < MIN_SHARE:
        return None
    return max(0.0, elapsed_s * (1.0 - share) / share)
