"""The common load of the figures: a real server, idle sessions, and 20 clients that are active at any time.

An active session runs a transaction of 100 ms, 180 per second over 20 clients, so 18 to 20 are in one at any time.
A pgbench without the pause would show one or two active sessions at the same rate, which costs a monitor nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from dba_console.demo.cluster import Cluster

ACTIVE = 20
RATE = 180
_SCRIPT = """\\set aid random(1, 500000)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance, pg_sleep(0.1) FROM pgbench_accounts WHERE aid = :aid;
END;
"""


@dataclass(frozen=True)
class Ground:
    dsn: str
    cluster: Cluster
    idle: int

    def pid_of(self, application: str) -> list[int]:
        """Return the pids of the backends with this application_name."""
        text = self.cluster.psql(f"select pid from pg_stat_activity where application_name = '{application}'")
        return [int(word) for word in text.split()]


@contextmanager
def ground(idle: int = 200, spare: int = 30) -> Iterator[Ground]:
    """Run a server with `idle` idle and 20 active sessions, removed at exit. With 200 idle, max_connections is 250."""
    with Cluster(settings={"max_connections": idle + ACTIVE + spare}, durable=False) as cluster:
        where = ["-h", str(cluster.socket_directory), "-p", str(cluster.port), "-U", "postgres", "postgres"]
        pgbench = str(cluster.binaries.program("pgbench"))
        subprocess.run([pgbench, "-i", "-q", "-s", "5", *where], check=True, capture_output=True)
        script = Path(cluster.base) / "active.sql"
        script.write_text(_SCRIPT)
        sessions = [psycopg.connect(cluster.dsn(), application_name="pool", autocommit=True) for _ in range(idle)]
        for session in sessions:
            session.execute("select 1")
        load = subprocess.Popen(
            [pgbench, "-n", "-c", str(ACTIVE), "-j", "2", "-R", str(RATE), "-M", "prepared", "-T", "100000",
             "-f", str(script), *where],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Ground(cluster.dsn(), cluster, idle)
        finally:
            load.kill()
            load.wait()
            for session in sessions:
                session.close()
