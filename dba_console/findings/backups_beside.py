"""Backups kept where removing one, or keeping one too many, stops the server."""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.findings.signal import Signal
from dba_console.findings.situation import Situation
from dba_console.harmless import clean
from dba_console.samples.host import Mounts


def wal_beside_backups(s: Situation) -> Iterator[Signal]:
    """Archived WAL or backups on the file system of the data or WAL.

    Story S7: removing one backup of 50 to 100 GB held up every read and write of the file system for half a minute at a
    time, and of WAL with them. And what fills the file system of pg_wal stops the server (backup.sgml, continuous
    archiving: "PostgreSQL will do a PANIC shutdown").
    """
    mounts = s.facts.picture.now("host.mounts", Mounts)
    for mount in [] if mounts is None else mounts.mounts:
        beside = [held for held in mount.holds if held in ("archive", "backup")]
        server = [held for held in mount.holds if held in ("wal", "data") or held.startswith("tablespace:")]
        if beside and server:
            yield _beside(mount.path, beside, server)


def _beside(path: str, beside: list[str], server: list[str]) -> Signal:
    kept = " and ".join("Archived WAL" if held == "archive" else "backups" for held in beside)
    theirs = " and ".join("WAL" if held == "wal" else clean(held) for held in sorted(server, reverse=True))
    return Signal(
        severity="warning",
        subject=clean(path),
        text=f"{kept} and the server's {theirs} share {clean(path)}: removing a large file there can stop all I/O of "
        "the database for half a minute at a time, and filling it stops the server",
        evidence={"path": clean(path), "holds": [clean(held) for held in (*beside, *server)]},
        series=(f"mount:{path}.used_bytes",),
        advice="Give backups a file system of their own; until then remove large files in small steps (runbook "
        "remove-backup), never with a plain rm.",
    )
