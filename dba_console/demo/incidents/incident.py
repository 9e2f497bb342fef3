"""Base class of an incident of the demo: how it is caused, which finding should detect it, how it is undone.

Each is real: no number is invented, no message faked. Its effects are limited to the practice server and to what it
created itself; `end` and `own_data_directory` undo them, however the demo ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.core.errors import ConnectError, PermissionDenied
from dba_console.demo.clients import LoadPlan

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Cluster, Settings


class Incident:
    """One incident, for one run of the demo: an instance may store what it has to undo.

    Order: `own_data_directory` is entered, the server is created there and started with `settings`, `prepare`, the load
    of `plan` starts, the console opens, some normal ticks, `cause`; at the end `end`, the load and the server stop,
    `own_data_directory` is left.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """One clause for a list and for the message that it begins."""
    finding: ClassVar[str]
    """The rule that must detect it."""
    within_s: ClassVar[float] = 5.0
    """The finding is raised at most this many seconds after `cause` returned; 10 if it depends on a trend."""
    present_at_start: ClassVar[bool] = False
    """It exists before the console opens, and its time counts from the first sample."""
    needs_root: ClassVar[bool] = False
    """Only root can cause it."""
    settings: ClassVar[Settings] = {}
    """Server settings in addition to the practice ground's."""
    plan: ClassVar[LoadPlan] = LoadPlan(forgotten=False)
    """The load during the incident; it has no problem of its own."""

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        """Yield a data directory outside the cluster's own, if needed; entered first, left last (server stopped)."""
        yield None

    def recording(self) -> Path | None:
        """Return a recorded session to replay without root; None: there is none, and the demo says so."""
        return None

    def prepare(self, ground: PracticeGround) -> None:
        """Create what must exist before the load starts: roles, tables. The server runs, and may be restarted."""

    def cause(self, ground: PracticeGround) -> None:
        """Cause the incident; returns when the cause is present. Called from the main thread.

        Required unless the incident is `present_at_start`.
        """
        raise NotImplementedError

    def end(self, ground: PracticeGround) -> None:
        """Undo it as far as it was caused; the server may be down. Called once, also if `cause` was not."""


def substitute_recording(incident: Incident) -> Path | None:
    """Return the recording to show if the incident needs root and we are not root; None if it can be caused.

    Raises PermissionDenied if it can be neither caused nor shown.
    """
    if not incident.needs_root or os.geteuid() == 0:
        return None
    recording = incident.recording()
    if recording is None:
        raise PermissionDenied(
            f"the incident {incident.name} needs root: {incident.title}",
            hint="run it with sudo; dba-console demo --list shows which incidents need no root",
        )
    return recording


# Sessions of a practice server: SQL to count them, and their termination.


def session_count(where: str) -> str:
    """Return an SQL expression: the number of sessions that satisfy `where`.

    >>> session_count("state = 'idle'")
    "(select count(*) from pg_stat_activity where state = 'idle')"
    """
    return f"(select count(*) from pg_stat_activity where {where})"


LOCK_WAITERS = session_count("wait_event_type = 'Lock'")
"""Number of sessions waiting for a heavyweight lock."""


def terminate_sessions(cluster: Cluster, *applications: str) -> None:
    """Terminate the sessions of these applications: one that waits for a lock does not notice a closed client."""
    if cluster.running:
        names = ", ".join(f"'{name}'" for name in applications)
        sessions = f"pg_stat_activity where application_name in ({names})"
        cluster.psql(f"select count(pg_terminate_backend(pid)) from {sessions}")


# Waits for a condition on the server: the cause of an incident is present when it is true, not after a fixed time.

POLL_S = 0.1
MAX_WAIT_S = 30.0


def wait_for(cluster: Cluster, condition: str) -> None:
    """Return when the SQL expression is true. Raises ConnectError after MAX_WAIT_S."""
    wait_until(cluster, lambda: cluster.psql(f"select ({condition})") == "t", condition)


def wait_until(cluster: Cluster, holds: Callable[[], bool], what: str) -> None:
    """Return when `holds` is true of the server. Raises ConnectError after MAX_WAIT_S."""
    pace = threading.Event()
    until = time.monotonic() + MAX_WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise ConnectError(f"not reached within {MAX_WAIT_S:g} s: {what}", hint=f"see {cluster.log_path}")
        pace.wait(POLL_S)
