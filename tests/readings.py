"""Readings by hand: `of(Cpu, user=3)` fills what is not named; a whole busy server in parts, for timing and fuzzing."""

from __future__ import annotations

import types
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from dba_console.watch.progress.readings import Operation, Operations
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats, DatabaseXid, TableXid, Xids
from dba_console.watch.samples import console, host, postgres
from dba_console.watch.samples.sample import PARTS
from tests.build import NOW_US

S = TypeVar("S", bound=Struct)

_PLAIN: dict[Any, Any] = {int: 0, float: 0.0, str: "", bool: False}
_KNOWN: dict[type[Any], dict[str, Any]] = {}


def of(kind: type[S], /, **fields: Any) -> S:
    """A reading with the given fields; others are None where they may be, else 0, empty or False."""
    blank = _KNOWN.get(kind)
    if blank is None:
        blank = _KNOWN[kind] = {name: _blank(hint) for name, hint in get_type_hints(kind).items()}
    return kind(**{**blank, **fields})


def _blank(hint: Any) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType) and type(None) in get_args(hint):
        return None
    if origin in (list, dict, tuple):
        return origin()
    return _PLAIN[hint]


def setting(name: str, value: str, unit: str | None = None) -> postgres.Setting:
    return postgres.Setting(name, value, unit, "default")


def server(**fields: Any) -> postgres.Server:
    """A 15.18 primary up for a day, on this host, with the settings that panels read."""
    settings = {
        "max_connections": "250",
        "superuser_reserved_connections": "3",
        "autovacuum_freeze_max_age": "200000000",
        "vacuum_failsafe_age": "1600000000",
        "data_checksums": "on",
        "block_size": "8192",
        **fields.pop("with_settings", {}),
    }
    made = {
        "version_num": 150018,
        "version": "15.18",
        "system_identifier": "7431204485839012345",
        "timeline": 3,
        "start_us": NOW_US - 86_400_000_000,
        "now_us": NOW_US,
        "local": True,
        "seat": "regular",
        "settings": [setting(name, value) for name, value in settings.items()]
        + [setting("shared_buffers", "4194304", "8kB")],
    }
    return of(postgres.Server, **{**made, **fields})


def activity(pid: int, state: str | None = "idle", **fields: Any) -> postgres.Activity:
    """A client backend of user app in appdb."""
    made = {
        "pid": pid,
        "backend_start": NOW_US - 600_000_000 + pid,
        "backend_type": "client backend",
        "database": "appdb",
        "user": "app",
        "application": "orders-api",
        "client": "10.0.1.7",
        "state": state,
        "state_change": NOW_US - 60_000_000,
        "query_start": NOW_US - 60_000_000,
        "query": "select id, total from orders where customer = $1",
    }
    return of(postgres.Activity, **{**made, **fields})


def sessions(*rows: postgres.Activity, now_us: int = NOW_US, hidden: int = 0) -> postgres.Sessions:
    return postgres.Sessions(now_us, list(rows), hidden)


def disk(name: str = "vda", **fields: Any) -> host.Disk:
    return of(host.Disk, **{"name": name, "major": 254, **fields})


def mount(path: str = "/data", **fields: Any) -> host.Mount:
    made = {"path": path, "source": "/dev/vda1", "fstype": "xfs", "options": "rw", "device": "vda", "status": "ok"}
    return of(host.Mount, **{**made, **fields})


def cpu(**fields: Any) -> host.Cpu:
    return of(host.Cpu, **{"cpus": 2, "boot_wall_s": 1_795_000_000, **fields})


def blank(name: str) -> Any:
    """The emptiest reading of a part."""
    return of(PARTS[name].reading)


def busy_server(count: int, tick: int) -> dict[str, Any]:
    """Every part of one tick of a server with `count` sessions, a tenth of them active, one in fifty waiting."""
    at_us = NOW_US + tick * 1_000_000
    rows = [
        activity(
            1000 + index,
            "active" if index % 10 == 0 else "idle",
            wait_event_type="Lock" if index % 50 == 10 else None,
            xact_start=at_us - 1000 if index % 10 == 0 else None,
            backend_xmin=1000 + index if index % 10 == 0 else None,
            application=f"app{index % 7}",
        )
        for index in range(count)
    ]
    waiters = [
        postgres.LockWaiter(row.pid, [1000], "relation", "RowExclusiveLock", "public.orders", at_us - 5_000_000)
        for row in rows
        if row.wait_event_type == "Lock"
    ]
    return {
        **{name: blank(name) for name in PARTS if name not in ("host.titles",)},
        "host.cpu": cpu(user=tick * 100, idle=tick * 90, iowait=tick * 10, procs_blocked=2),
        "host.disks": host.Disks(
            [disk(f"vd{letter}", reads=tick * 100, read_ms=tick * 90, io_ms=tick * 300) for letter in "abcdef"]
        ),
        "host.mounts": host.Mounts(
            [mount(f"/m{index}", size=1 << 40, used=1 << 38, available=1 << 39, holds=["data"]) for index in range(6)],
            {},
        ),
        "host.processes": host.Processes(
            900, [of(host.Process, pid=1000 + index, user_ticks=tick * 7) for index in range(0, count, 4)], {}, count
        ),
        "pg.server": server(),
        "pg.activity": sessions(*rows, now_us=at_us),
        "pg.locks": postgres.Locks(waiters, [postgres.HeldLock(1000, "ShareLock", "public.orders", "relation")]),
        "pg.progress": Operations(
            [Operation("create_index", 1010, "appdb", "i", "loading", 4 + tick, 100, "tuples", {})]
        ),
        "pg.xids": of(
            Xids,
            now_us=at_us,
            next_xid=5_000_000 + tick * 500,
            databases=[DatabaseXid(f"db{index}", 1_000_000 + index, 0) for index in range(8)],
            tables=[of(TableXid, name=f"t{index}", xid_age=index) for index in range(20)],
        ),
        "pg.databases": DatabaseStats(
            [of(DatabaseStat, oid=index, name=f"db{index}", xact_commit=tick * 9) for index in range(8)]
        ),
        "self": of(console.AgentHealth, cpu_us=tick * 7000, rss=41 << 20, recording="ok"),
    }
