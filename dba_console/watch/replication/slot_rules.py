"""Rules about replication slots: WAL retained until the disk is full or the slot is lost, and lost slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes
from dba_console.watch.findings.phrases import future_time_text, round_number
from dba_console.watch.findings.rule import Rule, RuleContext, Signal, keep_signals_while_stale, unobserved_us
from dba_console.watch.findings.thresholds import Computed, Judgement, Ordered, RuleThresholds
from dba_console.watch.frames.rates import WINDOW_S, SeriesTrend, fit_trend
from dba_console.watch.lsn import lsn_distance
from dba_console.watch.replication.readings import Replication, Slot
from dba_console.watch.replication.wal_space import Points, WalSpaceLimits, recent_growth, seconds_until_full, wal_mount
from dba_console.watch.samples.findings import Severity


class SlotLimits(RuleThresholds, frozen=True):
    """`[findings.wal]`: slots."""

    family = "wal"

    full_soon_s: Judgement[float] = 900.0
    """The growth of ten seconds, instead of that of a minute, counts only if less than this time is left."""
    slot_retained_bytes: Computed[int] = 1024**3
    """Warning if a slot that is not read retains this much WAL: the default of max_wal_size, so pg_wal is twice as
    large as planned."""
    slot_retained_pct: Judgement[float] = 10.0
    """Warning if such a slot retains this percentage of the free space on the disk of pg_wal, if that is less."""
    slot_least_bytes: Computed[int] = 64 * 1024**2
    """A slot that retains less raises nothing: four segments, as with a new slot or a restarted standby."""
    slot_near_pct: Judgement[float] = 80.0
    """Warning from this percentage of max_slot_wal_keep_size retained by a slot that is not read, as for a disk that
    fills."""
    slot_near_critical_pct: Judgement[float] = 95.0
    """Critical from this percentage of max_slot_wal_keep_size: the next checkpoint beyond it removes WAL the slot
    needs."""
    slot_grace_s: Judgement[float] = 60.0
    """Grace time for a slot whose reader was seen: a standby that restarts returns."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.slot_near_pct, cls.slot_near_critical_pct),)


CLEAR_SHARE = 0.8
TREND_US = 10_000_000
READER_GONE_US = 10_000_000
"""A reader that returns sooner is the same one: a walreceiver retries every five seconds (wal_retrieve_retry_interval),
and one that keeps reconnecting also reads too slowly. At least TREND_US."""
MIN_READ_SPAN_S = 30.0
"""Minimum observation of a slot that is read: growth before its reader came says nothing about the reader."""
UNBOUNDED = 1 << 50
"""Space for WAL if not known: growth is reported without an estimate."""


@dataclass(frozen=True, slots=True)
class RetainedWal:
    """WAL retained by one slot, its growth, and how it ends."""

    slot: Slot
    bytes: int
    outcome: str
    """What happens at the limit that is reached first."""
    per_s: float | None = None
    end_in_s: float | None = None
    """Seconds until then; None if it is not reached, or too far ahead for its growth."""
    grows: bool = False
    """It has grown steadily for at least a minute, clearly above its fluctuation."""


def slot_retention(s: RuleContext) -> Iterator[Signal]:
    """A slot that is not read retains much WAL, or grows towards a full disk or its own limit; or a slot is read more
    slowly than WAL is written.

    A warning from 1 GB, or a tenth of the free space on the disk of pg_wal, and if steady growth fills that disk, or
    loses the slot by max_slot_wal_keep_size, within a day; critical within an hour, within a quarter of an hour by the
    last ten seconds alone, or if the next checkpoint may remove WAL the slot needs. From the first reading, at any
    growth, a warning at 80 % of max_slot_wal_keep_size and critical at 95 %. A slot that is read must retain as much
    and have grown for half a minute since its reader connected; it is critical only if the disk is full, or the slot
    lost, within a quarter of an hour.

    A lost slot retains nothing and is another finding. A standby that restarts has a grace time. A copy of a primary's
    slot, which a standby keeps for a failover, is reported as such: its reader is the primary's.
    """
    replication = s.picture.now("pg.replication", Replication)
    if replication is None or not replication.slots:
        return
    readers, limits = _track_readers(s, replication.slots), s.limits.of(SlotLimits)
    for slot in replication.slots:
        retained = lsn_distance(replication.lsn, slot.restart_lsn)
        if retained is None or _is_lost(slot) or slot.temporary:
            continue
        if retained < limits.slot_least_bytes and (_used_pct(slot, retained) or 0) < limits.slot_near_pct:
            continue
        if slot.active_pid is None and _in_grace(s, slot):
            continue
        kept = _retained_wal(s, slot, retained)
        severity = _severity(s, kept)
        if severity is not None:
            yield _retention_signal(
                s, kept, severity, readers.get(slot.name), copied=replication.in_recovery and bool(slot.synced)
            )


def _track_readers(s: RuleContext, slots: list[Slot]) -> dict[str, int]:
    """Return slot -> the last reader seen; records when it was seen."""
    readers: dict[str, int] = s.memo("slots").setdefault("readers", {})
    seen: dict[str, int] = s.memo("slots").setdefault("seen_us", {})
    came: dict[str, int] = s.memo("slots").setdefault("came_us", {})
    _forget_gone(s.memo("slots"), {slot.name for slot in slots})
    unobserved = unobserved_us(s.memo("slots"), s.mono_us)
    for name in seen:
        seen[name] += unobserved
    for slot in slots:
        if slot.active_pid is not None:
            if s.mono_us - seen.get(slot.name, -READER_GONE_US) >= READER_GONE_US:
                came[slot.name] = s.mono_us
            readers[slot.name], seen[slot.name] = slot.active_pid, s.mono_us
    return readers


def _forget_gone(memo: dict[str, Any], there: set[str]) -> None:
    """Base backups and table copies create slots with new names each time, for weeks."""
    for kept in (memo["readers"], memo["seen_us"], memo["came_us"]):
        for name in kept.keys() - there:
            del kept[name]
    trends = memo.get("trends", {})
    for key in [key for key in trends if key[0] not in there]:
        del trends[key]


def _in_grace(s: RuleContext, slot: Slot) -> bool:
    seen_us: int | None = s.memo("slots")["seen_us"].get(slot.name)
    recent = seen_us is not None and s.mono_us - seen_us < s.limits.of(SlotLimits).slot_grace_s * 1e6
    return recent and slot.wal_status != "unreserved"


def _retained_wal(s: RuleContext, slot: Slot, retained: int) -> RetainedWal:
    """Return what the slot retains; with max_slot_wal_keep_size the slot may be lost before the disk is full."""
    mount = wal_mount(s)
    room = None if mount is None else mount.available
    ends = f"the disk of pg_wal{'' if mount is None else f' ({clean(mount.path)})'} is full"
    if slot.safe_wal_size is not None and (room is None or slot.safe_wal_size <= room):
        room, ends = max(0, slot.safe_wal_size), "the slot is lost (max_slot_wal_keep_size)"
    return _with_trend(s, RetainedWal(slot, retained, ends), room)


def _with_trend(s: RuleContext, kept: RetainedWal, room: int | None) -> RetainedWal:
    """Add the trend: over minutes of steady growth, or the last ten seconds if they leave little time."""
    limits, series = s.limits.of(SlotLimits), s.history.series(f"slot:{kept.slot.name}.retained_bytes")
    recent = recent_growth(series)
    soon_s = seconds_until_full(room, recent)
    if soon_s is not None and soon_s < limits.full_soon_s and kept.slot.active_pid is None:
        return replace(kept, per_s=recent, end_in_s=soon_s)
    found = _slot_trend(s, kept.slot, series)
    if found is None or (kept.slot.active_pid is not None and not _rose(found.points)):
        return replace(kept, per_s=recent)
    far = kept.bytes + (UNBOUNDED if room is None else room)
    end_in_s = found.time_to_reach(far, gate=limits.slot_least_bytes, horizon_s=float("inf"))
    return replace(kept, per_s=found.per_s, end_in_s=None if room is None else end_in_s, grows=end_in_s is not None)


def _slot_trend(s: RuleContext, slot: Slot, series: Points) -> SeriesTrend | None:
    """Return the trend over minutes, for a slot that is read since its reader came; recomputed only every TREND_US,
    because it is expensive and changes slowly."""
    trends: dict[tuple[str, bool], tuple[int, SeriesTrend | None]] = s.memo("slots").setdefault("trends", {})
    key = (slot.name, slot.active_pid is not None)
    at_us, found = trends.get(key, (-TREND_US, None))
    if s.mono_us - at_us >= TREND_US:
        found = fit_trend(series) if slot.active_pid is None else _reader_trend(s, slot, series)
        trends[key] = (s.mono_us, found)
    return found


def _reader_trend(s: RuleContext, slot: Slot, series: Points) -> SeriesTrend | None:
    read_s = (s.mono_us - s.memo("slots")["came_us"][slot.name]) / 1e6
    return fit_trend(series, window_s=min(WINDOW_S, read_s), min_span_s=MIN_READ_SPAN_S)


def _rose(points: Points) -> bool:
    """Whether the whole last third is above the first: a slot that is read advances in steps, and what it retains rises
    between two steps without growing."""
    third = max(1, len(points) // 3)
    return min(value for _, value in points[-third:]) > max(value for _, value in points[:third])


def _severity(s: RuleContext, kept: RetainedWal) -> Severity | None:
    """Return the severity; None if the slot is normal."""
    limits = s.limits.of(SlotLimits)
    end_in_s = kept.end_in_s
    unread = kept.slot.active_pid is None
    if kept.slot.wal_status == "unreserved":
        return "critical"
    used_pct = _used_pct(kept.slot, kept.bytes) if unread else None
    if used_pct is not None and used_pct >= limits.slot_near_critical_pct:
        return "critical"
    if unread and end_in_s is not None and end_in_s < s.limits.of(WalSpaceLimits).full_warn_s:
        return "critical" if end_in_s < s.limits.of(WalSpaceLimits).full_critical_s else "warning"
    if s.over(
        used_pct, limits.slot_near_pct, limits.slot_near_pct * CLEAR_SHARE, "slot-retention", clean(kept.slot.name)
    ):
        return "warning"
    much = s.over(
        kept.bytes, _warning_bytes(s), _warning_bytes(s) * CLEAR_SHARE, "slot-retention", clean(kept.slot.name)
    )
    if not much or not (unread or kept.grows):
        return None
    # A reader that is behind after a bulk load catches up; it is urgent only if that would be too late.
    return "critical" if end_in_s is not None and end_in_s < limits.full_soon_s else "warning"


def _used_pct(slot: Slot, retained: int) -> float | None:
    """Return the percentage of max_slot_wal_keep_size the slot has used; None without that limit."""
    if slot.safe_wal_size is None:
        return None
    return 100.0 * retained / max(1, retained + max(0, slot.safe_wal_size))


def _warning_bytes(s: RuleContext) -> float:
    """Return the size that is a warning at any growth: 1 GB, or a tenth of the disk's free space if less."""
    limits, mount = s.limits.of(SlotLimits), wal_mount(s)
    if mount is None or mount.available is None:
        return limits.slot_retained_bytes
    share = limits.slot_retained_pct / 100 * mount.available
    return max(limits.slot_least_bytes, min(limits.slot_retained_bytes, share))


def _retention_signal(
    s: RuleContext, kept: RetainedWal, severity: Severity, reader: int | None, *, copied: bool
) -> Signal:
    slot, mount = kept.slot, wal_mount(s)
    name = clean(slot.name)
    state = "not read" if slot.active_pid is None else "read too slowly"
    state = "a copy of the primary's slot" if copied else state
    growth = f", {human_bytes(kept.per_s, per_s=True)} more" if kept.per_s is not None and kept.per_s > 0 else ""
    keeps = f"slot {name} retains {human_bytes(kept.bytes)} of WAL{growth}, {state}"
    text = f"S{keeps[1:]}"
    if slot.wal_status == "unreserved":
        text += "; the next checkpoint may remove what it needs"
    elif kept.end_in_s is not None and kept.end_in_s < s.limits.of(WalSpaceLimits).full_warn_s:
        text += f": {kept.outcome} {future_time_text(kept.end_in_s, s.now_us)}"
    elif slot.safe_wal_size is not None and (_used_pct(slot, kept.bytes) or 0) >= s.limits.of(SlotLimits).slot_near_pct:
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
    "Check the slot of this name on the primary: whether its reader confirms progress, and whether slots are still "
    "synchronized to this standby (sync_replication_slots). A copy cannot be dropped on the standby."
)


def _advice(slot: Slot) -> str:
    if slot.active_pid is not None and slot.kind == "logical":
        return (
            f"Find out what its reader (pid {slot.active_pid}) waits for. One that confirms only what it receives, as "
            "Debezium does, needs a heartbeat if its database is idle."
        )
    if slot.active_pid is not None:
        return f"Find out what its reader (pid {slot.active_pid}) waits for: network, its disk, a long transaction."
    if slot.kind == "logical":
        return "Start its subscriber, or drop the slot if it no longer exists; a subscriber must then be copied again."
    return "Start its standby, or drop the slot if it no longer exists; a standby must then be rebuilt."


def slot_lost(s: RuleContext) -> Iterator[Signal]:
    """The server removed WAL the slot needed, or invalidated it: its replica cannot continue."""
    replication = s.picture.now("pg.replication", Replication)
    for slot in () if replication is None else replication.slots:
        if not _is_lost(slot):
            continue
        name = clean(slot.name)
        reason = f" ({clean(slot.invalidation_reason)})" if slot.invalidation_reason else ""
        replica = "subscriber" if slot.kind == "logical" else "standby"
        copied = replication is not None and replication.in_recovery and slot.synced
        lost = f"its {replica} cannot continue and must be rebuilt"
        advice = f"Drop the slot, and rebuild the {replica}."
        if copied:
            lost = "after a failover to this standby its subscriber could not continue"
            advice = "Check the slot on the primary. If it is intact there, the next synchronization copies it again."
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
            runbook="slot-retention" if copied or slot.kind == "logical" else "standby-rebuild",
            advice=advice,
        )


def _is_lost(slot: Slot) -> bool:
    return slot.wal_status == "lost" or slot.invalidation_reason is not None


SLOT_RULES: tuple[Rule, ...] = (
    Rule(
        name="slot-retention",
        title="A slot retains WAL that is not read: when the disk is full, or the slot lost",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", slot_retention),
        clear_after_s=15.0,
        settings=(
            SlotLimits.slot_retained_bytes,
            SlotLimits.slot_retained_pct,
            SlotLimits.slot_least_bytes,
            SlotLimits.slot_near_pct,
            SlotLimits.slot_near_critical_pct,
            SlotLimits.slot_grace_s,
            SlotLimits.full_soon_s,
            WalSpaceLimits.full_critical_s,
            WalSpaceLimits.full_warn_s,
        ),
        runbook="slot-retention",
        source="pg_replication_slots.wal_status, safe_wal_size; max_slot_wal_keep_size",
    ),
    Rule(
        name="slot-lost",
        title="A slot is lost: WAL it needs was removed",
        parts=("pg.replication",),
        check=keep_signals_while_stale("pg.replication", slot_lost),
        runbook="standby-rebuild",
        source="pg_replication_slots.wal_status = lost (13+), invalidation_reason (17+)",
    ),
)
