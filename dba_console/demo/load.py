"""A load to look at: an application at a steady rate, pools of idle sessions, one transaction somebody forgot.

All of it is pgbench and psql: real clients over the real protocol, held by four processes, so that watching them costs
the host next to nothing beside what the server does.
"""

from __future__ import annotations

from dataclasses import dataclass

from dba_console.demo.clients import Clients
from dba_console.demo.cluster import Cluster

DATABASE = "shop"
ROLES = ("shop_web", "shop_jobs", "reporting")
_FORGOTTEN = ("begin;", "insert into pgbench_history (tid, bid, aid, delta, mtime) values (1, 1, 1, 0, now());")
# pgbench holds a pause in microseconds in 32 bits: 30 minutes fit, an hour does not.
_PAUSE = "select 1;\n\\sleep 1800 s\n"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is wanted: `clients` at `rate_per_s` TPC-B-like transactions together, `idle` sessions, one forgotten.

    `scale` is pgbench's: 100,000 accounts, about 15 MB, each.
    """

    clients: int = 20
    rate_per_s: int = 150
    idle: int = 180
    forgotten: bool = True
    scale: int = 5

    @property
    def sessions(self) -> int:
        """Connections this takes in all."""
        return self.clients + self.idle + int(self.forgotten)


class Load:
    """Runs a plan against a cluster. `with Load(cluster, plan):` starts it once, and ends every client at the end."""

    def __init__(self, cluster: Cluster, plan: LoadPlan | None = None) -> None:
        self.cluster = cluster
        self.plan = plan or LoadPlan()
        self._clients = Clients(cluster, "load.log")

    def __enter__(self) -> Load:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Make the database, its roles and its tables, unless they are there. Raises ConsoleError when that fails."""
        if self.cluster.psql(f"select 1 from pg_database where datname = '{DATABASE}'"):
            return
        for role in ROLES:
            self.cluster.psql(f"create role {role} login; grant pg_read_all_data, pg_write_all_data to {role}")
        self.cluster.psql(f"create database {DATABASE}")
        initialize = ["-i", "-q", "-s", str(self.plan.scale), self.cluster.dsn(dbname=DATABASE)]
        self.cluster.run("pgbench", *initialize)

    def start(self) -> None:
        """Start every client. They connect on their own time: `wait_connected` waits for that."""
        plan = self.plan
        if plan.clients:
            pace = ["-c", str(plan.clients), "-R", str(plan.rate_per_s), "-M", "prepared"]
            self._pgbench(pace, role="shop_web", application="shop-web")
        pause = self._clients.script("pause.sql", _PAUSE)
        for share, role, application in _idle_pools(plan.idle):
            self._pgbench(["-c", str(share), "-f", str(pause)], role=role, application=application)
        if plan.forgotten:
            self._clients.psql(*_FORGOTTEN, role="reporting", application="monthly-report", dbname=DATABASE)

    def stop(self) -> None:
        """End every client."""
        self._clients.stop()

    def connected(self) -> int:
        """Sessions of the load the server has now."""
        roles = ", ".join(f"'{role}'" for role in ROLES)
        return int(self.cluster.psql(f"select count(*) from pg_stat_activity where usename in ({roles})"))

    def check(self) -> None:
        """Raises ConnectError when a client ended, with its last words."""
        self._clients.check()

    def _pgbench(self, arguments: list[str], *, role: str, application: str) -> None:
        self._clients.pgbench(*arguments, role=role, application=application, dbname=DATABASE)


def _idle_pools(idle: int) -> list[tuple[int, str, str]]:
    """Idle sessions by pool: two thirds of the web application, the rest of background jobs.

    >>> _idle_pools(180)
    [(120, 'shop_web', 'shop-web-pool'), (60, 'shop_jobs', 'shop-jobs')]
    >>> _idle_pools(0)
    []
    """
    web = idle * 2 // 3
    pools = [(web, "shop_web", "shop-web-pool"), (idle - web, "shop_jobs", "shop-jobs")]
    return [pool for pool in pools if pool[0] > 0]
