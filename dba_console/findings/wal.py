"""Rules about WAL: its way into the archive and to the standbys, and where it lies."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings import replication, replication_slots, wal_archiving
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.findings.wal_space import wal_mount
from dba_console.frames.mount_warnings import MEMORY
from dba_console.sanitize import clean


def wal_on_tmpfs(s: RuleContext) -> Iterator[Signal]:
    """WAL in memory: fast, and with the next power cut the cluster does not start again (story S9)."""
    mount = wal_mount(s)
    if mount is None or mount.fstype not in MEMORY:
        return
    what = "Data and WAL lie" if "data" in mount.holds else "WAL lies"
    yield Signal(
        severity="warning",
        text=f"{what} on {clean(mount.fstype)} ({clean(mount.path)}): a power cut or a reboot loses the cluster",
        evidence={"mount": clean(mount.path), "fstype": mount.fstype, "holds": list(mount.holds)},
        advice="Move pg_wal to a disk while the server is stopped; until then only a replica elsewhere is a copy.",
    )


RULES: tuple[Rule, ...] = (
    *wal_archiving.ARCHIVING_RULES,
    *replication_slots.RULES,
    *replication.RULES,
    Rule(
        name="wal-on-tmpfs",
        title="WAL lies in memory",
        parts=("host.mounts",),
        check=wal_on_tmpfs,
        source="frames/mount_warnings.py; kernel documentation, tmpfs",
    ),
)
