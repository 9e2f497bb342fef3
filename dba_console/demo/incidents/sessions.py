"""What incidents ask of the sessions of a practice server, and how they end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dba_console.demo.cluster import Cluster


def session_count(where: str) -> str:
    """An SQL expression: the number of sessions of which `where` holds.

    >>> session_count("state = 'idle'")
    "(select count(*) from pg_stat_activity where state = 'idle')"
    """
    return f"(select count(*) from pg_stat_activity where {where})"


LOCK_WAITERS = session_count("wait_event_type = 'Lock'")
"""Sessions that wait for a heavyweight lock."""


def terminate_sessions(cluster: Cluster, *applications: str) -> None:
    """End the sessions of these applications, whatever they wait for: a client that is gone ends no wait for a lock."""
    if cluster.running:
        names = ", ".join(f"'{name}'" for name in applications)
        everyone = f"pg_stat_activity where application_name in ({names})"
        cluster.psql(f"select count(pg_terminate_backend(pid)) from {everyone}")
