"""Which rule explains which: declared once, most likely cause first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dba_console.findings.signal import Signal


def _always(effect: Signal, cause: Signal) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Link:
    """`effect` happens because of `cause`, where both are seen and `fits` agrees; `word` joins the two sentences.

    What was joined once stays joined while both last. The finding is named after the cause, unless `keeps_name`: then
    the effect is what a runbook answers.
    """

    effect: str
    cause: str
    word: str = " because "
    fits: Callable[[Signal, Signal], bool] = _always
    keeps_name: bool = False


def same(effect_name: str, cause_name: str) -> Callable[[Signal, Signal], bool]:
    """Fits where a number in the evidence of the one is the same as one in that of the other: a pid, a mount."""

    def fits(effect: Signal, cause: Signal) -> bool:
        value = effect.evidence.get(effect_name)
        return value is not None and value == cause.evidence.get(cause_name)

    return fits


def _holds_slots(effect: Signal, cause: Signal) -> bool:
    """Whether those who wait are so many that they are why slots are taken: a fifth of them."""
    behind, used = cause.evidence.get("behind"), effect.evidence.get("used")
    return isinstance(behind, int) and isinstance(used, int) and behind >= max(1, used / 5)


def _works(effect: Signal, cause: Signal) -> bool:
    """Whether what a storm opened is at work: sessions opened because others hang are; a pool gone wild sits idle."""
    active, opened = effect.evidence.get("storm_active"), effect.evidence.get("opened")
    return isinstance(active, int) and isinstance(opened, int) and 2 * active >= opened


def _root_works(effect: Signal, cause: Signal) -> bool:
    return effect.evidence.get("root_state") == "active"


def _accounts_for(effect: Signal, cause: Signal) -> bool:
    """Fits where what is held back is most of the age: freezing everything else would not help."""
    age, held = effect.evidence.get("xid_age"), cause.evidence.get("holder_xid_age")
    return isinstance(age, int) and isinstance(held, int) and 2 * held >= age


def _on_wal(effect: Signal, cause: Signal) -> bool:
    """Whether WAL lies on the file system that fills up."""
    holds = effect.evidence.get("holds")
    return isinstance(holds, list) and "wal" in holds


def _on_recordings(effect: Signal, cause: Signal) -> bool:
    holds = cause.evidence.get("holds")
    return isinstance(holds, list) and "session" in holds


def _silent(effect: Signal, cause: Signal) -> bool:
    """Whether the server is there and does not answer: what stalls explains that, and no refusal."""
    return effect.evidence.get("outage") == "silent"


def _shut_out(effect: Signal, cause: Signal) -> bool:
    """Whether a connection is waited for, or an answer: neither comes from a postmaster that is stopped."""
    return effect.evidence.get("outage") in ("timeout", "silent", "other")


def _no_room(effect: Signal, cause: Signal) -> bool:
    """Whether the disk of WAL or data has no room left: then the server ends itself."""
    used_pct, holds = cause.evidence.get("used_pct"), cause.evidence.get("holds")
    full = isinstance(used_pct, float) and used_pct >= 99.0
    return full and isinstance(holds, list) and bool({"wal", "data"}.intersection(holds))


def _comes_in_vain(effect: Signal, cause: Signal) -> bool:
    """Whether vacuums come to the table and leave the rows there: then somebody still sees them."""
    vacuums = effect.evidence.get("vacuums")
    return isinstance(vacuums, int) and vacuums > 0


def _no_vacuum(effect: Signal, cause: Signal) -> bool:
    """Whether none came though the table lets it."""
    return effect.evidence.get("vacuums") == 0 and effect.evidence.get("autovacuum_enabled") is True


def _crashed(effect: Signal, cause: Signal) -> bool:
    return effect.evidence.get("crashed") is not False


LINKS: tuple[Link, ...] = (
    Link("connections-filling", "connection-storm", ": "),
    Link("connections-filling", "io-stalled"),
    Link("connections-filling", "reclaim-stall"),
    Link("connections-filling", "lock-queue", fits=_holds_slots),
    Link("connections-filling", "lock-blocker", fits=_holds_slots),
    Link("connections-filling", "dump-blocks", fits=_holds_slots),
    Link("connections-filling", "idle-in-transaction", fits=_holds_slots),
    Link("connection-storm", "io-stalled", fits=_works),
    Link("connection-storm", "reclaim-stall", fits=_works),
    Link("connection-storm", "lock-queue", fits=_holds_slots),
    Link("connection-storm", "lock-blocker", fits=_holds_slots),
    Link("connection-storm", "dump-blocks", fits=_holds_slots),
    Link("connection-storm", "idle-in-transaction", fits=_holds_slots),
    Link("lock-queue", "idle-in-transaction", fits=same("root_pid", "pid")),
    Link("lock-queue", "wraparound-vacuum", fits=same("root_pid", "pid")),
    Link("lock-blocker", "idle-in-transaction", fits=same("root_pid", "pid")),
    Link("lock-blocker", "wraparound-vacuum", fits=same("root_pid", "pid")),
    # A queue that grew behind what was held up alone before: from then on it is the queue that is told.
    Link("dump-blocks", "lock-queue", "; ", same("root_pid", "root_pid")),
    Link("lock-blocker", "lock-queue", "; ", same("root_pid", "root_pid")),
    # Who works and holds others up while the disk stands still is held up itself.
    Link("lock-blocker", "io-stalled", fits=_root_works),
    Link("dump-blocks", "dump-late", "; ", same("root_pid", "pid")),
    Link("io-stalled", "reclaim-stall", ", while "),
    Link("io-stalled", "device-saturated"),
    Link("io-slow", "io-stalled"),
    Link("io-slow", "device-saturated"),
    Link("cache-dropped", "reclaim-stall", " and "),
    Link("memory-reclaim", "reclaim-stall", ", while "),
    Link("cache-reread", "reclaim-stall", " after "),
    Link("cache-reread", "cache-dropped"),
    Link("cache-reread", "memory-reclaim", " after "),
    Link("xid-wraparound", "horizon-held", fits=_accounts_for, keeps_name=True),
    Link("horizon-held", "idle-in-transaction", fits=same("pid", "pid")),
    Link("autovacuum-behind", "horizon-held", fits=_comes_in_vain),
    Link("autovacuum-behind", "autovacuum-off", fits=_no_vacuum),
    Link("autovacuum-behind", "autovacuum-busy", fits=_no_vacuum),
    Link("slot-retention", "standby-gone", fits=same("last_pid", "pid")),
    Link("replication-lag", "replay-paused"),
    Link("replication-lag", "wal-receiver-down"),
    Link("wal-receiver-down", "replay-paused", ", and none starts while "),
    Link("disk-filling", "slot-retention", fits=_on_wal),
    Link("disk-filling", "archive-failing", fits=_on_wal),
    Link("disk-filling", "archive-backlog", fits=_on_wal),
    Link("disk-filling", "temp-spill", fits=same("mount", "mount")),
    Link("server-down", "postmaster-stopped", fits=_shut_out),
    Link("server-down", "disk-filling", fits=_no_room),
    Link("server-down", "io-stalled", fits=_silent),
    Link("server-down", "reclaim-stall", fits=_silent),
    Link("server-restarted", "version-changed", ": "),
    Link("server-restarted", "oom-kill", fits=_crashed),
    Link("server-down", "oom-kill"),
    Link("lane-stuck", "io-stalled"),
    Link("console-blind", "connection-storm"),
    Link("console-blind", "connections-filling"),
    Link("recording-lags", "disk-filling", fits=_on_recordings),
)
