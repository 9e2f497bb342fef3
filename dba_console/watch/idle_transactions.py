"""Transactions left open: when a session idle in transaction is reported, also instead of what waits for it."""

from __future__ import annotations

from dba_console.core.clock import age_s
from dba_console.watch.findings.rule import RuleContext
from dba_console.watch.findings.thresholds import Judgement, Ordered, RuleThresholds
from dba_console.watch.samples.postgres import Activity
from dba_console.watch.session_states import IN_TRANSACTION


class IdleTransactionLimits(RuleThresholds, frozen=True):
    """`[findings.connections]`: sessions idle in transaction."""

    family = "connections"

    idle_transaction_s: Judgement[float] = 60.0
    """Info about a session idle in transaction that has held a transaction id or a snapshot for this long."""
    idle_transaction_warning_s: Judgement[float] = 300.0
    """Warning about such a session from this time on."""
    idle_transaction_bare_s: Judgement[float] = 900.0
    """Info about a session idle in transaction for this long that holds only locks."""
    idle_transaction_blocks_s: Judgement[float] = 2.0
    """Warning about a session idle in transaction for this long while other sessions wait for it."""
    idle_transaction_critical_behind: Judgement[int] = 5
    """Critical if this many sessions have waited for it for `idle_transaction_critical_s`."""
    idle_transaction_critical_s: Judgement[float] = 30.0
    """How long `idle_transaction_critical_behind` sessions must have waited for it: critical."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.idle_transaction_s, cls.idle_transaction_warning_s),)


def is_long_idle_in_transaction(s: RuleContext, row: Activity | None) -> bool:
    """Whether it is idle in transaction so long that waits for it belong to `idle-in-transaction`."""
    if row is None or row.state not in IN_TRANSACTION:
        return False
    idle_s = age_s(s.facts.server_time_us("pg.activity"), row.state_change)
    return idle_s is not None and idle_s >= s.limits.of(IdleTransactionLimits).idle_transaction_blocks_s
