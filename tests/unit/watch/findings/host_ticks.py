"""Ticks of a host made by hand: its memory, its counters and its disks second by second, and what rules conclude.

128 GB with four fifths of it page cache, as the host of story S1; vda holds data and WAL, vdb nothing of the server.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from dba_console.watch.findings.rule import Rule
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.findings import FindingNow
from tests.build import GB, MB, NOW_US, part
from tests.readings import activity, cpu, disk, mount, of, server, sessions
from tests.unit.watch.findings.rule_ticks import RuleTicks

PAGE = 4096
MOUNTS = host.Mounts([mount("/data", device="vda", holds=["data", "wal"]), mount("/srv", device="vdb")], {})
SETTINGS = of(host.HostSettings, zone_reclaim_mode=0, thp="madvise", thp_defrag="madvise", min_free_kbytes=90112,
              watermark_scale_factor=10)  # fmt: skip
COUNTERS = (
    "pgsteal_file", "pgsteal_kswapd", "pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive", "drop_pagecache",
    "allocstall", "compact_stall", "zone_reclaim_success", "refault_file", "pswpin", "pswpout",
)  # fmt: skip


class HostTicks(RuleTicks):
    """Ticks of a host and a server, with the given rules. Set what changes, then tick."""

    def __init__(self, *rules: Rule | str, limits: Limits | None = None) -> None:
        super().__init__(*rules, limits=limits)
        self.memory: dict[str, int] = {
            "total": 128 * GB, "free": 2 * GB, "cached": 100 * GB, "shmem": 8 * GB, "anon": 10 * GB,
            "available": 100 * GB,
        }  # fmt: skip
        self.vmstat: dict[str, int | None] = dict.fromkeys(COUNTERS, 0)
        self.io_stalled_us: int | None = 0
        """PSI io full, microseconds in total; None is a kernel without PSI."""
        self.memory_stalled_us = 0
        self.disks: dict[str, dict[str, int]] = {"vda": {}, "vdb": {}}
        self.blocked = 0
        self.waited_ticks = self.idle_ticks = 0
        self.hanging: list[int] = []
        """Processes in state D that do nothing."""
        self.working: dict[int, int] = {}
        """Processes in state D that get on: pid -> bytes read."""
        self.rows: list[postgres.Activity] = []
        self.settings = SETTINGS
        self.server = server()

    @property
    def now_us(self) -> int:
        return NOW_US + int(self.at_s * 1e6)

    def drop_cache(self, bytes_: int, *, free: int | None = None, **counted: int) -> None:
        """The cache loses so much and free memory gains it; counters advance, those of pages given in bytes."""
        self.memory["cached"] -= bytes_
        self.memory["free"] += bytes_ if free is None else free
        for name, value in counted.items():
            self.count(name, value // PAGE if name.startswith("pgsteal") else value)

    def count(self, name: str, more: int) -> None:
        self.vmstat[name] = (self.vmstat[name] or 0) + more

    def advance_device(self, name: str = "vda", **more: int) -> None:
        """Counters of a device advance; `in_flight` is set."""
        known = self.disks[name]
        for field, value in more.items():
            known[field] = value if field == "in_flight" else known.get(field, 0) + value

    def set_waiting_sessions(
        self, count: int, *, for_s: float = 5.0, event: str = "DataFileRead", **fields: Any
    ) -> None:
        """Set `count` sessions whose statement has waited for I/O since `for_s` before the next tick."""
        made = {"wait_event_type": "IO", "wait_event": event, "query": "select 1", **fields}
        sent = self.now_us + int((1 - for_s) * 1e6)
        self.rows = [activity(1000 + n, "active", query_start=sent, **made) for n in range(count)]

    def tick(self, after_s: float = 1.0) -> list[FindingNow]:
        """Read everything once more; what is open then."""
        self.at_s += after_s
        self.evaluate(*(part(name, value, at_s=self.at_s) for name, value in self._read().items()))
        return self.open

    def ticks(self, count: int) -> list[FindingNow]:
        for _ in range(count):
            self.tick()
        return self.open

    def seconds(self, count: int, **each: Any) -> list[FindingNow]:
        """Tick `count` times; in each, `stalled_pct` of the second is lost and devices and counters advance."""
        for _ in range(count):
            if self.io_stalled_us is not None:
                self.io_stalled_us += int(each.get("stalled_pct", 0.0) * 1e4)
            self.advance_device(**each.get("vda", {}))
            self.advance_device("vdb", **each.get("vdb", {}))
            for name, more in each.get("counted", {}).items():
                self.count(name, more)
            self.tick()
        return self.open

    def _read(self) -> dict[str, Any]:
        def stall(total_us: int) -> host.PressureStall:
            return host.PressureStall(0.0, 0.0, 0.0, total_us)

        full = None if self.io_stalled_us is None else stall(self.io_stalled_us)
        rows = [of(host.Process, pid=pid, state="D") for pid in self.hanging]
        rows += [of(host.Process, pid=pid, state="D", read_bytes=done) for pid, done in self.working.items()]
        self.working = {pid: done + 8192 for pid, done in self.working.items()}
        read: dict[str, Any] = {
            "host.memory": of(host.MemInfo, **self.memory),
            "host.vmstat": of(host.VmStat, page_size=PAGE, **self.vmstat),
            "host.disks": host.Disks([disk(name, **fields) for name, fields in self.disks.items()]),
            "host.mounts": MOUNTS,
            "host.settings": self.settings,
            "host.cpu": cpu(procs_blocked=self.blocked, iowait=self.waited_ticks, idle=self.idle_ticks),
            "host.processes": host.Processes(1, rows, {"D": len(rows)} if rows else {"S": 1}, 10),
            "pg.server": structs.replace(self.server, now_us=self.now_us),
            "pg.activity": sessions(*self.rows, now_us=self.now_us),
        }
        if full is not None:
            read["host.pressure"] = host.Pressure(None, full, full, None, stall(self.memory_stalled_us))
        return read


__all__ = ["GB", "MB", "HostTicks"]
