"""What rules keep between ticks stays bounded, however long sessions and tables come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from dba_console.watch.disks.readings import TempDirectory, TempFiles
from dba_console.watch.findings.rule_engine import RULES, RuleEngine
from dba_console.watch.replication.readings import Replication, Slot
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats
from dba_console.watch.samples import host
from tests.readings import activity, disk, mount, of
from tests.unit.watch.findings.reading_ticks import standby
from tests.unit.watch.findings.server_ticks import ServerTicks, waiting

GB = 1 << 30
PASSING_S = 60
"""Everything is another one after so many seconds: long enough to be noticed, and to be missed."""
WINDOW_S = 660
"""Ten minutes of memory are what rules may have, and their slowest parts' turn."""


def entries(thing: Any, seen: set[int] | None = None) -> int:
    """How many things a container holds, with all that is in them; objects of the findings are containers too."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return 0
    seen.add(id(thing))
    if isinstance(thing, Mapping):
        return len(thing) + sum(entries(one, seen) for one in (*thing.keys(), *thing.values()))
    if isinstance(thing, list | tuple | set | frozenset | deque):
        return len(thing) + sum(entries(one, seen) for one in thing)
    if type(thing).__module__.startswith("dba_console.watch.findings") and type(thing).__name__ not in (
        "RuleContext",
        "Rule",
    ):
        names = [*getattr(thing, "__dict__", ()), *getattr(type(thing), "__slots__", ())]
        return sum(entries(getattr(thing, name, None), seen) for name in names)
    return 0


def kept_size(engine: RuleEngine) -> dict[str, int]:
    """Entries by the name of the memo, and of all else the judge holds."""
    counts = {name: entries(memo) for name, memo in engine._memos.items()}
    others = {name: entries(value) for name, value in vars(engine).items() if name not in ("_memos", "_rules", "_seen")}
    return counts | others


def passing_sessions(server_ticks: ServerTicks, second: int) -> None:
    """One second of a server on which nothing lasts for longer than a minute."""
    turn, pid = second // PASSING_S, 1000 + second // PASSING_S * 50
    since = server_ticks.ago(second % PASSING_S + 5)
    server_ticks.rows = [
        *(activity(pid + one, "idle", application=f"job-{turn}", backend_start=since) for one in range(4)),
        activity(pid + 10, "idle in transaction", xact_start=since, state_change=since, backend_xid=1000),
        *(activity(pid + 20 + one, "active", wait_event_type="Lock", query=f"select {turn}") for one in range(4)),
    ]
    server_ticks.locks = [waiting(pid + 20 + one, pid + 10, since=since) for one in range(4)]
    server_ticks.extra = {**_server_second(server_ticks, turn, pid, second), **_host_second(turn, pid, second)}


def _server_second(server_ticks: ServerTicks, turn: int, pid: int, second: int) -> dict[str, Any]:
    slots = [
        of(
            Slot,
            name=f"{name}_{turn}",
            kind="physical",
            restart_lsn=0,
            wal_status="extended",
            active_pid=reader,
        )
        for name, reader in (("read", pid), ("left", None if second % PASSING_S > 5 else pid))
    ]
    return {
        "pg.replication": of(
            Replication, now_us=server_ticks.now_us, lsn=second * GB, slots=slots,
            standbys=[standby(f"db{turn}", pid=pid)],
        ),
        "pg.databases": DatabaseStats(
            [of(DatabaseStat, oid=pid + one, name=f"d{pid + one}", checksum_failures=0) for one in range(4)]
        ),
        "pg.temp": TempFiles([TempDirectory(f"space{turn}", pid + 20, 1, 9 * GB + second)]),
    }  # fmt: skip


def _host_second(turn: int, pid: int, second: int) -> dict[str, Any]:
    hanging = [of(host.Process, pid=pid + one, state="D") for one in range(4)]
    place = mount(f"/data{turn}", device=f"dm-{turn}", holds=["data", "wal"], size=99 * GB, used=90 * GB,
                  available=9 * GB - second)  # fmt: skip
    return {
        "host.mounts": host.Mounts([place], {}),
        "host.disks": host.Disks([disk(f"dm-{turn}", minor=turn, reads=second, read_ms=99 * second, in_flight=3)]),
        "host.processes": host.Processes(1, hanging, {"D": 4}, 20),
    }


def test_short_lived_objects_leave_no_state_behind() -> None:
    server_ticks = ServerTicks(*RULES)
    counts = []
    for second in range(3 * WINDOW_S):
        passing_sessions(server_ticks, second)
        server_ticks.tick()
        if second % WINDOW_S == WINDOW_S - 1:
            counts.append(kept_size(server_ticks.engine))
    early, late = counts[1], counts[2]
    assert server_ticks.raised, "rules that see nothing prove nothing"
    grown = {name: (early.get(name, 0), count) for name, count in late.items() if count > early.get(name, 0) + 20}
    assert grown == {}
