"""All rules about the server: whether it can be reached, and what changed; which of them explains which."""

from __future__ import annotations

from dba_console.watch.findings.rule import CausalLink, Family, Signal, effect_is
from dba_console.watch.server.change_rules import ChangeLimits
from dba_console.watch.server.state_rules import STATE_RULES, ServerLimits


def _disk_is_full(effect: Signal, cause: Signal) -> bool:
    """Whether the disk of WAL or data is full: then the server stops."""
    used_pct = cause.evidence.get("used_pct")
    holds = cause.evidence.get("holds")
    stops = isinstance(holds, list) and not {"wal", "data"}.isdisjoint(holds)
    return isinstance(used_pct, float) and used_pct >= 99.0 and stops


FAMILY = Family(
    "The server",
    "server",
    STATE_RULES,
    thresholds=(ServerLimits, ChangeLimits),
    links=(
        # A stopped postmaster gives neither a connection nor an answer; a refusal needs one that runs.
        CausalLink("server-down", "postmaster-stopped", applies=effect_is("outage", "timeout", "silent", "other")),
        CausalLink("server-down", "disk-filling", applies=_disk_is_full),
        # A stall explains a server that does not answer, but not a refusal.
        CausalLink("server-down", "io-stalled", applies=effect_is("outage", "silent")),
        CausalLink("server-down", "reclaim-stall", applies=effect_is("outage", "silent")),
        CausalLink("server-restarted", "version-changed", ": "),
        CausalLink("server-restarted", "oom-kill", applies=effect_is("crashed", True, None)),
        CausalLink("server-down", "oom-kill"),
    ),
)
