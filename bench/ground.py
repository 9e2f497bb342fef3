"""The common loads of the figures: a real server, idle sessions, and 20 clients.

busy: a transaction lasts 100 ms, 180 per second over 20 clients, so 18 to 20 are in one at any time.
calm: 100 transactions per second of 1 ms or less, so that hardly any session is active when a monitor reads.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg

from dba_console.demo.temporary_server import Cluster

CLIENTS = 20
Load = Literal["busy", "calm"]
_RATE: dict[Load, int] = {"busy": 180, "calm": 100}
_READ: dict[Load, str] = {"busy": "abalance, pg_sleep(0.1)", "calm": "abalance"}
_SCRIPT = """\\set aid random(1, 500000)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT {read} FROM pgbench_accounts WHERE aid = :aid;
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
def ground(idle: int = 200, spare: int = 30, load: Load = "busy") -> Iterator[Ground]:
    """Run a server with `idle` idle sessions and 20 clients, removed at exit. With 200 idle, max_connections is 250."""
    with Cluster(settings={"max_connections": idle + CLIENTS + spare}, durable=False) as cluster:
        where = ["-h", str(cluster.socket_directory), "-p", str(cluster.port), "-U", "postgres", "postgres"]
        pgbench = str(cluster.binaries.program("pgbench"))
        subprocess.run([pgbench, "-i", "-q", "-s", "5", *where], check=True, capture_output=True)
        script = Path(cluster.base) / "transaction.sql"
        script.write_text(_SCRIPT.format(read=_READ[load]))
        sessions = [psycopg.connect(cluster.dsn(), application_name="pool", autocommit=True) for _ in range(idle)]
        for session in sessions:
            session.execute("select 1")
        clients = subprocess.Popen(
            [pgbench, "-n", "-c", str(CLIENTS), "-j", "2", "-R", str(_RATE[load]), "-M", "prepared", "-T", "100000",
             "-f", str(script), *where],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Ground(cluster.dsn(), cluster, idle)
        finally:
            clients.kill()
            clients.wait()
            for session in sessions:
                session.close()
