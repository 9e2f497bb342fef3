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
    """A session idle in transaction that has held a transaction id or a snapshot for this long is info."""
    idle_transaction_warning_s: Judgement[float] = 300.0
    """And from this time a warning."""
    idle_transaction_bare_s: Judgement[float] = 900.0
    """One that holds neither, only its locks, is info from this time."""
    idle_transaction_blocks_s: Judgement[float] = 2.0
    """Idle for this long while others wait for it: a warning at once."""
    idle_transaction_critical_behind: Judgement[int] = 5
    """This many sessions waiting for it ..."""
    idle_transaction_critical_s: Judgement[float] = 30.0
    """... for this long: critical."""

    @classmethod
    def in_order(cls) -> Ordered:
        return ((cls.idle_transaction_s, cls.idle_transaction_warning_s),)


def is_long_idle_in_transaction(s: RuleContext, row: Activity | None) -> bool:
    """Whether it is idle in transaction so long that waits for it belong to `idle-in-transaction`."""
    if row is None or row.state not in IN_TRANSACTION:
        return False
    idle_s = age_s(s.facts.server_time_us("pg.activity"), row.state_change)
    return idle_s is not None and idle_s >= s.limits.of(IdleTransactionLimits).idle_transaction_blocks_s
