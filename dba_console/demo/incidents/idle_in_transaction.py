"""A transaction left open: somebody changes hot rows by hand, is called away, and everybody waits for the COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.sessions import WAITING, sessions, terminate
from dba_console.demo.incidents.waiting import wait_for
from dba_console.demo.load import DATABASE

if TYPE_CHECKING:
    from dba_console.demo.practice import PracticeGround

APPLICATION = "price-correction"
BEHIND = 5
"""Web sessions that wait when the cause counts as there; every branch row is locked, so the rest follow at once."""


class IdleInTransaction(Incident):
    name: ClassVar[str] = "idle-in-transaction"
    title: ClassVar[str] = f"{APPLICATION} changes every branch and does not commit"
    finding: ClassVar[str] = "idle-in-transaction"

    def cause(self, ground: PracticeGround) -> None:
        ground.clients.psql(
            "begin;", "update pgbench_branches set filler = 'new price list';",
            role="shop_web", application=APPLICATION, dbname=DATABASE,
        )  # fmt: skip
        idle = sessions(f"application_name = '{APPLICATION}' and state = 'idle in transaction'")
        wait_for(ground.cluster, f"{idle} > 0 and {WAITING} >= {BEHIND}")

    def end(self, ground: PracticeGround) -> None:
        terminate(ground.cluster, APPLICATION)
