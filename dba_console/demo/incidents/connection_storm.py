"""Incident: an application whose pool has no limit opens sessions until hardly any connection slot is left."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.incident import Incident, session_count, wait_for

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround

ROLE = "shop_jobs"
APPLICATION = "invoice-export"
BURST = 8
PER_S = 40
"""Connections opened per second, BURST at a time: about what one host can do, since each costs the server a fork."""
LEFT = 3
"""Ordinary slots left free: the storm stops before the limit, as a pool does at its own, and stays."""


class ConnectionStorm(Incident):
    name: ClassVar[str] = "connection-storm"
    title: ClassVar[str] = f"{APPLICATION} opens {PER_S} connections a second"
    finding: ClassVar[str] = "connection-storm"
    plan: ClassVar[LoadPlan] = LoadPlan(idle=60, forgotten=False)

    def cause(self, ground: PracticeGround) -> None:
        """Return when nearly every slot is taken."""
        pause = ground.clients.script("storm.sql", "select 1;\n\\sleep 1800 s\n")
        wanted = _free(ground) - LEFT
        pace = threading.Event()
        for opened in range(0, wanted, BURST):
            count = min(BURST, wanted - opened)
            ground.clients.pgbench(
                "-c", str(count), "-f", str(pause), role=ROLE, application=APPLICATION, dbname=DATABASE
            )
            pace.wait(BURST / PER_S)
        opened_now = session_count(f"application_name = '{APPLICATION}'")
        wait_for(ground.cluster, f"{opened_now} >= {wanted}")


def _free(ground: PracticeGround) -> int:
    """Return the slots an ordinary role can still take; each reserve counted as by PostgreSQL (proc.c, InitProcess)."""
    reserved = "coalesce(current_setting('reserved_connections', true)::int, 0)"
    return int(
        ground.cluster.psql(
            "select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
            f" - {reserved} - count(*) from pg_stat_activity"
            " where backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
    )
