"""Incident: archiving fails: the archive directory is gone, like a backup share that was not mounted again.

Command and server are unchanged; WAL continues, and every finished segment stays in pg_wal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.incident import Incident, wait_for

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Cluster, Settings

SWITCH_EVERY_S = 2
"""A segment is finished this often, so that the backlog grows visibly."""
_FAILED = "select failed_count from pg_stat_archiver"


class ArchiveFailing(Incident):
    name: ClassVar[str] = "archive-failing"
    title: ClassVar[str] = "the directory WAL is archived to is gone"
    finding: ClassVar[str] = "archive-failing"
    settings: ClassVar[Settings] = {"archive_mode": "on", "archive_command": ""}

    def prepare(self, ground: PracticeGround) -> None:
        """Create a working archive with one segment in it."""
        directory = archive_directory(ground.cluster)
        directory.mkdir(mode=0o700)
        ground.cluster.account.chown(directory)
        ground.cluster.reload({"archive_command": f"cp %p {directory}/%f"})
        _switch(ground.cluster)
        wait_for(ground.cluster, "(select archived_count > 0 from pg_stat_archiver)")

    def cause(self, ground: PracticeGround) -> None:
        """Return when the server has failed to archive a segment; more accumulate from then on."""
        failed = int(ground.cluster.psql(_FAILED))
        archive_directory(ground.cluster).rename(moved_archive(ground.cluster))
        _switch(ground.cluster)
        script = ground.clients.script("switch.sql", f"select pg_switch_wal();\n\\sleep {SWITCH_EVERY_S} s\n")
        ground.clients.pgbench(
            "-c", "1", "-f", str(script), role="postgres", application="nightly-batch", dbname=DATABASE
        )
        wait_for(ground.cluster, f"({_FAILED}) > {failed}")

    def end(self, ground: PracticeGround) -> None:
        """Restore the directory: the server archives the backlog, within a minute at the latest."""
        away = moved_archive(ground.cluster)
        if away.exists():
            away.rename(archive_directory(ground.cluster))


def archive_directory(cluster: Cluster) -> Path:
    return cluster.base / "archive"


def moved_archive(cluster: Cluster) -> Path:
    return cluster.base / "archive.taken-away"


def _switch(cluster: Cluster) -> None:
    """Finish the current segment. An empty one cannot be finished, so a record is written first."""
    cluster.psql("select pg_logical_emit_message(false, 'practice', 'x')")
    cluster.psql("select pg_switch_wal()")
