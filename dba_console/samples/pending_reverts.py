"""Settings that a run changed for a time and that have to be put back: what of them is open now.

Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved or removed.
"""

from __future__ import annotations

from msgspec import Struct


class PendingRevertNow(Struct, array_like=True, frozen=True, gc=False):
    """One setting that is not as it was. None: not known."""

    id: str
    parameter: str
    place: str
    """Where it is set, in words: `in postgresql.auto.conf`, `for database app`."""
    old: str | None
    """What was set there before; None: nothing was."""
    new: str | None
    """What the run set; None: it took it out."""
    run: str
    runbook: str
    who: str
    at_us: int
    """Host wall time at which it was about to be set."""
    run_is_active: bool
    """The run goes on: it puts it back itself."""
    state: str
    """changed, unread (put back in the file, not reloaded), pending (put back, counts from the next restart), back,
    altered (somebody has set something else since), gone (its database or role is), unknown."""
    found: str | None
    """What is set there now, where state is known."""
    risky: bool
    """fsync or full_page_writes is off by it: a crash of the host costs the cluster."""
    trust: str = ""
    """Where risky: sound, untrusted (the server was started anew without having been shut down in order), unknown."""


class PendingRevertsNow(Struct, array_like=True, frozen=True):
    """Every setting of this server that a run has changed for a time (part `reverts`), oldest first."""

    now_us: int
    """Host wall time of the reading."""
    reverts: tuple[PendingRevertNow, ...]
