"""Replication slots: WAL kept for somebody who does not read it, until the disk is full or the slot is lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes
from dba_console.watch.findings.phrases import future_time_text
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale, unobserved_us
from dba_console.watch.frames.rates import WINDOW_S, SeriesTrend, fit_trend, recent_points, slope
from dba_console.watch.frames.replication import lsn_distance
from dba_console.watch.samples import host, postgres
from dba_console.watch.samples.findings import Severity

# Room for WAL: what is free on the disk of pg_wal, how fast WAL is written, and when it is full.
#
# The kernel's numbers, so only where the server runs on this host; without them there is no date, and none is
# invented.

Points = Sequence[tuple[int, float]]

RATE_WINDOW_S = 300.0
RATE_POINTS = 150
MIN_RATE_POINTS = 3
SEGMENT_BYTES = 16 << 20
"""wal_segment_size where it is not known: the default of initdb."""


def wal_mount(s: RuleContext) -> host.Mount | None:
    """The file system pg_wal lies on, None where it is not known."""
    mounts = s.facts.picture.now("host.mounts", host.Mounts)
    rows = [] if mounts is None else mounts.mounts
    return next((row for row in rows if "wal" in row.holds), None)


def segment_bytes(s: RuleContext) -> int:
    """Size of one file of WAL."""
    return s.facts.size("wal_segment_size") or SEGMENT_BYTES


def wal_rate(s: RuleContext) -> float | None:
    """Bytes of WAL written a second, the mean of the last minutes; None before it was seen three times."""
    recent = recent_points(s.history.series("replication.wal_bytes_per_s")[-RATE_POINTS:], RATE_WINDOW_S)
    return fmean(value for _, value in recent) if len(recent) >= MIN_RATE_POINTS else None


def recent_growth(series: Points) -> float | None:
    """Growth a second over the last ten seconds, None below four readings that agree: a beginning, not a trend."""
    return slope(series, window_s=10.5, min_span_s=5.0, min_points=4)


def round_number(number: float | None) -> float | None:
    """A number for the evidence, with one digit: more are noise, and would make each tick another."""
    return None if number is None else round(number, 1)


def seconds_until_full(room: float | None, per_s: float | None) -> float | None:
    """Seconds until `room` bytes are used; None where either is unknown or nothing grows."""
    if room is None or per_s is None or per_s <= 0:
        return None
    return max(0.0, room) / per_s


CLEAR_SHARE = 0.8
TREND_US = 10_000_000
READER_GONE_US = 10_000_000
"""A reader that comes back sooner is the same one: a walreceiver tries again every five seconds
(wal_retrieve_retry_interval), and one that comes and goes reads too slowly all the same. Not less than COURSE_US."""
MIN_READ_SPAN_S = 30.0
"""A slot that is read has to be watched for so long: what grew before its reader came says nothing of that reader."""
UNBOUNDED = 1 << 50
"""Room for WAL where it is not known: growth is told, and no date."""


@dataclass(frozen=True, slots=True)
class RetainedWal:
    """What one slot keeps, how fast that grows, and what it ends in."""

    slot: postgres.Slot
    bytes: int
    outcome: str
    """What happens at the end it comes to first."""
    per_s: float | None = None
    end_in_s: float | None = None
    """None where it does not come to it, or only beyond what its growth can tell."""
    grows: bool = False
    """It has grown steadily for a minute at least, clearly above its own ups and downs."""


def slot_retention(s: RuleContext) -> Iterator[Signal]:
    """Slots nobody reads that keep much, or grow towards the end of the disk or of themselves; and slots that are read,
    but more slowly than WAL is written.

    A warning from 1 GB, or a tenth of what is free on the disk of pg_wal, and where that is full, or the slot lost by
    max_slot_wal_keep_size, within a day of steady growth; critical where it is within an hour, within a quarter of an
    hour by the last ten seconds alone, or where the next checkpoint may remove what the slot needs. From the
    first reading, however slowly it grows, a warning at 80 % of max_slot_wal_keep_size and critical at 95 %. One that
    is read must keep as much and have grown for half a minute since its reader came, and is critical only a quarter of
    an hour before its end.

    A slot that is lost keeps nothing any more and is another finding. A standby that restarts is given its grace. A
    copy of a primary's slot, which a standby keeps for a failover, is told as such: its reader is the primary's.
    """
    replication = s.picture.now("pg.replication", postgres.Replication)
    if replication is None or not replication.slots:
        return
    readers = _track_readers(s, replication.slots)
    for slot in replication.slots:
        retained = lsn_distance(replication.lsn, slot.restart_lsn)
        if retained is None or _is_lost(slot) or slot.temporary:
            continue
        if retained < s.limits.wal.slot_least_bytes and (_used_pct(slot, retained) or 0) < s.limits.wal.slot_near_pct:
            continue
        if slot.active_pid is None and _in_grace(s, slot):
            continue
        kept = _retained_wal(s, slot, retained)
        severity = _severity(s, kept)
        if severity is not None:
            yield _retention_signal(
                s, kept, severity, readers.get(slot.name), copied=replication.in_recovery and bool(slot.synced)
            )


def _track_readers(s: RuleContext, slots: list[postgres.Slot]) -> dict[str, int]:
    """Slot -> the last reader that was seen, and the time it was."""
    readers: dict[str, int] = s.memo("slots").setdefault("readers", {})
    seen: dict[str, int] = s.memo("slots").setdefault("seen_us", {})
    came: dict[str, int] = s.memo("slots").setdefault("came_us", {})
    _forget_gone(s.memo("slots"), {slot.name for slot in slots})
    unwatched = unobserved_us(s.memo("slots"), s.mono_us)
    for name in seen:
        seen[name] += unwatched
    for slot in slots:
        if slot.active_pid is not None:
            if s.mono_us - seen.get(slot.name, -READER_GONE_US) >= READER_GONE_US:
                came[slot.name] = s.mono_us
            readers[slot.name], seen[slot.name] = slot.active_pid, s.mono_us
    return readers


def _forget_gone(memo: dict[str, Any], there: set[str]) -> None:
    """Base backups and copies of tables take a slot of a new name each, for weeks on end."""
    for kept in (memo["readers"], memo["seen_us"], memo["came_us"]):
        for name in kept.keys() - there:
            del kept[name]
    courses = memo.get("courses", {})
    for key in [key for key in courses if key[0] not in there]:
        del courses[key]


def _in_grace(s: RuleContext, slot: postgres.Slot) -> bool:
    seen_us: int | None = s.memo("slots")["seen_us"].get(slot.name)
    recent = seen_us is not None and s.mono_us - seen_us < s.limits.wal.slot_grace_s * 1e6
    return recent and slot.wal_status != "unreserved"


def _retained_wal(s: RuleContext, slot: postgres.Slot, retained: int) -> RetainedWal:
    """With max_slot_wal_keep_size a slot may end before the disk does."""
    mount = wal_mount(s)
    room = None if mount is None else mount.available
    ends = f"the disk of pg_wal{'' if mount is None else f' ({clean(mount.path)})'} is full"
    if slot.safe_wal_size is not None and (room is None or slot.safe_wal_size <= room):
        room, ends = max(0, slot.safe_wal_size), "the slot is lost (max_slot_wal_keep_size)"
    return _with_trend(s, RetainedWal(slot, retained, ends), room)


def _with_trend(s: RuleContext, kept: RetainedWal, room: int | None) -> RetainedWal:
    """Where it goes: by minutes of steady growth, or by the last ten seconds where they leave little time."""
    limits, series = s.limits.wal, s.history.series(f"slot:{kept.slot.name}.retained_bytes")
    late = recent_growth(series)
    soon_s = seconds_until_full(room, late)
    if soon_s is not None and soon_s < limits.full_soon_s and kept.slot.active_pid is None:
        return replace(kept, per_s=late, end_in_s=soon_s)
    found = _slot_trend(s, kept.slot, series)
    if found is None or (kept.slot.active_pid is not None and not _rose(found.points)):
        return replace(kept, per_s=late)
    far = kept.bytes + (UNBOUNDED if room is None else room)
    end_in_s = found.time_to_reach(far, gate=limits.slot_least_bytes, horizon_s=float("inf"))
    return replace(kept, per_s=found.per_s, end_in_s=None if room is None else end_in_s, grows=end_in_s is not None)


def _slot_trend(s: RuleContext, slot: postgres.Slot, series: Points) -> SeriesTrend | None:
    """The course of minutes, of a slot that is read since its reader came; taken anew every COURSE_US, for it is dear,
    and no younger answer is a better one."""
    courses: dict[tuple[str, bool], tuple[int, SeriesTrend | None]] = s.memo("slots").setdefault("courses", {})
    key = (slot.name, slot.active_pid is not None)
    at_us, found = courses.get(key, (-TREND_US, None))
    if s.mono_us - at_us >= TREND_US:
        found = fit_trend(series) if slot.active_pid is None else _reader_trend(s, slot, series)
        courses[key] = (s.mono_us, found)
    return found


def _reader_trend(s: RuleContext, slot: postgres.Slot, series: Points) -> SeriesTrend | None:
    read_s = (s.mono_us - s.memo("slots")["came_us"][slot.name]) / 1e6
    return fit_trend(series, window_s=min(WINDOW_S, read_s), min_span_s=MIN_READ_SPAN_S)


def _rose(points: Points) -> bool:
    """Whether the last third lies above the first altogether: a slot that is read moves in steps, and what it keeps
    rises between two of them without growing."""
    third = max(1, len(points) // 3)
    return min(value for _, value in points[-third:]) > max(value for _, value in points[:third])


def _severity(s: RuleContext, kept: RetainedWal) -> Severity | None:
    """None where it is as it should be."""
    limits, end_in_s, unread = s.limits.wal, kept.end_in_s, kept.slot.active_pid is None
    if kept.slot.wal_status == "unreserved":
        return "critical"
    used_pct = _used_pct(kept.slot, kept.bytes) if unread else None
    if used_pct is not None and used_pct >= limits.slot_near_critical_pct:
        return "critical"
    if unread and end_in_s is not None and end_in_s < limits.full_warn_s:
        return "critical" if end_in_s < limits.full_critical_s else "warning"
    if s.over(
        used_pct, limits.slot_near_pct, limits.slot_near_pct * CLEAR_SHARE, "slot-retention", clean(kept.slot.name)
    ):
        return "warning"
    much = s.over(
        kept.bytes, _warning_bytes(s), _warning_bytes(s) * CLEAR_SHARE, "slot-retention", clean(kept.slot.name)
    )
    if not much or not (unread or kept.grows):
        return None
    # A reader that is behind a bulk load catches up after it; only where it would be too late then is it urgent.
    return "critical" if end_in_s is not None and end_in_s < limits.full_soon_s else "warning"


def _used_pct(slot: postgres.Slot, retained: int) -> float | None:
    """How much of max_slot_wal_keep_size the slot has used; None where there is no such limit."""
    if slot.safe_wal_size is None:
        return None
    return 100.0 * retained / max(1, retained + max(0, slot.safe_wal_size))


def _warning_bytes(s: RuleContext) -> float:
    """What is warned of whatever the growth: 1 GB, or a tenth of what is free on the disk of pg_wal if that is less."""
    limits, mount = s.limits.wal, wal_mount(s)
    if mount is None or mount.available is None:
        return limits.slot_retained_bytes
    share = limits.slot_retained_pct / 100 * mount.available
    return max(limits.slot_least_bytes, min(limits.slot_retained_bytes, share))


def _retention_signal(
    s: RuleContext, kept: RetainedWal, severity: Severity, reader: int | None, *, copied: bool
) -> Signal:
    slot, mount = kept.slot, wal_mount(s)
    name = clean(slot.name)
    state = "nobody reads it" if slot.active_pid is None else "it is read too slowly"
    state = "a copy of the primary's slot" if copied else state
    growth = f", {human_bytes(kept.per_s, per_s=True)} more" if kept.per_s is not None and kept.per_s > 0 else ""
    keeps = f"slot {name} keeps {human_bytes(kept.bytes)} of WAL{growth}, {state}"
    text = f"S{keeps[1:]}"
    if slot.wal_status == "unreserved":
        text += "; the next checkpoint may remove what it needs"
    elif kept.end_in_s is not None and kept.end_in_s < s.limits.wal.full_warn_s:
        text += f": {kept.outcome} {future_time_text(kept.end_in_s, s.now_us)}"
    elif slot.safe_wal_size is not None and (_used_pct(slot, kept.bytes) or 0) >= s.limits.wal.slot_near_pct:
        text += f": after {human_bytes(max(0, slot.safe_wal_size))} more the slot is lost (max_slot_wal_keep_size)"
    evidence: dict[str, Any] = {
        "slot": name,
        "kind": slot.kind,
        "synced": slot.synced,
        "active": slot.active_pid is not None,
        "last_pid": reader,
        "retained_bytes": kept.bytes,
        "retained_bytes_per_s": round_number(kept.per_s),
        "wal_status": slot.wal_status,
        "safe_bytes": slot.safe_wal_size,
        "full_in_s": round_number(kept.end_in_s),
        "mount": None if mount is None else clean(mount.path),
        "available_bytes": None if mount is None else mount.available,
    }
    return Signal(
        severity=severity,
        text=text,
        subject=name,
        cause=keeps,
        evidence=evidence,
        series=(f"slot:{slot.name}.retained_bytes", "replication.wal_bytes_per_s"),
        # Each synchronization renews the inactive_since of a copy.
        since_us=s.host_us(slot.inactive_since) if slot.active_pid is None and not copied else None,
        runbook="slot-retention",
        advice=_COPY_ADVICE if copied else _advice(slot),
    )


_COPY_ADVICE = (
    "Look at the slot of this name on the primary: whether its reader confirms anything, and whether slots are still "
    "synchronized to here (sync_replication_slots). A copy cannot be dropped on the standby."
)


def _advice(slot: postgres.Slot) -> str:
    if slot.active_pid is not None:
        return f"Find out what its reader (pid {slot.active_pid}) waits for: network, its disk, a long transaction."
    if slot.kind == "logical":
        return "Start its subscriber, or drop the slot if there is none any more; it must then be copied anew."
    return "Start its standby, or drop the slot if there is none any more; it must then be built anew."


def slot_lost(s: RuleContext) -> Iterator[Signal]:
    """The server removed WAL the slot needed, or invalidated it: its replica cannot go on."""
    replication = s.picture.now("pg.replication", postgres.Replication)
    for slot in () if replication is None else replication.slots:
        if not _is_lost(slot):
            continue
        name = clean(slot.name)
        reason = f" ({clean(slot.invalidation_reason)})" if slot.invalidation_reason else ""
        replica = "subscriber" if slot.kind == "logical" else "standby"
        copied = replication is not None and replication.in_recovery and slot.synced
        lost = f"its {replica} cannot go on and must be built anew"
        advice = f"Drop the slot, and build the {replica} anew."
        if copied:
            lost = "after a failover to this standby its subscriber could not go on"
            advice = (
                "Look at the slot on the primary. One that is sound there is copied anew at the next synchronization."
            )
        yield Signal(
            severity="warning",
            text=f"{'Copied slot' if copied else 'Slot'} {name} is lost{reason}: {lost}",
            subject=name,
            evidence={
                "slot": name,
                "kind": slot.kind,
                "wal_status": slot.wal_status,
                "invalidation_reason": slot.invalidation_reason,
            },
            runbook="slot-retention",
            advice=advice,
        )


def _is_lost(slot: postgres.Slot) -> bool:
    return slot.wal_status == "lost" or slot.invalidation_reason is not None


RULES: tuple[Rule, ...] = (
    Rule(
        name="slot-retention",
        title="A slot keeps WAL nobody reads: when the disk is full, or the slot lost",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", slot_retention),
        clear_after_s=15.0,
        settings=(
            "wal.slot_retained_bytes",
            "wal.slot_retained_pct",
            "wal.slot_least_bytes",
            "wal.slot_near_pct",
            "wal.slot_near_critical_pct",
            "wal.slot_grace_s",
            "wal.full_soon_s",
            "wal.full_critical_s",
            "wal.full_warn_s",
        ),
        runbook="slot-retention",
        source="pg_replication_slots.wal_status, safe_wal_size; max_slot_wal_keep_size",
    ),
    Rule(
        name="slot-lost",
        title="A slot whose WAL is gone",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", slot_lost),
        runbook="slot-retention",
        source="pg_replication_slots.wal_status = lost (13+), invalidation_reason (17+)",
    ),
)
