"""Rules about disks: how full, how soon, eaten by what, and arrangements that bite."""

from __future__ import annotations

from dba_console.findings.disk_full import discard_mount, disk_filling, inodes_filling
from dba_console.findings.rule import Rule
from dba_console.findings.temp_spill import temp_spill

RULES: tuple[Rule, ...] = (
    Rule(
        name="temp-spill",
        title="Temporary files of a sort or hash endanger the disk",
        parts=("pg.temp",),
        check=temp_spill,
        clear_after_s=30.0,
        settings=(
            "disks.temp_free_pct",
            "disks.temp_bytes",
            "disks.temp_bytes_per_s",
            "disks.temp_full_in_critical_s",
            "disks.full_in_warning_s",
        ),
        source="story S12; PostgreSQL: pg_ls_tmpdir (func.sgml), temp_file_limit (config.sgml)",
    ),
    Rule(
        name="disk-filling",
        title="A file system is nearly full, or will be at a time that can be told",
        parts=("host.mounts",),
        check=disk_filling,
        clear_after_s=60.0,
        settings=(
            "disks.full_warning_pct",
            "disks.full_critical_pct",
            "disks.full_beside_critical_pct",
            "disks.roomy_bytes",
            "disks.full_in_warning_s",
            "disks.full_in_critical_s",
            "disks.soon_s",
        ),
        source="story S12; PostgreSQL: disk full failure (diskusage.sgml)",
        runbook="disk-filling",
    ),
    Rule(
        name="inodes-filling",
        title="A file system runs out of inodes",
        parts=("host.mounts",),
        check=inodes_filling,
        clear_after_s=60.0,
        settings=("disks.inodes_warning_pct", "disks.inodes_critical_pct"),
        source="monitoring plugins: check_disk -W, -K",
        runbook="disk-filling",
    ),
    Rule(
        name="discard-mount",
        title="Data, WAL or backups lie on a file system mounted with discard",
        parts=("host.mounts",),
        check=discard_mount,
        clear_after_s=60.0,
        source="story S7; Linux: ext4 and xfs, mount option discard",
        runbook="remove-backup",
    ),
)
