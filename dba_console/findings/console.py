"""Rules about the console itself."""

from __future__ import annotations

from dba_console.findings.console_health import console_blind, console_late, lane_stuck, recording_lags
from dba_console.findings.rule import Rule

RULES: tuple[Rule, ...] = (
    Rule(
        name="console-blind",
        title="The console has no connection of its own, for every slot is taken",
        parts=("pg.activity",),
        check=console_blind,
        raise_after_s=2.0,
        clear_after_s=5.0,
        source="PostgreSQL: error codes, 53300 (errcodes-appendix)",
    ),
    Rule(
        name="console-late",
        title="The console does not keep its time, or its queries get no answer",
        parts=("self",),
        check=console_late,
        settings=("console.late_share_pct", "console.late_ticks", "console.unanswered_s"),
        source="the agent's own schedule: interval and time limits",
    ),
    Rule(
        name="lane-stuck",
        title="A file system or process of the host does not answer the console",
        parts=("self",),
        check=lane_stuck,
        clear_after_s=5.0,
        settings=("console.stuck_s",),
        source="deadlines of the lanes, 0.2 to 0.3 s (probes/host)",
    ),
    Rule(
        name="recording-lags",
        title="The recording is behind, has failed, or left samples out",
        parts=("self",),
        check=recording_lags,
        settings=("console.lagging_s", "console.dropped_s"),
        source="session/recorder_status.py: lagging from 5 s on",
    ),
)
