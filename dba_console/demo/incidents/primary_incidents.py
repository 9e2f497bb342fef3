"""Incidents of db1 or its pooler: a cutover would hang, or finds no primary."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.incidents.cluster_incident import ClusterIncident
from dba_console.demo.incidents.incident import terminate_sessions, wait_for, wait_until
from dba_console.demo.practice_cluster import DATABASE

if TYPE_CHECKING:
    from dba_console.demo.practice_cluster import PracticeCluster

BATCH = "stock-taking"
PREPARED = "invoice-4711"
LONG_S = 60
"""A transaction counts as long after a minute."""


class ArchiveStuck(ClusterIncident):
    name: ClassVar[str] = "archive-stuck"
    title: ClassVar[str] = "the directory WAL is archived to is gone"
    check: ClassVar[str] = "archive"

    def cause(self, ground: PracticeCluster) -> None:
        db1 = ground.first_node
        db1.psql(_SWITCH)
        wait_for(db1, "(select archived_count > 0 from pg_stat_archiver)")
        ground.archive.rename(ground.archive.with_name("archive.taken-away"))
        failed = int(db1.psql("select failed_count from pg_stat_archiver"))
        db1.psql(_SWITCH)
        wait_for(db1, f"(select failed_count > {failed} from pg_stat_archiver)")

    def end(self, ground: PracticeCluster) -> None:
        """Restore the directory; the next segment wakes the archiver, which waits a minute after three failures."""
        ground.archive.with_name("archive.taken-away").rename(ground.archive)
        ground.first_node.psql(_SWITCH)
        wait_for(ground.first_node, "(select last_archived_time > last_failed_time from pg_stat_archiver)")


class LongTransaction(ClusterIncident):
    name: ClassVar[str] = "long-transaction"
    title: ClassVar[str] = f"{BATCH} began a transaction and does not end it"
    check: ClassVar[str] = "work"
    within_s: ClassVar[float] = LONG_S + 5.0

    def cause(self, ground: PracticeCluster) -> None:
        ground.clients.psql("begin;", "select txid_current();", application=BATCH, dbname=DATABASE)
        wait_for(
            ground.first_node, f"exists (select from pg_stat_activity where application_name = '{BATCH}' and {_OPEN})"
        )

    def end(self, ground: PracticeCluster) -> None:
        ground.clients.stop()
        terminate_sessions(ground.first_node, BATCH)


class PreparedTransaction(ClusterIncident):
    name: ClassVar[str] = "prepared-transaction"
    title: ClassVar[str] = f"the transaction {PREPARED} was prepared, and its manager does not finish it"
    check: ClassVar[str] = "prepared"

    def cause(self, ground: PracticeCluster) -> None:
        ground.first_node.psql(f"begin; select txid_current(); prepare transaction '{PREPARED}'", dbname=DATABASE)

    def end(self, ground: PracticeCluster) -> None:
        ground.first_node.psql(f"rollback prepared '{PREPARED}'", dbname=DATABASE)


class SessionPool(ClusterIncident):
    name: ClassVar[str] = "session-pool"
    title: ClassVar[str] = "the pooler was set to session mode"
    check: ClassVar[str] = f"pooler.pgbouncer.{DATABASE}"
    needs_pooler: ClassVar[bool] = True

    def cause(self, ground: PracticeCluster) -> None:
        self._set(ground, "session")

    def end(self, ground: PracticeCluster) -> None:
        self._set(ground, "transaction")

    def _set(self, ground: PracticeCluster, mode: str) -> None:
        assert ground.pooler is not None
        ground.pooler.set_mode(mode)


class PrimaryKilled(ClusterIncident):
    name: ClassVar[str] = "primary-killed"
    title: ClassVar[str] = "db1 is killed, as by the kernel's OOM killer"
    check: ClassVar[str] = "primary"

    def cause(self, ground: PracticeCluster) -> None:
        ground.first_node.kill()

    def end(self, ground: PracticeCluster) -> None:
        """Restart it only if no other node was promoted: two primaries would diverge."""
        if ground.primary() is None:
            ground.first_node.start()
            wait_until(ground.first_node, ground.first_node.is_primary, "db1 as the primary")


_OPEN = "state = 'idle in transaction'"
_SWITCH = "select pg_logical_emit_message(false, 'practice', 'x'), pg_switch_wal()"
