"""Incidents of the practice cluster: each is a real condition that must block a cutover."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from dba_console.core.errors import ConnectError

if TYPE_CHECKING:
    from dba_console.demo.practice_cluster import Node, PracticeCluster

POLL_S = 0.1
MAX_WAIT_S = 30.0


class ClusterIncident:
    """One incident, for one run of the demo. At its start the primary is db1 and the target of the cutover db2."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One clause for a list and for the message that it begins."""
    check: ClassVar[str]
    """The check of `cluster check` that it fails."""
    needs_pooler: ClassVar[bool] = False
    within_s: ClassVar[float] = 5.0
    """The check fails at most this many seconds after `cause` returned."""

    def cause(self, ground: PracticeCluster) -> None:
        """Cause the incident; returns when the cause is present. Called from the main thread."""
        raise NotImplementedError

    def end(self, ground: PracticeCluster) -> None:
        """Undo it as far as it was caused."""
        raise NotImplementedError


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Return when `holds` is true. Raises ConnectError after MAX_WAIT_S."""
    pace = threading.Event()
    until = time.monotonic() + MAX_WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise ConnectError(f"{what} did not happen within {MAX_WAIT_S:g} s")
        pace.wait(POLL_S)


def wait_for(node: Node, condition: str) -> None:
    """Return when the SQL expression is true on a node. Raises ConnectError on timeout."""
    wait_until(lambda: node.psql(f"select ({condition})") == "t", f"{condition} on {node.name}")
