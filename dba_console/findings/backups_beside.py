"""Backups kept where removing one, or keeping one too many, stops the server."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.samples.host import Mount, Mounts
from dba_console.sanitize import clean

_BACKUPS = {"archive": "Archived WAL", "backup": "backups"}


def wal_beside_backups(s: RuleContext) -> Iterator[Signal]:
    """The directory archive_command copies to, where that is plain to see, and the server's files: on one file system,
    be it mounted in one place or in two.

    Story S7: removing one backup of 50 to 100 GB held up every read and write of the file system for half a minute at a
    time, and of WAL with them. And what fills the file system of pg_wal stops the server (backup.sgml, continuous
    archiving: "PostgreSQL will do a PANIC shutdown").
    """
    mounts = s.facts.picture.now("host.mounts", Mounts)
    systems: dict[str, list[Mount]] = {}
    for mount in [] if mounts is None else mounts.mounts:
        if mount.holds:
            systems.setdefault(_file_system(mount), []).append(mount)
    for together in systems.values():
        held = sorted({one for mount in together for one in mount.holds})
        beside, server = [one for one in held if one in _BACKUPS], [one for one in held if _belongs_to_server(one)]
        if beside and server:
            yield _beside_signal(together, beside, server)


def _file_system(mount: Mount) -> str:
    """Two mounts of one device are one file system: a bind mount, a subvolume, a volume of a container."""
    return mount.source if mount.source.startswith("/dev/") else mount.path


def _belongs_to_server(held: str) -> bool:
    return held in ("wal", "data") or held.startswith("tablespace:")


def _beside_signal(together: list[Mount], beside: list[str], server: list[str]) -> Signal:
    paths = [clean(mount.path) for mount in together]
    where = paths[0] if len(paths) == 1 else f"one file system ({clean(together[0].source)} on {', '.join(paths)})"
    kept = " and ".join(_BACKUPS[held] for held in beside)
    theirs = " and ".join("WAL" if held == "wal" else clean(held) for held in server)
    return Signal(
        severity="warning",
        subject=paths[0],
        text=f"{kept} and the server's {theirs} share {where}: removing a large file there can stop all I/O of the "
        "database for half a minute at a time, and filling it stops the server",
        evidence={"mount": paths[0], "paths": paths, "holds": [clean(held) for held in (*beside, *server)]},
        series=(f"mount:{together[0].path}.used_bytes",),
        advice="Give backups a file system of their own; until then remove large files in small steps (runbook "
        "remove-backup), never with a plain rm.",
    )
