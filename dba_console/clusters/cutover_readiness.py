"""Can a cutover to a node begin? Each condition with its numbers, what it would break, and the command that mends it.

Pure: a survey in, a list out. First what takes days to mend (`suitable`), then what has to hold in the minutes before
(`moment`), as docs/clusters.md lists them. What could not be seen is `unknown`, and never counts as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.clusters import (
    cluster_managers,
    configuration_differences,
    current_conditions,
    host_checks,
    other_standbys,
    replication_access,
    standby_suitability,
)
from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.pooler_state import PoolerState
from dba_console.clusters.survey import Survey


def cutover_readiness(found: Survey, to: str) -> list[ClusterCheck]:
    """Every condition of a cutover to the node `to`. Where there is no primary or no such node, only what is wrong."""
    target = found.node(to)
    if target is None:
        names = ", ".join(node.name for node in found.nodes)
        return [failed("target", f"{to} is no node of {found.cluster}", fix=f"name one of: {names}")]
    checks = list(_check_answers(found))
    primary = _find_primary(found, to, checks)
    if primary is None or not target.reached:
        return checks
    for pair_check in (
        standby_suitability.check_identity_and_version,
        standby_suitability.check_streaming,
        standby_suitability.check_settings,
        configuration_differences.check_settings,
        standby_suitability.check_extensions,
        configuration_differences.check_collations,
        configuration_differences.check_archiving,
        configuration_differences.check_jobs,
        standby_suitability.check_rewind,
        standby_suitability.check_free_slots,
        standby_suitability.check_logical_slots,
        current_conditions.check_lag,
        current_conditions.check_replay,
        current_conditions.check_archive,
        current_conditions.check_running_work,
        current_conditions.check_synchronized_slots,
        current_conditions.check_clocks,
    ):
        checks += pair_check(primary, target)
    for survey_check in (
        replication_access.check_replication_access,
        replication_access.check_tls,
        other_standbys.check_other_standbys,
        host_checks.check_control,
        host_checks.check_console_host,
        cluster_managers.check_managers,
    ):
        checks += survey_check(found, primary, target)
    checks += host_checks.check_disks(found, target)
    checks += current_conditions.check_synchronous_standbys(found, target)
    checks += _check_poolers(found)
    return checks


def is_ready(checks: list[ClusterCheck]) -> bool:
    """Nothing has failed, and everything could be seen."""
    return all(one.state in ("ok", "warning") for one in checks)


def _check_answers(found: Survey) -> Iterator[ClusterCheck]:
    for node in found.nodes:
        if not node.reached:
            yield failed(
                f"reached.{node.name}",
                f"{node.name} does not answer: {node.error}",
                breaks="nothing is known of it, and it could be a second primary",
                fix=f"psql with the dsn of [clusters.{found.cluster}.nodes.{node.name}]",
            )
    for pooler in found.poolers:
        if not pooler.reached:
            yield failed(
                f"reached.{pooler.name}",
                f"{pooler.name} does not answer: {pooler.error}",
                breaks="clients could not be held while the primary changes",
            )


def _find_primary(found: Survey, to: str, checks: list[ClusterCheck]) -> NodeState | None:
    primaries = found.primaries
    names = ", ".join(node.name for node in primaries)
    if not primaries:
        checks.append(
            failed(
                "primary",
                "no node answers as primary",
                breaks="there is nothing to hand over",
                fix="where it is dead for good, that is a failover and no cutover",
            )
        )
        return None
    if len({node.system_identifier for node in primaries}) > 1:
        primaries_text = ", ".join(f"{node.name} is {node.system_identifier or 'unknown'}" for node in primaries)
        checks.append(
            failed(
                "primary",
                f"the primaries are different servers: the system identifier of {primaries_text}",
                breaks="a node of another cluster would take over",
                fix=f"correct the dsn of the nodes of [clusters.{found.cluster}]",
            )
        )
        return None
    if len(primaries) > 1:
        primaries_text = ", ".join(f"{node.name} at {node.lsn}, timeline {node.timeline}" for node in primaries)
        checks.append(
            failed(
                "primary",
                f"{len(primaries)} nodes are primaries: {primaries_text}",
                breaks="both take writes, and one of the two histories will be lost",
                fix="stop clients first, then find out which one has what",
            )
        )
        return None
    if names == to:
        checks.append(failed("primary", f"{to} is the primary already", fix="name the node that shall become it"))
        return None
    checks.append(ok("primary", f"{names} is the primary, {to} shall become it"))
    return primaries[0]


def _check_pooler_rights(found: Survey, pooler: PoolerState) -> Iterator[ClusterCheck]:
    name, section = f"pooler.{pooler.name}", f"[clusters.{found.cluster}.poolers.{pooler.name}]"
    if pooler.admin is None:
        yield unknown(f"{name}.admin", f"whether the role may PAUSE {pooler.name} was not seen",
                      breaks="clients could not be held")  # fmt: skip
    elif not pooler.admin:
        yield failed(f"{name}.admin", f"the role of {section} is not one of admin_users",
                     breaks="it may not PAUSE and RESUME: clients could not be held",
                     fix=f"add it to admin_users of {pooler.name}, and RELOAD")  # fmt: skip
    else:
        yield ok(f"{name}.admin", f"the role may PAUSE {pooler.name}")
    if pooler.config is None:
        yield warning(f"{name}.config", f"the configuration file of {pooler.name} is not known",
                      breaks="after the cutover it leads to the old primary, unless an address command changes that",
                      fix=f"set config, and ssh where it is on another host, in {section}")  # fmt: skip
    elif pooler.config_error:
        yield failed(f"{name}.config", f"the configuration of {pooler.name} cannot be changed: {pooler.config_error}",
                     breaks="after the cutover it leads to the old primary",
                     fix=f"correct config of {section}")  # fmt: skip
    else:
        yield ok(f"{name}.config", f"{pooler.config} of {pooler.name} can be changed")


def _check_poolers(found: Survey) -> Iterator[ClusterCheck]:
    for pooler in found.poolers:
        if pooler.reached:
            yield from _check_pooler_rights(found, pooler)
        for one in pooler.missing:
            yield failed(
                f"pooler.{pooler.name}.{one}",
                f"{pooler.name} has no database {one}",
                fix=f"correct databases in [clusters.{found.cluster}.poolers.{pooler.name}]",
            )
        for database in pooler.databases:
            database_text = f"{database.name} of {pooler.name}"
            if database.mode == "session":
                yield failed(
                    f"pooler.{pooler.name}.{database.name}",
                    f"{database_text} is in session mode",
                    breaks="its pause ends only when every client has disconnected",
                    fix="pool_mode = transaction, or end its clients during the cutover",
                )
            elif database.paused:
                yield failed(
                    f"pooler.{pooler.name}.{database.name}",
                    f"{database_text} is paused already",
                    breaks="somebody else is at work, or its clients hang",
                    fix=f"RESUME {database.name}",
                )
            else:
                yield ok(
                    f"pooler.{pooler.name}.{database.name}",
                    f"{database_text}: {database.mode or '?'} mode, {database.clients_active} clients active, "
                    f"{database.clients_waiting} waiting",
                )
