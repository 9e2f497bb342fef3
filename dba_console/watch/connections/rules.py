"""All rules about connections: slots, storms, limits, transactions left open; which of them explains which."""

from __future__ import annotations

from dba_console.watch.connections.idle_transaction_rules import IDLE_IN_TRANSACTION
from dba_console.watch.connections.slot_rules import CONNECTION_LIMIT, CONNECTIONS_FILLING
from dba_console.watch.connections.slot_usage import ConnectionLimits
from dba_console.watch.connections.storm_rules import STORM
from dba_console.watch.findings.rule import CausalLink, Family, Signal
from dba_console.watch.idle_transactions import IdleTransactionLimits


def _holds_slots(effect: Signal, cause: Signal) -> bool:
    """Whether the blocked sessions explain the used slots: at least a fifth of them."""
    behind, used = cause.evidence.get("behind"), effect.evidence.get("used")
    return isinstance(behind, int) and isinstance(used, int) and behind >= max(1, used / 5)


def _storm_is_active(effect: Signal, cause: Signal) -> bool:
    """Whether the storm's sessions are active: new sessions are, if others hang; a runaway pool sits idle."""
    active, opened = effect.evidence.get("storm_active"), effect.evidence.get("opened")
    return isinstance(active, int) and isinstance(opened, int) and 2 * active >= opened


FAMILY = Family(
    "Connections",
    "connections",
    (CONNECTIONS_FILLING, STORM, CONNECTION_LIMIT, IDLE_IN_TRANSACTION),
    thresholds=(ConnectionLimits, IdleTransactionLimits),
    links=(
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
    ),
)
