"""What a command of a runbook finds in its environment: how to reach the run's server, and the values it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from psycopg.pq import Conninfo

from dba_console.core.config import Config
from dba_console.core.errors import UsageError
from dba_console.core.target import parse_conninfo

_NOT_INHERITED = frozenset({"application_name", "client_encoding"})
"""Of the console's own connection: the first would make every program go by one name, which sessions are told apart by;
the second would have pg_dump write another encoding than that of the database."""


@cache
def libpq_variables() -> dict[str, str]:
    """Keyword of a connection string -> variable by which programs are given it, as this process's libpq lists them.

    What has none reaches no program: keepalives, tcp_user_timeout, sslpassword, what OAuth needs, replication. An older
    libpq of a program knows no newer variable and goes without.
    """
    known = {one.keyword.decode(): one.envvar for one in Conninfo.get_defaults()}
    return {key: name.decode() for key, name in known.items() if name and key not in _NOT_INHERITED}


def server_environment(
    conninfo: str, environ: Mapping[str, str] = os.environ, *, direct: bool = True, read_only: bool = False
) -> dict[str, str]:
    """By which libpq reaches the server without any argument.

    `direct`: no pooler stands between, which would refuse settings. Then names mean what PostgreSQL itself means by
    them, whatever search_path the owner of the database has set; and with `read_only` nothing is changed by accident.

    >>> server_environment("host=db1 dbname=app", {"PGHOST": "other", "PGPORT": "5433", "HOME": "/root"})
    {'PGHOST': 'db1', 'PGPORT': '5433', 'PGDATABASE': 'app', 'PGOPTIONS': '-c search_path=pg_catalog,pg_temp'}
    """
    found = {name: value for name, value in environ.items() if name.startswith("PG")}
    try:
        given = parse_conninfo(conninfo)
    except UsageError:
        given = {}
    if "host" in given or "hostaddr" in given:
        found.pop("PGHOSTADDR", None)
    names = libpq_variables()
    found.update({names[key]: value for key, value in given.items() if key in names})
    if direct:
        read = ["-c default_transaction_read_only=on"] if read_only else []
        ours = ["-c search_path=pg_catalog,pg_temp", *read]
        # The last setting of a name counts: what was given before cannot take ours back.
        found["PGOPTIONS"] = " ".join([*filter(None, [found.get("PGOPTIONS")]), *ours])
    return found


def find_secrets(conninfo: str, config: Config, values: Mapping[str, Any], secret: frozenset[str]) -> tuple[str, ...]:
    """What must appear nowhere: the passwords of the connection string and of all clusters' nodes and poolers, and
    inputs that are secret."""
    conninfos = [conninfo]
    for cluster in config.clusters.values():
        conninfos += [dsn for node in cluster.nodes.values() for dsn in (node.dsn, node.replication_dsn) if dsn]
        conninfos += [pooler.dsn for pooler in cluster.poolers.values()]
        conninfos += [cluster.clients] if cluster.clients else []
    found = [_password(one) for one in conninfos]
    found += [os.environ.get("PGPASSWORD", ""), *(str(values[name]) for name in secret if values.get(name))]
    return tuple(dict.fromkeys(one for one in found if one))


def _password(conninfo: str) -> str:
    try:
        return parse_conninfo(conninfo).get("password", "")
    except UsageError:
        return ""
