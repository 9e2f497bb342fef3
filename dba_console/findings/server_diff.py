"""What differs between two readings of the server: news that stays on the screen for a while. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dba_console.findings.signal import Value
from dba_console.redact import redact
from dba_console.samples.findings import Severity
from dba_console.samples.postgres import DatabaseStats, Server, Sessions, Setting
from dba_console.sanitize import clean

IGNORED_SETTINGS = frozenset({"transaction_read_only", "in_hot_standby", "application_name", "data_directory_mode"})
"""Settings that change with the connection or are told otherwise."""
MIN_TRANSACTIONS = 100
"""Transactions that counters must have counted before their loss says anything."""


class ServerChange(NamedTuple):
    """One thing that changed, and when, by the host's clock where it is known better than by the reading."""

    rule: str
    severity: Severity
    text: str
    evidence: Mapping[str, Value]
    server_us: int | None = None
    """By the server's clock."""
    subject: str = ""


def find_changes(before: Server, after: Server, *, crashed: bool | None) -> Iterator[ServerChange]:
    """News worth telling, the gravest first. Another cluster is that alone: nothing of the two can be compared.

    `crashed` is how a server that has started anew ended, None where it is not known.
    """
    if before.system_identifier and after.system_identifier and before.system_identifier != after.system_identifier:
        old, new = before.system_identifier, after.system_identifier
        text = f"Another cluster answers now: system identifier {old} became {new}"
        yield ServerChange("server-promoted", "critical", text, {"before": old, "after": new}, subject="identity")
        return
    role = _role_change(before, after)
    if role is not None:
        yield role
    if before.version_num != after.version_num:
        versions: dict[str, Value] = {"before": before.version, "after": after.version}
        text = f"PostgreSQL {clean(before.version)} was replaced by {clean(after.version)}"
        yield ServerChange("version-changed", "info", text, versions)
    if before.start_us != after.start_us:
        yield _restart_change(after, crashed)


def _role_change(before: Server, after: Server) -> ServerChange | None:
    old, new = before.timeline, after.timeline
    switched = old is not None and new is not None and old != new
    lines = f", timeline {old} became {new}" if switched else ""
    evidence: dict[str, Value] = {
        "role_before": _role_of(before), "role": _role_of(after), "timeline_before": old, "timeline": new,
    }  # fmt: skip
    if before.in_recovery and not after.in_recovery:
        return ServerChange(
            "server-promoted", "warning", f"The standby was promoted: it is a primary now{lines}", evidence
        )
    if after.in_recovery and not before.in_recovery:
        text = f"A standby answers where a primary did{lines}"
        return ServerChange("server-promoted", "warning", text, evidence)
    if not switched:
        return None
    if after.in_recovery:
        return ServerChange(
            "server-promoted", "info", f"The standby follows another timeline: {old} became {new}", evidence
        )
    return ServerChange("server-promoted", "warning", f"Another primary answers after a failover{lines}", evidence)


def _role_of(server: Server) -> str:
    return "standby" if server.in_recovery else "primary"


def _restart_change(after: Server, crashed: bool | None) -> ServerChange:
    how = {True: " after a crash: its statistics are lost", False: ", shut down in order", None: ""}[crashed]
    evidence: dict[str, Value] = {"crashed": crashed, "version": after.version}
    severity: Severity = "info" if crashed is False else "warning"
    return ServerChange("server-restarted", severity, f"PostgreSQL was restarted{how}", evidence, after.start_us)


def crash_recovery(after_us: int) -> ServerChange:
    """A postmaster that stayed while all its processes began anew: one of them crashed."""
    text = "PostgreSQL ended every session and recovered, because one of its processes crashed"
    return ServerChange("server-restarted", "warning", text, {"crashed": True}, after_us)


def checkpointer_start(sessions: Sessions | None) -> int | None:
    """When the checkpointer began, by the server's clock: anew with each recovery, None without the right to see it."""
    rows = () if sessions is None else sessions.rows
    return next((row.backend_start for row in rows if row.backend_type == "checkpointer"), None)


def lost_statistics(before: DatabaseStats | None, after: DatabaseStats | None) -> bool | None:
    """Whether the counters began anew, as they do after a crash only (pgstat_discard_stats, pgstat_reset_all).

    None where too little had been counted to tell.
    """
    if before is None or after is None:
        return None
    counted = {row.oid: row.xact_commit + row.xact_rollback for row in before.rows}
    both = [(counted[row.oid], row.xact_commit + row.xact_rollback) for row in after.rows if row.oid in counted]
    if sum(old for old, _ in both) < MIN_TRANSACTIONS:
        return None
    return any(new < old for old, new in both)


def changed_settings(before: Server, after: Server) -> dict[str, tuple[Setting, Setting]]:
    """Settings read both times that differ, by name; those that say where the console is connected are left out."""
    old = {setting.name: setting for setting in before.settings}
    return {
        new.name: (old[new.name], new)
        for new in after.settings
        if new.name in old and old[new.name].value != new.value and new.name not in IGNORED_SETTINGS
    }


def setting_change_text(before: Setting, after: Setting) -> str:
    """`work_mem from 4096kB to 64MB` as far as the units are known, secrets left out."""
    return redact(f"{clean(after.name)} from {_value(before)} to {_value(after)}")


def _value(setting: Setting) -> str:
    if setting.value == "":
        return "empty"
    unit = setting.unit or ""
    # `8kB` and the like count pages: a number beside it would read as one.
    return clean(setting.value) + (f" × {unit}" if unit[:1].isdigit() else unit)
