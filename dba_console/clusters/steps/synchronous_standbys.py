"""Whether commits on the new primary would wait for synchronous standbys without limit; nodes are made to follow."""

from __future__ import annotations

from typing import Any

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Control
from dba_console.clusters.current_conditions import parse_synchronous_names
from dba_console.clusters.steps.standby import WAIT_S, follow_new_primary, start_standby, streaming_problem
from dba_console.clusters.steps.step import POLL_S, Cutover, remaining_seconds
from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

KNOWN_S = 1.0
"""Time within which the new primary counts a streaming standby as synchronous."""
_SYNCHRONOUS = """
SELECT current_setting('synchronous_standby_names') AS names,
       current_setting('synchronous_commit') IN ('off', 'local') AS relaxed,
       count(*) FILTER (WHERE sync_state IN ('sync', 'quorum'))::int4 AS there
  FROM pg_stat_replication
"""


def commit_hang_reason(at: Cutover, connection: ActingConnection, timeout_s: float, control: Control) -> str | None:
    """Return why every commit would wait without limit; None: enough synchronous standbys follow, or none is needed.

    Nodes that are attached later anyway are attached now: the other nodes, then the old primary.
    """
    row = _synchronous(connection)
    if row["there"] >= row["needed"]:
        return None
    plan = at.plan
    led, lacking = [], []
    for name in plan.others if plan.manager is None else ():  # a manager does this itself
        control.report_progress(f"{name} follows {plan.to}: commits wait for it")
        try:
            follow_new_primary(at, name)
            led.append(name)
        except ConsoleError as error:
            lacking.append(f"{name}: {error.message}")
    returns = plan.manager is None and plan.kind == "cutover"
    if (led or not returns) and _enough_follow(at, connection, led, timeout_s, control):
        return None
    if returns:
        control.report_progress(f"{plan.old} returns as a standby: commits wait for it")
        try:
            why = start_standby(at, timeout_s)
        except ConsoleError as error:
            why = f"{plan.old}: {error.message}"
        if why is not None:
            lacking.append(why)
        elif _enough_follow(at, connection, [*led, plan.old], timeout_s, control):
            return None
    row = _synchronous(connection)
    more = f" ({'; '.join(lacking)})" if lacking else ""
    return clean(
        redact(
            f"every commit would hang, so clients are still held: synchronous_standby_names of {plan.to} is "
            f"{row['names']!r}, needs {row['needed']} such standbys and has {row['there']}{more}. On {plan.to}: ALTER "
            "SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf(); then retry"
        )
    )


def _enough_follow(
    at: Cutover, connection: ActingConnection, led: list[str], timeout_s: float, control: Control
) -> bool:
    """Wait until enough synchronous standbys follow, or all attached nodes stream and it is not enough."""
    for left in remaining_seconds(at.context, timeout_s):
        row = _synchronous(connection)
        if row["there"] >= row["needed"]:
            return True
        fresh = timeout_s - left < KNOWN_S
        if not fresh and at.plan.manager is None and all(streaming_problem(at, name) is None for name in led):
            break
        if control.wait(POLL_S if fresh else WAIT_S):
            break
    return False


def _synchronous(connection: ActingConnection) -> dict[str, Any]:
    """Return the setting, how many standbys a commit waits for, and how many there are."""
    [row] = connection.rows(_SYNCHRONOUS)
    waits = row["names"] and not row["relaxed"]
    return {**row, "needed": parse_synchronous_names(row["names"])[0] if waits else 0}
