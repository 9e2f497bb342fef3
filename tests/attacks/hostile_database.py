"""A database whose owner has a copy of all of `pg_catalog` earlier in search_path, and logs each call of it."""

from __future__ import annotations

from pathlib import Path

import psycopg
from psycopg import sql

from dba_console.demo.temporary_server import Cluster

VICTIM = "dba"
"""A superuser with nothing set for his role: the names he uses are looked up as the owner wants."""
SQL = Path(__file__).with_name("hostile.sql").read_bytes()


def make_hostile(cluster: Cluster, dbname: str = "postgres") -> str:
    """Make the database hostile to everybody but the roles that exist; the connection string of its victim.

    The roles that exist are those of a test's own sessions and of its load: they find what they always did.
    """
    with psycopg.connect(cluster.dsn(dbname=dbname), autocommit=True) as owner:
        name = sql.Identifier(dbname)
        owner.execute(sql.SQL("create role {} superuser login").format(sql.Identifier(VICTIM)))
        for (role,) in owner.execute("select rolname from pg_roles where rolcanlogin and rolname <> %s", [VICTIM]):
            own = sql.SQL('alter role {} in database {} set search_path = "$user", public')
            owner.execute(own.format(sql.Identifier(role), name))
        owner.execute(SQL)
        owner.execute(sql.SQL("alter database {} set search_path = evil, pg_catalog, public").format(name))
    return cluster.dsn(user=VICTIM, dbname=dbname)


def calls(cluster: Cluster) -> list[str]:
    """What of the owner's was called so far."""
    return [line.partition("EVIL ")[2] for line in cluster.log_text().splitlines() if "LOG:  EVIL " in line]
