"""`dba-console cluster`: the nodes and poolers of a configured cluster, and whether a cutover can begin."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from dba_console.cli.config_file import load_config
from dba_console.cli.options import Json, new_app
from dba_console.cli.output import columns, put_json
from dba_console.cli.stderr import say
from dba_console.cli.stdout import put
from dba_console.clock import SYSTEM
from dba_console.clusters.checks import Check, position
from dba_console.clusters.failover import failover_readiness
from dba_console.clusters.history import Spell, after, facts_of, load, save, since
from dba_console.clusters.node import NodeState
from dba_console.clusters.pooler import PoolerState
from dba_console.clusters.readiness import readiness, ready
from dba_console.clusters.survey import Survey, remember, survey
from dba_console.config import ClusterConfig
from dba_console.errors import ConsoleError, ExitCode, UsageError
from dba_console.panels.times import moment, rfc3339
from dba_console.sanitize import clean
from dba_console.units import UNKNOWN, human_bytes, human_duration

app = new_app("Clusters: what its nodes and poolers are now, and whether a cutover can begin.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As the configuration has it, [clusters.NAME].")]
CAUSES = 3
"""Changes that the line about the time names."""
_SIGNS = {"ok": "ok", "warning": "warn", "failed": "FAILED", "unknown": "unknown"}


@app.command()
def show(name: Name, json: Json = False) -> int:
    """Every node with role, timeline, version and lag, every pooler with its clients."""
    found = _survey(name)
    if json:
        put_json(msgspec.to_builtins(found))
        return ExitCode.OK
    put("\n".join([*_nodes(found), "", *_poolers(found.poolers)]).rstrip())
    return ExitCode.OK


@app.command()
def check(
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="The node that shall become the primary.")],
    failover: Annotated[
        bool, typer.Option("--failover", help="The primary is dead: can NODE take over, and what would be lost?")
    ] = False,
    json: Json = False,
) -> int:
    """Whether a cutover to NODE can begin: exit code 0 where it can, 7 where not."""
    found = _survey(name, to)
    checks = failover_readiness(found, to) if failover else readiness(found, to)
    good = ready(checks)
    spell = None if failover else _remembered(name, to, found, checks, good)
    if json:
        begun = None if spell is None else rfc3339(spell.from_us)
        changed = () if spell is None else spell.changed
        put_json({"cluster": name, "to": to, "ready": good, "since": begun, "changed": changed, "took_s": found.took_s,
                  "checks": [msgspec.to_builtins(one) for one in checks]})  # fmt: skip
    else:
        put("\n".join(_checks(f"a {'failover' if failover else 'cutover'} of {name} to {to}", checks, good, spell)))
    return ExitCode.OK if good else ExitCode.RUNBOOK_FAILED


def _survey(name: str, to: str | None = None) -> Survey:
    found = survey(name, _cluster(name), SYSTEM, to=to)
    try:
        remember(found)
    except (ConsoleError, OSError) as error:
        say(f"warning: where the primary is was not recorded: {error}")
    return found


def _remembered(name: str, to: str, found: Survey, checks: Sequence[Check], good: bool) -> Spell | None:
    """The first check since which every one had the same answer. This one is kept for the next."""
    if any(one.id == "target" for one in checks):
        return None
    known = after(load(name, to), checks, good, facts_of(found), SYSTEM.wall_us())
    try:
        save(known)
    except (ConsoleError, OSError) as error:
        say(f"warning: that it was looked at is not remembered: {error}")
    return since(known)


def _cluster(name: str) -> ClusterConfig:
    loaded = load_config()
    found = loaded.config.clusters.get(name)
    if found is None:
        known = ", ".join(loaded.config.clusters) or "none"
        raise UsageError(
            f"no cluster {name!r} is configured", hint=f"[clusters.{name}.nodes.NODE] dsn = …; there are: {known}"
        )
    return found


def _nodes(found: Survey) -> list[str]:
    primary = found.primaries[0] if len(found.primaries) == 1 else None
    rows = [_node(node, primary) for node in found.nodes]
    head = ["node", "role", "version", "timeline", "position", "behind", "replayed", "system identifier", "age"]
    lines = columns(head, rows, right=[3, 5]).splitlines()
    lines += [f"! {node.name}: {node.error}" for node in found.nodes if node.error]
    lines += [f"? {node.name}: {what}: {why}" for node in found.nodes for what, why in node.unknown.items()]
    return lines


def _node(node: NodeState, primary: NodeState | None) -> list[str]:
    if not node.reached:
        return [node.name, "no answer", *[UNKNOWN] * 7]
    behind = UNKNOWN
    if node is primary:
        behind = "–"
    elif primary is not None and primary.lsn and node.replayed_lsn:
        behind = human_bytes(max(0, position(primary.lsn) - position(node.replayed_lsn)))
    replayed = "–" if node.role == "primary" else "paused" if node.replay_paused else "running"
    age = human_duration(max(0.0, time.time() - node.asked_us / 1e6))
    timeline = UNKNOWN if node.timeline is None else str(node.timeline)
    return [
        node.name, node.role or UNKNOWN, node.version or UNKNOWN, timeline,
        node.lsn or UNKNOWN, behind, replayed, node.system_identifier or UNKNOWN,
        age,
    ]  # fmt: skip


def _poolers(poolers: Sequence[PoolerState]) -> list[str]:
    if not poolers:
        return []
    rows = [
        [pooler.name, one.name, f"{one.host or UNKNOWN}:{one.port or UNKNOWN}", one.mode or UNKNOWN,
         {None: UNKNOWN, True: "paused", False: "no"}[one.paused], str(one.clients_active), str(one.clients_waiting),
         UNKNOWN if one.longest_wait_s is None else human_duration(one.longest_wait_s),
         str(one.servers_active + one.servers_idle)]
        for pooler in poolers for one in pooler.databases
    ]  # fmt: skip
    head = ["pooler", "database", "leads to", "mode", "paused", "active", "waiting", "longest wait", "servers"]
    lines = columns(head, rows, right=[5, 6, 7, 8]).splitlines() if rows else []
    return lines + [f"! {pooler.name}: {pooler.error}" for pooler in poolers if pooler.error]


def _since(spell: Spell) -> str:
    """How long the answer has been the same, and what had changed when it became so."""
    lasted = human_duration(max(0, SYSTEM.wall_us() - spell.from_us) / 1e6)
    if spell.ready:
        return f"ready for {lasted}, at every check since {moment(spell.from_us)}"
    causes = [clean(one) for one in spell.changed or spell.why.values()]
    more = f"; and {len(causes) - CAUSES} more" if len(causes) > CAUSES else ""
    return f"not ready since {moment(spell.from_us)} ({lasted}): {'; '.join(causes[:CAUSES])}{more}"


def _checks(operation: str, checks: Sequence[Check], good: bool, spell: Spell | None) -> list[str]:
    failed = sum(one.state == "failed" for one in checks)
    unseen = sum(one.state == "unknown" for one in checks)
    warned = sum(one.state == "warning" for one in checks)
    counts = {"failed": failed, "unknown": unseen, "warnings": warned}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    verdict = "READY" if good else "NOT READY"
    lines = [f"{verdict} for {operation}{': ' + ', '.join(parts) if parts else ''}"]
    if spell is not None:
        lines.append(_since(spell))
    for one in sorted(checks, key=lambda one: ("failed", "unknown", "warning", "ok").index(one.state)):
        lines.append(f"{_SIGNS[one.state]:<8}{clean(one.text)}")
        if one.state == "ok":
            continue
        if one.breaks:
            lines.append(f"        breaks: {clean(one.breaks)}")
        if one.fix:
            lines.append(f"        fix:    {clean(one.fix)}")
    return lines
