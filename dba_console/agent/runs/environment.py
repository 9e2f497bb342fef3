"""What a command of a runbook finds in its environment: how to reach the run's server, and the values it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dba_console.errors import UsageError
from dba_console.target import parse_conninfo

_NAMES = {
    "host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER",
    "password": "PGPASSWORD", "passfile": "PGPASSFILE", "service": "PGSERVICE", "sslmode": "PGSSLMODE",
    "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY", "sslrootcert": "PGSSLROOTCERT", "options": "PGOPTIONS",
    "target_session_attrs": "PGTARGETSESSIONATTRS", "connect_timeout": "PGCONNECT_TIMEOUT",
}  # fmt: skip
"""libpq, "Environment Variables"."""


def server_environment(conninfo: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By which libpq reaches the server without any argument.

    >>> server_environment("host=db1 dbname=app", {"PGHOST": "other", "PGPORT": "5433", "HOME": "/root"})
    {'PGHOST': 'db1', 'PGPORT': '5433', 'PGDATABASE': 'app'}
    """
    found = {name: value for name, value in environ.items() if name.startswith("PG")}
    try:
        given = parse_conninfo(conninfo)
    except UsageError:
        given = {}
    if "host" in given or "hostaddr" in given:
        found.pop("PGHOSTADDR", None)
    found.update({_NAMES[key]: value for key, value in given.items() if key in _NAMES})
    return found


def secrets_of(conninfo: str, values: Mapping[str, Any], secret: frozenset[str]) -> tuple[str, ...]:
    """What must appear nowhere: the password of the connection string, and inputs that are secret."""
    try:
        password = parse_conninfo(conninfo).get("password", "")
    except UsageError:
        password = ""
    found = [password, os.environ.get("PGPASSWORD", ""), *(str(values[name]) for name in secret if values.get(name))]
    return tuple(dict.fromkeys(one for one in found if one))
