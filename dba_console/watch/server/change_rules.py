"""Recent changes of the server: restarts, promotions, new settings, another version, each shown for a while.

Two readings of the server's identity are compared, whatever lies between them; the agent's first reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.watch.findings.rule import RuleContext, Signal, Value
from dba_console.watch.findings.thresholds import Judgement, RuleThresholds
from dba_console.watch.safety.readings import DatabaseStats
from dba_console.watch.samples.findings import Severity
from dba_console.watch.samples.postgres import Server, Sessions, Setting


class ChangeLimits(RuleThresholds, frozen=True):
    """`[findings.server]`: recent changes."""

    family = "server"

    news_s: Judgement[float] = 900.0
    """How long a restart, a promotion or changed settings are reported."""


# What differs between two readings of the server. Pure.

IGNORED_SETTINGS = frozenset({"transaction_read_only", "in_hot_standby", "application_name", "data_directory_mode"})
"""Settings that change with the connection or are reported otherwise."""
MIN_TRANSACTIONS = 100
"""Transactions the counters must have counted before their loss is conclusive."""


class ServerChange(NamedTuple):
    """One change, and its time by the server's clock if known more exactly than by the reading."""

    rule: str
    severity: Severity
    text: str
    evidence: Mapping[str, Value]
    server_us: int | None = None
    """By the server's clock."""
    subject: str = ""


def find_changes(before: Server, after: Server, *, crashed: bool | None) -> Iterator[ServerChange]:
    """Yield the changes, the most severe first. If another cluster answers, only that: the two are not comparable.

    `crashed` is how a restarted server ended, None if not known.
    """
    if before.system_identifier and after.system_identifier and before.system_identifier != after.system_identifier:
        old, new = before.system_identifier, after.system_identifier
        text = f"A different cluster answers: system identifier {old} became {new}"
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
    how = {True: " after a crash: its statistics are lost", False: " after a clean shutdown", None: ""}[crashed]
    evidence: dict[str, Value] = {"crashed": crashed, "version": after.version}
    severity: Severity = "info" if crashed is False else "warning"
    return ServerChange("server-restarted", severity, f"PostgreSQL was restarted{how}", evidence, after.start_us)


def crash_recovery(after_us: int) -> ServerChange:
    """Return the change for a postmaster that stayed while all its processes restarted: one of them crashed."""
    text = "PostgreSQL ended every session and recovered, because one of its processes crashed"
    return ServerChange("server-restarted", "warning", text, {"crashed": True}, after_us)


def checkpointer_start(sessions: Sessions | None) -> int | None:
    """Return when the checkpointer started, by the server's clock: again with each recovery; None if not visible."""
    rows = () if sessions is None else sessions.rows
    return next((row.backend_start for row in rows if row.backend_type == "checkpointer"), None)


def lost_statistics(before: DatabaseStats | None, after: DatabaseStats | None) -> bool | None:
    """Whether the counters restarted, which happens only after a crash (pgstat_discard_stats, pgstat_reset_all).

    None if too little had been counted.
    """
    if before is None or after is None:
        return None
    counted = {row.oid: row.xact_commit + row.xact_rollback for row in before.rows}
    both = [(counted[row.oid], row.xact_commit + row.xact_rollback) for row in after.rows if row.oid in counted]
    if sum(old for old, _ in both) < MIN_TRANSACTIONS:
        return None
    return any(new < old for old, new in both)


def changed_settings(before: Server, after: Server) -> dict[str, tuple[Setting, Setting]]:
    """Return settings read both times that differ, by name, except those that depend on the console's connection."""
    old = {setting.name: setting for setting in before.settings}
    return {
        new.name: (old[new.name], new)
        for new in after.settings
        if new.name in old and old[new.name].value != new.value and new.name not in IGNORED_SETTINGS
    }


def setting_change_text(before: Setting, after: Setting) -> str:
    """Return `work_mem from 4096kB to 64MB`, with units if known and secrets removed."""
    return redact(f"{clean(after.name)} from {_value(before)} to {_value(after)}")


def _value(setting: Setting) -> str:
    if setting.value == "":
        return "empty"
    unit = setting.unit or ""
    # `8kB` and the like count pages: a number beside it would read as one.
    return clean(setting.value) + (f" × {unit}" if unit[:1].isdigit() else unit)


SHOWN = 4
"""Settings named in the sentence; the evidence lists all."""


class _ReportedChange(NamedTuple):
    change: ServerChange
    mono_us: int
    wall_us: int


class _ServerState:
    """The last reading, the changes reported since, and settings as they were before they changed."""

    def __init__(self) -> None:
        self.at_us = 0
        self.server: Server | None = None
        self.checkpointer: int | None = None
        self.reported: list[_ReportedChange] = []
        self.settings: dict[str, tuple[Setting, Setting, int, int]] = {}


def server_restarted(s: RuleContext) -> Iterator[Signal]:
    """The server was restarted; shown for a quarter of an hour, with its start time and whether it had crashed.

    Info if it was shut down cleanly, else a warning. A crash is detected by the statistics, which are discarded in
    recovery and kept over a clean shutdown; and by processes that all restarted under the same postmaster.
    """
    return _change_signals(s, "server-restarted")


def server_promoted(s: RuleContext) -> Iterator[Signal]:
    """The role, timeline or system identifier changed: a promotion, a failover, or another cluster.

    Another cluster is critical: the next action would change a server that was not intended.
    """
    return _change_signals(s, "server-promoted")


def version_changed(s: RuleContext) -> Iterator[Signal]:
    """The server's version changed; shown for a quarter of an hour."""
    return _change_signals(s, "version-changed")


def _change_signals(s: RuleContext, rule: str) -> Iterator[Signal]:
    return (_signal(reported) for reported in _update_state(s).reported if reported.change.rule == rule)


def _signal(reported: _ReportedChange) -> Signal:
    change = reported.change
    return Signal(
        severity=change.severity, subject=change.subject, text=change.text, evidence=change.evidence,
        since_us=reported.wall_us, advice=_ADVICE.get(change.subject or change.rule),
    )  # fmt: skip


_ADVICE = {
    "identity": "Make sure that this is the intended server before you change anything.",
    "server-restarted": "The end of the server's log shows who or what restarted it.",
    "server-promoted": "Make sure that the old primary is stopped, and that clients and standbys follow this one.",
}


def settings_changed(s: RuleContext) -> Iterator[Signal]:
    """Settings of the server changed, from what to what; shown for a quarter of an hour.

    Read every 30 s, only the settings the console uses; a reverted value is not reported.
    """
    state = _update_state(s)
    if not state.settings:
        return
    words = [setting_change_text(old, new) for old, new, _, _ in state.settings.values()]
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    yield Signal(
        severity="info",
        text=f"Settings changed: {', '.join(words[:SHOWN])}{more}",
        evidence={"settings": words},
        since_us=min(wall_us for _, _, _, wall_us in state.settings.values()),
    )


def _update_state(s: RuleContext) -> _ServerState:
    """Return the state, updated with this tick's reading once for all rules of this file."""
    state = s.shared(_ServerState)
    reading, server = s.picture.current.get("pg.server"), s.picture.now("pg.server", Server)
    if reading is not None and server is not None and reading.part.at_us != state.at_us:
        state.at_us = reading.part.at_us
        if state.server is not None:
            server = _with_known_timeline(state.server, server)
            _compare(s, state, state.server, server)
        state.server = server
        state.checkpointer = checkpointer_start(s.picture.now("pg.activity", Sessions)) or state.checkpointer
    _forget(s, state)
    return state


def _with_known_timeline(before: Server, after: Server) -> Server:
    """Return the reading with the newest timeline known: without a WAL receiver a standby reports that of its last
    restartpoint, and a standby never returns to an earlier one."""
    stayed = (before.start_us, before.system_identifier) == (after.start_us, after.system_identifier)
    if not (stayed and before.in_recovery and after.in_recovery) or (after.timeline or 0) >= (before.timeline or 0):
        return after
    return structs.replace(after, timeline=before.timeline)


def _compare(s: RuleContext, state: _ServerState, before: Server, after: Server) -> None:
    found = list(find_changes(before, after, crashed=_has_crashed(s)))
    began = checkpointer_start(s.picture.now("pg.activity", Sessions))
    same = before.start_us == after.start_us and not found
    if same and began is not None and state.checkpointer is not None and began > state.checkpointer:
        found.append(crash_recovery(began))
    for change in found:
        since_us = s.host_us(change.server_us) or s.now_us
        state.reported = [
            old for old in state.reported if (old.change.rule, old.change.subject) != (change.rule, change.subject)
        ]
        state.reported.append(_ReportedChange(change, s.mono_us, since_us))
    if before.system_identifier == after.system_identifier:
        _compare_settings(s, state, before, after)


def _compare_settings(s: RuleContext, state: _ServerState, before: Server, after: Server) -> None:
    for name, (old, new) in changed_settings(before, after).items():
        first, _, _, since_us = state.settings.get(name, (old, new, 0, s.now_us))
        if first.value == new.value:
            state.settings.pop(name, None)
        else:
            state.settings[name] = (first, new, s.mono_us, since_us)


def _has_crashed(s: RuleContext) -> bool | None:
    return lost_statistics(
        s.picture.before("pg.databases", DatabaseStats), s.picture.now("pg.databases", DatabaseStats)
    )


def _forget(s: RuleContext, state: _ServerState) -> None:
    oldest_us = s.mono_us - int(s.limits.of(ChangeLimits).news_s * 1e6)
    state.reported = [reported for reported in state.reported if reported.mono_us >= oldest_us]
    state.settings = {name: kept for name, kept in state.settings.items() if kept[2] >= oldest_us}
