"""Readings of the console itself: what it costs, and whether it keeps up. Recorded like everything else."""

from __future__ import annotations

from msgspec import Struct


class AgentHealth(Struct, array_like=True, frozen=True, gc=False):
    """The agent's own cost and health. Counters are since the agent started."""

    cpu_us: int
    """User and system time of the agent and its children, microseconds."""
    rss: int
    queries: int
    query_us: int
    """Time spent waiting for the server's answers, microseconds."""
    bytes_received: int
    recorder_lag_us: int
    """How far the recording is behind the live picture."""
    recorded: int
    dropped: int
    """Samples that could not be recorded."""
    stuck_lanes: int
    lanes: list[str]
    """Names of lanes abandoned now."""
    consoles: int
    late_us: int
    """How late this tick began against its schedule."""
    backend_cpu_us: int | None = None
    """CPU of the server process behind the pinned connection; None where the host is not readable."""
    recording: str = "ok"
    """ok, lagging, failed, off."""
    recording_note: str | None = None
    readers_dropped: int = 0
    judged_us: int | None = None
    """CPU time the rules took of `cpu_us`; None in recordings of before there were rules."""
    outage: str | None = None
    """Why there is no connection: a kind of probes/postgres/connect_errors.py, `lost` or `silent`. None while there
    is one,
    and in recordings of before it was told apart from the words of the server, which are in its own language."""
    refused_by: str | None = None
    """With `no_slots`, whose slots are gone: server, role, database or pooler."""


# Settings that a run changed for a time and that have to be put back: what of them is open now.
#
# Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved or
# removed.


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
