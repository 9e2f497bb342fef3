"""Make one node a standby of the new primary, running or stopped, and read whether it streams from it."""

from __future__ import annotations

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Control
from dba_console.clusters.cluster_check import lsn_text, parse_lsn
from dba_console.clusters.crash_recovery import start_failure
from dba_console.clusters.cutover_plan import conninfo_to, node_address
from dba_console.clusters.steps.step import Cutover, remaining_seconds
from dba_console.clusters.subject.rules import timeline_ends
from dba_console.core.errors import ConsoleError, Refused

WAIT_S = 0.1
_CONNINFO = "SELECT pg_catalog.current_setting('primary_conninfo') AS conninfo"
_HISTORY = "SELECT pg_catalog.pg_read_file(%(name)s, 0, 1048576, true) AS history"
_POSITIONS = """
SELECT greatest(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())::text AS lsn,
       greatest(c.timeline_id, r.min_recovery_end_timeline) AS timeline
  FROM pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r
"""
_END_OF_WAL = "SELECT pg_catalog.pg_current_wal_insert_lsn()::text AS lsn"
_RECEIVER = "SELECT status, received_tli AS timeline, sender_host, sender_port FROM pg_stat_wal_receiver"


def not_promoted(at: Cutover) -> str | None:
    return None if at.plan.new_timeline else f"{at.plan.to} is not promoted"


def primary_conninfo(at: Cutover, follower: str) -> str:
    """Return primary_conninfo for a follower, from the new primary's own setting. May contain a password."""
    with at.connect(at.plan.to) as (connection, _):
        [row] = connection.rows(_CONNINFO)
    return conninfo_to(row["conninfo"], at.node(at.plan.to), follower)


def make_standby(at: Cutover) -> None:
    """Configure the stopped old primary as a standby of the new one."""
    at.control(at.plan.old).make_standby(primary_conninfo(at, at.plan.old), at.plan.nodes[at.plan.old].slot or None)


def rebuild_reason(at: Cutover) -> str | None:
    """Return why the stopped old primary must not follow before pg_rewind or a new copy; None: it may follow.

    It may if the new timeline began after its last WAL record. Only a clean shutdown shows where that is; else
    pg_rewind decides. A server started to see whether it follows would replay WAL that the new primary lacks.
    """
    server, plan = at.control(at.plan.old), at.plan
    if server.was_rebuilt():
        return None
    found = server.control_file()
    if found.timeline == plan.new_timeline:
        return None  # it has followed the new primary
    if found.state != "shut down" or found.checkpoint_lsn is None:
        return (
            f"it was not shut down as a primary (pg_control says {found.state}): it may have WAL that {plan.to} lacks"
        )
    fork = fork_of(at, found.timeline or 0)
    if fork is None:
        return f"where timeline {found.timeline} ended is not in the history of {plan.to}"
    if parse_lsn(found.checkpoint_lsn) >= fork:
        return (
            f"its WAL goes beyond {lsn_text(fork)}, where timeline {plan.new_timeline} of {plan.to} began: it was shut "
            f"down at {found.checkpoint_lsn}"
        )
    return None


def fork_of(at: Cutover, timeline: int) -> int | None:
    """Return where the timeline ended in the history of the new primary; None: it is not in it. Raises ConsoleError."""
    with at.connect(at.plan.to) as (connection, _):
        [row] = connection.rows(_HISTORY, {"name": f"pg_wal/{at.plan.new_timeline:08X}.history"})
    return (timeline_ends(row["history"]) or {}).get(timeline)


def start_standby(at: Cutover, timeout_s: float) -> str | None:
    """Start the old primary as a standby of the new one, unless it runs; return why it does not start, or None."""
    server = at.control(at.plan.old)
    if server.running():
        return None
    if (why := rebuild_reason(at)) is not None:
        return f"{at.plan.old} is not started: {why}"
    make_standby(at)
    ended = server.start(timeout_s)
    if ended.code != 0 and not server.running():
        return f"{at.plan.old} does not start: {start_failure(server, ended)}"
    return None


def follow_new_primary(at: Cutover, name: str) -> None:
    """Make a running standby follow the new primary. Raises ConsoleError."""
    wanted_conninfo = primary_conninfo(at, name)
    with at.connect(name) as (connection, now):
        if now.role != "standby":
            raise Refused(f"{name} is a {now.role}, not a standby: two nodes accept writes")
        [row] = connection.rows(_CONNINFO)
        if row["conninfo"] == wanted_conninfo:
            return
        _refuse_diverged(at, name, connection)
        _set_without_logging(connection, wanted_conninfo)


def _refuse_diverged(at: Cutover, name: str, connection: ActingConnection) -> None:
    """Raise Refused if a standby has WAL beyond the point where the new timeline began."""
    [row] = connection.rows(_POSITIONS)
    if row["lsn"] is None or row["timeline"] == at.plan.new_timeline:
        return
    fork = fork_of(at, row["timeline"])
    if fork is not None and parse_lsn(row["lsn"]) > fork:
        raise Refused(
            f"{name} is at {row['lsn']}, beyond {lsn_text(fork)} where timeline {at.plan.new_timeline} began: it "
            f"cannot follow {at.plan.to} before pg_rewind, or a new copy; do not restart it"
        )


def _set_without_logging(connection: ActingConnection, wanted_conninfo: str) -> None:
    """Set primary_conninfo without logging: the statement may contain a password."""
    for name, value in (("log_statement", "none"), ("log_min_duration_statement", "-1"),
                        ("log_min_error_statement", "panic"), ("track_activities", "off")):  # fmt: skip
        connection.set_parameter(name, value)
    literal = wanted_conninfo.replace("'", "''")
    connection.execute_change(f"ALTER SYSTEM SET primary_conninfo = '{literal}'", transaction=False)
    connection.execute_change("SELECT pg_catalog.pg_reload_conf()", transaction=False)


def wait_for_stream(at: Cutover, name: str, timeout_s: float, control: Control) -> str | None:
    why: str | None = "it was not checked"
    for _left in remaining_seconds(at.context, timeout_s):
        why = streaming_problem(at, name)
        if why is None or control.wait(WAIT_S):
            break
    return why


def streaming_problem(at: Cutover, name: str) -> str | None:
    """Return why a node does not stream on the new timeline; None: it does."""
    try:
        with at.connect(name) as (connection, now):
            if now.role != "standby":
                return f"it is a {now.role}"
            rows = connection.rows(_RECEIVER)
            [positions] = connection.rows(_POSITIONS)
        contradiction = _contradiction(at, positions["lsn"])
    except ConsoleError as error:
        return error.message
    if not rows or rows[0]["status"] != "streaming":
        return "its WAL receiver is not streaming: see its server log"
    if rows[0]["timeline"] != at.plan.new_timeline:
        return f"it streams timeline {rows[0]['timeline']}, not {at.plan.new_timeline}"
    return _other_sender(at, rows[0]["sender_host"], rows[0]["sender_port"]) or contradiction


def _other_sender(at: Cutover, host: str | None, port: int | None) -> str | None:
    """Return that a node streams from another node, as one whose upstream returned as a standby does."""
    hosts, ports = (one.split(",") for one in node_address(at.node(at.plan.to)))
    if at.plan.manager is not None or (host in hosts and str(port) in ports):
        return None
    return f"it streams from {host}:{port}, not from {at.plan.to}"


def _contradiction(at: Cutover, position: str | None) -> str | None:
    """Return that a standby is further than its primary, which is asked after it: then their WAL differs."""
    with at.connect(at.plan.to) as (connection, _):
        [end] = connection.rows(_END_OF_WAL)
    if position is None or parse_lsn(position) <= parse_lsn(end["lsn"]):
        return None
    return (
        f"it has replayed WAL up to {position}, and {at.plan.to} has only written up to {end['lsn']}: their data "
        "differ, and it must be rewound or copied again"
    )
