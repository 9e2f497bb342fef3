"""What debts there are and how they stand: loaded only where somebody owes something. Done in a lane."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from dba_console.actions.debts import Debt, find, of_server, strike, under_way
from dba_console.actions.identity import Identity, other_server
from dba_console.actions.operator import Operator
from dba_console.actions.owing import spot_of, standing, told
from dba_console.actions.parameter_risk import risky
from dba_console.actions.put_back import trouble_of
from dba_console.agent.debt_side import Known, Reading, Signs
from dba_console.errors import ConsoleError
from dba_console.samples.debts import DebtNow
from dba_console.target import Target

CONNECT_S = 3.0


def look(
    directory: Path, target: Target, server: Known, known: Signs | None, asks: bool, strikes: bool
) -> Reading | None:
    """The reading; None where it would be the one whose signs are known. `asks`: the server is asked too. Raises
    OSError."""
    changed_ns = os.stat(directory).st_mtime_ns
    found = find(directory)
    identity = Identity(
        system_identifier=server.system_identifier, data_directory=server.data_directory,
        server_start_us=server.start_us,
    )  # fmt: skip
    debts = of_server(found.debts, identity, target.key)
    going = {debt.id for debt in debts if under_way(debt)}
    signs = (changed_ns, tuple(debt.id for debt in debts), frozenset(going), server, asks)
    if signs == known:
        return None
    asked = [debt for debt in debts if debt.id not in going]
    stood = _standing(asked, target, directory, strikes) if asked and asks and server.connected else {}
    rows = [_now(debt, debt.id in going, stood.get(debt.id, _UNKNOWN)) for debt in debts]
    struck = tuple(one.struck for one in stood.values() if one.struck)
    return Reading(signs, tuple(row for row in rows if row is not None), struck, "; ".join(found.damaged) or None)


class _Stood(NamedTuple):
    state: str
    found: str | None
    trust: str
    struck: str = ""


_UNKNOWN = _Stood("unknown", None, "unknown")


def _standing(debts: list[Debt], target: Target, directory: Path, strikes: bool) -> dict[str, _Stood]:
    """What the server says of them; what it does not say is left out. A standby has the identifier and often the data
    directory of its primary: what is set there says nothing of the server that owes."""
    link = Operator(target.conninfo, application="dba-console:debts", connect_timeout_s=CONNECT_S)
    found: dict[str, _Stood] = {}
    try:
        now = link.identity()
        for debt in debts:
            if other_server(debt.server, now) is not None:
                continue
            state, value = standing(link, debt)
            trust = trouble_of([debt], link) if _is_risky(debt) else ""
            struck = ""
            # What was written while fsync was off is not on the disk by the setting alone: put-back sees to it.
            if strikes and state == "back" and not _is_risky(debt) and strike(directory, debt) is None:
                struck = f"what run {debt.run} had set for a time is as it was again: {told(debt)}"
            found[debt.id] = _Stood(state, value, trust, struck)
    except ConsoleError:
        pass  # what has not been told is unknown, and asked again
    finally:
        link.close()
    return found


def _now(debt: Debt, going: bool, stood: _Stood) -> DebtNow | None:
    if stood.struck:
        return None
    return DebtNow(
        debt.id, debt.parameter, spot_of(debt).words(), debt.old, debt.new, debt.run, debt.runbook, debt.who,
        debt.at_us, under_way=going, state="changed" if going else stood.state, found=None if going else stood.found,
        risky=_is_risky(debt), trust=("unknown" if going else stood.trust) if _is_risky(debt) else "",
    )  # fmt: skip


def _is_risky(debt: Debt) -> bool:
    return risky(debt.parameter, debt.new)
