"""What is shown of disks: file systems and what they hold, when they are full, risky layouts, and databases."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from dba_console.watch.disks.readings import Sizes
from dba_console.watch.frames.panel_status import fill_status
from dba_console.watch.frames.picture import PictureFacts
from dba_console.watch.frames.rates import delta, fit_trend, pair, rate, share_pct
from dba_console.watch.panel import Panel, PanelFrame, Points
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples import host
from dba_console.watch.samples.host import MEMORY_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS


class MountRow(Struct, kw_only=True):
    path: str
    device: str | None = None
    source: str | None = None
    fstype: str | None = None
    holds: list[str] = []
    size_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None
    used_pct: float | None = None
    inodes_pct: float | None = None
    growth_bytes_per_s: float | None = None
    full_in_s: float | None = None
    options: str | None = None
    status: str = "ok"
    note: str | None = None
    watched_s: float | None = None
    """Seconds of readings that growth_bytes_per_s and full_in_s are based on."""


class DatabaseRow(Struct, kw_only=True):
    name: str
    bytes: int | None = None
    temp_bytes_per_s: float | None = None
    commits_per_s: float | None = None
    rollbacks_per_s: float | None = None
    hit_pct: float | None = None
    deadlocks: int | None = None


class DisksPanel(PanelFrame, kw_only=True):
    mounts: list[MountRow] = []
    wal_available_bytes: int | None = None
    """Space available to an ordinary user on the file system of pg_wal."""
    databases: list[DatabaseRow] = []
    warnings: list[str] = []


# Risky file system layouts that can stop a database, each in one sentence.

FULL_WARN_PCT = 80.0
FULL_CRIT_PCT = 90.0
_SERVER = ("data", "wal")
_BESIDE = ("archive", "backup", "session")


def mount_warnings(mounts: list[MountRow]) -> list[str]:
    """Return warnings about the layout; only for mounts that hold something of the server or the console."""
    return [warning for mount in mounts if mount.holds for warning in _mount_warnings(mount)]


def _mount_warnings(mount: MountRow) -> Iterator[str]:
    server = [held for held in mount.holds if held in _SERVER or held.startswith("tablespace:")]
    beside = [held for held in mount.holds if held in _BESIDE]
    options = (mount.options or "").split(",")
    if mount.status != "ok":
        yield f"{mount.path} ({_names(mount.holds)}) does not answer: {mount.note or mount.status}"
    if server and beside:
        yield (
            f"{_names(beside)} and {_names(server)} share {mount.path}: "
            "filling it, or removing a large file there, stops the server"
        )
    if mount.fstype in MEMORY_FILE_SYSTEMS and server:
        yield f"{_names(server)} on {mount.fstype} ({mount.path}): lost at the next reboot"
    if mount.fstype in NETWORK_FILE_SYSTEMS and "session" in mount.holds:
        yield f"sessions on {mount.fstype} ({mount.path}): the recording stalls with the network, and may be damaged"
    if "discard" in options:
        yield f"{mount.path} is mounted with discard: removing a large file can stall the device"
    if "ro" in options and server:
        yield f"{mount.path} ({_names(server)}) is mounted read-only"
    yield from _fullness(mount)


def _fullness(mount: MountRow) -> Iterator[str]:
    if mount.used_pct is not None and mount.used_pct >= FULL_WARN_PCT:
        urgent = mount.used_pct >= FULL_CRIT_PCT and "wal" in mount.holds
        yield f"{mount.path} is {int(mount.used_pct)}% full" + (
            ": the server stops when WAL has no space left" if urgent else ""
        )
    if mount.inodes_pct is not None and mount.inodes_pct >= FULL_CRIT_PCT:
        yield f"{mount.path} has used {int(mount.inodes_pct)}% of its inodes"


def _names(holds: list[str]) -> str:
    return ", ".join("WAL" if held == "wal" else held for held in holds)


GATE_BYTES = 64 << 20
GATE_SHARE = 0.0002
"""Growth below 64 MB and a 5,000th of the file system over the window predicts nothing: logs and noise."""


def derive_disks(facts: PictureFacts) -> DisksPanel:
    """Return the disks panel; its status is that of the mounts, databases are shown without them."""
    picture = facts.picture
    panel = fill_status(DisksPanel(), picture, "host.mounts", "pg.databases", "pg.sizes", "pg.temp")
    mounts = picture.now("host.mounts", host.Mounts)
    if mounts is not None:
        panel.mounts = sorted((_mount(row, facts) for row in mounts.mounts), key=_order)
        panel.wal_available_bytes = next((row.available_bytes for row in panel.mounts if "wal" in row.holds), None)
        panel.warnings = mount_warnings(panel.mounts)
    panel.databases = _databases(facts)
    return panel


def _order(row: MountRow) -> tuple[bool, float, str]:
    return not row.holds, -(row.used_pct or 0.0), row.path


def _mount(mount: host.Mount, facts: PictureFacts) -> MountRow:
    row = MountRow(
        path=mount.path,
        device=mount.device,
        source=mount.source,
        fstype=mount.fstype,
        holds=mount.holds,
        size_bytes=mount.size,
        used_bytes=mount.used,
        available_bytes=mount.available,
        options=mount.options,
        status=mount.status,
        note=mount.note,
    )
    if mount.used is not None and mount.available is not None:
        # As df: relative to what an unprivileged user can use, without the blocks reserved for root.
        row.used_pct = share_pct(mount.used, mount.used + mount.available)
        _growth(row, mount.used + mount.available, facts)
    if mount.inodes and mount.inodes_free is not None:
        row.inodes_pct = share_pct(mount.inodes - mount.inodes_free, mount.inodes)
    return row


def _growth(row: MountRow, limit: int, facts: PictureFacts) -> None:
    if row.available_bytes == 0:
        row.full_in_s = 0.0
    found = fit_trend(facts.history.series(f"mount:{row.path}.used_bytes"))
    if found is not None:
        row.growth_bytes_per_s = found.per_s
        row.watched_s = (found.points[-1][0] - found.points[0][0]) / 1e6
        gate = max(GATE_BYTES, GATE_SHARE * (row.size_bytes or 0))
        row.full_in_s = found.time_to_reach(limit, gate=gate)


def _databases(facts: PictureFacts) -> list[DatabaseRow]:
    stats = facts.picture.now("pg.databases", DatabaseStats)
    sizes = facts.picture.now("pg.sizes", Sizes)
    rows = {row.name: DatabaseRow(name=row.name, bytes=row.bytes) for row in (sizes.rows if sizes is not None else ())}
    both = pair(facts.picture, "pg.databases", DatabaseStats)
    before = {} if both is None else {old.oid: old for old in both.old.rows}
    for new in stats.rows if stats is not None else ():
        if new.name is None:
            continue
        row = rows.setdefault(new.name, DatabaseRow(name=new.name))
        row.deadlocks = new.deadlocks
        old = before.get(new.oid)
        if both is not None and old is not None and old.stats_reset == new.stats_reset:
            _database_rates(row, new, old, both.seconds)
    return sorted(rows.values(), key=lambda row: (-(row.bytes or 0), row.name))


def _database_rates(row: DatabaseRow, new: DatabaseStat, old: DatabaseStat, seconds: float) -> None:
    row.temp_bytes_per_s = rate(new.temp_bytes, old.temp_bytes, seconds)
    row.commits_per_s = rate(new.xact_commit, old.xact_commit, seconds)
    row.rollbacks_per_s = rate(new.xact_rollback, old.xact_rollback, seconds)
    hits, reads = delta(new.blks_hit, old.blks_hit), delta(new.blks_read, old.blks_read)
    # For this interval, not since the statistics reset: a lifetime ratio hardly changes.
    row.hit_pct = None if hits is None or reads is None else share_pct(hits, hits + reads)


def points(facts: PictureFacts) -> Points:
    """Return the used bytes of each file system as `mount:PATH.used_bytes`."""
    mounts = facts.picture.now("host.mounts", host.Mounts)
    if mounts is None or not facts.was_read_now("host.mounts"):
        return {}
    return {f"mount:{mount.path}.used_bytes": mount.used for mount in mounts.mounts}


PANEL = Panel(name="disks", fields=DisksPanel, derive=derive_disks, points=points)
