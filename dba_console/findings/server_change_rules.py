"""What happened to the server lately: restarts, promotions, new settings, another version, each told for a while.

Compared are two readings of who the server is, whatever lies between them; the agent's first tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.server_diff import (
    ServerChange,
    changed_settings,
    checkpointer_start,
    crash_recovery,
    find_changes,
    lost_statistics,
    setting_change_text,
)
from dba_console.findings.signal import Signal
from dba_console.samples.postgres import DatabaseStats, Server, Sessions, Setting

SHOWN = 4
"""Settings named in the sentence; the evidence has all."""


class _ReportedChange(NamedTuple):
    change: ServerChange
    mono_us: int
    wall_us: int


class _ServerState:
    """The last reading, what has been told of it since, and settings as they were before they changed."""

    def __init__(self) -> None:
        self.at_us = 0
        self.server: Server | None = None
        self.checkpointer: int | None = None
        self.reported: list[_ReportedChange] = []
        self.settings: dict[str, tuple[Setting, Setting, int, int]] = {}


def server_restarted(s: RuleContext) -> Iterator[Signal]:
    """The server began anew, told for a quarter of an hour: since when it is up, and whether it had crashed.

    A remark where it was shut down in order, else a warning. A crash is known by the statistics, which are thrown away
    in recovery and kept over an orderly end; and by processes that all began anew under the same postmaster.
    """
    return _change_signals(s, "server-restarted")


def server_promoted(s: RuleContext) -> Iterator[Signal]:
    """Another role, timeline or system identifier than before: a promotion, a failover, or another cluster.

    Another cluster is critical: whatever is done next is done to a server that nobody meant.
    """
    return _change_signals(s, "server-promoted")


def version_changed(s: RuleContext) -> Iterator[Signal]:
    """The server's version is another one than before, told for a quarter of an hour."""
    return _change_signals(s, "version-changed")


def _change_signals(s: RuleContext, rule: str) -> Iterator[Signal]:
    return (_signal(told) for told in _update_state(s).reported if told.change.rule == rule)


def _signal(told: _ReportedChange) -> Signal:
    news = told.change
    return Signal(
        severity=news.severity, subject=news.subject, text=news.text, evidence=news.evidence, since_us=told.wall_us,
        advice=_ADVICE.get(news.subject or news.rule),
    )  # fmt: skip


_ADVICE = {
    "identity": "Make sure that this is the server you mean before you do anything on it.",
    "server-restarted": "Who or what restarted it stands at the end of the server's log.",
    "server-promoted": "Make sure that the old primary is gone, and that clients and standbys follow this one.",
}


def settings_changed(s: RuleContext) -> Iterator[Signal]:
    """Settings of the server that have another value than they had, from what to what, told for a quarter of an hour.

    Read every 30 s, those the console explains itself by; a value that was put back is no news.
    """
    memory = _update_state(s)
    if not memory.settings:
        return
    words = [setting_change_text(old, new) for old, new, _, _ in memory.settings.values()]
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    yield Signal(
        severity="info",
        text=f"Settings changed: {', '.join(words[:SHOWN])}{more}",
        evidence={"settings": words},
        since_us=min(wall_us for _, _, _, wall_us in memory.settings.values()),
    )


def _update_state(s: RuleContext) -> _ServerState:
    """What is remembered, with this tick's reading taken in once for all rules of this file."""
    memory = s.memo("server-news").setdefault("memory", _ServerState())
    assert isinstance(memory, _ServerState)
    reading, server = s.picture.current.get("pg.server"), s.picture.now("pg.server", Server)
    if reading is not None and server is not None and reading.part.at_us != memory.at_us:
        memory.at_us = reading.part.at_us
        if memory.server is not None:
            _compare(s, memory, memory.server, server)
        memory.server = server
        memory.checkpointer = checkpointer_start(s.picture.now("pg.activity", Sessions)) or memory.checkpointer
    _forget(s, memory)
    return memory


def _compare(s: RuleContext, memory: _ServerState, before: Server, after: Server) -> None:
    found = list(find_changes(before, after, crashed=_has_crashed(s)))
    began = checkpointer_start(s.picture.now("pg.activity", Sessions))
    same = before.start_us == after.start_us and not found
    if same and began is not None and memory.checkpointer is not None and began > memory.checkpointer:
        found.append(crash_recovery(began))
    for news in found:
        since_us = s.host_us(news.server_us) or s.now_us
        memory.reported = [
            old for old in memory.reported if (old.change.rule, old.change.subject) != (news.rule, news.subject)
        ]
        memory.reported.append(_ReportedChange(news, s.mono_us, since_us))
    if before.system_identifier == after.system_identifier:
        _compare_settings(s, memory, before, after)


def _compare_settings(s: RuleContext, memory: _ServerState, before: Server, after: Server) -> None:
    for name, (old, new) in changed_settings(before, after).items():
        first, _, _, since_us = memory.settings.get(name, (old, new, 0, s.now_us))
        if first.value == new.value:
            memory.settings.pop(name, None)
        else:
            memory.settings[name] = (first, new, s.mono_us, since_us)


def _has_crashed(s: RuleContext) -> bool | None:
    return lost_statistics(
        s.picture.before("pg.databases", DatabaseStats), s.picture.now("pg.databases", DatabaseStats)
    )


def _forget(s: RuleContext, memory: _ServerState) -> None:
    oldest_us = s.mono_us - int(s.limits.server.news_s * 1e6)
    memory.reported = [told for told in memory.reported if told.mono_us >= oldest_us]
    memory.settings = {name: kept for name, kept in memory.settings.items() if kept[2] >= oldest_us}
