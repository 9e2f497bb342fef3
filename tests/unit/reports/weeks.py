"""A recorded week of a server: hourly samples in two sessions, findings, a gap, growing disks and transaction ids."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dba_console.jobs.history.kept_history import KeptHistory, KeptJob
from dba_console.jobs.history.run_statistics import JobRun
from dba_console.recording.layout import SessionMeta, new_meta, session_directory
from dba_console.recording.recorder import Recorder
from dba_console.watch.disks.readings import DatabaseSize, Sizes
from dba_console.watch.safety.readings import DatabaseStat, DatabaseStats, DatabaseXid, Xids
from dba_console.watch.samples import host
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.sample import Sample, encode_sample, make_part
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.readings import mount, of, server
from tests.unit.recording.recordings import little_point

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
GB = 1 << 30
START_US = NOW_US - NOW_US % DAY_US
END_US = START_US + 7 * DAY_US
TARGET_KEY = "key-of-shop"
HOSTILE = "<script>alert(1)</script> | =cmd|'/C calc'!A0 \x1b[2J \u202ehidden password=geheim"


def week(sessions: Path) -> list[Path]:
    """Three days, six hours without a recording, then the rest; the second session starts where a finding is open."""
    first = _session(sessions, range(3 * 24), _findings(START_US))
    second = _session(sessions, range(3 * 24 + 6, 7 * 24 + 1), _later_findings(START_US), at_us=START_US + 78 * HOUR_US)
    return [first, second]


def _session(sessions: Path, hours: range, events: list[Event], at_us: int = START_US) -> Path:
    clock = HeldClock(wall_us=at_us)
    meta: SessionMeta = new_meta(
        target="shop", target_key=TARGET_KEY, host="db2", program_version="0.1", interval_us=HOUR_US, clock=clock
    )
    made = Recorder(session_directory(sessions, meta), meta, clock, point_of=little_point, block_samples=24)
    for hour in hours:
        sample = _sample(hour)
        made.put_sample(sample, encode_sample(sample))
        assert made.flush()
    for event in events:
        made.put_event(event)
    made.close("the requested time is over")
    return made.directory


def _sample(hour: int) -> Sample:
    """Used space grows by 24 GB a day, the database by 12 GB, transaction ids by 24 million."""
    at_us = START_US + hour * HOUR_US
    used, mono_us = (400 + hour) * GB, 1_000_000_000 + hour * HOUR_US
    parts = {
        "host.mounts": host.Mounts(
            [mount("/data", size=1000 * GB, used=used, available=1000 * GB - used, holds=["data", "wal"])], {}
        ),
        "pg.server": server(now_us=at_us),
        "pg.sizes": Sizes([DatabaseSize("shop", (100 * GB) + hour * GB // 2)]),
        "pg.databases": DatabaseStats([of(DatabaseStat, oid=1, name="shop")]),
        "pg.xids": of(
            Xids, now_us=at_us, next_xid=900_000_000 + hour * 1_000_000,
            databases=[DatabaseXid("shop", 60_000_000 + hour * 500_000, 0)],
        ),
    }  # fmt: skip
    made = [make_part(name, reading, at_us=mono_us, took_us=100) for name, reading in parts.items()]
    return Sample(hour + 1, at_us, mono_us, made, "run1")


def finding(kind: str, at_us: int, name: str, severity: str = "warning", text: str = "") -> Event:
    details = {"id": name, "name": name, "severity": severity, "since_us": at_us}
    return Event(
        wall_us=at_us,
        kind=f"finding.{kind}",
        text=f"finding {kind}: {text or name}",
        severity=severity,
        details=details,
    )


def _findings(at_us: int) -> list[Event]:
    return [
        finding("raised", at_us + HOUR_US, "lock-blocker", "warning", HOSTILE),
        finding("cleared", at_us + 2 * HOUR_US, "lock-blocker"),
        finding("raised", at_us + 30 * HOUR_US, "lock-blocker", "warning", "9 sessions wait"),
        finding("changed", at_us + 31 * HOUR_US, "lock-blocker", "critical", "40 sessions wait"),
        finding("cleared", at_us + 33 * HOUR_US, "lock-blocker"),
    ]


def _later_findings(at_us: int) -> list[Event]:
    ended_us = at_us + 100 * HOUR_US
    details = {
        "kind": "pg_dump", "database": "app", "user": "alice", "started_us": ended_us - HOUR_US, "ended_us": ended_us,
        "seconds": 3600.0, "ok": False, "errors": 3, "phases": {"data": 3000.0},
    }  # fmt: skip
    return [
        Event(wall_us=ended_us, kind="job.ended", text="pg_dump of app ended", details=details),
        finding("raised", at_us + 160 * HOUR_US, "disk-full", "critical", "/data fills"),
    ]


def write_history(state: Path) -> None:
    """Dumps of thirty nights in the state directory, each a minute longer, the last with errors."""
    nights = [
        JobRun(END_US - (30 - night) * DAY_US, 3600.0 + 60 * night, True, exit=0, errors=0) for night in range(29)
    ]
    nights.append(JobRun(END_US - DAY_US // 2, 900.0, True, exit=1, errors=2, last_error=HOSTILE))
    path = state / "dba-console" / "jobs" / "7001-5f0c.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(KeptHistory(END_US, [KeptJob("pg_dump", "app", "alice", 1, nights)])))
    (path.parent / TARGET_KEY).symlink_to(path.name)
