"""How long to wait before the next attempt to connect, by why the last one failed. Pure.

Each refusal is a line in the server's log, and a wrong password again and again can lock an account. Where all slots
are taken it is the other way round: the console has to be there when one frees.
"""

from __future__ import annotations

from dba_console.probes.postgres.failures import ConnectFailed

USUAL_S = (1.0, 1.0, 2.0, 2.0, 5.0)
"""Pauses after the first attempt, the second, ...; the last one repeats."""
REFUSED_S = (1.0, 5.0, 10.0, 30.0)
"""Where somebody has to mend something first: role, password, database, certificate."""
NO_SLOT_S = (1.0,)
"""No slot of the server is free. A limit of the role or the database is a setting, and no such hurry."""


def pauses(error: ConnectFailed) -> tuple[float, ...]:
    """The pauses, in seconds, after this failure and those like it.

    >>> pauses(ConnectFailed("auth", "no such role"))[-1], pauses(ConnectFailed("refused", "nobody listens"))[-1]
    (30.0, 5.0)
    """
    if error.kind == "no_slots" and error.limit in (None, "server", "pooler"):
        return NO_SLOT_S
    return REFUSED_S if error.kind in ("auth", "ssl") else USUAL_S


def pause_s(schedule: tuple[float, ...], attempts: int) -> float:
    """The pause after so many failed attempts before this one."""
    return schedule[min(attempts, len(schedule) - 1)]


def told(error: ConnectFailed) -> str:
    """The failure and what would help, as one sentence.

    >>> told(ConnectFailed("auth", "role x does not exist"))
    'role x does not exist: check role, passfile (~/.pgpass) and pg_hba.conf'
    """
    return f"{error.message.rstrip('.')}: {error.hint}" if error.hint else error.message
