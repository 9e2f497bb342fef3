"""Rules about WAL: archiving that fails or falls behind, and WAL on tmpfs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dba_console.core.clock import age_s
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.findings.phrases import future_time_text, past_time_text, round_number
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale
from dba_console.watch.findings.thresholds import Computed, Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import slope
from dba_console.watch.replication.readings import Archiver
from dba_console.watch.replication.wal_space import (
    RATE_POINTS,
    RATE_WINDOW_S,
    SEGMENT_BYTES,
    WalSpaceLimits,
    seconds_until_full,
    segment_bytes,
    wal_mount,
    wal_rate,
)
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.host import MEMORY_FILE_SYSTEMS


class ArchivingLimits(RuleThresholds, frozen=True):
    """`[findings.wal]`: archiving."""

    family = "wal"

    archive_failures: Computed[int] = 3
    """Consecutive failures that are critical: the archiver tries three times, then pauses for a minute (pgarch.c,
    NUM_ARCHIVE_RETRIES)."""
    backlog_files: Judgement[int] = 16
    """Files of 16 MB waiting to be archived that are a warning, and critical if archiving fails (repmgr,
    archive_ready_warning). For another wal_segment_size the same bytes, but at least three files."""
    backlog_s: Judgement[float] = 900.0
    """Warning if a WAL file waits this long to be archived, however few wait: that much work is not archived."""
    backlog_critical_s: Judgement[float] = 3600.0
    """Critical if a WAL file waits this long. The number of files never is: a bulk load outruns a healthy archive for
    some minutes."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.backlog_s, cls.backlog_critical_s),)


# Archiving: failures and backlog.
#
# A server that writes nothing archives nothing: the age of the last archived file matters only if files wait. Files
# that cannot be archived stay in pg_wal, so a failure ends in a full disk.

CLEAR_SHARE = 0.75
FEWEST = 3
"""Fewer waiting files are normal: one is being written out, one is being archived."""
MINUTE_S = 60.0
"""A shorter wait of a file is not shown."""


@dataclass(slots=True)
class FailureSeries:
    """Consecutive failures: failed_count before the first of them, and its time by the server's clock."""

    before: int
    since_us: int | None


def archive_failing(s: RuleContext) -> Iterator[Signal]:
    """The last archiving attempt failed. A warning at the first failure; critical after as many as the archiver makes
    before it pauses, with a long backlog, or if pg_wal fills its disk within an hour.

    Based on two timestamps of pg_stat_archiver, not on the counters alone, which are reset and lost in a crash.
    """
    archiver = s.picture.now("pg.archiver", Archiver)
    if archiver is None:
        return
    if not is_failing(archiver):
        s.memo("archive-failing").pop("row", None)
        return
    row = _failure_series(s, archiver)
    failures = max(1, archiver.failed_count - row.before)
    per_s = wal_rate(s)
    full = seconds_until_full(_free_wal_space(s), per_s)
    yield Signal(
        severity=_severity(s, archiver, failures, full),
        text=_failing_text(s, archiver, failures, full),
        cause=f"WAL file {clean(archiver.last_failed_wal or '?')} cannot be archived: {_waiting_text(s, archiver)}",
        evidence=_evidence(s, archiver, per_s)
        | {"archive_failures_in_a_row": failures, "full_in_s": round_number(full)},
        series=_series(s),
        since_us=s.host_us(row.since_us),
        runbook="archive-failing",
        advice="The server's log shows the archive command's output: exit code, a full or missing target, rights.",
    )


def is_failing(archiver: Archiver) -> bool:
    """Whether the archiver's last attempt failed, and a file waits (or that is not visible)."""
    failed, archived = archiver.last_failed_at, archiver.last_archived_at
    if not archiver.enabled or failed is None or archiver.ready_count == 0:
        return False
    return archived is None or failed > archived


def _failure_series(s: RuleContext, archiver: Archiver) -> FailureSeries:
    """Return the series of this failure; it starts at one, except if nothing was ever archived."""
    memo = s.memo("archive-failing")
    row: FailureSeries | None = memo.get("row")
    if row is None or archiver.failed_count <= row.before:
        before = 0 if archiver.archived_count == 0 else max(0, archiver.failed_count - 1)
        row = memo["row"] = FailureSeries(before, archiver.last_failed_at)
    return row


def _severity(s: RuleContext, archiver: Archiver, failures: int, full: float | None) -> Severity:
    many = failures >= s.limits.of(ArchivingLimits).archive_failures or (archiver.ready_count or 0) >= _backlog_files(s)
    soon = full is not None and full < s.limits.of(WalSpaceLimits).full_critical_s
    return "critical" if many or soon else "warning"


def _failing_text(s: RuleContext, archiver: Archiver, failures: int, full: float | None) -> str:
    times = "" if failures == 1 else f" {failures} times in a row"
    text = f"Archiving of WAL file {clean(archiver.last_failed_wal or '?')} failed{times}: {_waiting_text(s, archiver)}"
    last_us = s.host_us(archiver.last_archived_at)
    text += (
        ", none was ever archived"
        if last_us is None
        else f", the last was archived {past_time_text(last_us, s.now_us)}"
    )
    if full is not None and full < s.limits.of(WalSpaceLimits).full_warn_s:
        text += f"; pg_wal fills its disk {future_time_text(full, s.now_us)}"
    return text


def archive_backlog(s: RuleContext) -> Iterator[Signal]:
    """Files wait to be archived although nothing fails: the archive command is slow, hangs, or is missing.

    A warning from 256 MB of them (repmgr's 16 files), or if the oldest has waited for a quarter of an hour. Critical
    once it has waited for an hour, or if the growing backlog fills the disk of pg_wal within an hour.
    """
    archiver = s.picture.now("pg.archiver", Archiver)
    if archiver is None or not archiver.enabled or archiver.ready_count is None or is_failing(archiver):
        return
    limits = s.limits.of(ArchivingLimits)
    ready = archiver.ready_count
    oldest = _oldest_s(s, archiver)
    grows = _backlog_growth(s, ready)
    many = s.over(ready, _backlog_files(s), int(_backlog_files(s) * CLEAR_SHARE), "archive-backlog")
    if not many and not s.over(oldest, limits.backlog_s, limits.backlog_s * CLEAR_SHARE, "archive-backlog"):
        return
    full = seconds_until_full(_free_wal_space(s), grows)
    age = age_s(s.facts.server_now_us, archiver.last_archived_at)
    last = "none was archived yet" if age is None else f"the last was archived {human_duration(age)} ago"
    absent = _no_command(s)
    why = "nothing archives WAL (no archive_command)" if absent else "WAL is archived more slowly than it is written"
    late = oldest is not None and oldest >= limits.backlog_critical_s
    soon = full is not None and full < s.limits.of(WalSpaceLimits).full_critical_s
    text = f"{why[0].upper()}{why[1:]}: {_waiting_text(s, archiver)}, {last}"
    if full is not None and full < s.limits.of(WalSpaceLimits).full_warn_s:
        text += f"; pg_wal fills its disk {future_time_text(full, s.now_us)}"
    yield Signal(
        severity="critical" if late or soon else "warning",
        text=text,
        cause=f"{why}: {_waiting_text(s, archiver)}",
        evidence=_evidence(s, archiver, wal_rate(s)) | {"full_in_s": round_number(full)},
        series=_series(s),
        runbook="archive-failing",
        advice="Check how long one archive command takes, and whether one hangs: ps shows it below the archiver.",
    )


def _no_command(s: RuleContext) -> bool:
    return s.facts.setting("archive_command") == "" and not s.facts.setting("archive_library")


def _waiting_text(s: RuleContext, archiver: Archiver) -> str:
    ready = archiver.ready_count
    if ready is None:
        return "how many files wait is not known without pg_monitor"
    size = human_bytes(ready * segment_bytes(s))
    text = f"1 file ({size}) waits" if ready == 1 else f"{ready} files ({size}) wait"
    oldest = _oldest_s(s, archiver)
    if oldest is None or oldest < MINUTE_S:
        return text
    since = f"for {human_duration(oldest)}"
    return f"{text} {since}" if ready == 1 else f"{text}, the oldest {since}"


def _backlog_files(s: RuleContext) -> int:
    """Return the number of files that is a backlog: `backlog_files` of 16 MB in bytes, but at least three files."""
    files = s.limits.of(ArchivingLimits).backlog_files
    return max(min(files, FEWEST), -(-files * SEGMENT_BYTES // segment_bytes(s)))


def _backlog_growth(s: RuleContext, ready: int) -> float | None:
    """Return the growth of the backlog over the last minutes, bytes per second."""
    series: list[tuple[int, float]] = s.memo("archive-backlog").setdefault("ready", [])
    series.append((s.mono_us, ready * segment_bytes(s)))
    del series[:-RATE_POINTS]
    return slope(series, window_s=RATE_WINDOW_S)


def _oldest_s(s: RuleContext, archiver: Archiver) -> float | None:
    return age_s(s.facts.server_now_us, archiver.oldest_ready_at)


def _free_wal_space(s: RuleContext) -> int | None:
    mount = wal_mount(s)
    return None if mount is None else mount.available


def _evidence(s: RuleContext, archiver: Archiver, wal_bytes_per_s: float | None) -> dict[str, Any]:
    mount, now_us, ready = wal_mount(s), s.facts.server_now_us, archiver.ready_count
    return {
        "archive_ready_count": ready,
        "archive_ready_bytes": None if ready is None else ready * segment_bytes(s),
        "archive_failed_count": archiver.failed_count,
        "last_failed_wal": clean(archiver.last_failed_wal) if archiver.last_failed_wal else None,
        "last_archived_wal": clean(archiver.last_archived_wal) if archiver.last_archived_wal else None,
        "last_failed_age_s": age_s(now_us, archiver.last_failed_at),
        "archive_age_s": age_s(now_us, archiver.last_archived_at),
        "archive_oldest_s": age_s(now_us, archiver.oldest_ready_at),
        "wal_bytes_per_s": round_number(wal_bytes_per_s),
        "mount": None if mount is None else clean(mount.path),
        "available_bytes": None if mount is None else mount.available,
    }


def _series(s: RuleContext) -> tuple[str, ...]:
    mount = wal_mount(s)
    return ("replication.wal_bytes_per_s", *(() if mount is None else (f"mount:{mount.path}.used_bytes",)))


ARCHIVING_RULES: tuple[Rule, ...] = (
    Rule(
        name="archive-failing",
        title="WAL files cannot be archived: which, since when, and when pg_wal is full",
        parts=("pg.archiver",),
        check=keep_signals_while_stale("pg.archiver", archive_failing),
        settings=(
            ArchivingLimits.archive_failures,
            ArchivingLimits.backlog_files,
            WalSpaceLimits.full_critical_s,
            WalSpaceLimits.full_warn_s,
        ),
        runbook="archive-failing",
        source="pg_stat_archiver; pgarch.c NUM_ARCHIVE_RETRIES",
    ),
    Rule(
        name="archive-backlog",
        title="WAL files wait to be archived although nothing fails",
        parts=("pg.archiver",),
        check=keep_signals_while_stale("pg.archiver", archive_backlog),
        settings=(
            ArchivingLimits.backlog_files,
            ArchivingLimits.backlog_s,
            ArchivingLimits.backlog_critical_s,
            WalSpaceLimits.full_critical_s,
            WalSpaceLimits.full_warn_s,
        ),
        runbook="archive-failing",
        source="repmgr archive_ready_warning 16; pg_ls_archive_statusdir()",
    ),
)


def wal_on_tmpfs(s: RuleContext) -> Iterator[Signal]:
    """WAL is in memory: after the next power failure or reboot the cluster does not start. Critical."""
    mount = wal_mount(s)
    if mount is None or mount.fstype not in MEMORY_FILE_SYSTEMS:
        return
    what = "Data and WAL are" if "data" in mount.holds else "WAL is"
    yield Signal(
        severity="critical",
        text=f"{what} on {clean(mount.fstype)} ({clean(mount.path)}): a power failure or a reboot loses the cluster",
        evidence={"mount": clean(mount.path), "fstype": mount.fstype, "holds": list(mount.holds)},
        advice="Move pg_wal to a disk while the server is stopped; until then only a replica elsewhere is safe.",
    )


TMPFS_RULES: tuple[Rule, ...] = (
    Rule(
        name="wal-on-tmpfs",
        title="WAL is in memory",
        parts=("host.mounts",),
        check=wal_on_tmpfs,
        source="kernel documentation: tmpfs (its files are in memory)",
    ),
)
