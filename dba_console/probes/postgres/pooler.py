"""Whether a connection pooler stands between, and which.

A pooler gives us a cancel key of its own, so the process number in it is not that of the backend that answers. That is
true of PgBouncer, Odyssey and managed proxies alike. PgBouncer alone has a database `pgbouncer` that tells version and
pool mode; it is asked once, and often not open to us.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dba_console.clock import Clock
from dba_console.probes.postgres.async_connect import open_connection
from dba_console.probes.postgres.connect_errors import ConnectFailed, ConnectionLost
from dba_console.probes.postgres.conninfo import monitor_conninfo
from dba_console.probes.postgres.simple_query import simple_query

UNKNOWN = "a connection pooler"
COST = (
    "counts are the server's, not the pooler's clients; no slot is held, so when slots run out the console waits for "
    "one like everybody else: connect past the pooler to hold a seat"
)


def ask_pooler(given: Mapping[str, str], timeout_s: float, clock: Clock) -> str:
    """`PgBouncer 1.21.0 (transaction)`, as much of it as it tells. Never raises."""
    try:
        return _ask(given, timeout_s, clock)
    except (ConnectFailed, ConnectionLost) as error:
        return "PgBouncer" if _is_pgbouncer(str(error)) else UNKNOWN


def pooler_text(version: str | None, mode: str | None) -> str:
    """
    >>> pooler_text("PgBouncer 1.18.0", "transaction"), pooler_text(None, None)
    ('PgBouncer 1.18.0 (transaction)', 'PgBouncer')
    """
    match = re.search(r"(\d+(?:\.\d+)+)", version or "")
    name = f"PgBouncer {match[1]}" if match else "PgBouncer"
    return f"{name} ({mode})" if mode else name


def _is_pgbouncer(message: str) -> bool:
    """Words of PgBouncer's refusals to its admin console; PostgreSQL says that a database does not exist."""
    return "not allowed" in message or ("pgbouncer" in message.lower() and "does not exist" not in message)


def _ask(given: Mapping[str, str], timeout_s: float, clock: Clock) -> str:
    connection = open_connection(monitor_conninfo({**given, "dbname": "pgbouncer"}), timeout_s, clock)
    try:
        version, databases, config = (
            simple_query(connection, command, timeout_s, clock)
            for command in (b"SHOW VERSION", b"SHOW DATABASES", b"SHOW CONFIG")
        )
    finally:
        connection.finish()
    return pooler_text(next(iter(version[0].values()), None) if version else None, _mode(given, databases, config))


def _mode(given: Mapping[str, str], databases: list[dict[str, str]], config: list[dict[str, str]]) -> str | None:
    """The pool mode of our database, else the pooler's default."""
    wanted = given.get("dbname") or given.get("user")
    own = next((row.get("pool_mode") for row in databases if row.get("name") == wanted), None)
    return own or next((row.get("value") for row in config if row.get("key") == "pool_mode"), None)
