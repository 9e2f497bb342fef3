"""Disks and standbys as the readings of a server have them, for the rules about WAL."""

from __future__ import annotations

from typing import Any

from dba_console.watch.samples import host, postgres
from tests.readings import mount, of

GB = 1 << 30
MB = 1 << 20
SEGMENT = 16 * MB


def disk(available: int = 1000 * GB, **fields: Any) -> host.Mounts:
    made = {"size": 2000 * GB, "used": 1000 * GB, "available": available, "holds": ["data", "wal"]}
    return host.Mounts([mount("/pg", **{**made, **fields})], {})


def standby(name: str = "db3", **fields: Any) -> postgres.Standby:
    made = {"application": name, "pid": 7, "state": "streaming", "client": "10.0.0.3:40112", "replay_lsn": 0}
    return of(postgres.Standby, **{**made, **fields})
