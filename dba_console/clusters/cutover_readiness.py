"""Readiness for a cutover to a node: all checks, with numbers, what would break, and the command that fixes it.

Pure: a survey in, a list out. First the conditions that take days to fix (`standby_suitability`), then those of the
minutes before (`current_conditions`), in the order of docs/clusters.md. What could not be read is `unknown`, which is
never ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from dba_console.clusters import cluster_managers, current_conditions, replication_access, standby_suitability
from dba_console.clusters.cluster_check import ClusterCheck, failed, ok, unknown, warning
from dba_console.clusters.cutover_mark import removal_statement
from dba_console.clusters.node_state import NodeState
from dba_console.clusters.pooler_state import PoolerState
from dba_console.clusters.subject.panel import cutover_text
from dba_console.clusters.subject.readings import STANDBY_MINIMUM_SETTINGS
from dba_console.clusters.survey import Survey
from dba_console.core.redact import redact
from dba_console.watch.drawing.time_formats import date_and_time

# Differences between primary and target that clients would notice: settings, archive, collations, jobs. Pure.

REQUIRED_VALUES = {"default_transaction_read_only": "off", "fsync": "on", "full_page_writes": "on", "autovacuum": "on"}
"""Settings with the value that a primary needs: the other value loses data or refuses writes."""
_NOT_COMPARED = frozenset((
    "application_name", "archive_cleanup_command", "archive_command", "archive_library", "archive_mode",
    "bonjour_name", "cluster_name", "config_file", "data_directory", "data_directory_mode", "event_source",
    "external_pid_file", "hba_file", "hot_standby", "hot_standby_feedback", "ident_file", "in_hot_standby",
    "lc_messages", "listen_addresses", "log_directory", "log_file_mode", "log_filename",
    "max_standby_archive_delay", "max_standby_streaming_delay", "port", "primary_slot_name", "promote_trigger_file",
    "recovery_end_command", "recovery_min_apply_delay", "recovery_target", "recovery_target_action",
    "recovery_target_inclusive", "recovery_target_lsn", "recovery_target_name", "recovery_target_time",
    "recovery_target_timeline", "recovery_target_xid", "restore_command", "shared_preload_libraries", "ssl",
    "ssl_ca_file", "ssl_cert_file", "ssl_crl_dir", "ssl_crl_file", "ssl_dh_params_file", "ssl_key_file",
    "sync_replication_slots", "synchronized_standby_slots", "synchronous_standby_names", "syslog_ident",
    "transaction_read_only", "unix_socket_directories", "unix_socket_group", "unix_socket_permissions",
    "wal_receiver_create_temp_slot", "wal_receiver_status_interval", "wal_receiver_timeout",
    "wal_retrieve_retry_interval", *STANDBY_MINIMUM_SETTINGS, *REQUIRED_VALUES,
))  # fmt: skip
"""Settings that may differ between nodes, and those of other checks."""
_MAX_SHOWN = 8
_LOOPBACK = frozenset({"", "localhost", "127.0.0.1", "::1"})


def check_settings(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    ours, theirs = primary.details.configured, target.details.configured
    if ours is None or theirs is None:
        yield unknown("settings.other", "the settings could not be read")
        return
    for name, required in REQUIRED_VALUES.items():
        if theirs.get(name, required) != required and ours.get(name) == required:
            yield failed(f"settings.{name}", f"{target.name} has {name} = {theirs[name]}, {primary.name} {required}",
                         breaks="clients could not write" if "read_only" in name else "data may be lost",
                         fix=f"alter system set {name} = {required} on {target.name}, and reload")  # fmt: skip
    mine, other = (_listen_addresses(one.get("listen_addresses", "")) for one in (ours, theirs))
    if other <= _LOOPBACK and not mine <= _LOOPBACK:
        where = ", ".join(sorted(other)) or "its Unix socket"
        yield failed("settings.listen", f"{target.name} listens only on {where}",
                     breaks="clients of other hosts cannot connect",
                     fix=f"set listen_addresses of {target.name} as on {primary.name}, and restart it")  # fmt: skip
    differ = [name for name in sorted(ours.keys() & theirs.keys() - _NOT_COMPARED) if ours[name] != theirs[name]]
    if differ:
        shown = "; ".join(_difference_text(name, ours[name], theirs[name]) for name in differ[:_MAX_SHOWN])
        more = f"; and {len(differ) - _MAX_SHOWN} more" if len(differ) > _MAX_SHOWN else ""
        yield warning("settings.other", f"{primary.name} → {target.name}: {shown}{more}",
                      breaks="the new primary behaves differently from the old one",
                      fix="make them equal, unless the difference is intended")  # fmt: skip
    else:
        yield ok("settings.other", f"no other setting differs ({len(ours.keys() & theirs.keys())} compared)")


def check_archiving(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check that the target archives like the primary, and that the old primary can restore like the target."""
    ours, theirs = primary.details.configured, target.details.configured
    if ours is None or theirs is None:
        return
    commands = [_archive_setting(one) for one in (ours, theirs)]
    if theirs.get("archive_mode", "off") != "off" or ours.get("archive_mode", "off") != "off":
        if not commands[1]:
            yield failed("archive_command", f"{target.name} has neither archive_command nor archive_library",
                         breaks="after the promotion WAL is retained and not archived: no recovery beyond that point",
                         fix=f"set archive_command of {target.name} as on {primary.name}, and reload")  # fmt: skip
        elif commands[0] != commands[1]:
            both = ((primary, commands[0] or "(none)"), (target, commands[1]))
            shown = "; ".join(f"{node.name}: {redact(command)}" for node, command in both)
            yield warning("archive_command", f"the nodes archive differently: {shown}",
                          breaks="the archive of the new timeline may be elsewhere",
                          fix="make them equal, unless the difference is intended")  # fmt: skip
        else:
            yield ok("archive_command", f"both archive with {redact(commands[0])}")
    restores = [one.get("restore_command", "") for one in (ours, theirs)]
    if restores[1] and not restores[0]:
        yield warning("restore_command", f"{target.name} has a restore_command, {primary.name} has none",
                      breaks=f"{primary.name} as a standby, or pg_rewind on it, could not fetch older WAL",
                      fix=f"set restore_command of {primary.name}, and reload")  # fmt: skip


def check_collations(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check collation versions: indexes on text were built with the primary's libraries."""
    ours, theirs = primary.details.collations, target.details.collations
    if ours is None or theirs is None:
        yield unknown("collations", "collation versions are unknown", breaks="indexes on text may not be usable")
        return
    there = {one["name"]: one["actual"] for one in theirs}
    differ = {
        one["name"]: (one["actual"], there.get(one["name"])) for one in ours if one["actual"] != there.get(one["name"])
    }
    stale = [one["name"] for one in theirs if one["recorded"] and one["actual"] and one["recorded"] != one["actual"]]
    if differ:
        shown = ", ".join(
            f"{name} {mine or '?'} → {other or '?'}" for name, (mine, other) in sorted(differ.items())[:_MAX_SHOWN]
        )
        yield failed("collations", f"collation versions differ, {primary.name} → {target.name}: {shown}",
                     breaks=f"indexes on text are in a wrong order for {target.name}: queries miss rows",
                     fix="install the same libc and ICU on both, or reindex right after the cutover")  # fmt: skip
    elif stale:
        yield warning("collations", f"recorded collation versions differ from the installed ones: {', '.join(stale)}",
                      breaks="indexes on text may already be corrupted",
                      fix="reindex them, then alter database … refresh collation version")  # fmt: skip
    else:
        versions = sorted({one["actual"] for one in ours if one["actual"]})
        shown = ", ".join(versions) or "their order depends on no library"
        yield ok("collations", f"collations of the checked database and of its indexes have equal versions: {shown}")


def check_jobs(primary: NodeState, target: NodeState) -> Iterator[ClusterCheck]:
    """Check jobs of pg_cron, which run on a primary only: their table is replicated, the configuration is not."""
    details, ours, theirs = primary.details, primary.details.configured or {}, target.details.configured or {}
    loaded = "pg_cron" in ours.get("shared_preload_libraries", "")
    if details.cron is None:
        database = ours.get("cron.database_name", "postgres")
        if details.reads_cron is False:
            yield unknown("jobs", "this role may not read the table cron.job of pg_cron",
                          breaks="jobs may not run, or run elsewhere",
                          fix="grant usage on schema cron, select on cron.job to the role")  # fmt: skip
        elif loaded:
            yield warning("jobs", f"pg_cron keeps its jobs in database {database}, which is not the one of the dsn",
                          breaks="jobs may not run, or run elsewhere",
                          fix=f"select * from cron.job in {database}: nodename and nodeport")  # fmt: skip
        return
    active, port = details.cron["active"], int(target.settings.get("port", "5432"))
    elsewhere = details.cron["elsewhere"] or any(one != port for one in details.cron["ports"] or ())
    if not active:
        return
    if "pg_cron" not in theirs.get("shared_preload_libraries", ""):
        yield failed("jobs", f"pg_cron has {active} active jobs, and {target.name} does not load it",
                     breaks="none of them runs after the cutover",
                     fix=f"add pg_cron to shared_preload_libraries of {target.name}, and restart it")  # fmt: skip
    elif elsewhere:
        yield warning("jobs", f"jobs of pg_cron connect to another host or port than localhost:{port} of {target.name}",
                      breaks="they fail after the cutover, or run on the old primary",
                      fix="select * from cron.job: nodename and nodeport")  # fmt: skip
    else:
        yield ok("jobs", f"pg_cron has {active} active jobs; {target.name} loads it")


def listens_for_other_hosts(configured: dict[str, str]) -> bool:
    return not _listen_addresses(configured.get("listen_addresses", "*")) <= _LOOPBACK


def _listen_addresses(value: str) -> frozenset[str]:
    return frozenset(one.strip() for one in value.split(",")) - {""}


def _archive_setting(configured: dict[str, str]) -> str:
    return configured.get("archive_library") or configured.get("archive_command", "")


def _difference_text(name: str, ours: str, theirs: str) -> str:
    if "." in name or name.endswith(("_command", "_library")):
        return f"{name} differs"  # may hold a secret of an extension
    return f"{name} {ours or '(empty)'} → {theirs or '(empty)'}"


def cutover_readiness(found: Survey, to: str) -> list[ClusterCheck]:
    """Return the checks of a cutover to the node `to`. Without a single primary or the node, only what is wrong."""
    target = found.node(to)
    if target is None:
        names = ", ".join(node.name for node in found.nodes)
        return [failed("target", f"cluster {found.cluster} has no node {to}", fix=f"use one of: {names}")]
    checks = [*check_no_cutover(found), *_check_answers(found)]
    primary = _find_primary(found, to, checks)
    if primary is None or not target.reached:
        return checks
    for pair_check in (
        standby_suitability.check_identity_and_version,
        standby_suitability.check_streaming,
        standby_suitability.check_settings,
        check_settings,
        standby_suitability.check_extensions,
        check_collations,
        check_archiving,
        check_jobs,
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
        standby_suitability.check_other_standbys,
        standby_suitability.check_positions,
        current_conditions.check_control,
        current_conditions.check_console_host,
        cluster_managers.check_managers,
    ):
        checks += survey_check(found, primary, target)
    checks += current_conditions.check_disks(found, target)
    checks += current_conditions.check_synchronous_standbys(found, target)
    checks += _check_poolers(found)
    checks += _check_heartbeat(found)
    return checks


def check_no_cutover(found: Survey) -> Iterator[ClusterCheck]:
    """Check that no other cutover or failover of the cluster is in progress."""
    if (mark := found.cutover) is None:
        return
    yield failed("progress", cutover_text(mark, date_and_time(mark.begun_us)),
                 breaks="two cutovers at the same time can make two primaries",
                 fix=f"on {mark.host}: dba-console runbook resume {mark.run}, which finishes or aborts it; if that run "
                     f"no longer exists, on the primary: {removal_statement(mark)}")  # fmt: skip


def is_ready(checks: list[ClusterCheck]) -> bool:
    """Whether no check failed and none is unknown."""
    return all(one.state in ("ok", "warning") for one in checks)


def _check_answers(found: Survey) -> Iterator[ClusterCheck]:
    for node in found.nodes:
        if not node.reached:
            yield failed(
                f"reached.{node.name}",
                f"{node.name} does not answer: {node.error}",
                breaks="its state is unknown, and it could be a second primary",
                fix=f"psql with the dsn of [clusters.{found.cluster}.nodes.{node.name}]",
            )
    for pooler in found.poolers:
        if not pooler.reached:
            yield failed(
                f"reached.{pooler.name}",
                f"{pooler.name} does not answer: {pooler.error}",
                breaks="clients could not be held while the primary changes",
            )


def check_primaries(found: Survey) -> Iterator[ClusterCheck]:
    """Check that exactly one node answers as primary."""
    primaries = found.primaries
    if not primaries:
        yield failed("primary", "no node answers as primary", breaks="a cutover needs a running primary",
                     fix="if the primary cannot be started, use the runbook failover")  # fmt: skip
    elif len({node.system_identifier for node in primaries}) > 1:
        shown = ", ".join(f"{node.name} is {node.system_identifier or 'unknown'}" for node in primaries)
        yield failed("primary", f"the primaries are different servers: the system identifier of {shown}",
                     breaks="a node of another cluster would become the primary",
                     fix=f"correct the dsn of the nodes of [clusters.{found.cluster}]")  # fmt: skip
    elif len(primaries) > 1:
        shown = ", ".join(f"{node.name} at {node.lsn}, timeline {node.timeline}" for node in primaries)
        yield failed("primary", f"{len(primaries)} nodes are primaries: {shown}",
                     breaks="both accept writes, and the writes of one of them will be lost",
                     fix="hold the clients of both, then use the runbook split-brain")  # fmt: skip


def _find_primary(found: Survey, to: str, checks: list[ClusterCheck]) -> NodeState | None:
    if wrong := list(check_primaries(found)):
        checks += wrong
        return None
    [primary] = found.primaries
    if primary.name == to:
        checks.append(failed("primary", f"{to} is already the primary", fix="name the node to be promoted"))
        return None
    checks.append(ok("primary", f"{primary.name} is the primary, {to} will be promoted"))
    return primary


def _check_pooler_rights(found: Survey, pooler: PoolerState) -> Iterator[ClusterCheck]:
    name, section = f"pooler.{pooler.name}", f"[clusters.{found.cluster}.poolers.{pooler.name}]"
    if pooler.admin is None:
        yield unknown(f"{name}.admin", f"whether the role may PAUSE {pooler.name} is unknown",
                      breaks="clients could not be held")  # fmt: skip
    elif not pooler.admin:
        yield failed(f"{name}.admin", f"the role of {section} is not one of admin_users",
                     breaks="it may not PAUSE and RESUME: clients could not be held",
                     fix=f"add it to admin_users of {pooler.name}, and RELOAD")  # fmt: skip
    else:
        yield ok(f"{name}.admin", f"the role may PAUSE {pooler.name}")
    if pooler.config is None:
        yield warning(f"{name}.config", f"the configuration file of {pooler.name} is not configured",
                      breaks="after the cutover it connects to the old primary, unless an address command changes that",
                      fix=f"set config, and ssh if it is on another host, in {section}")  # fmt: skip
    elif pooler.config_error:
        yield failed(f"{name}.config", f"the configuration of {pooler.name} cannot be changed: {pooler.config_error}",
                     breaks="after the cutover it connects to the old primary",
                     fix=f"correct config of {section}")  # fmt: skip
    else:
        yield ok(f"{name}.config", f"{pooler.config} of {pooler.name} can be changed")


def _check_heartbeat(found: Survey) -> Iterator[ClusterCheck]:
    if found.poolers and not found.clients_configured:
        yield warning("heartbeat", f"[clusters.{found.cluster}] has no `clients`: how clients connect is unknown",
                      breaks="the heartbeat logs in with the role of the pooler's dsn, which may have no access to the "
                             "database: then the outage is not measured",
                      fix="set clients to a connection string like that of the application")  # fmt: skip


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
                    breaks="PAUSE waits until every client has disconnected",
                    fix="pool_mode = transaction, or disconnect its clients during the cutover",
                )
            elif database.paused:
                yield failed(
                    f"pooler.{pooler.name}.{database.name}",
                    f"{database_text} is already paused",
                    breaks="another operator may be working on it, or its clients hang",
                    fix=f"RESUME {database.name}",
                )
            else:
                yield ok(
                    f"pooler.{pooler.name}.{database.name}",
                    f"{database_text}: {database.mode or '?'} mode, {database.clients_active} clients active, "
                    f"{database.clients_waiting} waiting",
                )
