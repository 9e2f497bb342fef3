"""Connection errors, classified and as one redacted sentence.

libpq has no field for the SQLSTATE of a refused connection, so it is made to write it into the message (verbosity
VERBOSE: `FATAL:  53300: text` and `LOCATION:  function, file:line`). The code and the function's name decide, never the
text: the server may use any language. Codes: PostgreSQL documentation, appendix A.
"""

from __future__ import annotations

import re
from typing import Literal

from dba_console.core.errors import ConnectError
from dba_console.core.redact import redact

ConnectKind = Literal["no_slots", "starting", "refused", "auth", "timeout", "unknown_host", "ssl", "other"]

_SQLSTATE = re.compile(r"^(.*?:\s+)(?=[A-Z]*\d)([0-9A-Z]{5}): (.*)$", re.M)
_LOCATION = re.compile(r"^LOCATION:\s+(?:(\w+), )?.*$\n?", re.M)
_LIMITS = {"InitializeSessionUserId": "role", "CheckMyDatabase": "database"}
"""Functions of miscinit.c and postinit.c that enforce a CONNECTION LIMIT; every other 53300 is the server's limit."""
_POOLER_FULL = "no more connections allowed"
"""PgBouncer's message beyond max_client_conn; its code (08P01) is not specific."""
HINTS: dict[ConnectKind, str | None] = {
    "no_slots": "superusers have reserved slots, and from 16 on members of pg_use_reserved_connections",
    "starting": "wait: a server in crash recovery accepts connections once its WAL is replayed",
    "refused": "is the server running, and does it listen on that address and port?",
    "auth": "check role, passfile (~/.pgpass) and pg_hba.conf",
    "timeout": "is a firewall in between, or does the host hang?",
    "unknown_host": "check the name; hostaddr= needs no name resolution",
    "ssl": "check sslmode= and the certificates",
    "other": None,
}
"""Hint by kind; the agent ends its message about a failed attempt with it."""


_NO_DATABASE = "check the name of the database: dbname= in the connection string, by default the role's name"
_LIMITED = {
    whose: f"the CONNECTION LIMIT of the {whose} is reached: ALTER {whose.upper()} … CONNECTION LIMIT raises it"
    for whose in ("role", "database")
}
CANCELED = "57014"
"""query_canceled: by statement_timeout, or by another session (errcodes-appendix)."""
_TIMED_OUT = (
    "a statement_timeout of the role, the database or the connection string is shorter than the first query takes"
)
KINDS: dict[str, ConnectKind] = {
    **{hint: kind for kind, hint in HINTS.items() if hint is not None},
    _NO_DATABASE: "auth",
    _TIMED_OUT: "other",
    **dict.fromkeys(_LIMITED.values(), "no_slots"),
}
"""The kind of failure of each hint."""


class ConnectFailed(ConnectError):
    """The connection failed. For `no_slots`, `limit` names the limit: server, role, database or pooler."""

    def __init__(
        self,
        kind: ConnectKind,
        message: str,
        *,
        sqlstate: str | None = None,
        limit: str | None = None,
        advice: str | None = None,
    ) -> None:
        super().__init__(redact(message), hint=advice or _hint(kind, sqlstate, limit))
        self.kind: ConnectKind = kind
        self.sqlstate = sqlstate
        self.limit = limit


def _hint(kind: ConnectKind, sqlstate: str | None, limit: str | None) -> str | None:
    if sqlstate == "3D000":
        return _NO_DATABASE
    if sqlstate == CANCELED:
        return _TIMED_OUT
    return _LIMITED[limit] if kind == "no_slots" and limit in _LIMITED else HINTS[kind]


class ConnectionLost(ConnectError):
    """An open connection was lost; reconnect."""

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(redact(message))
        self.sqlstate = sqlstate


WEAK_METHOD = "authentication method requirement"
"""In libpq's message if the server asks for another method than `require_auth` accepts (fe-auth.c)."""
_WEAK_HINT = (
    "sslmode=require permits a cleartext password over TLS, require_auth=password also without; after a change of "
    "pg_hba.conf restart the agent"
)


def connect_failed(raw: str) -> ConnectFailed:
    """Return the failure described in `raw` (verbose; of several hosts the last one that answered decides).

    >>> connect_failed('failed: FATAL:  53300: zu viele Verbindungen\\nLOCATION:  InitPostgres, x.c:1')
    ConnectFailed('failed: FATAL: zu viele Verbindungen')
    >>> connect_failed('FATAL:  53300: too many\\nLOCATION:  CheckMyDatabase, postinit.c:1').limit
    'database'
    """
    codes = _SQLSTATE.findall(raw)
    functions = [function for function in _LOCATION.findall(raw) if function]
    sqlstate = codes[-1][1] if codes else None
    kind = _kind_of(sqlstate, raw)
    limit = _limit_of(functions, raw) if kind == "no_slots" else None
    advice = _WEAK_HINT if WEAK_METHOD in raw else None
    return ConnectFailed(kind, plain_message(raw), sqlstate=sqlstate, limit=limit, advice=advice)


def _limit_of(functions: list[str], raw: str) -> str:
    if _POOLER_FULL in raw:
        return "pooler"
    return _LIMITS.get(functions[-1], "server") if functions else "server"


def plain_message(raw: str) -> str:
    """Return a verbose message in its usual form on one line: without code and location, and without libpq's own hints.

    >>> plain_message("a failed: refused\\n\\tIs the server running?\\nb failed: FATAL:  3D000: no database")
    'a failed: refused; b failed: FATAL: no database'
    """
    text = _LOCATION.sub("", raw)
    text = _SQLSTATE.sub(r"\1\3", text)
    # libpq indents its hints by a tab (fe-connect.c); this module has its own hint for each kind.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\t")]
    return "; ".join(" ".join(line.split()) for line in lines)


def _kind_of(sqlstate: str | None, raw: str) -> ConnectKind:
    if sqlstate == "53300" or _POOLER_FULL in raw:
        return "no_slots"
    if sqlstate == "57P03":
        return "starting"
    if sqlstate is not None:
        return "auth" if sqlstate[:2] == "28" or sqlstate in ("3D000", "42501") else "other"
    return _kind_of_libpq(raw)


def _kind_of_libpq(raw: str) -> ConnectKind:
    """Classify failures that never reached a server; libpq's texts are English in this process (no locale is set)."""
    text = raw.lower()
    if "could not translate host name" in text:
        return "unknown_host"
    if "connection refused" in text or "no such file or directory" in text:
        return "refused"
    if "timed out" in text or "timeout expired" in text or "no route to host" in text or "unreachable" in text:
        return "timeout"
    if "password" in text or "authentication" in text or "scram" in text:
        return "auth"
    if "ssl" in text or "certificate" in text:
        return "ssl"
    return "other"
