"""The finding `connection-limit`: a pool of slots smaller than the server's own is nearly taken.

A CONNECTION LIMIT of a role or a database, and max_wal_senders. Counted only where there is such a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dba_console.findings import session_names
from dba_console.findings.hysteresis import keep_signals_briefly
from dba_console.findings.rule import Rule
from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal
from dba_console.frames.connections import is_client

LIMIT = "connection-limit"
RECOUNT_US = 5_000_000
"""How often it is counted: a limit is reached by a pool that grows, and stays."""


def connection_limit(s: RuleContext) -> Iterator[Signal]:
    """A role or a database has nearly as many connections as its CONNECTION LIMIT; the same for max_wal_senders.

    From 90 % on, as check_postgres has it for the server as a whole. Always a warning: what is refused there does not
    touch the others. Superusers are not held to it (postinit.c), limits below five are meant to be reached, and
    walsenders have slots of their own since 12.
    """
    memo = s.memo("connection-limit-counts")
    if s.mono_us - memo.get("at_us", -RECOUNT_US) >= RECOUNT_US:
        memo["at_us"], memo["seen"] = s.mono_us, list(_near_limits(s))
    yield from memo["seen"]


def _near_limits(s: RuleContext) -> Iterator[Signal]:
    sessions = s.facts.sessions
    known = _limits(s)
    if sessions is None or not known:
        return
    clients = [row for row in sessions.rows if is_client(row)]
    counts: dict[str, Counter[str | None]] = {
        "role": Counter(row.user for row in clients),
        "database": Counter(row.database for row in clients),
        "server": Counter("walsenders" for row in sessions.rows if row.backend_type == "walsender"),
    }
    for kind, name, limit in known:
        subject = f"{kind} {session_names.display_name(name)}"
        used = counts[kind][name]
        near = 100.0 * used / limit
        if s.over(near, s.limits.connections.limit_near_pct, s.limits.connections.limit_clear_pct, LIMIT, subject):
            yield _near_signal(subject, kind, name, used, limit)


def _limits(s: RuleContext) -> list[tuple[str, str, int]]:
    """Every limit there is (kind, name, number), worked out when the settings were read anew."""
    memo, server = s.memo(LIMIT), s.picture.current.get("pg.server")
    if server is None or s.facts.server is None:
        return []
    if memo.get("server") is not server:
        least = s.limits.connections.limit_least
        roles = [("role", role.name, role.connection_limit) for role in s.facts.server.roles if not role.superuser]
        databases = [("database", one.name, one.connection_limit) for one in s.facts.server.databases]
        walsenders = [("server", "walsenders", s.facts.number("max_wal_senders") or 0)]
        memo["server"] = server
        memo["limits"] = [each for each in (*roles, *databases, *walsenders) if each[2] >= least]
    limits: list[tuple[str, str, int]] = memo["limits"]
    return limits


def _near_signal(subject: str, kind: str, name: str, used: int, limit: int) -> Signal:
    if kind == "server":
        what, setting = "Walsenders", "max_wal_senders"
    else:
        what, setting = f"Connections of {subject}", "its CONNECTION LIMIT"
    how = "have reached" if used >= limit else "are near"
    refused = "; further ones are refused" if used >= limit else ""
    return Signal(
        severity="warning",
        subject=subject,
        text=f"{what} {how} {setting} ({used} of {limit}){refused}",
        evidence={
            "used": used,
            "limit": limit,
            "used_pct": round(100.0 * used / limit, 1),
            kind: session_names.display_name(name),
        },
        series=("connections.used",),
        runbook=None if kind == "server" else "connection-storm",
    )


CONNECTION_LIMIT = Rule(
    name=LIMIT,
    title="A role or database is near its CONNECTION LIMIT, or walsenders are near max_wal_senders",
    parts=("pg.activity",),
    check=keep_signals_briefly("pg.activity", connection_limit),
    clear_after_s=20.0,
    settings=("connections.limit_near_pct", "connections.limit_clear_pct", "connections.limit_least"),
    source="PostgreSQL: CREATE ROLE, CREATE DATABASE (CONNECTION LIMIT), max_wal_senders (19.6)",
    runbook="connection-storm",
)  # fmt: skip
