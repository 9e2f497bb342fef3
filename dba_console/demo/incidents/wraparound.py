"""Incident: transaction ids nearly used up, a few million before PostgreSQL stops accepting writes.

Two billion transactions take too long to rehearse, so `pg_resetwal -x` moves the counter while the server is stopped,
and the pg_xact segment it then needs is created empty. Everything else is PostgreSQL's own: its ages, its warnings, its
autovacuum, which has no effect as long as an inactive slot holds back the catalog horizon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dba_console.core.errors import Unsupported
from dba_console.demo.clients import DATABASE, LoadPlan
from dba_console.demo.incidents.incident import Incident

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Cluster, Settings

WRAP_AGE = 2_147_483_647
STOP_BEFORE_WRAP = 3_000_000
"""varsup.c, SetTransactionIdLimit: from there on no transaction id is assigned (14 and later; 1 million before)."""
LEFT = 4_000_000
"""Transaction ids left before the stop when the console opens."""
SLOT = "old_analytics"
XIDS_PER_SEGMENT = 4 * 8192 * 32
"""clog.c: two bits each, 32 pages of 8 kB in a segment of pg_xact."""


class Wraparound(Incident):
    name: ClassVar[str] = "wraparound"
    title: ClassVar[str] = f"{LEFT // 1_000_000} million transaction ids are left until PostgreSQL stops"
    finding: ClassVar[str] = "xid-wraparound"
    present_at_start: ClassVar[bool] = True
    settings: ClassVar[Settings] = {"wal_level": "logical"}
    # Each transaction causes a warning, to the client and in the log: a slow load keeps their number low.
    plan: ClassVar[LoadPlan] = LoadPlan(rate_per_s=20, forgotten=False)

    def prepare(self, ground: PracticeGround) -> None:
        """Age the cluster. Raises Unsupported if this installation has no pg_resetwal."""
        cluster = ground.cluster
        if not cluster.binaries.has("pg_resetwal"):
            raise Unsupported(
                f"no pg_resetwal in {cluster.binaries.directory}, which the incident {self.name} needs",
                hint="install the server package of PostgreSQL",
            )
        # The slot holds the catalog horizon at its current xid: VACUUM cannot freeze beyond it.
        cluster.psql(f"select pg_create_logical_replication_slot('{SLOT}', 'pgoutput')", dbname=DATABASE)
        oldest = int(cluster.psql("select datfrozenxid from pg_database order by age(datfrozenxid) desc limit 1"))
        cluster.stop()
        set_next_xid(cluster, oldest + WRAP_AGE - STOP_BEFORE_WRAP - LEFT)
        cluster.start()

    def end(self, ground: PracticeGround) -> None:
        """Drop the slot: from now on VACUUM fixes it."""
        if ground.cluster.running:
            ground.cluster.psql(
                f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{SLOT}'"
            )


def set_next_xid(cluster: Cluster, next_xid: int) -> None:
    """Make `next_xid` the next transaction id of a stopped cluster."""
    cluster.run("pg_resetwal", "-D", str(cluster.data_directory), "-x", str(next_xid))
    segment = cluster.data_directory / "pg_xact" / f"{next_xid // XIDS_PER_SEGMENT:04X}"
    segment.write_bytes(bytes(32 * 8192))
    segment.chmod(0o600)
    cluster.account.chown(segment)
