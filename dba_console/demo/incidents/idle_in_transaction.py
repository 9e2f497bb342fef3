"""Incident: a session updates hot rows, stays idle in transaction, and the web application waits for its COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.incident import LOCK_WAITERS, Incident, session_count, terminate_sessions, wait_for

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround

APPLICATION = "price-correction"
BEHIND = 5
"""Waiting web sessions at which the cause counts as present; every branch row is locked, so the rest follow at once."""


class IdleInTransaction(Incident):
    name: ClassVar[str] = "idle-in-transaction"
    title: ClassVar[str] = f"{APPLICATION} changes every branch and does not commit"
    finding: ClassVar[str] = "idle-in-transaction"

    def cause(self, ground: PracticeGround) -> None:
        ground.clients.psql(
            "begin;", "update pgbench_branches set filler = 'new price list';",
            role="shop_web", application=APPLICATION, dbname=DATABASE,
        )  # fmt: skip
        idle = session_count(f"application_name = '{APPLICATION}' and state = 'idle in transaction'")
        wait_for(ground.cluster, f"{idle} > 0 and {LOCK_WAITERS} >= {BEHIND}")

    def end(self, ground: PracticeGround) -> None:
        terminate_sessions(ground.cluster, APPLICATION)
