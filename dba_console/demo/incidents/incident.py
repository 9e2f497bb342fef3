"""What an incident of the practice ground is: how it comes about, what should be seen, how it is undone.

Each is the real thing: no number is made up, no message faked. What it does stays on the practice server and on what it
made itself, and `end` and `own_data_directory` give it all back, whichever way the demo is left.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.core.errors import ConnectError, PermissionDenied
from dba_console.demo.clients import LoadPlan

if TYPE_CHECKING:
    from dba_console.demo.cluster import Cluster, Settings
    from dba_console.demo.practice_ground import PracticeGround


class Incident:
    """One incident, of one run of the demo: an instance may keep what it has to undo.

    In order: `own_data_directory` is entered, the server is made there and started with `settings`, `prepare`, the
    load of `plan` starts, the console opens, some calm, `cause`; at the end `end`, the load and the server stop,
    `own_data_directory` is left.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """One clause for a list and for the line that says it begins."""
    finding: ClassVar[str]
    """The rule that has to see it."""
    within_s: ClassVar[float] = 5.0
    """The finding is raised at most this many seconds after `cause` returned; 10 where only a trend tells."""
    present_at_start: ClassVar[bool] = False
    """It is there before the console opens, and is counted from the first sample: what is found, not what happens."""
    needs_root: ClassVar[bool] = False
    """It can be had by root only."""
    settings: ClassVar[Settings] = {}
    """What the server starts with, beside the practice ground's own."""
    plan: ClassVar[LoadPlan] = LoadPlan(forgotten=False)
    """The load that goes on meanwhile; nothing in it is amiss."""

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        """The data directory where it has to lie in a place of its own; entered first, left last, server stopped."""
        yield None

    def recording(self) -> Path | None:
        """A recorded session to replay for those who are not root; None: there is none, and they are told so."""
        return None

    def prepare(self, ground: PracticeGround) -> None:
        """What has to be there before the load starts: roles, tables. The server runs, and may be restarted."""

    def cause(self, ground: PracticeGround) -> None:
        """Make it happen; returns when the cause is there, and leaves it there. Called from the main thread.

        Every incident that is not `present_at_start` has one.
        """
        raise NotImplementedError

    def end(self, ground: PracticeGround) -> None:
        """Undo it, as far as it came; the server may be up or not. Called once, also when `cause` was not."""


def substitute_recording(incident: Incident) -> Path | None:
    """The recording to show where the incident needs root and this is not; None where it can be had.

    Raises PermissionDenied where it can neither be had nor shown.
    """
    if not incident.needs_root or os.geteuid() == 0:
        return None
    recording = incident.recording()
    if recording is None:
        raise PermissionDenied(
            f"the incident {incident.name} needs root: {incident.title}",
            hint="run it with sudo; dba-console demo --list tells which incidents need no root",
        )
    return recording


# What incidents ask of the sessions of a practice server, and how they end them.


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


# Waiting until the server says that something is so: an incident's cause is there when it is, not after a time.

POLL_S = 0.1


def wait_for(cluster: Cluster, condition: str, *, patience_s: float = 20.0) -> None:
    """Return when the SQL expression is true. Raises ConnectError when it is not in time."""
    pace = threading.Event()
    asked = 0.0
    while cluster.psql(f"select ({condition})") != "t":
        if asked > patience_s:
            raise ConnectError(f"the server did not get there in {patience_s:g} s", hint=f"see {cluster.log_path}")
        pace.wait(POLL_S)
        asked += POLL_S
