"""Incident: a dump reads every table, an ALTER TABLE waits for it, and the web application waits for the ALTER TABLE.

The dump alone blocks no one, since ACCESS SHARE does not conflict with reads and writes. ALTER TABLE requests ACCESS
EXCLUSIVE, and later requests queue behind it, although they do not conflict with the dump (PostgreSQL documentation,
"Explicit Locking"; lmgr/README on the order of wait queues).
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.incident import LOCK_WAITERS, Incident, session_count, terminate_sessions, wait_for

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround

MIGRATION = "migration"
TABLE = "pgbench_accounts"
BEHIND = 5
"""Web sessions waiting at which the cause counts as present; all of them follow within a second."""


class LockQueue(Incident):
    name: ClassVar[str] = "lock-queue"
    title: ClassVar[str] = f"an ALTER TABLE {TABLE} waits for a dump, and the web application for it"
    finding: ClassVar[str] = "lock-queue"

    def cause(self, ground: PracticeGround) -> None:
        # The dump's output is not read, as when its disk or network hangs: the dump stays.
        ground.clients.start("pg_dump", "-d", ground.dsn, output=subprocess.PIPE)
        wait_for(ground.cluster, f"{_DUMPING} > 0")
        alter = f"alter table {TABLE} add column note text;"
        ground.clients.psql(alter, application=MIGRATION, dbname=DATABASE)
        wait_for(ground.cluster, f"{LOCK_WAITERS} > {BEHIND}")

    def end(self, ground: PracticeGround) -> None:
        terminate_sessions(ground.cluster, MIGRATION, "pg_dump")


_DUMPING = session_count("application_name = 'pg_dump' and query like 'COPY %' and wait_event = 'ClientWrite'")
