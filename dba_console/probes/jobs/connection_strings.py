"""Connection strings as others wrote them into arguments: where they lead, and never with what password.

libpq's rules (fe-connect.c: recognized_connection_string, conninfo_parse, conninfo_uri_parse_options), but where a
password may have been written wrongly more is taken for it than libpq would: what is kept must not hold a part of one.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from dba_console.redact import MASK, redact

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEMES = ("postgresql://", "postgres://")
_KEY = re.compile(r"\s*([^\s=]+)\s*=\s*")
_SECRET = re.compile(r"(?i)passw|passphrase|secret|(?:client|server|access|api)[_-]?key|token")
_MENTIONS = re.compile(r"(?i)(?:passw|passphrase|secret|_key|token)[^=]*=|://")

MAX_LENGTH = 8192
"""Characters of an argument that are searched for secrets; the time that takes grows with the square of them."""


def is_secret(key: str) -> bool:
    """Whether what stands under this keyword must not be told: password, sslpassword, scram_client_key, ...

    >>> is_secret("PGPASSWORD"), is_secret("passfile"), is_secret("scram_client_key"), is_secret("sslkey")
    (True, False, True, False)
    """
    return _SECRET.search(key) is not None


def parse_connection(text: str) -> dict[str, str] | None:
    """Keywords and values without the secret ones; None where the text is no connection string, but a name.

    >>> parse_connection("host=/tmp password='it''s' dbname=shop"), parse_connection("shop")
    ({'host': '/tmp', 'dbname': 'shop'}, None)
    >>> parse_connection("postgresql://app:s3cret@db1:5433/shop?sslmode=require")
    {'host': 'db1', 'port': '5433', 'dbname': 'shop', 'user': 'app', 'sslmode': 'require'}
    """
    if text.startswith(_SCHEMES):
        return _parse_uri(text)
    if "=" not in text:
        return None
    return {key: value for key, value, _, _ in _pairs(text)[0] if not is_secret(key)}


def without_secrets(word: str) -> str:
    """An argument with every password in a connection string, and every other known form of one, masked.

    >>> without_secrets("host=db password='a b' user=u"), without_secrets("--dbname=postgres://u:p/w@d@h/x")
    ('host=db password=******** user=u', '--dbname=postgres://u:********@h/x')

    An argument of beyond LONGEST is not shown at all.
    """
    if len(word) > MAX_LENGTH:
        return MASK
    if _MENTIONS.search(word) is None:
        return redact(word)
    if (scheme := _URI.search(word)) is not None:
        return redact(_masked_uri(word, scheme.end()))
    return redact(_masked_pairs(word))


def _parse_uri(text: str) -> dict[str, str]:
    rest = text.partition("://")[2]
    rest, _, query = rest.partition("?") if "@" not in rest.partition("?")[2] else ("", "", "")
    user, at, place = rest.rpartition("@")
    hosts, _, database = (place if at else rest).partition("/")
    found = _hosts(hosts)
    if database:
        found["dbname"] = unquote(database)
    if name := unquote(user.partition(":")[0]):
        found["user"] = name
    for pair in query.split("&"):
        key, equals, value = pair.partition("=")
        if equals and not is_secret(unquote(key)):
            found[unquote(key)] = unquote(value)
    return found


def _hosts(text: str) -> dict[str, str]:
    """`[::1]:5432,db2` as host and port lists, each left out where nothing of it is given."""
    hosts, ports = [], []
    for one in text.split(","):
        if one.startswith("["):
            host, _, rest = one[1:].partition("]")
            port = rest.removeprefix(":")
        else:
            host, _, port = one.partition(":")
        hosts.append(unquote(host))
        ports.append(port if port.isdigit() else "")
    found = {"host": ",".join(hosts), "port": ",".join(ports)}
    return {key: value for key, value in found.items() if value.strip(",")}


def _masked_uri(word: str, begin: int) -> str:
    """Userinfo reaches to the last `@`, wherever libpq would have it end."""
    user, at, place = word[begin:].rpartition("@")
    if at:
        name, colon, secret = user.partition(":")
        user = f"{name}:{MASK}" if colon and secret else name + colon
    head, question, query = place.partition("?")
    pairs = [_masked_pair(pair) for pair in query.split("&")] if question else []
    return word[:begin] + user + at + head + question + "&".join(pairs)


def _masked_pair(pair: str) -> str:
    key, equals, _ = pair.partition("=")
    return f"{key}={MASK}" if equals and is_secret(unquote(key)) else pair


def _masked_pairs(word: str) -> str:
    pairs, read_to = _pairs(word)
    secret = [(begin, end) for key, _, begin, end in pairs if is_secret(key)]
    broken = read_to < len(word) and secret
    if broken:
        # What libpq could not read either: everything from the secret on may belong to it.
        return word[: secret[0][0]] + MASK
    for begin, end in reversed(secret):
        word = word[:begin] + MASK + word[end:]
    return word


def _pairs(text: str) -> tuple[list[tuple[str, str, int, int]], int]:
    """Keyword, value and where the value stands in the text; and how far the text could be read."""
    found, at = [], 0
    while (match := _KEY.match(text, at)) is not None:
        value, end = _value(text, match.end())
        found.append((match[1], value, match.end(), end))
        at = end
    return found, at + len(text[at:]) - len(text[at:].lstrip())


def _value(text: str, at: int) -> tuple[str, int]:
    """A value with its quotes and backslashes taken off, and where it ends."""
    quoted = text[at : at + 1] == "'"
    at += quoted
    signs: list[str] = []
    while at < len(text):
        sign = text[at]
        if sign == "\\" and at + 1 < len(text):
            at += 1
            sign = text[at]
        elif quoted and sign == "'":
            if text[at + 1 : at + 2] != "'":
                return "".join(signs), at + 1
            at += 1
        elif not quoted and sign.isspace():
            break
        signs.append(sign)
        at += 1
    return "".join(signs), at
