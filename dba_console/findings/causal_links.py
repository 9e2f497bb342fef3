"""Which rule explains which: declared once, most likely cause first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dba_console.findings.signal import Signal


def _always_applies(effect: Signal, cause: Signal) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class CausalLink:
    """`effect` happens because of `cause`, where both are seen and `applies` agrees; `conjunction` joins the two
    sentences.

    What was joined once stays joined while both last. The finding is named after the cause, unless `keeps_name`: then
    the effect is what a runbook answers.
    """

    effect: str
    cause: str
    conjunction: str = " because "
    applies: Callable[[Signal, Signal], bool] = _always_applies
    keeps_name: bool = False


def same_evidence(effect_name: str, cause_name: str) -> Callable[[Signal, Signal], bool]:
    """Fits where a number in the evidence of the one is the same as one in that of the other: a pid, a mount."""

    def applies(effect: Signal, cause: Signal) -> bool:
        value = effect.evidence.get(effect_name)
        return value is not None and value == cause.evidence.get(cause_name)

    return applies


def _holds_slots(effect: Signal, cause: Signal) -> bool:
    """Whether those who wait are so many that they are why slots are taken: a fifth of them."""
    behind, used = cause.evidence.get("behind"), effect.evidence.get("used")
    return isinstance(behind, int) and isinstance(used, int) and behind >= max(1, used / 5)


def _storm_is_active(effect: Signal, cause: Signal) -> bool:
    """Whether what a storm opened is at work: sessions opened because others hang are; a pool gone wild sits idle."""
    active, opened = effect.evidence.get("storm_active"), effect.evidence.get("opened")
    return isinstance(active, int) and isinstance(opened, int) and 2 * active >= opened


def _root_is_active(effect: Signal, cause: Signal) -> bool:
    return effect.evidence.get("root_state") == "active"


def _explains_most_of_age(effect: Signal, cause: Signal) -> bool:
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


def _server_is_silent(effect: Signal, cause: Signal) -> bool:
    """Whether the server is there and does not answer: what stalls explains that, and no refusal."""
    return effect.evidence.get("outage") == "silent"


def _no_connection_or_answer(effect: Signal, cause: Signal) -> bool:
    """Whether a connection is waited for, or an answer: neither comes from a postmaster that is stopped."""
    return effect.evidence.get("outage") in ("timeout", "silent", "other")


def _disk_is_full(effect: Signal, cause: Signal) -> bool:
    """Whether the disk of WAL or data has no room left: then the server ends itself."""
    used_pct, holds = cause.evidence.get("used_pct"), cause.evidence.get("holds")
    full = isinstance(used_pct, float) and used_pct >= 99.0
    return full and isinstance(holds, list) and bool({"wal", "data"}.intersection(holds))


def _vacuums_without_effect(effect: Signal, cause: Signal) -> bool:
    """Whether vacuums come to the table and leave the rows there: then somebody still sees them."""
    vacuums = effect.evidence.get("vacuums")
    return isinstance(vacuums, int) and vacuums > 0


def _no_vacuum_came(effect: Signal, cause: Signal) -> bool:
    """Whether none came though the table lets it."""
    return effect.evidence.get("vacuums") == 0 and effect.evidence.get("autovacuum_enabled") is True


def _may_have_crashed(effect: Signal, cause: Signal) -> bool:
    return effect.evidence.get("crashed") is not False


LINKS: tuple[CausalLink, ...] = (
    CausalLink("connections-filling", "connection-storm", ": "),
    CausalLink("connections-filling", "io-stalled"),
    CausalLink("connections-filling", "reclaim-stall"),
    CausalLink("connections-filling", "lock-queue", applies=_holds_slots),
    CausalLink("connections-filling", "lock-blocker", applies=_holds_slots),
    CausalLink("connections-filling", "dump-blocks", applies=_holds_slots),
    CausalLink("connections-filling", "idle-in-transaction", applies=_holds_slots),
    CausalLink("connection-storm", "io-stalled", applies=_storm_is_active),
    CausalLink("connection-storm", "reclaim-stall", applies=_storm_is_active),
    CausalLink("connection-storm", "lock-queue", applies=_holds_slots),
    CausalLink("connection-storm", "lock-blocker", applies=_holds_slots),
    CausalLink("connection-storm", "dump-blocks", applies=_holds_slots),
    CausalLink("connection-storm", "idle-in-transaction", applies=_holds_slots),
    CausalLink("lock-queue", "idle-in-transaction", applies=same_evidence("root_pid", "pid")),
    CausalLink("lock-queue", "wraparound-vacuum", applies=same_evidence("root_pid", "pid")),
    CausalLink("lock-blocker", "idle-in-transaction", applies=same_evidence("root_pid", "pid")),
    CausalLink("lock-blocker", "wraparound-vacuum", applies=same_evidence("root_pid", "pid")),
    # A queue that grew behind what was held up alone before: from then on it is the queue that is told.
    CausalLink("dump-blocks", "lock-queue", "; ", same_evidence("root_pid", "root_pid")),
    CausalLink("lock-blocker", "lock-queue", "; ", same_evidence("root_pid", "root_pid")),
    # Who works and holds others up while the disk stands still is held up itself.
    CausalLink("lock-blocker", "io-stalled", applies=_root_is_active),
    CausalLink("dump-blocks", "dump-late", "; ", same_evidence("root_pid", "pid")),
    CausalLink("io-stalled", "reclaim-stall", ", while "),
    CausalLink("io-stalled", "device-saturated"),
    CausalLink("io-slow", "io-stalled"),
    CausalLink("io-slow", "device-saturated"),
    CausalLink("cache-dropped", "reclaim-stall", " and "),
    CausalLink("memory-reclaim", "reclaim-stall", ", while "),
    CausalLink("cache-reread", "reclaim-stall", " after "),
    CausalLink("cache-reread", "cache-dropped"),
    CausalLink("cache-reread", "memory-reclaim", " after "),
    CausalLink("xid-wraparound", "horizon-held", applies=_explains_most_of_age, keeps_name=True),
    CausalLink("horizon-held", "idle-in-transaction", applies=same_evidence("pid", "pid")),
    CausalLink("autovacuum-behind", "horizon-held", applies=_vacuums_without_effect),
    CausalLink("autovacuum-behind", "autovacuum-off", applies=_no_vacuum_came),
    CausalLink("autovacuum-behind", "autovacuum-busy", applies=_no_vacuum_came),
    CausalLink("slot-retention", "standby-gone", applies=same_evidence("last_pid", "pid")),
    CausalLink("replication-lag", "replay-paused"),
    CausalLink("replication-lag", "wal-receiver-down"),
    CausalLink("wal-receiver-down", "replay-paused", ", and none starts while "),
    CausalLink("disk-filling", "slot-retention", applies=_on_wal),
    CausalLink("disk-filling", "archive-failing", applies=_on_wal),
    CausalLink("disk-filling", "archive-backlog", applies=_on_wal),
    CausalLink("disk-filling", "temp-spill", applies=same_evidence("mount", "mount")),
    CausalLink("server-down", "postmaster-stopped", applies=_no_connection_or_answer),
    CausalLink("server-down", "disk-filling", applies=_disk_is_full),
    CausalLink("server-down", "io-stalled", applies=_server_is_silent),
    CausalLink("server-down", "reclaim-stall", applies=_server_is_silent),
    CausalLink("server-restarted", "version-changed", ": "),
    CausalLink("server-restarted", "oom-kill", applies=_may_have_crashed),
    CausalLink("server-down", "oom-kill"),
    CausalLink("lane-stuck", "io-stalled"),
    CausalLink("console-blind", "connection-storm"),
    CausalLink("console-blind", "connections-filling"),
    CausalLink("recording-lags", "disk-filling", applies=_on_recordings),
)
