"""How long to wait before the next attempt to connect, by why the last one failed. Pure.

Each refusal is a line in the server's log, and a wrong password again and again can lock an account. Where all slots
are taken it is the other way round: the console has to be there when one frees.
"""

from __future__ import annotations

from dba_console.probes.postgres.connect_errors import ConnectFailed

DEFAULT_DELAYS_S = (1.0, 1.0, 2.0, 2.0, 5.0)
"""Pauses after the first attempt, the second, ...; the last one repeats."""
REFUSED_DELAYS_S = (1.0, 5.0, 10.0, 30.0)
"""Where somebody has to mend something first: role, password, database, certificate."""
NO_SLOT_DELAYS_S = (1.0,)
"""No slot of the server is free. A limit of the role or the database is a setting, and no such hurry."""


def delays_after(error: ConnectFailed) -> tuple[float, ...]:
    """The pauses, in seconds, after this failure and those like it.

    >>> (delays_after(ConnectFailed("auth", "no such role"))[-1],
    ...  delays_after(ConnectFailed("refused", "nobody listens"))[-1])
    (30.0, 5.0)
    """
    if error.kind == "no_slots" and error.limit in (None, "server", "pooler"):
        return NO_SLOT_DELAYS_S
    return REFUSED_DELAYS_S if error.kind in ("auth", "ssl") else DEFAULT_DELAYS_S


def delay_s(schedule: tuple[float, ...], attempts: int) -> float:
    """The pause after so many failed attempts before this one."""
    return schedule[min(attempts, len(schedule) - 1)]


def failure_text(error: ConnectFailed) -> str:
    """The failure and what would help, as one sentence.

    >>> failure_text(ConnectFailed("auth", "role x does not exist"))
    'role x does not exist: check role, passfile (~/.pgpass) and pg_hba.conf'
    """
    return f"{error.message.rstrip('.')}: {error.hint}" if error.hint else error.message
