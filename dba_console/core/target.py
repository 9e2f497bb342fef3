"""Targets and connection strings, parsed without a driver so that the screen starts before libpq is loaded.

A target's key names its agent's socket and lock. It is derived from what libpq would connect to: connection string over
service over environment over defaults.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from dba_console.core.errors import UsageError
from dba_console.core.users import default_user

_ENVIRONMENT = {
    "host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER",
    "service": "PGSERVICE",
}  # fmt: skip
LOCAL = "local"
"""Host of an address without one: libpq connects to a local socket."""
_LOCAL_HOST = re.compile(rf"(?i){LOCAL}|[/@].*|localhost|127\.[\d.]+|::1", re.S)
"""Names of this host: sockets, including abstract ones, and loopback addresses."""
ADDRESS_VARIABLES = tuple(_ENVIRONMENT.values())
"""Environment variables of libpq with the address."""
_SECRET_KEYWORDS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
"""Keywords of libpq whose values grant access (PostgreSQL documentation, "Parameter Key Words")."""
_KEY_VALUE = re.compile(r"\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))")


@dataclass(frozen=True, slots=True)
class Target:
    """A server to watch.

    `conninfo` goes to libpq and may contain a secret, so it never appears in the repr; `name` is shown to the operator;
    `key` is the same for two spellings that libpq would connect to the same server and database.
    """

    name: str
    key: str
    conninfo: str
    host_panels: bool | None = None

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


class Address(NamedTuple):
    """The address libpq would connect to. A service stays a name: its file is not read here, and fields it may set are
    empty.
    """

    service: str
    host: str
    port: str
    database: str
    user: str

    @property
    def key(self) -> str:
        """Return the key of the target: server, database and user."""
        return _digest(self)

    @property
    def server(self) -> str:
        """Return a key shared by all targets of one server at one address."""
        return _digest((self.service, self.host, self.port))


def parse_conninfo(text: str) -> dict[str, str]:
    """Return a keyword/value string or URI as a dict. Raises UsageError with the invalid part, never with its text."""
    if any("\ud800" <= character <= "\udfff" for character in text):  # how arguments hold bytes that are not text
        raise UsageError("not a connection string: it contains bytes that are not UTF-8 text")
    if re.match(r"postgres(ql)?://", text):
        return _parse_uri(text)
    values: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        match = _KEY_VALUE.match(text, position)
        if match is None:
            raise UsageError(
                f"not a connection string: no key=value at character {position + 1}",
                hint="write it as 'host=db1 dbname=app', as a URI postgresql://user@db1/app, or name a target",
            )
        raw = match[2] if match[2] is not None else match[3]
        values[match[1]] = re.sub(r"\\(.)", r"\1", raw)
        position = match.end()
    return values


def _parse_uri(text: str) -> dict[str, str]:
    match = re.fullmatch(r"postgres(?:ql)?://(?:([^@/?#]*)@)?([^/?#]*)(?:/([^?#]*))?(?:\?([^#]*))?", text)
    if match is None:
        raise UsageError("not a connection URI", hint="write it as postgresql://user@host:5432/dbname?sslmode=require")
    values: dict[str, str] = {}
    userinfo, hosts, database, options = match.groups()
    if userinfo:
        user, _, password = userinfo.partition(":")
        values["user"] = unquote(user)
        if password:
            values["password"] = unquote(password)
    if hosts:
        pieces = [re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::(\d*))?", piece) for piece in hosts.split(",")]
        if any(piece is None for piece in pieces):
            raise UsageError("not a connection URI: invalid host part")
        values["host"] = ",".join(unquote(piece[1]).strip("[]") for piece in pieces if piece)
        if any(piece and piece[2] for piece in pieces):
            values["port"] = ",".join(piece[2] or "" for piece in pieces if piece)
    if database:
        values["dbname"] = unquote(database)
    for option in (options or "").split("&"):
        # A plus sign is literal to libpq, not a space.
        key, _, value = map(unquote, option.partition("="))
        # JDBC syntax, accepted by libpq only in a URI (conninfo_uri_parse_params).
        values |= {"sslmode": "require"} if (key, value) == ("ssl", "true") else {key: value}
    return {key: value for key, value in values.items() if value != ""}


def conninfo(values: Mapping[str, str | int]) -> str:
    r"""Return keywords and values as a libpq connection string, quoted where necessary.

    >>> print(conninfo({"host": "/tmp/a b", "user": "it's", "port": 5432, "dbname": ""}))
    host='/tmp/a b' user='it\'s' port=5432 dbname=''
    """
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in values.items())


def _quoted(value: str) -> str:
    if value and not any(sign in " '\\" or sign.isspace() for sign in value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def looks_like_conninfo(text: str) -> bool:
    """Return True for `key=value` and URIs, False for a single word, which names a configured target."""
    return "=" in text or "://" in text


def make_target(
    conninfo: str, *, name: str | None = None, host_panels: bool | None = None, environ: Mapping[str, str] = os.environ
) -> Target:
    """Return the target of a connection string, completed from the environment as libpq does.

    Without `name`, it is named after database and host; for a socket or a loopback address after this host, so that the
    name typed to confirm an action differs between servers.

    >>> make_target("dbname=app host=db1", environ={}).name
    'app@db1'
    >>> make_target("dbname=app", environ={}).name == f"app:5432@{os.uname().nodename}"
    True
    >>> a = make_target("postgresql://u@db1/app", environ={})
    >>> b = make_target("user=u dbname=app host=db1 port=5432", environ={"PGHOST": "other"})
    >>> a.key == b.key
    True
    """
    address = address_of(conninfo, environ)
    if address.service:
        shown = address.service
    elif _LOCAL_HOST.fullmatch(address.host):
        shown = f"{address.database}:{address.port}@{os.uname().nodename}"
    else:
        shown = f"{address.database}@{address.host}" + ("" if address.port == "5432" else f":{address.port}")
    return Target(name or shown, address.key, conninfo, host_panels)


def with_host(name: str, host: str) -> str:
    """Return the name of a target, with its host if the name does not contain it.

    >>> with_host("db", "db2"), with_host("app:5432@db2", "db2"), with_host("app@10.0.0.1:5433", "10.0.0.1")
    ('db on db2', 'app:5432@db2', 'app@10.0.0.1:5433')
    """
    named_host = name.rpartition("@")[2]
    return name if not host or host in (named_host, named_host.rpartition(":")[0]) else f"{name} on {host}"


def address_of(conninfo: str, environ: Mapping[str, str] = os.environ) -> Address:
    """Return the address of a connection string, completed from the environment. Raises UsageError if invalid.

    >>> a, b = address_of("host=db1 dbname=app", {}), address_of("host=db1 dbname=postgres", {"PGHOST": "db2"})
    >>> a.server == b.server, a.key == b.key
    (True, False)
    """
    merged = _with_environment(conninfo, environ)
    service = merged.get("service", "")
    user = merged.get("user") or ("" if service else default_user())
    return Address(
        service,
        merged.get("host") or merged.get("hostaddr") or ("" if service else LOCAL),
        merged.get("port") or ("" if service else "5432"),
        merged.get("dbname") or ("" if service else user),
        user,
    )


def without_secrets(conninfo: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return a connection string for the same target in any environment, without secrets, so it may be stored.

    Raises UsageError if `conninfo` is invalid.

    >>> without_secrets("postgresql://u:hidden@db1/app", {"PGPORT": "5433"})
    "port='5433' user='u' host='db1' dbname='app'"
    >>> without_secrets("service=prod", {"PGHOST": "db9"})
    "service='prod'"
    """
    given = parse_conninfo(conninfo)
    service = given.get("service") or environ.get("PGSERVICE")
    # In the string they would override the service file; in the environment libpq uses them after it.
    values = {**given, "service": service} if service else _with_environment(conninfo, environ)
    if not values.get("user") and not values.get("service"):
        values["user"] = default_user()
    kept = {key: re.sub(r"([\\'])", r"\\\1", value) for key, value in values.items() if key not in _SECRET_KEYWORDS}
    return " ".join(f"{key}='{value}'" for key, value in kept.items())


def holds_secret(conninfo: str) -> bool:
    """Whether a connection string contains a password or another secret; False if it is invalid."""
    try:
        return not _SECRET_KEYWORDS.isdisjoint(parse_conninfo(conninfo))
    except UsageError:
        return False


def _with_environment(conninfo: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a connection string, with the address completed from the environment."""
    values = parse_conninfo(conninfo)
    merged = {key: environ[variable] for key, variable in _ENVIRONMENT.items() if environ.get(variable)}
    if "host" in values or "hostaddr" in values:
        merged.pop("host", None)
        merged.pop("hostaddr", None)
    return {**merged, **values}


def _digest(names: tuple[str, ...]) -> str:
    # Environment values need not be valid text.
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:12]
