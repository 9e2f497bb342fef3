"""What debts there are and how they stand: loaded only where somebody owes something. Done in a lane."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.identity import ServerIdentity, server_mismatch
from dba_console.actions.parameter_check import disables_durability
from dba_console.actions.put_back import worst_data_trust
from dba_console.actions.temporary_settings import (
    PendingRevert,
    describe_revert,
    filter_by_server,
    location_of,
    read_all,
    read_revert_state,
    remove,
    run_is_active,
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
    """The reading; None where it would be the one whose signs are known. `query_server`: the server is asked too.
    Raises OSError."""
    changed_ns = os.stat(directory).st_mtime_ns
    found = read_all(directory)
    identity = ServerIdentity(
        system_identifier=server.system_identifier, data_directory=server.data_directory,
        server_start_us=server.start_us,
    )  # fmt: skip
    debts = filter_by_server(found.reverts, identity, target.key)
    going = {debt.id for debt in debts if run_is_active(debt)}
    signs = (changed_ns, tuple(debt.id for debt in debts), frozenset(going), server, query_server)
    if signs == known:
        return None
    asked = [debt for debt in debts if debt.id not in going]
    stood = (
        _query_states(asked, target, directory, remove_reverted) if asked and query_server and server.connected else {}
    )
    rows = [_revert_row(debt, debt.id in going, stood.get(debt.id, _UNKNOWN)) for debt in debts]
    struck = tuple(one.removed_text for one in stood.values() if one.removed_text)
    return PendingRevertCheck(
        signs, tuple(row for row in rows if row is not None), struck, "; ".join(found.damaged) or None
    )


class _CheckedServer(NamedTuple):
    state: str
    found: str | None
    trust: str
    removed_text: str = ""


_UNKNOWN = _CheckedServer("unknown", None, "unknown")


def _query_states(
    debts: list[PendingRevert], target: Target, directory: Path, strikes: bool
) -> dict[str, _CheckedServer]:
    """What the server says of them; what it does not say is left out. A standby has the identifier and often the data
    directory of its primary: what is set there says nothing of the server that owes."""
    link = ActingConnection(target.conninfo, application="dba-console:debts", connect_timeout_s=CONNECT_S)
    found: dict[str, _CheckedServer] = {}
    try:
        now = link.read_identity()
        for debt in debts:
            if server_mismatch(debt.server, now) is not None:
                continue
            state, value = read_revert_state(link, debt)
            trust = worst_data_trust([debt], link) if _is_risky(debt) else ""
            struck = ""
            # What was written while fsync was off is not on the disk by the setting alone: put-back sees to it.
            if strikes and state == "back" and not _is_risky(debt) and remove(directory, debt) is None:
                struck = f"what run {debt.run} had set for a time is as it was again: {describe_revert(debt)}"
            found[debt.id] = _CheckedServer(state, value, trust, struck)
    except ConsoleError:
        pass  # what has not been told is unknown, and asked again
    finally:
        link.close()
    return found


def _revert_row(debt: PendingRevert, run_active: bool, state: _CheckedServer) -> PendingRevertNow | None:
    if state.removed_text:
        return None
    return PendingRevertNow(
        debt.id, debt.parameter, location_of(debt).describe(), debt.old, debt.new, debt.run, debt.runbook, debt.who,
        debt.at_us, run_is_active=run_active, state="changed" if run_active else state.state,
        found=None if run_active else state.found,
        risky=_is_risky(debt), trust=("unknown" if run_active else state.trust) if _is_risky(debt) else "",
    )  # fmt: skip


def _is_risky(debt: PendingRevert) -> bool:
    return disables_durability(debt.parameter, debt.new)
