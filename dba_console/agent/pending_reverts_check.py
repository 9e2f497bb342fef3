"""Read which temporary settings of a server are not reverted yet, and whether they are still in effect there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from dba_console.actions.identity import ServerIdentity, server_mismatch
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.temporary_settings import (
    PendingRevert,
    RevertState,
    filter_by_server,
    read_all,
    read_revert_state,
    remove,
    worst_data_trust,
)
from dba_console.agent.unreverted_settings_service import CheckFingerprint, PendingRevertCheck, ServerFacts
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
    rows = {revert.id: _row(revert, run_active=revert.id in active) for revert in reverts}
    removed = []
    to_query = [revert for revert in reverts if revert.id not in active]
    for (revert, state, value), trust in _read_states(to_query, target) if query_server and server.connected else ():
        # The setting alone does not bring data written with fsync off to disk: the runbook put-back does.
        if remove_reverted and state == "back" and not revert.risky and remove(directory, revert) is None:
            del rows[revert.id]
            removed.append(f"a temporary setting of run {revert.run} has its old value again: {revert.describe()}")
        else:
            rows[revert.id] = replace(rows[revert.id], state=state, found=value, trust=trust)
    return PendingRevertCheck(fingerprint, tuple(rows.values()), tuple(removed), "; ".join(found.damaged) or None)


def _read_states(reverts: list[PendingRevert], target: Target) -> Iterator[tuple[RevertState, str]]:
    """Yield the states that the server reports, with the trust in its data; the others are unknown, and queried again.

    A standby has its primary's identifier, and often its data directory: its settings do not show the state of the
    primary.
    """
    if not reverts:
        return
    connection = QueryConnection(target.conninfo, application="dba-console:reverts", connect_timeout_s=CONNECT_S)
    with closing(connection):
        try:
            now = connection.read_identity()
            for revert in reverts:
                if server_mismatch(revert.server, now) is None:
                    trust = worst_data_trust([revert], connection) if revert.risky else ""
                    yield read_revert_state(connection, revert), trust
        except ConsoleError:
            return


def _row(revert: PendingRevert, *, run_active: bool) -> PendingRevertNow:
    """Return the row before the server is queried."""
    return PendingRevertNow(
        revert.id, revert.parameter, revert.location.describe(), revert.old, revert.new, revert.run,
        revert.runbook, revert.who, revert.at_us, run_is_active=run_active,
        state="changed" if run_active else "unknown", found=None, risky=revert.risky,
        trust="unknown" if revert.risky else "",
    )  # fmt: skip
