"""The recorded incident: growing sessions, a schema change that waits behind a dump, backups, page cache lost.

Everything is done by PostgreSQL's own programs and by real reads and writes, at seconds of the recording.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.practice_server import PracticeGround
from dba_console.demo.server_account import clean_environment
from dba_console.demo.temporary_server import make_standby

Say = Callable[[str], None]
# Leaves a hundred sessions for those opened during the incident.
PLAN = LoadPlan(clients=20, rate_per_s=120, idle=110, scale=10)
COPY_MB = 1500
"""Size of the file that is copied, evicted from the page cache and read again."""
LINK_BYTES = 1_500_000
"""Bytes per second of the dump's link, so that the dump lasts into the incident on a fast machine too."""
BURST, BURSTS, BURST_EVERY_S = 9, 10, 6
"""New sessions of the web servers: number per burst, bursts, seconds between them."""
_ORDERS = """
create table orders as
  select n as id, n % 90000 as customer_id, now() - n * interval '7 seconds' as placed_at,
         md5(n::text) || md5((n * 7)::text) as reference, (n * 37 % 100000) / 100.0 as amount
  from generate_series(1, 1200000) n;
alter table orders add primary key (id);
create role dba_console login;
grant pg_monitor to dba_console;
"""
# A slow expression, so that the build still runs when the screenshots are taken.
_INDEX = (
    "set max_parallel_maintenance_workers = 0",
    "create index orders_search_idx on orders (regexp_replace(reference, '([a-f]+)([0-9]+)', '\\2-\\1', 'g'))",
)
# Throttled, as an operator does during the day.
_VACUUM = ("set vacuum_cost_delay = '40ms'", "set vacuum_cost_limit = 40", "vacuum pgbench_accounts")
_RELEASE = ("alter table pgbench_history add column note text",)


class Witness(Protocol):
    """The recorder, as an incident uses it."""

    def mark(self, text: str) -> None:
        """Set a mark in the recording."""

    def remember(self, moment: str) -> None:
        """Store the current time under a name, for screenshots."""


class Incident:
    """`with Incident(say) as incident:` sets the server up, `happen` runs the incident; all is removed at exit."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._ground = PracticeGround(PLAN, say=say)
        self._cluster = self._ground.cluster
        self._around = ExitStack()
        self._copy = self._cluster.base / "nightly-copy"
        archive = self._cluster.base / "archive"
        self._cluster.settings.update(
            archive_mode="on", archive_command=f"cp %p {archive}/%f", wal_keep_size="64MB", max_wal_size="512MB"
        )
        archive.mkdir()
        self._cluster.account.chown(archive)

    @property
    def dsn(self) -> str:
        """Connection string of the console's own role, which has only pg_monitor."""
        return self._cluster.dsn(user="dba_console", dbname=DATABASE)

    def __enter__(self) -> Self:
        with ExitStack() as around:
            around.enter_context(self._ground)
            self._cluster.psql(_ORDERS, dbname=DATABASE)
            self._say("creating a standby")
            standby = make_standby(self._cluster, slot="standby_1", settings={"cluster_name": "standby_1"})
            around.callback(standby.close)
            standby.start()
            self._around = around.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._around.close()

    def happen(self, witness: Witness) -> None:
        """Run the incident for two minutes; report marks and times to `witness`."""
        self._say("recording an incident")
        begun = time.monotonic()
        for second, act in self._acts(witness):
            time.sleep(max(0.0, begun + second - time.monotonic()))
            act()

    def _acts(self, witness: Witness) -> list[tuple[int, Callable[[], object]]]:
        acts: list[tuple[int, Callable[[], object]]] = [
            (20, lambda: self._program("dd", "if=/dev/zero", f"of={self._copy}", "bs=1M", f"count={COPY_MB}")),
            (30, lambda: witness.mark("release 4.2")),
            *((34 + n * BURST_EVERY_S, self._more_sessions) for n in range(BURSTS)),
            (44, self._dump),
            (70, lambda: self._sql(_VACUUM, "maintenance")),
            (84, lambda: self._sql(_RELEASE, "release-4.2")),
            (86, self._base_backup),
            (92, self._evict_pages),
            (94, lambda: self._sql(_INDEX, "maintenance")),
            (96, lambda: witness.mark("pages are slow")),
            (105, lambda: witness.remember("peak")),
            (112, lambda: self._cluster.psql(_cancel("release-4.2"))),
            (114, lambda: witness.mark("release cancelled")),
            (116, lambda: self._program("dd", f"if={self._copy}", f"of={os.devnull}", "bs=1M")),
            (124, lambda: witness.remember("after")),
            (125, self._ground.load.check),
        ]
        return sorted(acts, key=lambda act: act[0])

    def _dump(self) -> None:
        """Dump over a slow link: its output is read at LINK_BYTES per second."""
        taken = f'while [ "$(head -c {LINK_BYTES} | wc -c)" -gt 0 ]; do sleep 1; done'
        program = str(self._cluster.binaries.program("pg_dump"))
        dsn = self._cluster.dsn(dbname=DATABASE, application_name="pg_dump")
        self._program("sh", "-c", f'"$0" -Fc -Z 0 -d "$1" | {{ {taken}; }}', program, dsn)

    def _base_backup(self) -> None:
        to = str(self._cluster.base / "base-backup")
        self._postgres("pg_basebackup", "-Ft", "-D", to, "-c", "fast", "--max-rate=12M", application="pg_basebackup")

    def _more_sessions(self) -> None:
        pause = str(self._cluster.base / "pause.sql")  # the script of the load's idle sessions
        arguments = ["-n", "-c", str(BURST), "-f", pause, "-T", "1000000"]
        self._postgres("pgbench", *arguments, application="shop-web-retry", user="shop_web")

    def _evict_pages(self) -> None:
        """Evict only the copied file from the page cache: cached falls, free rises."""
        descriptor = os.open(self._copy, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # dirty pages are not dropped
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def _sql(self, statements: Sequence[str], application: str) -> None:
        # One -c each: together they would be one transaction, in which VACUUM cannot run.
        commands = [word for statement in statements for word in ("-c", statement)]
        self._postgres("psql", "-Xq", *commands, application=application)

    def _postgres(self, name: str, *arguments: str, application: str, user: str = "postgres") -> None:
        dsn = self._cluster.dsn(user=user, dbname=DATABASE, application_name=application)
        last = [dsn] if name == "pgbench" else ["-d", dsn]
        self._program(str(self._cluster.binaries.program(name)), *arguments, *last)

    def _program(self, *command: str) -> None:
        """Start a program as the server's user; it is ended with the incident."""
        base = self._cluster.base
        with (base / "incident.log").open("ab") as log:
            environment = clean_environment(str(base))
            process = start_child(command, output=log, environment=environment, spawn=self._cluster.account.spawn)
        self._around.callback(end_child, process)


def _cancel(application: str) -> str:
    return f"select pg_cancel_backend(pid) from pg_stat_activity where application_name = '{application}'"
