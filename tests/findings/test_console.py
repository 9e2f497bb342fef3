"""Rules about the console itself: really shut out, really left without an answer, really without a disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.console.rules import ConsoleLimits
from dba_console.watch.findings.finding_events import FindingChange
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.frames.model import Finding, Frame
from tests.agent.agents import RunningAgent, agent
from tests.background import idle_sessions
from tests.clusters import FreshCluster
from tests.findings.collector import LocalAgent, local_agent

CONSOLE = ("console-blind", "console-late", "lane-stuck", "recording-lags", "connections-filling")


def test_a_console_without_a_slot_reports_blind_mode_until_it_has_one(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster({"max_connections": 10, "superuser_reserved_connections": 2})
    local = LocalAgent(cluster.dsn(), only=CONSOLE)
    try:
        with idle_sessions(cluster, 10):
            blind = local.until("console-blind", within_s=12)
            local.tick(3)
            (row,) = local.rows
        local.until_gone("console-blind", within_s=12)
    finally:
        local.collector.close()
    assert "too many clients" in blind.text or "connections-filling" in blind.chain
    assert row.id.startswith("connections-filling"), "one finding: it is blind because the connections are taken"
    assert "console-blind" in row.chain
    assert not raised(local.changes, "server-down")


def raised(changes: list[FindingChange], rule: str) -> list[FindingChange]:
    return [change for change in changes if change.kind == "raised" and change.finding.rule == rule]


def test_an_unanswered_query_of_the_console_is_reported_by_its_purpose(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    with local_agent(cluster.dsn(), *CONSOLE) as local, psycopg.connect(cluster.dsn()) as locker:
        locker.execute("lock table pg_tablespace in access exclusive mode")
        reported = local.until("console-late", within_s=45)
        locker.rollback()
        local.until_gone("console-late", within_s=45)
    assert (reported.id, reported.severity) == ("console-late:unanswered", "warning")
    assert "pg.temp" in reported.evidence["parts"]
    assert "temporary files on disk" in reported.text


def test_what_hangs_on_the_host_is_named_until_it_recovers(reused_cluster: FreshCluster) -> None:
    cluster = reused_cluster()
    control = cluster.data_directory / "global" / "pg_control"
    with local_agent(cluster.dsn(), *CONSOLE) as local:
        assert local.rows == []
        control.rename(control.with_name("aside"))
        os.mkfifo(control)  # whoever opens it to read waits for a writer, as on a file system that hangs
        reported = local.until("lane-stuck", within_s=30)
        os.close(os.open(control, os.O_WRONLY | os.O_NONBLOCK))
        control.unlink()
        control.with_name("aside").rename(control)
        local.until_gone("lane-stuck", within_s=30)
    assert reported.severity == "warning"
    assert reported.text.endswith("does not answer: panels that depend on it show its last state")
    assert reported.evidence["stuck_s"] >= 3


def test_a_console_that_ticks_on_time_reports_nothing_about_itself(cluster: Cluster) -> None:
    with local_agent(cluster.dsn(), *CONSOLE) as local:
        local.tick(60)
        assert local.changes == []


def grouped_with_full_disk(frame: Frame) -> list[Finding]:
    """Those to which the full disk was joined."""
    return [found for found in lagging(frame) if any(part.startswith("disk-filling") for part in found.chain)]


def lagging(frame: Frame) -> list[Finding]:
    return [finding for finding in frame.findings if "recording-lags" in finding.chain]


def recorded_on(disk: LoopDisk, cluster: Cluster, directory: Path) -> AbstractContextManager[RunningAgent]:
    """An agent that reports its recording after a second of lag, which means 5 s behind."""
    os.chown(disk.path, os.geteuid(), os.getegid())  # it is made for a server's user
    configured = {"DBA_CONSOLE_AGENT_INTERVAL": "250ms", "DBA_CONSOLE_FINDINGS_CONSOLE_LAGGING_S": "1"}
    return agent(cluster.dsn(), directory, extra={**configured, "DBA_CONSOLE_SESSIONS": str(disk.path / "sessions")})


@pytest.mark.root
def test_a_recording_whose_disk_is_full_is_reported_in_the_live_view(cluster: Cluster, tmp_path: Path) -> None:
    with loop_disk(32 * MIB) as disk:
        with (disk.path / "ballast").open("wb") as file:
            found = os.statvfs(disk.path)
            os.posix_fallocate(file.fileno(), 0, (found.f_bavail - 64) * found.f_frsize)
        with recorded_on(disk, cluster, tmp_path) as running:
            watch = running.watch()
            frame = watch.until(grouped_with_full_disk, 120, what="the finding and its cause")
            (reported,) = grouped_with_full_disk(frame)
            assert frame.connections.used is not None, "the live picture goes on"
    assert reported.severity == "warning"
    assert reported.evidence["recording"] == "failed"
    assert (
        reported.text.startswith("Nothing is recorded because ") and f"{disk.path} (recordings) is 99" in reported.text
    )


@pytest.mark.root
def test_a_recording_on_a_stalled_disk_is_reported_and_cleared_when_it_has_caught_up(
    cluster: Cluster, tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    freeze = require_tool("fsfreeze")
    with loop_disk(64 * MIB) as disk, recorded_on(disk, cluster, tmp_path) as running:
        watch = running.watch()
        assert lagging(watch.next_frame()) == []
        subprocess.run([freeze, "-f", str(disk.path)], check=True)
        (reported,) = lagging(watch.until(lagging, 60, what="the finding"))
        subprocess.run([freeze, "-u", str(disk.path)], check=True)
        watch.until(lambda frame: not lagging(frame), 60, what="the recording caught up")
    assert reported.severity == "warning"
    assert reported.evidence["recorder_lag_s"] >= 6 or reported.evidence["recording"] == "failed"


def test_several_late_ticks_in_a_row_are_reported(cluster: Cluster) -> None:
    with local_agent(cluster.dsn(), *CONSOLE, limits=Limits(ConsoleLimits(late_ticks=3))) as local:
        tick_late(local, 2)
        local.tick()
        tick_late(local, 2)
        assert local.rows == [], "not in a row"
        tick_late(local, 1)
        (row,) = local.rows
        local.until_gone("console-late", within_s=12)
    assert row.evidence["late_s"] == 0.9


def tick_late(local: LocalAgent, count: int) -> None:
    """Ticks that begin 0.9 s after their time."""
    tick = local.collector.tick
    local.collector.tick = lambda late_us=900_000: tick(late_us)  # type: ignore[method-assign]
    local.tick(count)
    local.collector.tick = tick  # type: ignore[method-assign]
