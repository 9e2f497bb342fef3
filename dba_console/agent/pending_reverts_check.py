"""Read the pending reverts of a server and their state. Loaded only if there are any; runs in a lane."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dba_console.actions.identity import ServerIdentity, server_mismatch
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.temporary_settings import (
    PendingRevert,
    filter_by_server,
    read_all,
    read_revert_state,
    remove,
    worst_data_trust,
)
from dba_console.agent.pending_reverts_service import CheckFingerprint, PendingRevertCheck, ServerFacts
from dba_console.core.errors import ConsoleError
from dba_console.core.target import Target
from dba_console.watch.samples.console import PendingRevertNow

CONNECT_S = 3.0


def check_pending_reverts(
    directory: Path,
    target: Target,
    server: ServerFacts,
    known: CheckFingerprint | None,
    query_server: bool,
    remove_reverted: bool,
) -> PendingRevertCheck | None:
    """Return the check, None if `known` is still current. `query_server`: query the server too. Raises OSError."""
    changed_ns = os.stat(directory).st_mtime_ns
    found = read_all(directory)
    identity = ServerIdentity(
        system_identifier=server.system_identifier, data_directory=server.data_directory,
        server_start_us=server.start_us,
    )  # fmt: skip
    reverts = filter_by_server(found.reverts, identity, target.key)
    active = {revert.id for revert in reverts if revert.run_is_active()}
    fingerprint = (changed_ns, tuple(revert.id for revert in reverts), frozenset(active), server, query_server)
    if fingerprint == known:
        return None
    to_query = [revert for revert in reverts if revert.id not in active]
    states = (
        _query_states(to_query, target, directory, remove_reverted)
        if to_query and query_server and server.connected
        else {}
    )
    rows = [_revert_row(revert, revert.id in active, states.get(revert.id, _UNKNOWN)) for revert in reverts]
    removed = tuple(one.removed_text for one in states.values() if one.removed_text)
    return PendingRevertCheck(
        fingerprint, tuple(row for row in rows if row is not None), removed, "; ".join(found.damaged) or None
    )


class _CheckedServer(NamedTuple):
    state: str
    found: str | None
    trust: str
    removed_text: str = ""


_UNKNOWN = _CheckedServer("unknown", None, "unknown")


def _query_states(
    reverts: list[PendingRevert], target: Target, directory: Path, remove_reverted: bool
) -> dict[str, _CheckedServer]:
    """Return the states that the server reports. A standby has its primary's identifier, and often its data directory:
    its settings do not show the state of the primary."""
    connection = QueryConnection(target.conninfo, application="dba-console:reverts", connect_timeout_s=CONNECT_S)
    found: dict[str, _CheckedServer] = {}
    try:
        now = connection.read_identity()
        for revert in reverts:
            if server_mismatch(revert.server, now) is not None:
                continue
            _, state, value = read_revert_state(connection, revert)
            trust = worst_data_trust([revert], connection) if revert.risky else ""
            removed_text = ""
            # The setting alone does not bring data written with fsync off to disk: the runbook put-back does.
            if remove_reverted and state == "back" and not revert.risky and remove(directory, revert) is None:
                removed_text = f"a temporary setting of run {revert.run} has its old value again: {revert.describe()}"
            found[revert.id] = _CheckedServer(state, value, trust, removed_text)
    except ConsoleError:
        pass  # states not reported are unknown, and queried again
    finally:
        connection.close()
    return found


def _revert_row(revert: PendingRevert, run_active: bool, state: _CheckedServer) -> PendingRevertNow | None:
    if state.removed_text:
        return None
    return PendingRevertNow(
        revert.id, revert.parameter, revert.location.describe(), revert.old, revert.new, revert.run,
        revert.runbook, revert.who, revert.at_us, run_is_active=run_active,
        state="changed" if run_active else state.state, found=None if run_active else state.found,
        risky=revert.risky, trust=("unknown" if run_active else state.trust) if revert.risky else "",
    )  # fmt: skip
