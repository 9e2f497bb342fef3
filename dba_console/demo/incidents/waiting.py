"""Waiting until the server says that something is so: an incident's cause is there when it is, not after a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from dba_console.errors import ConnectError

if TYPE_CHECKING:
    from dba_console.demo.cluster import Cluster

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
