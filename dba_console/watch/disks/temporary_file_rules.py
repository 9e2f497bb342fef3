"""Rule about temporary files that threaten their disk: a sort or hash that does not fit its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.disks.file_system_rules import DiskLimits
from dba_console.watch.disks.readings import TempDirectory, TempFiles
from dba_console.watch.findings.phrases import display_name, mount_text, query_text, session_text, share_used
from dba_console.watch.findings.rule import Rule, RuleContext, Signal
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import pair, rate
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.host import Mount, Mounts
from dba_console.watch.samples.postgres import Activity


class TemporaryFileLimits(RuleThresholds, frozen=True):
    """`[findings.disks]`: temporary files."""

    family = "disks"

    temp_bytes: Judgement[float] = 1024.0**3
    """Warning from this size of temporary files, if their disk is full within full_in_warning_s or its free space is
    unknown."""
    temp_free_pct: Judgement[float] = 20.0
    """For critical: temporary files as a percentage of the space that would be free without them."""
    temp_bytes_per_s: Judgement[float] = 50 * 1024.0**2
    """Warning from this rate of temporary files, if their disk is full within temp_full_in_critical_s at it."""
    temp_full_in_critical_s: Judgement[float] = 600.0
    """Critical if the disk is full within this time at the growth of the temporary files, and `temp_free_pct` is
    reached."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.temp_full_in_critical_s, DiskLimits.full_in_warning_s),)


# Based on the files on disk now (pg_ls_tmpdir), because pg_stat_database counts a file when it is closed and a runaway
# sort closes none. Files of parallel workers are in directories that are not listed; they show only in the disk's
# growth.

RULE = "temp-spill"
SMALL_BYTES = 64 << 20
"""Temporary files below this size matter on no disk."""
CLEAR_SHARE = 0.7
"""Share of each threshold above which an open finding stays."""


class _Spill(NamedTuple):
    """Temporary files of one tablespace."""

    rows: list[TempDirectory]
    mount: Mount | None
    live: int
    """Bytes on disk now."""
    growth: float | None
    """Change of `live` per second."""
    written: float | None
    """Bytes written per second, including files that are closed again."""

    @property
    def free(self) -> int | None:
        return None if self.mount is None else self.mount.available

    @property
    def free_pct(self) -> float | None:
        """Percentage of the space that would be free without them."""
        return None if self.free is None else 100.0 * self.live / max(1, self.live + self.free)

    @property
    def full_in_s(self) -> float | None:
        """Seconds until full; None also if they do not grow."""
        return None if self.free is None or not self.growth or self.growth <= 0 else self.free / self.growth


def temp_spill(s: RuleContext) -> Iterator[Signal]:
    """Sorts and hashes write temporary files that threaten their disk; names the session.

    A warning for a fifth of the free space, for 1 GB if they fill the disk within a day or its space is not known,
    for 50 MB/s over five seconds if the disk is full within ten minutes at that rate; critical if at their growth it
    is full within ten minutes and a fifth is used (a runaway sort that fills the data volume stops the
    server). Normal temporary files on a large disk raise nothing: every report sorts.
    """
    now = s.picture.now("pg.temp", TempFiles)
    if now is None or not now.rows:
        return
    for space, spill in _spills(s, now).items():
        severity = _severity(s, spill, s.is_open(RULE, space))
        if severity is not None:
            yield _signal(s, space, spill, severity)


def _spills(s: RuleContext, now: TempFiles) -> dict[str, _Spill]:
    """Return the spills by tablespace; pg_default is keyed by an empty name."""
    spaces: dict[str, list[TempDirectory]] = {}
    for row in now.rows:
        spaces.setdefault(row.tablespace, []).append(row)
    both = pair(s.picture, "pg.temp", TempFiles)
    most = max(spaces, key=lambda space: _bytes(spaces[space]))
    found = {}
    for space, rows in spaces.items():
        live = _bytes(rows)
        growth = closed = None
        if both is not None:
            growth = (live - _bytes([row for row in both.old.rows if row.tablespace == space])) / both.seconds
            if space == most:
                closed = rate(both.new.closed_bytes, both.old.closed_bytes, both.seconds)
        written = None if growth is None else max(0.0, growth + (closed or 0.0))
        found["" if space == "pg_default" else clean(space)] = _Spill(rows, _mount(s, space), live, growth, written)
    return found


def _bytes(rows: list[TempDirectory]) -> int:
    return sum(row.bytes for row in rows)


def _mount(s: RuleContext, tablespace: str) -> Mount | None:
    held = "data" if tablespace == "pg_default" else f"tablespace:{tablespace}"
    mounts = s.facts.picture.now("host.mounts", Mounts)
    return None if mounts is None else next((mount for mount in mounts.mounts if held in mount.holds), None)


def _severity(s: RuleContext, spill: _Spill, is_open: bool) -> Severity | None:
    limits = s.limits.of(TemporaryFileLimits)
    share = CLEAR_SHARE if is_open else 1.0
    if spill.live < SMALL_BYTES * share:
        return None
    eats = spill.free_pct is not None and spill.free_pct >= limits.temp_free_pct * share
    soon = spill.full_in_s is not None and spill.full_in_s <= limits.temp_full_in_critical_s / share
    if eats and soon:
        return "critical"
    unknown = spill.free is None
    ends = spill.full_in_s is not None and spill.full_in_s <= s.limits.of(DiskLimits).full_in_warning_s
    much = spill.live >= limits.temp_bytes * share and (unknown or ends)
    written = spill.written or 0.0
    short = spill.free is not None and spill.free <= written * limits.temp_full_in_critical_s / share
    fast = written >= limits.temp_bytes_per_s * share and short
    return "warning" if eats or much or fast else None


def _signal(s: RuleContext, space: str, spill: _Spill, severity: Severity) -> Signal:
    row = spill.rows[0]
    activity = None if row.pid is None else s.facts.by_pid.get(row.pid)
    pace = "" if spill.written is None else f", {human_bytes(spill.written, per_s=True)} written"
    held = f"{human_bytes(spill.live)} of temporary files{pace}"
    text = f"{_who_text(row, activity)} sorts on disk: {held}{_where_text(spill)}"
    return Signal(
        severity=severity,
        subject=space,
        text=text,
        cause=f"{_who_text(row, activity)} writes temporary files ({held})",
        evidence={
            "tablespace": clean(row.tablespace),
            "mount": None if spill.mount is None else clean(spill.mount.path),
            "temp_bytes": spill.live,
            "temp_files": sum(each.files for each in spill.rows),
            "temp_written_bytes_per_s": None if spill.written is None else round(spill.written),
            "temp_growth_bytes_per_s": None if spill.growth is None else round(spill.growth),
            "temp_available_bytes": spill.free,
            "temp_full_in_s": None if spill.full_in_s is None else round(spill.full_in_s, 1),
            "pid": row.pid,
            "pid_bytes": row.bytes,
            **_session_evidence(activity),
        },
        series=() if spill.mount is None else (f"mount:{spill.mount.path}.used_bytes", "io.write_bytes_per_s"),
        advice=_advice(row, activity),
        runbook="disk-filling",
    )


def _who_text(row: TempDirectory, activity: Activity | None) -> str:
    if activity is not None:
        return session_text(activity)
    return "A query" if row.pid is None else f"Process {row.pid}"


def _where_text(spill: _Spill) -> str:
    if spill.mount is None:
        return ""
    used = share_used(spill.mount)
    full = f", full in {human_duration(spill.full_in_s)}" if spill.full_in_s is not None and used is not None else ""
    return f" on {mount_text(spill.mount)}, {human_bytes(spill.free)} left{full}"


def _session_evidence(activity: Activity | None) -> dict[str, str | None]:
    if activity is None:
        return {}
    return {
        "application": display_name(activity.application),
        "user": display_name(activity.user),
        "database": display_name(activity.database),
        "query": query_text(activity.query),
    }


def _advice(row: TempDirectory, activity: Activity | None) -> str:
    ends = (
        f"pg_cancel_backend({row.pid}) ends the query and rolls its transaction back; " if activity is not None else ""
    )
    return f"{ends}temp_file_limit limits what one session may write, temp_tablespaces moves the files to another disk."


SPILL_RULE = Rule(
    name="temp-spill",
    title="Temporary files of a sort or hash threaten the disk",
    parts=("pg.temp",),
    check=temp_spill,
    clear_after_s=30.0,
    settings=(
        TemporaryFileLimits.temp_free_pct,
        TemporaryFileLimits.temp_bytes,
        TemporaryFileLimits.temp_bytes_per_s,
        TemporaryFileLimits.temp_full_in_critical_s,
        DiskLimits.full_in_warning_s,
    ),
    source="PostgreSQL: pg_ls_tmpdir (func.sgml), temp_file_limit (config.sgml)",
    runbook="disk-filling",
)
