"""What incidents ask and tell the sessions of a practice server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dba_console.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dba_console.demo.practice import PracticeGround

PATIENCE_S = 20.0


def count(ground: PracticeGround, where: str) -> int:
    """Sessions of pg_stat_activity of which `where` holds."""
    return int(ground.cluster.psql(f"select count(*) from pg_stat_activity where {where}"))


def waiting_for_locks(ground: PracticeGround) -> int:
    """Sessions that wait for a heavyweight lock."""
    return count(ground, "wait_event_type = 'Lock'")


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return when `condition` holds. Raises ConnectError naming `what` when it takes too long."""
    pause = threading.Event()
    asked_s = 0.0
    while not condition():
        if asked_s >= timeout_s:
            raise ConnectError(f"the incident did not come about: no {what} within {timeout_s:g} s")
        pause.wait(0.1)
        asked_s += 0.1


def terminate(ground: PracticeGround, *applications: str) -> None:
    """End the sessions of these applications, whatever they wait for: a client that is gone ends no wait for a lock."""
    if not ground.cluster.running:
        return
    names = ", ".join(f"'{name}'" for name in applications)
    ground.cluster.psql(
        f"select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name in ({names})"
    )
