"""The durations of an earlier run. Loaded with the history of jobs, before any archive is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from dba_console.jobs.archives.toc import DumpEntry

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


class RunObject(Struct, array_like=True, frozen=True, gc=False):
    """One of the objects of a run that took longest."""

    what: Annotated[str, Meta(max_length=40)]
    name: Annotated[str, Meta(max_length=300)]
    """With its schema, as in the archive."""
    phase: Annotated[str, Meta(max_length=40)]
    seconds: Seconds
    bytes: Amount = 0
    """Its weight; 0: not known."""


class PreviousRun(Struct, frozen=True, kw_only=True):
    """The previous run of this job, or a typical one."""

    wall_s: float
    phases: tuple[RunPhase, ...] = ()
    longest: dict[tuple[str, str], RunObject] = {}
    """By kind and name."""

    def seconds_of(self, entry: DumpEntry) -> float | None:
        """Return what an object took; None if it was not among those that took longest."""
        found = self.longest.get((entry.desc, entry.qualified_name)) if self.longest else None
        return None if found is None else found.seconds
