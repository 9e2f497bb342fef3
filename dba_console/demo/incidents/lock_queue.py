"""A lock queue: a dump reads every table, a migration waits for it, and everybody waits behind the migration.

The dump alone harms nobody, for ACCESS SHARE goes together with reads and writes. ALTER TABLE wants ACCESS EXCLUSIVE,
and whoever comes later queues behind that wish, although the dump would let him through (PostgreSQL documentation,
"Explicit Locking"; lmgr/README on the order of wait queues).
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.incident import LOCK_WAITERS, Incident, session_count, terminate_sessions, wait_for

if TYPE_CHECKING:
    from dba_console.demo.practice_ground import PracticeGround

MIGRATION = "migration"
TABLE = "pgbench_accounts"
BEHIND = 5
"""Web sessions behind the migration when the cause counts as there; all of them follow within a second."""


class LockQueue(Incident):
    name: ClassVar[str] = "lock-queue"
    title: ClassVar[str] = f"an ALTER TABLE {TABLE} waits behind a dump, and the web application behind it"
    finding: ClassVar[str] = "lock-queue"

    def cause(self, ground: PracticeGround) -> None:
        # Nobody reads the dump's output, as when its disk or its network stands still: it stays.
        ground.clients.start("pg_dump", "-d", ground.dsn, output=subprocess.PIPE)
        wait_for(ground.cluster, f"{_DUMPING} > 0")
        alter = f"alter table {TABLE} add column note text;"
        ground.clients.psql(alter, application=MIGRATION, dbname=DATABASE)
        wait_for(ground.cluster, f"{LOCK_WAITERS} > {BEHIND}")

    def end(self, ground: PracticeGround) -> None:
        terminate_sessions(ground.cluster, MIGRATION, "pg_dump")


_DUMPING = session_count("application_name = 'pg_dump' and query like 'COPY %' and wait_event = 'ClientWrite'")
