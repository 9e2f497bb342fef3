"""Two moments compared: the largest change first, in words and numbers with units."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dba_console.core.errors import SessionError
from dba_console.recording.recording import Recording
from dba_console.reports.comparison import Comparison, compare, compare_recorded, comparison_lines, comparison_object
from dba_console.watch.disks.panel import MountRow
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.locks.panel import LockNode
from dba_console.watch.memory.panel import MemoryPanel
from dba_console.watch.replication.panel import SlotRow
from dba_console.watch.sessions.panel import SessionRow

GB = 1 << 30
FIXTURE = Path(__file__).parents[3] / "dba_console" / "demo" / "recordings" / "reclaim-stall"
"""A recorded incident: the page cache falls, I/O stalls, connections fill."""


def frame(at_s: int = 0, **memory: object) -> Frame:
    made = Frame(at_us=at_s * 1_000_000)
    made.panels["memory"] = msgspec.convert(memory, MemoryPanel)
    return made


def texts(found: Comparison) -> list[str]:
    return [f"{change.area}: {change.text}" for change in found.changes]


def test_the_largest_change_comes_first_with_units() -> None:
    before = frame(cached_bytes=62 * GB // 10, dirty_bytes=GB, major_faults_per_s=0.0, psi_full_avg10=3.0)
    after = frame(60, cached_bytes=GB // 4, dirty_bytes=GB // 2, major_faults_per_s=2000.0, psi_full_avg10=91.0)
    assert texts(compare(before, after)) == [
        "memory: memory full stall rose from 3.0% to 91% (+88 points)",
        "memory: major faults rose from 0/s to 2.0k/s",
        "memory: cached fell from 6.2 GB to 256 MB (-96%)",
        "memory: dirty fell from 1.0 GB to 512 MB (-50%)",
    ]


def test_what_changes_on_a_quiet_server_is_left_out() -> None:
    before, after = frame(cached_bytes=6 * GB), frame(60, cached_bytes=6 * GB + (1 << 20))
    before.target.uptime_s, after.target.uptime_s = 100.0, 160.4
    before.sessions.rows = [SessionRow(pid=7, xact_age_s=1.0, query_age_s=5.0)]
    after.sessions.rows = [SessionRow(pid=7, xact_age_s=61.0, query_age_s=9.0)]
    assert texts(compare(before, after)) == []


def test_new_and_gone_rows_of_tables_are_named() -> None:
    before, after = frame(), frame(60)
    before.replication.slots = [SlotRow(name="old", kind="logical")]
    after.replication.slots = [SlotRow(name="fresh", kind="physical", wal_status="lost")]
    after.disks.mounts = [MountRow(path="/backup")]
    waiter = LockNode(pid=8, application="web", relation="public.t")
    after.locks.trees = [LockNode(pid=7, application="batch", waiters=[waiter])]
    after.sessions.rows = [SessionRow(pid=n, application="web", user="shop") for n in range(5)]
    assert sorted(texts(compare(before, after))) == [
        "disks: mounts, new: /backup",
        "locks: sessions that block or wait, 2 new: pid 7 (batch); pid 8 (web, public.t)",
        "replication: slots, gone: old",
        "replication: slots, new: fresh (lost)",
        "sessions: 5 new: 5 × web, shop",
    ]


def test_a_row_is_compared_with_itself() -> None:
    before, after = frame(), frame(60)
    before.replication.slots = [SlotRow(name="a", kind="logical", retained_bytes=GB, wal_status="reserved")]
    after.replication.slots = [SlotRow(name="a", kind="logical", retained_bytes=9 * GB, wal_status="extended")]
    assert texts(compare(before, after)) == [
        "replication: a (extended): retained rose from 1.0 GB to 9.0 GB (×9.0)",
        "replication: a (extended): wal status changed from reserved to extended",
    ]


def test_settings_versions_roles_and_findings_are_compared() -> None:
    before, after = frame(), frame(60)
    before.target.version, after.target.version = "15.17", "15.18"
    before.target.role, after.target.role = "primary", "standby"
    after.findings = [Finding(id="disk-full", severity="critical", subject="/", text="the disk is full")]
    before.findings = [Finding(id="io", severity="warning", subject="", text="I/O is slow")]
    found = compare(before, after, ({"work_mem": "4.0 MB", "ssl": "on"}, {"work_mem": "64 MB", "ssl": "on"}))
    assert texts(found) == [
        "findings: new, critical: the disk is full",
        "findings: gone, warning: I/O is slow (until 1970-01-01 00:00:00 or later)",
        "server: role changed from primary to standby",
        "server: version changed from 15.17 to 15.18",
        "settings: work_mem changed from 4.0 MB to 64 MB",
    ]
    assert texts(compare(before, after, ({"work_mem": "4.0 MB"}, {})))[-1].startswith("server: ")


def test_a_new_field_is_compared_without_a_change_here() -> None:
    grown: Any = msgspec.defstruct("grown", [("frozen_bytes", int | None, None)], bases=(MemoryPanel,), kw_only=True)
    before, after = (Frame(panels={"memory": grown(frozen_bytes=size)}) for size in (GB, 4 * GB))
    assert texts(compare(before, after)) == ["memory: frozen rose from 1.0 GB to 4.0 GB (×4.0)"]


def test_what_is_known_at_one_moment_only_is_listed_and_not_counted() -> None:
    found = compare(frame(), frame(60, cached_bytes=GB))
    assert (found.changes, found.unknown) == ([], ["memory.cached_bytes"])
    after = frame(60)
    after.io.status, after.io.note = "denied", "no\naccess"
    assert compare(frame(), after).notes == ["io at 1970-01-01 00:01:00: denied: no access"]


def test_hostile_names_are_harmless() -> None:
    before, after = frame(), frame(60)
    after.disks.mounts = [MountRow(path="/x\x1b[2J\n\u202e<b>")]
    [change] = compare(before, after).changes
    assert change.text == "mounts, new: /x␛[2J␊�<b>"
    assert "\x1b" not in str(comparison_object(compare(before, after)))


def test_a_damaged_recording_is_compared_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    copy = shutil.copytree(FIXTURE, tmp_path / "copy")
    with open(copy / "session.samples", "r+b") as file:
        file.truncate(20_000)
    recording = Recording.open(copy)
    found = compare_recorded(recording, recording.first_us, recording.last_us)
    assert found.notes[0].startswith("nothing was recorded at 2026-11-20 ")
    assert found.changes
    assert recording.damage
    recording.close()


def test_a_recorded_incident_is_told_from_before_and_during() -> None:
    recording = Recording.open(FIXTURE)
    found = compare_recorded(recording, recording.first_us + 5_000_000, recording.last_us - 5_000_000)
    lines = comparison_lines(found)
    assert lines[2].startswith("  findings     new, critical: Connections fill")
    assert lines[3] == "  sessions     116 new: 116 × shop-checkout, shop_web, shop"
    assert "  connections  active sessions rose from 1 to 137 (×137)" in lines
    assert len(lines) < 50
    some = compare_recorded(recording, recording.first_us + 5_000_000, recording.last_us, ["io"])
    assert {change.area for change in some.changes} == {"io"}
    with pytest.raises(SessionError, match="nothing was recorded"):
        compare_recorded(recording, 0, recording.last_us)
    far = compare_recorded(recording, recording.first_us, recording.last_us + 60_000_000)
    assert far.notes[0].startswith("nothing was recorded at ")
    recording.close()
