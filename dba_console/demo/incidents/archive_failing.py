"""Archiving fails: the directory the archive command copies to is gone, as a backup share that was not mounted again.

The command and the server are what they were; WAL goes on, and every finished segment stays behind in pg_wal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dba_console.demo.clients import DATABASE
from dba_console.demo.incidents.incident import Incident, wait_for

if TYPE_CHECKING:
    from dba_console.demo.cluster import Cluster, Settings
    from dba_console.demo.practice_ground import PracticeGround

SWITCH_EVERY_S = 2
"""A segment is finished this often, so that the backlog grows while one watches."""
_FAILED = "select failed_count from pg_stat_archiver"


class ArchiveFailing(Incident):
    name: ClassVar[str] = "archive-failing"
    title: ClassVar[str] = "the directory WAL is archived to is gone"
    finding: ClassVar[str] = "archive-failing"
    settings: ClassVar[Settings] = {"archive_mode": "on", "archive_command": ""}

    def prepare(self, ground: PracticeGround) -> None:
        """An archive that works, with a segment in it."""
        directory = archive_directory(ground.cluster)
        directory.mkdir(mode=0o700)
        ground.cluster.account.chown(directory)
        ground.cluster.reload({"archive_command": f"cp %p {directory}/%f"})
        _switch(ground.cluster)
        wait_for(ground.cluster, "(select archived_count > 0 from pg_stat_archiver)")

    def cause(self, ground: PracticeGround) -> None:
        """Returns when the server has failed to archive a segment; more of them pile up from then on."""
        failed = int(ground.cluster.psql(_FAILED))
        archive_directory(ground.cluster).rename(moved_archive(ground.cluster))
        _switch(ground.cluster)
        script = ground.clients.script("switch.sql", f"select pg_switch_wal();\n\\sleep {SWITCH_EVERY_S} s\n")
        ground.clients.pgbench(
            "-c", "1", "-f", str(script), role="postgres", application="nightly-batch", dbname=DATABASE
        )
        wait_for(ground.cluster, f"({_FAILED}) > {failed}")

    def end(self, ground: PracticeGround) -> None:
        """The directory is back: the server archives what waited, at the latest a minute later."""
        away = moved_archive(ground.cluster)
        if away.exists():
            away.rename(archive_directory(ground.cluster))


def archive_directory(cluster: Cluster) -> Path:
    return cluster.base / "archive"


def moved_archive(cluster: Cluster) -> Path:
    return cluster.base / "archive.taken-away"


def _switch(cluster: Cluster) -> None:
    """Finish the segment in use. Without a record in it there is nothing to finish, so one is written."""
    cluster.psql("select pg_logical_emit_message(false, 'practice', 'x')")
    cluster.psql("select pg_switch_wal()")
