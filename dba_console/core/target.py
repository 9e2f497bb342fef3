"""Which server is meant, decided without a driver so that the screen starts before libpq is loaded.

A target's key names its agent's socket and lock. It is made of what libpq would connect to: connection string over
service over environment over defaults.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

from dba_console.core.errors import UsageError

_ENVIRONMENT = {
    "host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER",
    "service": "PGSERVICE",
}  # fmt: skip
LOCAL = "local"
"""The host of an address that names none: libpq connects to a socket of this one."""
_LOCAL_HOST = re.compile(rf"(?i){LOCAL}|[/@].*|localhost|127\.[\d.]+|::1", re.S)
"""Hosts that mean this one: sockets, abstract ones too, and loopback addresses."""
ADDRESS_VARIABLES = tuple(_ENVIRONMENT.values())
"""Variables by which libpq's environment says where to connect."""
_SECRET_KEYWORDS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
"""Keywords of libpq whose values let somebody in (PostgreSQL documentation, "Parameter Key Words")."""
_KEY_VALUE = re.compile(r"\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))")


@dataclass(frozen=True, slots=True)
class Target:
    """A server to watch.

    `conninfo` goes to libpq and may hold a secret, so it never appears in the repr; `name` is what people read;
    `key` is the same for two spellings that libpq would connect to the same place.
    """

    name: str
    key: str
    conninfo: str
    host_panels: bool | None = None

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


class Address(NamedTuple):
    """What libpq would connect to. A service stays its name: what its file says is not read here, and empty is what it
    may say.
    """

    service: str
    host: str
    port: str
    database: str
    user: str

    @property
    def key(self) -> str:
        """Of the target: a server, a database of it, and as whom."""
        return _digest(self)

    @property
    def server(self) -> str:
        """The same for all targets of one server that are reached at one address."""
        return _digest((self.service, self.host, self.port))


def parse_conninfo(text: str) -> dict[str, str]:
    """Keyword/value string or URI as a dict. Raises UsageError saying what cannot be read, without repeating it."""
    if any("\ud800" <= sign <= "\udfff" for sign in text):  # how arguments hold bytes that are no text
        raise UsageError("not a connection string: it holds bytes that are not UTF-8 text")
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
            raise UsageError("not a connection URI: the host part cannot be read")
        values["host"] = ",".join(unquote(piece[1]).strip("[]") for piece in pieces if piece)
        if any(piece and piece[2] for piece in pieces):
            values["port"] = ",".join(piece[2] or "" for piece in pieces if piece)
    if database:
        values["dbname"] = unquote(database)
    for option in (options or "").split("&"):
        # A plus sign is one to libpq, and no space.
        key, _, value = map(unquote, option.partition("="))
        # As JDBC writes it, and libpq takes it in a URI alone (conninfo_uri_parse_params).
        values |= {"sslmode": "require"} if (key, value) == ("ssl", "true") else {key: value}
    return {key: value for key, value in values.items() if value != ""}


def looks_like_conninfo(text: str) -> bool:
    """True for `key=value` and URIs, False for a bare word, which names a target of the configuration."""
    return "=" in text or "://" in text


def make_target(
    conninfo: str, *, name: str | None = None, host_panels: bool | None = None, environ: Mapping[str, str] = os.environ
) -> Target:
    """The target of a connection string, completed from the environment as libpq does.

    What has no name is called by database and host, by a socket or a loopback address this one: the word that is typed
    to confirm an act is another one on each server.

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
    """The name of a target, and the host it is on where the name does not say it.

    >>> with_host("db", "db2"), with_host("app:5432@db2", "db2"), with_host("app@10.0.0.1:5433", "10.0.0.1")
    ('db on db2', 'app:5432@db2', 'app@10.0.0.1:5433')
    """
    named_host = name.rpartition("@")[2]
    return name if not host or host in (named_host, named_host.rpartition(":")[0]) else f"{name} on {host}"


def address_of(conninfo: str, environ: Mapping[str, str] = os.environ) -> Address:
    """Where a connection string leads, completed from the environment. Raises UsageError where it cannot be read.

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
    """A connection string that leads to the same place from another environment and may be kept: it holds no secret.

    Raises UsageError where `conninfo` cannot be read.

    >>> without_secrets("postgresql://u:hidden@db1/app", {"PGPORT": "5433"})
    "port='5433' user='u' host='db1' dbname='app'"
    >>> without_secrets("service=prod", {"PGHOST": "db9"})
    "service='prod'"
    """
    given = parse_conninfo(conninfo)
    service = given.get("service") or environ.get("PGSERVICE")
    # In the string it would go before what the service file says; libpq takes it from the environment after that.
    values = {**given, "service": service} if service else _with_environment(conninfo, environ)
    if not values.get("user") and not values.get("service"):
        values["user"] = default_user()
    kept = {key: re.sub(r"([\\'])", r"\\\1", value) for key, value in values.items() if key not in _SECRET_KEYWORDS}
    return " ".join(f"{key}='{value}'" for key, value in kept.items())


def holds_secret(conninfo: str) -> bool:
    """Whether a connection string holds a password or another secret of its own; False where it cannot be read."""
    try:
        return not _SECRET_KEYWORDS.isdisjoint(parse_conninfo(conninfo))
    except UsageError:
        return False


def _with_environment(conninfo: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What a connection string says, and what the environment says of where it leads."""
    values = parse_conninfo(conninfo)
    merged = {key: environ[variable] for key, variable in _ENVIRONMENT.items() if environ.get(variable)}
    if "host" in values or "hostaddr" in values:
        merged.pop("host", None)
        merged.pop("hostaddr", None)
    return {**merged, **values}


def _digest(names: tuple[str, ...]) -> str:
    # What the environment gives need not be text.
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()[:12]


def default_user() -> str:
    """As whom libpq connects where nothing says it: the user of this process."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
