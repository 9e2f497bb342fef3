"""libpq environment variables with which a command reaches the server of its run, and the secrets to redact."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from psycopg.pq import Conninfo

from dba_console.core.config import Config
from dba_console.core.errors import UsageError
from dba_console.core.target import parse_conninfo
from dba_console.watch.probes.postgres.server_trust import required_variables

_NOT_INHERITED = frozenset({"application_name", "client_encoding"})
"""Keywords of the console's own connection that are not passed on: the first would give every program the same
application_name; the second would make pg_dump use another encoding than that of the database."""


@cache
def libpq_variables() -> dict[str, str]:
    """Return keyword of a connection string -> environment variable, from the list of this process's libpq.

    Keywords without a variable are not passed on: keepalives, tcp_user_timeout, sslpassword, OAuth, replication. An
    older libpq of a program ignores newer variables.
    """
    known = {one.keyword.decode(): one.envvar for one in Conninfo.get_defaults()}
    return {key: name.decode() for key, name in known.items() if name and key not in _NOT_INHERITED}


def server_environment(
    conninfo: str, environ: Mapping[str, str] = os.environ, *, direct: bool = True, read_only: bool = False
) -> dict[str, str]:
    """Return the environment with which libpq reaches the server without arguments, and requires of it what it proved
    to this process.

    `direct`: without a pooler, which would refuse settings. Then search_path is `pg_catalog, pg_temp` and the role is
    that of the login, whatever the owner of the database has set, and with `read_only` default_transaction_read_only is
    on.

    >>> server_environment("host=db1", {"PGHOST": "other", "PGPORT": "5433", "HOME": "/root"})
    {'PGHOST': 'db1', 'PGPORT': '5433', 'PGOPTIONS': '-c search_path=pg_catalog,pg_temp -c role=none'}
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
    found.update(required_variables(given, environ))
    if direct:
        read = ["-c default_transaction_read_only=on"] if read_only else []
        ours = ["-c search_path=pg_catalog,pg_temp", "-c role=none", *read]
        # The last setting of a name wins, so earlier options cannot override ours.
        found["PGOPTIONS"] = " ".join([*filter(None, [found.get("PGOPTIONS")]), *ours])
    return found


def find_secrets(conninfo: str, config: Config, values: Mapping[str, Any], secret: frozenset[str]) -> tuple[str, ...]:
    """Return the values to redact: passwords of the connection string, of all clusters' nodes and poolers, and secret
    inputs."""
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
