"""What an incident of the practice cluster is: a condition that a cutover must not meet, caused for real."""

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
    """One incident, of one run of the demo. The primary is db1 and the target of the cutover db2 when it begins."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One clause for a list and for the line that says it begins."""
    check: ClassVar[str]
    """The condition of `cluster check` that it fails."""
    needs_pooler: ClassVar[bool] = False
    within_s: ClassVar[float] = 5.0
    """The check fails at most this many seconds after `cause` returned."""

    def cause(self, ground: PracticeCluster) -> None:
        """Make it happen; returns when the cause is there, and leaves it there. Called from the main thread."""
        raise NotImplementedError

    def end(self, ground: PracticeCluster) -> None:
        """Undo it, as far as it came."""
        raise NotImplementedError


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Return when it holds. Raises ConnectError when it does not within PATIENCE_S."""
    pace = threading.Event()
    until = time.monotonic() + MAX_WAIT_S
    while not holds():
        if time.monotonic() > until:
            raise ConnectError(f"{what} was not seen within {MAX_WAIT_S:g} s")
        pace.wait(POLL_S)


def wait_for(node: Node, condition: str) -> None:
    """Return when the SQL expression is true on a node. Raises ConnectError when it is not in time."""
    wait_until(lambda: node.psql(f"select ({condition})") == "t", f"{condition} on {node.name}")
