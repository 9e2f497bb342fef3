"""A phase of a job as it stands, from the sums kept of it and the objects at work."""

from __future__ import annotations

from msgspec import Struct

from dba_console.archives.dump_plan import Phase
from dba_console.archives.objects import DumpObject, ObjectSums


class PhaseSum(Struct, frozen=True, kw_only=True, gc=False):
    """One phase as it stands."""

    name: Phase
    state: str
    """waiting, running, done."""
    objects: int
    waiting: int
    running: int
    done: int
    failed: int
    weight: float | None
    """Bytes of all its objects, None where it is not known of each; after the data, of those of which it is known, for
    what is built on a materialized view has none."""
    weight_done: float
    """With what is known of those under way."""
    started_us: int | None
    ended_us: int | None
    wall_s: float | None
    """From its first object's start to now, or to its last one's end."""
    busy_s: float
    """Of all its objects together."""


def phase_sum(
    name: Phase, sums: ObjectSums, running: list[DumpObject], now_us: int, *, program_ended: bool = False
) -> PhaseSum:
    """The phase at `now_us`; `running` are its objects at work, `program_ended` that the program has gone."""
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
    begun = [item for item in running if item.started_us is not None]
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
        busy_s=(sums.busy_us + sum(max(0, now_us - (item.started_us or now_us)) for item in begun)) / 1e6,
    )
