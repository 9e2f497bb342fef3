"""Rules about the server: whether it is there, and what happened to it lately."""

from __future__ import annotations

from dba_console.findings.rule import Rule
from dba_console.findings.server_change_rules import (
    server_promoted,
    server_restarted,
    settings_changed,
    version_changed,
)
from dba_console.findings.server_down import postmaster_stopped, server_down
from dba_console.findings.settings_not_reverted import settings_left

_NEWS = ("server.news_s",)

RULES: tuple[Rule, ...] = (
    Rule(
        name="server-down",
        title="PostgreSQL cannot be reached, lets nobody in, or does not answer",
        parts=("pg.activity",),
        check=server_down,
        clear_after_s=0.0,
        settings=(
            "server.down_warning_s",
            "server.down_critical_s",
            "server.silent_warning_s",
            "server.silent_critical_s",
        ),
        source="PostgreSQL: error codes, class 57 (errcodes-appendix)",
    ),
    Rule(
        name="postmaster-stopped",
        title="The postmaster is stopped by a signal or a debugger",
        parts=("host.processes",),
        check=postmaster_stopped,
        raise_after_s=2.0,
        clear_after_s=2.0,
        source="Linux: proc_pid_stat(5), states T and t",
    ),
    Rule(
        name="server-promoted",
        title="A standby was promoted, another server or another cluster answers",
        parts=("pg.server",),
        check=server_promoted,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
        source="PostgreSQL: pg_control_system, pg_control_checkpoint (func.sgml)",
    ),
    Rule(
        name="server-restarted",
        title="PostgreSQL was restarted, in order or after a crash",
        parts=("pg.server",),
        check=server_restarted,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
        source="PostgreSQL: pg_postmaster_start_time (func.sgml); pgstat.c discards statistics after a crash",
    ),
    Rule(
        name="version-changed",
        title="Another version of PostgreSQL runs",
        parts=("pg.server",),
        check=version_changed,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
    ),
    Rule(
        name="settings-changed",
        title="Settings of the server changed, from what to what",
        parts=("pg.server",),
        check=settings_changed,
        warm_up_s=30.0,
        clear_after_s=0.0,
        settings=_NEWS,
    ),
    Rule(
        name="settings-left",
        title="Settings that a run changed for a time were not put back",
        parts=("debts",),
        check=settings_left,
        clear_after_s=0.0,
        source="dba-console: docs/actions.md; PostgreSQL: fsync, full_page_writes (runtime-config-wal)",
        runbook="put-back",
    ),
)
