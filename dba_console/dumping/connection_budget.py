"""How many connections a parallel dump may take: what is free for this role, less some that others may need."""

from __future__ import annotations

from typing import NamedTuple

from dba_console.dumping.server_connection import ReadOnlyConnection
from dba_console.errors import Refused

RESERVE = 3
"""Left free for whoever connects meanwhile: a dump must not be what fills the house."""
_SQL = """
select current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int
         + coalesce(current_setting('reserved_connections', true), '0')::int,
       (select count(*) from pg_stat_activity where backend_type = 'client backend')::int,
       r.rolconnlimit, (select count(*) from pg_stat_activity where usename = current_user)::int,
       d.datconnlimit, (select count(*) from pg_stat_activity where datname = current_database())::int
from pg_roles r, pg_database d where r.rolname = current_user and d.datname = current_database()
"""


class ConnectionBudget(NamedTuple):
    """What is free, and which limit says so."""

    free: int
    limit: str

    @property
    def max_jobs(self) -> int:
        """The most jobs for which pg_dump -j finds a connection each and one for itself; 0 where there is none."""
        return max(0, self.free - RESERVE - 1)


def read_connection_budget(server: ReadOnlyConnection) -> ConnectionBudget:
    """What is free now. Reserved slots are left to those they are reserved for, whoever asks."""
    most, reserved, used, of_role, by_role, of_database, in_database = server.one(_SQL)
    found = [ConnectionBudget(most - reserved - used, "max_connections")]
    if of_role >= 0:
        found.append(ConnectionBudget(of_role - by_role, "the role's connection limit"))
    if of_database >= 0:
        found.append(ConnectionBudget(of_database - in_database, "the database's connection limit"))
    return min(found, key=lambda slots: slots.free)


def require_connections(server: ReadOnlyConnection, jobs: int) -> None:
    """Raises Refused where so many jobs would take what others may need."""
    slots = read_connection_budget(server)
    if slots.max_jobs < jobs:
        raise Refused(
            f"{max(0, slots.free)} connections are free by {slots.limit}: a dump with {jobs} jobs takes {jobs + 1}, "
            f"and {RESERVE} stay free for others",
            hint="try fewer jobs, or at an hour with fewer sessions",
        )
