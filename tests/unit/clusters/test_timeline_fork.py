"""What pg_waldump prints is counted by transaction: only what was committed, in the formats of 13 to 18."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dba_console.clusters.timeline_fork import SUMMARY, Written, parse_summary

HEAP = (
    "rmgr: Heap        len (rec/tot):     54/   150, tx: {xid:>10}, lsn: 0/{lsn:08X}, prev 0/00000000, desc: {desc}, "
)
XACT = "rmgr: Transaction len (rec/tot):     34/    34, tx: {xid:>10}, lsn: 0/{lsn:08X}, prev 0/00000000, desc: {desc}"
REL = "blkref #0: rel 1663/5/{node} blk 0"


def changed(xid: int, lsn: int, desc: str, node: int) -> str:
    rmgr = "Heap2" if desc.startswith("MULTI") else "Heap "
    return HEAP.format(xid=xid, lsn=lsn, desc=desc).replace("Heap ", rmgr, 1) + REL.format(node=node)


def ended(xid: int, lsn: int, desc: str) -> str:
    return XACT.format(xid=xid, lsn=lsn, desc=desc)


def summary(tmp_path: Path, *lines: str, error: str = "pg_waldump: error: invalid record length at 0/900") -> str:
    dump = tmp_path / "pg_waldump"
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
    dump.write_text(f'#!/bin/sh\ncat "{tmp_path}/lines"; echo "{error}" >&2; exit 1\n')
    dump.chmod(0o755)
    ran = subprocess.run(
        ["sh", "-c", SUMMARY, "sh", str(dump), "wal", "1", "0/100"], capture_output=True, text=True, check=True
    )
    return ran.stdout


def test_only_committed_changes_count_with_their_subtransactions(tmp_path: Path) -> None:
    found = parse_summary(
        summary(
            tmp_path,
            changed(700, 0x100, "INSERT off 2 flags 0x00", 16384),
            changed(701, 0x200, "HOT_UPDATE off: 2, xmax: 701", 16384),
            changed(702, 0x300, "MULTI_INSERT 3 tuples flags 0x02", 16385),
            changed(703, 0x400, "MULTI_INSERT+INIT ntuples: 40, flags: 0x02", 16385),
            changed(704, 0x500, "DELETE off: 1", 16386),
            changed(705, 0x580, "LOCK off: 1", 16386),
            ended(704, 0x600, "ABORT 2026-11-24 18:00:09.000000 UTC"),
            ended(700, 0x700, "COMMIT 2026-11-24 18:00:01.000000 UTC; subxacts: 702 703; inval msgs: relcache 16385"),
            ended(0, 0x800, "COMMIT_PREPARED 701: 2026-11-24 18:00:02.000000 UTC"),
            ended(706, 0x880, "PREPARE gid x: 2026-11-24 18:00:03.000000 UTC"),
        )
    )
    assert found == Written(
        2, "2026-11-24 18:00:01.000000 UTC", "2026-11-24 18:00:02.000000 UTC", 1, "0/00000880",
        {"1663/5/16385": 43, "1663/5/16384": 2},
    )  # fmt: skip


def test_wal_that_cannot_be_read_is_not_reported_as_empty(tmp_path: Path) -> None:
    assert parse_summary(summary(tmp_path, error="could not find a valid record after 0/100")) == (
        "could not find a valid record after 0/100"
    )
    assert parse_summary("") == "no output"
