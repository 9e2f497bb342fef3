"""Rules about file systems: full or filling up, out of inodes, mounted with discard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from dba_console.core.clock import rfc3339
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes, human_pct
from dba_console.watch.disks.panel import GATE_BYTES, GATE_SHARE
from dba_console.watch.findings.phrases import (
    future_time_text,
    holds_server,
    mount_text,
    mounts_of,
    round_number,
    share_used,
)
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, Value, latch
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import Points, fit_trend, sample_points
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.host import Mount


class DiskLimits(RuleThresholds, frozen=True):
    """`[findings.disks]`: full and filling file systems."""

    family = "disks"

    full_warning_pct: Judgement[float] = 80.0
    """Warning from this used percentage of a file system, as df shows it."""
    full_critical_pct: Judgement[float] = 90.0
    """Critical from this used percentage with data, WAL, temporary files or a tablespace on it."""
    full_beside_critical_pct: Judgement[float] = 95.0
    """Critical from this used percentage with only archive, log or similar on it."""
    roomy_bytes: Judgement[float] = 50 * 1024.0**3
    """With this much free and no growth, the severity by percentage is one lower."""
    full_in_warning_s: Judgement[float] = 86_400.0
    """Warning if it is full within this time at a growth that was steady for minutes."""
    full_in_critical_s: Judgement[float] = 3600.0
    """Critical if it is full within this time, and a sixth of the free space was used while observed."""
    soon_s: Judgement[float] = 300.0
    """Warning if it is full within this time at the growth of the last ten seconds, which may stop as fast."""
    inodes_warning_pct: Judgement[float] = 80.0
    """Warning from this used percentage of the inodes."""
    inodes_critical_pct: Judgement[float] = 95.0
    """Critical from this used percentage of the inodes with data, WAL, temporary files or a tablespace."""

    @classmethod
    def in_order(cls) -> Ordered:
        return (
            (cls.full_warning_pct, cls.full_critical_pct),
            (cls.full_warning_pct, cls.full_beside_critical_pct),
            (cls.full_in_critical_s, cls.full_in_warning_s),
            (cls.inodes_warning_pct, cls.inodes_critical_pct),
        )


# When a file system will be full: based on ten seconds, on minutes and on hours of readings.
#
# A short burst must not alarm, and a disk that is full in three minutes must not wait for a steady trend. So a forecast
# reaches no further ahead than a multiple of the observed span; ten seconds count only when the disk is nearly full.

GAP_US = 20_000_000
"""Readings come every 5 s; a longer distance is a gap."""
COARSE_US = 120_000_000
MIN_SPAN_S = 29.0
MIN_POINTS = 7
"""Half a minute is the shortest span for a trend: with `MAX_HORIZON_FACTOR` three minutes ahead, for a disk nearly
full."""
MAX_HORIZON_FACTOR = 6.0
"""A forecast reaches at most this many times its span ahead: normal work moves usage up and down by gigabytes an hour,
and a few minutes say nothing about the day."""
SPAN_PARTS = 10
RISING_SHARE = 0.7
"""The span is cut into this many parts, and this share of them must have risen: a bulk load is only one step or two."""
URGENT_FACTOR = 5.0
"""Urgent at most this many times the span ahead: a sixth of the free space was used while it was observed."""
BURST_GATE_SHARE = 0.05
"""Ten seconds of growth count if they used this share of the free space: less is a checkpoint, or a large file copy."""
_MARGIN = 4.0


class FillForecast(NamedTuple):
    """Growth of a file system's used bytes, and when it is full."""

    per_s: float
    """Growth, bytes per second."""
    full_in_s: float
    watched_s: float
    steady: bool
    """False: based on ten seconds only."""

    @property
    def urgent(self) -> bool:
        """Whether the end is near relative to the observed span."""
        return self.steady and self.full_in_s <= URGENT_FACTOR * self.watched_s


class UsageHistory:
    """The used bytes of one file system: every reading of five minutes, one per two minutes of four hours."""

    def __init__(self) -> None:
        self.latches: dict[str, bool] = {}
        """Severities reached by share, each until usage is clearly below (`rule.latch`)."""
        self._fine: deque[tuple[int, float]] = deque(maxlen=61)
        self._coarse: deque[tuple[int, float]] = deque(maxlen=121)

    def add(self, mono_us: int, used: int) -> None:
        """Add a reading. A gap restarts the trend over minutes; the trend over hours outlives a short one."""
        step_us = mono_us - self._fine[-1][0] if self._fine else 0
        if step_us < 0:
            self._coarse.clear()  # the host was rebooted
        if not 0 <= step_us <= GAP_US:
            self._fine.clear()
        if not self._coarse or mono_us - self._coarse[-1][0] >= COARSE_US:
            self._coarse.append((mono_us, float(used)))
        self._fine.append((mono_us, float(used)))

    def forecast(self, limit: int, size: int, *, within_s: float, soon_s: float) -> FillForecast | None:
        """Return the nearest end: within `within_s` by a steady trend, else within `soon_s` by ten seconds."""
        gate = max(GATE_BYTES, GATE_SHARE * size)
        trends = [self._steady_forecast(points, limit, gate, within_s) for points in (self._fine, self._coarse)]
        steady = min((one for one in trends if one is not None), key=lambda one: one.full_in_s, default=None)
        return steady or self._burst_forecast(limit, soon_s)

    @staticmethod
    def _steady_forecast(
        points: deque[tuple[int, float]], limit: int, gate: float, within_s: float
    ) -> FillForecast | None:
        if len(points) < 2:
            return None
        span_s, rise = (points[-1][0] - points[0][0]) / 1e6, points[-1][1] - points[0][1]
        # The trend is expensive: check first whether the two ends allow an end that soon.
        if rise < gate / _MARGIN or (limit - points[-1][1]) * span_s > _MARGIN * rise * within_s:
            return None
        if not _keeps_rising(list(points)):
            return None
        found = fit_trend(list(points), window_s=14_400.0, min_span_s=MIN_SPAN_S, min_points=MIN_POINTS)
        full_in_s = None if found is None else found.time_to_reach(limit, gate=gate, horizon_s=within_s)
        if found is None or full_in_s is None or full_in_s > MAX_HORIZON_FACTOR * span_s:
            return None
        return FillForecast(found.per_s, full_in_s, span_s, True)

    def _burst_forecast(self, limit: int, soon_s: float) -> FillForecast | None:
        """Three readings, each above the one before: the rate is that of the last two."""
        if len(self._fine) < 3:
            return None
        (first_us, first), (middle_us, middle), (last_us, last) = list(self._fine)[-3:]
        left = limit - last
        if not first < middle < last or last - first < max(GATE_BYTES, BURST_GATE_SHARE * left):
            return None
        per_s = (last - middle) / (last_us - middle_us) * 1e6
        full_in_s = left / per_s
        # The earlier step may have caught only the start, but must belong to the same growth.
        grew = (middle - first) / (middle_us - first_us) * 1e6
        if full_in_s > soon_s or grew < 0.005 * per_s:
            return None
        return FillForecast(per_s, max(0.0, full_in_s), (last_us - first_us) / 1e6, False)


def _keeps_rising(points: Points) -> bool:
    """Whether most parts of the span rose."""
    levels = [value for _, value in sample_points(points, SPAN_PARTS + 1)]
    rose = sum(later > earlier for earlier, later in pairwise(levels))
    return rose >= RISING_SHARE * (len(levels) - 1)


RULE = "disk-filling"
CLEAR_PCT = 2.0
"""Percentage points below the threshold at which a severity ends."""
_ONE_LESS: dict[Severity, Severity | None] = {"critical": "warning", "warning": "info", "info": None}


def disk_filling(s: RuleContext) -> Iterator[Signal]:
    """A file system of PostgreSQL or of the console is nearly full, or will be.

    By share: 80 % a warning; critical at 90 % with data, WAL, temporary files or a tablespace (a
    volume that is 80 to 90 % full counts as full), at 95 % elsewhere; one severity less if 50 GB are free and it
    does not grow, since 80 % of 20 TB is normal. By forecast: within a day a warning, within an hour critical, based on
    steady growth and no further ahead than six times the observed span; from ten seconds of growth, a warning if they
    used 2 % of the free space and five minutes remain. PostgreSQL stops when WAL has no space (wal.sgml, "if the disk
    fills up").
    """
    watched: dict[str, UsageHistory] = s.memo(RULE)
    mounts = mounts_of(s)
    for mount in mounts:
        if mount.used is not None and mount.available is not None:
            yield from _check_mount(
                s, mount, mount.used, mount.available, watched.setdefault(mount.path, UsageHistory())
            )
    for path in watched.keys() - {mount.path for mount in mounts}:
        del watched[path]


def _check_mount(s: RuleContext, mount: Mount, used: int, available: int, watched: UsageHistory) -> Iterator[Signal]:
    limits = s.limits.of(DiskLimits)
    watched.add(s.picture.current["host.mounts"].part.at_us, used)
    outlook = watched.forecast(
        used + available, mount.size or used + available, within_s=limits.full_in_warning_s, soon_s=limits.soon_s
    )
    by_share, by_date = _severity_by_share(s, mount, available, outlook, watched), _severity_by_date(s, mount, outlook)
    severity = by_share if by_date is None or by_share == "critical" else by_date
    if severity is not None:
        yield _signal(s, mount, available, outlook, severity)


def _severity_by_share(
    s: RuleContext, mount: Mount, available: int, outlook: FillForecast | None, watched: UsageHistory
) -> Severity | None:
    limits, pct = s.limits.of(DiskLimits), share_used(mount) or 0.0
    critical_pct = limits.full_critical_pct if holds_server(mount) else limits.full_beside_critical_pct
    grades: dict[Severity, float] = {"warning": limits.full_warning_pct, "critical": critical_pct}
    if mount.holds == ["session"]:
        del grades["critical"]  # the console's own recording; the server is not at risk
    severity: Severity | None = None
    for grade, at_pct in grades.items():
        if latch(watched.latches, grade, at=pct >= at_pct, until=pct >= at_pct - CLEAR_PCT):
            severity = grade
    if severity is not None and available >= limits.roomy_bytes and outlook is None:
        return _ONE_LESS[severity]
    return severity


def _severity_by_date(s: RuleContext, mount: Mount, outlook: FillForecast | None) -> Severity | None:
    if outlook is None:
        return None
    near = outlook.urgent and outlook.full_in_s <= s.limits.of(DiskLimits).full_in_critical_s
    return "critical" if near and holds_server(mount) else "warning"


def _signal(s: RuleContext, mount: Mount, available: int, outlook: FillForecast | None, severity: Severity) -> Signal:
    pct, name = share_used(mount), mount_text(mount)
    text = f"{name} is {human_pct(pct)} full, {human_bytes(available)} left"
    cause = text
    if outlook is not None:
        pace = f"+{human_bytes(outlook.per_s, per_s=True)}"
        date = future_time_text(outlook.full_in_s, s.now_us)
        text = f"{name} will be full {date}: {pace}, {human_bytes(available)} left ({human_pct(pct)} used)"
        cause = f"{name} fills up, {pace}, {human_bytes(available)} left"
    return Signal(
        severity=severity,
        subject=clean(mount.path),
        text=text,
        cause=cause,
        evidence=_evidence(s, mount, outlook),
        series=(f"mount:{mount.path}.used_bytes",),
        runbook=RULE,
        advice=_advice(mount),
    )


def _evidence(s: RuleContext, mount: Mount, outlook: FillForecast | None) -> dict[str, Value]:
    full_us = None if outlook is None else s.now_us + int(outlook.full_in_s) * 1_000_000
    return {
        "mount": clean(mount.path),
        "holds": [clean(held) for held in mount.holds],
        "used_pct": round_number(share_used(mount)),
        "used_bytes": mount.used,
        "available_bytes": mount.available,
        "growth_bytes_per_s": None if outlook is None else round_number(outlook.per_s),
        "full_in_s": None if outlook is None else round_number(outlook.full_in_s),
        "full_at": rfc3339(full_us),
        "watched_s": None if outlook is None else round_number(outlook.watched_s),
    }


def _advice(mount: Mount) -> str:
    if "wal" in mount.holds or "data" in mount.holds:
        return (
            "The server stops when WAL has no space: check what grows here (slots, archive_status, temporary files, a "
            "copy of the data) before you remove anything, and never remove files from pg_wal."
        )
    return "Check what grows here: usually old logs, dumps or archived WAL."


def inodes_filling(s: RuleContext) -> Iterator[Signal]:
    """A file system is running out of inodes: no file can be created although there is free space.

    80 and 95 %, the thresholds of monitoring plugins for space; PostgreSQL needs few inodes, so the cause is mostly
    something else, e.g. sessions of a web application or a mail queue. File systems with dynamic inodes report none.
    """
    limits = s.limits.of(DiskLimits)
    for mount in mounts_of(s):
        if not mount.inodes or mount.inodes_free is None:
            continue
        subject, pct = clean(mount.path), 100.0 * (mount.inodes - mount.inodes_free) / mount.inodes
        if not s.over(pct, limits.inodes_warning_pct, limits.inodes_warning_pct - CLEAR_PCT, "inodes-filling", subject):
            continue
        bad = pct >= limits.inodes_critical_pct and holds_server(mount)
        yield Signal(
            severity="critical" if bad else "warning",
            subject=subject,
            text=f"{mount_text(mount)} has used {human_pct(pct)} of its inodes, {mount.inodes_free} are left: "
            "at 0 no file can be created, even with free space",
            evidence={
                "mount": subject,
                "inodes_pct": round(pct, 1),
                "inodes": mount.inodes,
                "inodes_free": mount.inodes_free,
            },
            runbook=RULE,
            advice="Find the directory with the most files; it is rarely PostgreSQL's.",
        )


def discard_mount(s: RuleContext) -> Iterator[Signal]:
    """Data, WAL or backups are on a file system mounted with `discard`: removing a large file may stall the device.

    Freed extents are then trimmed within the file system's transaction (ext4 and xfs documentation: "discard");
    removing a backup of 50 GB stopped all I/O for 28 s. `discard=async` of btrfs is deferred and harmless.
    """
    for mount in mounts_of(s):
        if "discard" not in mount.options.split(",") or mount.holds == ["session"]:
            continue
        yield Signal(
            severity="info",
            subject=clean(mount.path),
            text=f"{mount_text(mount)} is mounted with discard: removing a large file there can stall the device",
            evidence={"mount": clean(mount.path), "holds": [clean(held) for held in mount.holds],
                      "device": None if mount.device is None else clean(mount.device)},
            runbook="remove-backup",
            advice="Truncate large files in small steps instead of removing them, or mount without discard and run "
            "fstrim at off-peak hours.",
        )  # fmt: skip


FILE_SYSTEM_RULES = (
    Rule(
        name="disk-filling",
        title="A file system is nearly full, or will be",
        parts=("host.mounts",),
        check=disk_filling,
        clear_after_s=60.0,
        settings=(
            DiskLimits.full_warning_pct,
            DiskLimits.full_critical_pct,
            DiskLimits.full_beside_critical_pct,
            DiskLimits.roomy_bytes,
            DiskLimits.full_in_warning_s,
            DiskLimits.full_in_critical_s,
            DiskLimits.soon_s,
        ),
        source="PostgreSQL: disk full failure (diskusage.sgml)",
        runbook="disk-filling",
    ),
    Rule(
        name="inodes-filling",
        title="A file system is running out of inodes",
        parts=("host.mounts",),
        check=inodes_filling,
        clear_after_s=60.0,
        settings=(
            DiskLimits.inodes_warning_pct,
            DiskLimits.inodes_critical_pct,
        ),
        source="monitoring plugins: check_disk -W, -K",
        runbook="disk-filling",
    ),
    Rule(
        name="discard-mount",
        title="Data, WAL or backups are on a file system mounted with discard",
        parts=("host.mounts",),
        check=discard_mount,
        clear_after_s=60.0,
        source="Linux: ext4 and xfs, mount option discard",
        runbook="remove-backup",
    ),
)
