"""The objects of a dump or restore with their states, and running sums by phase and kind of object."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from dba_console.jobs.archives.index_build import BuildStage, BuildTime, remaining_build
from dba_console.jobs.archives.toc import PHASES, DumpEntry, Phase

State = Literal["waiting", "running", "done", "failed", "unknown"]
_NAMED_WITHOUT_SCHEMA = frozenset({"SEQUENCE SET", "BLOB METADATA", "BLOB"})
"""Kinds that pg_restore names without the schema."""
_MAX_PACE, _MAX_SPEED_UP = 4.0, 2.0
MAX_LONGEST = 20
"""Objects in a summary."""


class DumpObject(Struct, kw_only=True, gc=False):
    """One object of a job. Only DumpObjects and ObjectProgress change it."""

    entry: DumpEntry
    state: State = "waiting"
    """unknown: it was running when the program ended with an unknown result."""
    started_us: int | None = None
    """Host wall time."""
    ended_us: int | None = None
    exact: bool = False
    """Both times are from messages, not observed or inferred from the next start."""
    done: float | None = None
    """Of total, in unit: bytes, rows or blocks, as last observed."""
    done_us: int | None = None
    """Time at which `done` was observed."""
    total: float | None = None
    unit: str | None = None
    pid: int | None = None
    measured: bool = False
    """`done` was measured on the file, not estimated."""
    note: str | None = None
    """Its sub-phase, or what it waits for."""
    error: str | None = None
    observed_us: int | None = None
    """Time of the last observation."""
    pace: float = 1.0
    """How fast it goes now, as a multiple of its average since its start or that of its stage."""
    stage: BuildStage | None = None
    """Of an index build, as last observed."""
    stage_us: int | None = None
    """Time at which this stage was first observed, or the object's start."""

    @property
    def seconds(self) -> float | None:
        """Its duration; None while it runs or if one of its times is unknown."""
        if self.started_us is None or self.ended_us is None:
            return None
        return max(0, self.ended_us - self.started_us) / 1e6

    @property
    def share(self) -> float | None:
        """The share done, 0 to 1; None if unknown."""
        if self.state in ("done", "failed"):
            return 1.0
        if self.done is None or not self.total:
            return None
        return min(1.0, max(0.0, self.done / self.total))

    @property
    def speed_up(self) -> float:
        """The factor by which its rest is shorter than by its average; 1 or more, since a stall may be short."""
        return min(_MAX_SPEED_UP, max(1.0, (1.0 + self.pace) / 2))

    def observe_done(self, done: float, at_us: int) -> None:
        """Record how far it is."""
        before, before_us = self.share, self.done_us
        self.done, self.done_us = done, at_us
        self._observe_pace(before, self.share, before_us, self.started_us, at_us)

    def observe_stage(self, stage: BuildStage | None, at_us: int) -> None:
        """Record the stage of its index build; after `observed_us`, the time of the stage before."""
        if stage is None:
            return
        if self.stage is None or self.stage.name != stage.name:
            self.stage_us, self.pace = self.started_us if self.stage is None else at_us, 1.0
        else:
            self._observe_pace(self.stage.share, stage.share, self.observed_us, self.stage_us, at_us)
        self.stage = stage

    def _observe_pace(
        self, before: float | None, share: float | None, before_us: int | None, since_us: int | None, at_us: int
    ) -> None:
        if before is None or not share or before_us is None or since_us is None or not since_us < before_us < at_us:
            return
        recent, mean = (share - before) / (at_us - before_us), share / (at_us - since_us)
        self.pace = (self.pace + min(_MAX_PACE, max(0.0, recent / mean))) / 2

    def remaining_build(self, now_us: int, plain_s: float | None = None) -> BuildTime | None:
        """Return the remaining time of its index build by the stage last observed; None if that is unknown. `plain_s`
        as in `index_build.remaining_build`."""
        seen_us, began_us, stage_us = self.observed_us, self.started_us, self.stage_us
        if self.stage is None or seen_us is None or began_us is None or stage_us is None:
            return None
        left = remaining_build(self.stage, (stage_us - began_us) / 1e6, (seen_us - stage_us) / 1e6, plain_s)
        passed = max(0, now_us - seen_us) / 1e6
        return None if left is None else BuildTime(*(max(0.0, one / self.speed_up - passed) for one in left))


class ObjectSums(Struct, kw_only=True, gc=False):
    """Running sums of one phase, or of one kind of object."""

    phase: Phase
    objects: int = 0
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    """Including those with an unknown result."""
    weight: float = 0.0
    """Bytes, of objects with known weight."""
    unknown_weight: int = 0
    """Objects with unknown weight."""
    weight_done: float = 0.0
    weight_waiting: float = 0.0
    busy_us: int = 0
    """Of ended objects."""
    timed: int = 0
    """Number done with both times known; failed objects are excluded."""
    timed_weight: float = 0.0
    timed_us: int = 0
    squares: float = 0.0
    """Sum of squared weights of timed objects."""
    products: float = 0.0
    """Sum of weight times seconds of timed objects."""
    heaviest: float = 0.0
    """The largest weight timed."""
    started_us: int | None = None
    ended_us: int | None = None


class DumpObjects:
    """All objects by dump id, in the plan's order, with sums by phase and kind."""

    def __init__(self, entries: Iterable[DumpEntry]) -> None:
        self.by_id: dict[int, DumpObject] = {}
        self.sums: dict[Phase, ObjectSums] = {phase: ObjectSums(phase=phase) for phase in PHASES}
        self.running: dict[int, DumpObject] = {}
        self.failed: dict[int, DumpObject] = {}
        self.changed: dict[int, DumpObject] = {}
        """Objects whose state changed since they were last taken."""
        self.classes: dict[str, ObjectSums] = {}
        """Sums by kind of object (`DumpEntry.kind`)."""
        self._named: dict[tuple[str, str], list[int]] = {}
        self._longest: list[tuple[float, int]] = []
        for entry in entries:
            self.add(entry)

    def add(self, entry: DumpEntry) -> DumpObject:
        """Add a new object in state waiting."""
        item = DumpObject(entry=entry)
        self.by_id[entry.dump_id] = item
        for sums in self._sums_of(entry):
            sums.objects += 1
            sums.waiting += 1
            _add_weight(sums, entry, 1)
        for name in _message_names(entry):
            self._named.setdefault((entry.desc, name), []).append(entry.dump_id)
        return item

    def drop(self, item: DumpObject) -> None:
        """Remove an object that the program skips; only if it is waiting."""
        if item.state != "waiting":
            return
        del self.by_id[item.entry.dump_id]
        for sums in self._sums_of(item.entry):
            sums.objects -= 1
            sums.waiting -= 1
            _add_weight(sums, item.entry, -1)

    def find_named(self, desc: str, name: str) -> DumpObject | None:
        """Return the object with this name in a message: the first that has not ended, else the last."""
        numbers = self._named.get((desc, name))
        if not numbers:
            return None
        while len(numbers) > 1 and (numbers[0] not in self.by_id or self.by_id[numbers[0]].state != "waiting"):
            if numbers[0] in self.running:
                break
            numbers.pop(0)
        return self.by_id.get(numbers[0])

    def begin(self, item: DumpObject, at_us: int | None) -> None:
        """Change an object from waiting to running."""
        if item.state != "waiting":
            return
        item.state, item.started_us = "running", at_us
        self.changed[item.entry.dump_id] = item
        self.running[item.entry.dump_id] = item
        for sums in self._sums_of(item.entry):
            sums.waiting -= 1
            sums.running += 1
            sums.weight_waiting -= item.entry.weight or 0.0
            if at_us is not None and (sums.started_us is None or at_us < sums.started_us):
                sums.started_us = at_us

    def end(self, item: DumpObject, at_us: int | None, state: State = "done") -> None:
        """Change an object from waiting or running to an end state."""
        self.begin(item, None)
        if item.state != "running":
            return
        del self.running[item.entry.dump_id]
        item.state, item.ended_us = state, at_us
        self.changed[item.entry.dump_id] = item
        if state != "done":
            self.failed[item.entry.dump_id] = item
        for sums in self._sums_of(item.entry):
            sums.running -= 1
            sums.done += state == "done"
            sums.failed += state != "done"
            sums.weight_done += item.entry.weight or 0.0
            if at_us is not None and (sums.ended_us is None or at_us > sums.ended_us):
                sums.ended_us = at_us
        self._add_time(item, 1)

    def reopen(self, item: DumpObject) -> None:
        """Undo a wrongly inferred end: the object is still running."""
        if item.state != "done":
            return
        self._add_time(item, -1)
        for sums in self._sums_of(item.entry):
            sums.done -= 1
            sums.running += 1
            sums.weight_done -= item.entry.weight or 0.0
        item.state, item.ended_us = "running", None
        self.changed[item.entry.dump_id] = item
        self.running[item.entry.dump_id] = item

    def set_end(self, item: DumpObject, at_us: int) -> None:
        """Replace an observed or inferred end time by the reported one."""
        self._add_time(item, -1)
        item.ended_us = at_us
        for sums in self._sums_of(item.entry):
            sums.ended_us = max(at_us, sums.ended_us or at_us)
        self._add_time(item, 1)

    def longest(self) -> list[DumpObject]:
        """Return the objects that took longest, longest first."""
        return [self.by_id[dump_id] for _, dump_id in sorted(self._longest, reverse=True) if dump_id in self.by_id]

    def __iter__(self) -> Iterator[DumpObject]:
        return iter(self.by_id.values())

    def _sums_of(self, entry: DumpEntry) -> tuple[ObjectSums, ObjectSums]:
        of_kind = self.classes.get(entry.kind)
        if of_kind is None:
            of_kind = self.classes[entry.kind] = ObjectSums(phase=entry.phase)
        return self.sums[entry.phase], of_kind

    def _add_time(self, item: DumpObject, sign: int) -> None:
        seconds = item.seconds
        if seconds is None:
            return
        weight = item.entry.weight or 0.0
        for one in self._sums_of(item.entry):
            one.busy_us += sign * round(seconds * 1e6)
            if item.state == "done":
                one.timed += sign
                one.timed_weight += sign * weight
                one.timed_us += sign * round(seconds * 1e6)
                one.squares += sign * weight * weight
                one.products += sign * weight * seconds
                one.heaviest = max(one.heaviest, weight)
        dump_id = item.entry.dump_id
        if sign < 0:
            self._longest = [one for one in self._longest if one[1] != dump_id]
            heapq.heapify(self._longest)
        elif len(self._longest) < MAX_LONGEST:
            heapq.heappush(self._longest, (seconds, dump_id))
        else:
            heapq.heappushpop(self._longest, (seconds, dump_id))


def _add_weight(sums: ObjectSums, entry: DumpEntry, sign: int) -> None:
    if entry.weight is None:
        sums.unknown_weight += sign
    else:
        sums.weight += sign * entry.weight
        sums.weight_waiting += sign * entry.weight


def _message_names(entry: DumpEntry) -> set[str]:
    """Return the names a message may use: it has only the first line of a name, and a quote there is part of it."""
    name = f"{entry.schema}.{entry.tag}" if entry.schema else entry.tag
    first, broken, _ = name.partition("\n")
    names = {first}
    if broken:
        names.add(first.removesuffix('"'))
    if entry.desc in _NAMED_WITHOUT_SCHEMA:
        names.add(entry.tag.partition("\n")[0])
    if entry.desc == "BLOBS":
        names.add("")
    return names


# The current state of a phase, from its sums and its running objects.


class PhaseSum(Struct, frozen=True, kw_only=True, gc=False):
    """The current state of one phase."""

    name: Phase
    state: str
    """waiting, running, done."""
    objects: int
    waiting: int
    running: int
    done: int
    failed: int
    weight: float | None
    """Bytes of all its objects. In the data phase None if one is unknown; in later phases the sum of the known ones,
    because objects built on a materialized view have none."""
    weight_done: float
    """Including the known part of running objects."""
    started_us: int | None
    ended_us: int | None
    wall_s: float | None
    """From the start of its first object to now, or to the end of its last one."""
    busy_s: float
    """Sum over all its objects."""


def phase_sum(
    name: Phase, sums: ObjectSums, running: list[DumpObject], now_us: int, *, program_ended: bool = False
) -> PhaseSum:
    """Return the state of the phase at `now_us`; `running` are its running objects."""
    ended = sums.objects - sums.waiting - sums.running
    state = "waiting"
    if ended and (program_ended or ended == sums.objects):
        state = "done"
    elif sums.running or ended:
        state = "running"
    elif not sums.objects and sums.started_us is not None:
        state = "done"
    upto = now_us if state == "running" else sums.ended_us
    wall = None if sums.started_us is None or upto is None else max(0.0, (upto - sums.started_us) / 1e6)
    started = [item for item in running if item.started_us is not None]
    partial = sum((item.share or 0.0) * (item.entry.weight or 0.0) for item in running)
    return PhaseSum(
        name=name,
        state=state,
        objects=sums.objects,
        waiting=sums.waiting,
        running=sums.running,
        done=sums.done,
        failed=sums.failed,
        weight=None if name == "data" and sums.unknown_weight else sums.weight,
        weight_done=max(0.0, sums.weight_done + partial),
        started_us=sums.started_us,
        ended_us=sums.ended_us if state == "done" else None,
        wall_s=wall,
        busy_s=(sums.busy_us + sum(max(0, now_us - (item.started_us or now_us)) for item in started)) / 1e6,
    )
