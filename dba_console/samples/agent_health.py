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
