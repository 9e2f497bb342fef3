"""`dba-console cluster`: show the nodes and poolers of a configured cluster, and check if a cutover can start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from dba_console.cli.config_file import load_config
from dba_console.cli.formatting import format_columns, print_json
from dba_console.cli.options import Json, new_app
from dba_console.cli.stderr import print_diagnostic
from dba_console.cli.stdout import put
from dba_console.clusters.cluster_check import ClusterCheck, parse_lsn
from dba_console.clusters.cutover_readiness import check_primaries, cutover_readiness, is_ready
from dba_console.clusters.failover_readiness import failover_readiness
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.pooler_state import PoolerState
from dba_console.clusters.readiness_history import (
    ReadinessPeriod,
    add_check,
    comparable_facts,
    load_history,
    ready_since,
    save_history,
)
from dba_console.clusters.standby_suitability import ahead_text
from dba_console.clusters.subject.panel import cutover_text, release_text
from dba_console.clusters.survey import Survey, ahead_of, save_primary_position, survey
from dba_console.core.clock import SYSTEM
from dba_console.core.config import ClusterConfig
from dba_console.core.errors import ConsoleError, ExitCode, UsageError
from dba_console.core.sanitize import clean
from dba_console.core.units import UNKNOWN, human_bytes, human_duration
from dba_console.watch.drawing.time_formats import date_and_time, format_rfc3339

app = new_app("Show the nodes and poolers of a cluster, and check if a cutover can start.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Cluster name in the configuration, [clusters.NAME].")]
MAX_CAUSES = 3
"""Maximum number of changes listed on the duration line."""
_STATE_WORDS = {"ok": "ok", "warning": "warn", "failed": "FAILED", "unknown": "unknown"}


@app.command()
def show(name: Name, json: Json = False) -> int:
    """Show the nodes (role, timeline, version, lag) and the poolers (clients)."""
    found = _survey(name)
    if json:
        print_json(found)
        return ExitCode.OK
    put("\n".join([*_warning_lines(found), *_node_lines(found), "", *_pooler_lines(found.poolers)]).rstrip())
    return ExitCode.OK


@app.command()
def check(
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The node to become the primary.")],
    failover: Annotated[
        bool, typer.Option("--failover", help="The primary is down: can NODE take over, and what would be lost?")
    ] = False,
    json: Json = False,
) -> int:
    """Check if a cutover to NODE can start. Exit code 0 if it can, 7 if not."""
    found = _survey(name, to)
    checks = failover_readiness(found, to, _cluster_config(name)) if failover else cutover_readiness(found, to)
    good = is_ready(checks)
    period = None if failover else _update_history(name, to, found, checks, good)
    if json:
        begun = None if period is None else format_rfc3339(period.from_us)
        changed = () if period is None else period.changed
        print_json(
            {
                "cluster": name,
                "to": to,
                "ready": good,
                "since": begun,
                "changed": changed,
                "took_s": found.took_s,
                "checks": checks,
            }
        )
    else:
        put(
            "\n".join(
                _check_lines(f"a {'failover' if failover else 'cutover'} of {name} to {to}", checks, good, period)
            )
        )
    return ExitCode.OK if good else ExitCode.RUNBOOK_FAILED


def _survey(name: str, to: str | None = None) -> Survey:
    found = survey(name, _cluster_config(name), SYSTEM, to=to)
    try:
        save_primary_position(found)
    except (ConsoleError, OSError) as error:
        print_diagnostic(f"warning: cannot record the position of the primary: {error}")
    return found


def _update_history(
    name: str, to: str, found: Survey, checks: Sequence[ClusterCheck], good: bool
) -> ReadinessPeriod | None:
    """Return since when every check had the same result, and save this check."""
    if any(one.id == "target" for one in checks):
        return None
    history = add_check(load_history(name, to), checks, good, comparable_facts(found), SYSTEM.wall_us())
    try:
        save_history(history)
    except (ConsoleError, OSError) as error:
        print_diagnostic(f"warning: cannot save this check for later: {error}")
    return ready_since(history)


def _cluster_config(name: str) -> ClusterConfig:
    loaded = load_config()
    found = loaded.config.clusters.get(name)
    if found is None:
        known = ", ".join(loaded.config.clusters) or "none"
        raise UsageError(
            f"no cluster {name!r} is configured", hint=f"[clusters.{name}.nodes.NODE] dsn = …; configured: {known}"
        )
    return found


def _warning_lines(found: Survey) -> list[str]:
    """Return what is wrong with the cluster as a whole, or in progress."""
    lines = [f"! {one.text}" for one in check_primaries(found) if one.state == "failed"]
    if len(found.primaries) == 1:
        [primary] = found.primaries
        lines += [f"! {text}" for node in found.nodes if (text := ahead_text(primary, node))]
    if (mark := found.cutover) is not None:
        lines.append(f"! {cutover_text(mark, date_and_time(mark.begun_us))}")
        if mark.held_since_us is not None:
            held = human_duration(max(0.0, time.time() - mark.held_since_us / 1e6))
            lines.append(f"! clients are held for {held}; {release_text(mark)}")
    return [*lines, ""] if lines else []


def _node_lines(found: Survey) -> list[str]:
    primary = found.primaries[0] if len(found.primaries) == 1 else None
    rows = [_node_cells(node, primary) for node in found.nodes]
    head = ["node", "role", "version", "timeline", "position", "behind", "replayed", "system identifier", "age"]
    lines = format_columns(head, rows, right=[3, 5]).splitlines()
    lines += [f"! {node.name}: {node.error}" for node in found.nodes if node.error]
    lines += [f"? {node.name}: {what}: {why}" for node in found.nodes for what, why in node.unknown.items()]
    return lines


def _node_cells(node: NodeState, primary: NodeState | None) -> list[str]:
    if not node.reached:
        return [node.name, "no answer", *[UNKNOWN] * 7]
    behind = UNKNOWN
    if node is primary:
        behind = "–"
    elif primary is not None and primary.lsn and node.replayed_lsn:
        behind = (
            "ahead"
            if ahead_of(primary, node)
            else human_bytes(max(0, parse_lsn(primary.lsn) - parse_lsn(node.replayed_lsn)))
        )
    replayed = "–" if node.role == "primary" else "paused" if node.replay_paused else "running"
    age = human_duration(max(0.0, time.time() - node.asked_us / 1e6))
    timeline = UNKNOWN if node.timeline is None else str(node.timeline)
    return [
        node.name, node.role or UNKNOWN, node.version or UNKNOWN, timeline,
        node.lsn or UNKNOWN, behind, replayed, node.system_identifier or UNKNOWN,
        age,
    ]  # fmt: skip


def _pooler_lines(poolers: Sequence[PoolerState]) -> list[str]:
    if not poolers:
        return []
    rows = [
        [pooler.name, one.name, f"{one.host or UNKNOWN}:{one.port or UNKNOWN}", one.mode or UNKNOWN,
         {None: UNKNOWN, True: "paused", False: "no"}[one.paused], str(one.clients_active), str(one.clients_waiting),
         UNKNOWN if one.longest_wait_s is None else human_duration(one.longest_wait_s),
         str(one.servers_active + one.servers_idle)]
        for pooler in poolers for one in pooler.databases
    ]  # fmt: skip
    head = ["pooler", "database", "server", "mode", "paused", "active", "waiting", "longest wait", "servers"]
    lines = format_columns(head, rows, right=[5, 6, 7, 8]).splitlines() if rows else []
    return lines + [f"! {pooler.name}: {pooler.error}" for pooler in poolers if pooler.error]


def _duration_text(period: ReadinessPeriod) -> str:
    """Return how long the result has been the same, and what had changed when it became so."""
    duration = human_duration(max(0, SYSTEM.wall_us() - period.from_us) / 1e6)
    if period.ready:
        return f"ready for {duration}, at every check since {date_and_time(period.from_us)}"
    causes = [clean(one) for one in period.changed or period.obstacles.values()]
    more = f"; and {len(causes) - MAX_CAUSES} more" if len(causes) > MAX_CAUSES else ""
    return f"not ready since {date_and_time(period.from_us)} ({duration}): {'; '.join(causes[:MAX_CAUSES])}{more}"


def _check_lines(
    operation: str, checks: Sequence[ClusterCheck], good: bool, period: ReadinessPeriod | None
) -> list[str]:
    failed = sum(one.state == "failed" for one in checks)
    unknown = sum(one.state == "unknown" for one in checks)
    warned = sum(one.state == "warning" for one in checks)
    counts = {"failed": failed, "unknown": unknown, "warning" if warned == 1 else "warnings": warned}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    verdict = "READY" if good else "NOT READY"
    lines = [f"{verdict} for {operation}{': ' + ', '.join(parts) if parts else ''}"]
    if period is not None:
        lines.append(_duration_text(period))
    for one in sorted(checks, key=lambda one: ("failed", "unknown", "warning", "ok").index(one.state)):
        lines.append(f"{_STATE_WORDS[one.state]:<8}{clean(one.text)}")
        if one.state == "ok":
            continue
        if one.breaks:
            lines.append(f"        breaks: {clean(one.breaks)}")
        if one.fix:
            lines.append(f"        fix:    {clean(one.fix)}")
    return lines
