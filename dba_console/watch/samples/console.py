"""Readings of the console itself: its cost and health, and temporary settings of runs not reverted yet."""

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
    """How far the recording is behind the live samples."""
    recorded: int
    dropped: int
    """Samples that could not be recorded."""
    stuck_lanes: int
    lanes: list[str]
    """Names of lanes that are stuck now."""
    consoles: int
    late_us: int
    """How late this tick started, microseconds."""
    backend_cpu_us: int | None = None
    """CPU of the server process behind the pinned connection; None if the host is not readable."""
    recording: str = "ok"
    """ok, lagging, failed, off."""
    recording_note: str | None = None
    readers_dropped: int = 0
    judged_us: int | None = None
    """CPU time of the rules within `cpu_us`; None in recordings older than the rules."""
    outage: str | None = None
    """Why there is no connection: a kind of probes/postgres/connect_errors.py, `lost` or `silent`. None while
    connected, and in recordings from before the kind was recorded."""
    refused_by: str | None = None
    """With `no_slots`, whose slots are used up: server, role, database or pooler."""
    slot_refusals: int | None = None
    """Attempts of the agent to connect that were refused for lack of a slot (SQLSTATE 53300); None in recordings from
    before they were counted."""


# Temporary settings of runs, until they are reverted.
#
# Structs are stored by position (`array_like`): a field may be added at the end with a default, never moved or removed.


class PendingRevertNow(Struct, array_like=True, frozen=True, gc=False):
    """One setting that is not reverted. None: not known."""

    id: str
    parameter: str
    place: str
    """Where it is set, as text: `in postgresql.auto.conf`, `for database app`."""
    old: str | None
    """The value before; None if it was not set."""
    new: str | None
    """The value the run set; None if it removed it."""
    run: str
    runbook: str
    who: str
    at_us: int
    """Host wall time just before it was set."""
    run_is_active: bool
    """The run is active and will revert it."""
    state: str
    """changed, unread (reverted in the file, not reloaded), pending (reverted, effective after the next restart), back,
    altered (changed to another value since), gone (its database or role no longer exists), unknown."""
    found: str | None
    """The current value, if the state is known."""
    risky: bool
    """fsync or full_page_writes is off because of it: a crash of the host destroys the cluster."""
    trust: str = ""
    """If risky: sound, untrusted (the server restarted without a clean shutdown), unknown."""


class PendingRevertsNow(Struct, array_like=True, frozen=True):
    """All temporary settings of runs on this server (part `reverts`), oldest first."""

    now_us: int
    """Host wall time of the reading."""
    reverts: tuple[PendingRevertNow, ...]
