"""The durations of an earlier run. Loaded with the history of jobs, before any archive is read."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Amount = Annotated[int, Meta(ge=0, le=1 << 62)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]


class RunPhase(Struct, array_like=True, frozen=True, gc=False):
    """The duration of one phase of a run. With -j phases overlap: the sum of wall times may exceed the run's."""

    name: Annotated[str, Meta(max_length=40)]
    wall_s: Seconds
    """From the start of its first object to the end of its last one."""
    busy_s: Seconds
    """Sum over all its objects."""
    bytes: Amount | None = None
    """Total weight of its objects."""


class PreviousRun(Struct, frozen=True, kw_only=True):
    """The previous run of this job, or a typical one."""

    wall_s: float
    phases: tuple[RunPhase, ...] = ()
