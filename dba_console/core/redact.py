"""Masks secrets in text before it is shown, logged or stored.

The code that outputs text from a connection string, an error of libpq or a query calls `redact` first; text that is SQL
it gives to `redact_statement`, and plain JSON to `redact_json`. Redacting twice changes nothing.

Secrets are found in four ways. In an SQL statement that names a password, a token or a key (a keyword, a column, a
function, an argument) all literals are masked, because only the server knows which one is the secret. In other text a
secret follows its name and a sign, or is in a place where a program, a URI, a header or a message has it. Private keys
and tokens of well-known services have a form of their own. The time is linear in the length of the text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

from dba_console.core.redaction.command_lines import mask_command_lines, names_program
from dba_console.core.redaction.known_places import has_one, mask_places
from dba_console.core.redaction.named_values import mask_named, mask_options
from dba_console.core.redaction.secret_names import is_secret_name, names_secret
from dba_console.core.redaction.statements import MASK, joined, mask_statements, normalise, statement_tokens
from dba_console.core.redaction.token_forms import TOKEN_HINTS

__all__ = [
    "MASK",
    "is_secret_name",
    "may_hold_secret",
    "names_secret",
    "normalise",
    "redact",
    "redact_json",
    "redact_statement",
    "statement_tokens",
]

_SQL_NAMES = ("login", "pass", "pw", "secret", "token", "credential", "auth", "cookie", "crypt", "hmac")
_NAMES = (*_SQL_NAMES, "psk", "sig=", "ature=")
_FORMS = ("://", "bearer ", "basic ", "md5", *(hint for hint in TOKEN_HINTS if "-" not in hint))
_FORMS_WITH_DASH = ("scram-sha", *(hint for hint in TOKEN_HINTS if "-" in hint))
_PROGRAMS = (
    "sqlplus", "rman ", "pdp ", "db2 ", "vault ", "net us", "kinit", "freerdp", "schtasks", "qctl ", "rclone", "aws ",
    "mc al", "pdftk", "spawn ", "<<<",
)  # fmt: skip
"""Those that take a secret without an option."""
_HINTS = (*_NAMES, "key", *_FORMS, *_PROGRAMS, "parameter", '" "')
_SQL_HINTS = (*_SQL_NAMES, "key", *_FORMS)
"""Text with none of these has nothing to mask: checked first, for every text."""
_SECRET_NUMBER = 1000
"""A smaller one is a count: `{"tokens": 17}`."""
_KEY = re.compile(r"(?:(?<![_p])key|key(?!\"(?!\s?[:=])))(?!s?\s?\(|word|\s(?:value|share|constraint|column|violat))")
"""Except as in `primary key (id)`, `duplicate key value` and the name of a constraint, `"orders_pkey"`."""
_PIN = re.compile(r"(?<![a-z])pin\d?(?![a-z])")
_VERIFIER = re.compile(r"\$\w{1,12}\$[\w./=,$+-]{8}")
_PORT = re.compile(r":(?:\d{3,5}|\*):")
_OPTIONS = (" -", "'-", '"-', "(-")
_VERBS = (
    "select|insert|update|delete|merge|with|values|alter|create|set|call|do|copy|prepare|execute|explain|import|comment|"
    "security|begin|declare|perform|truncate|grant|table|drop|reset|lock|savepoint|start|commit|rollback|end|abort|"
    "notify|listen|reassign|fetch|move|close|vacuum|analyze|refresh|reindex|return|returns|if|raise|replace|upsert"
)
_SQL_WORDS = (
    "insert", "update", "alter", "create", "select", "set ", "values", "merge", "call ", "execute", "copy ", "do ",
    "filter", "cond:", "set_config", "query", "statement", "with ", "delete", "explain", "notify",
)  # fmt: skip
_FIRST_WORDS = frozenset(_VERBS.split("|"))
_STATEMENT = re.compile(rf"(?i)(?:\s|--[^\n]*+(?:\n|$)|/\*(?:[^*]|\*(?!/))*+\*/|[(;\ufeff\u200b])*+(?:{_VERBS})\b")
"""The start of a text that is SQL."""
_STATEMENT_IN_TEXT = re.compile(
    rf"(?i)(?:[;:(>|\"'`\n]|\*/|\$\$)[ \t\r\n]{{0,8}}(?P<verb>(?:{_VERBS})\b)|"
    r"\b(?P<start>(?:insert|merge)\s{1,8}into\b|update\s{1,8}\S{1,128}\s{1,8}set\b|values\s{0,8}\(|set_config\(|"
    r"(?:alter|create)\s{1,8}(?:role|user|system|database|server|subscription)\b)|"
    r"\b(?:filter|cond|query text|query|statement)\s?: "
)
"""A statement within another text, as in a log, a command or an error message; a condition of a plan."""


def redact(text: str) -> str:
    """Return `text` with every password, URI userinfo secret and stored verifier replaced by eight asterisks.

    >>> redact("host=db password=s3cret user=app"), redact("postgresql://app:s3cret@db/x")
    ('host=db password=******** user=app', 'postgresql://app:********@db/x')
    >>> redact("ALTER ROLE app PASSWORD 'it''s'")
    "ALTER ROLE app PASSWORD '********'"
    >>> redact("LOG:  statement: insert into users (name, password) values ('bob', 's3cret'); select 'seen'")
    "LOG:  statement: insert into users (name, password) values ('********', '********'); select 'seen'"
    """
    lowered = text.lower()
    if "||" in lowered:
        lowered = joined(lowered)
    if not has_one(_HINTS, lowered) and not _has_rarer_hint(lowered):
        return text
    if text[:1] in ("{", "[") and (masked := _masked_json(text)) is not None:
        return masked
    named = _is_named(_NAMES, lowered)
    if named:
        text = _mask_statements_in(text, lowered)
    if names_program(text):
        text = mask_command_lines(text)
    if named:
        text = mask_named(mask_options(text) if "-" in text or " /" in text else text)
    return mask_places(text, lowered)


def _masked_json(text: str) -> str | None:
    """Return a text that is an object in JSON, its texts masked without their escapes; None for another text."""
    try:
        value = msgspec.json.decode(text)
        masked = redact_json(value)
        return text if masked == value else msgspec.json.encode(masked).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _mask_statements_in(text: str, lowered: str) -> str:
    """Mask the statements in a text: it is one, or one begins in it."""
    if _STATEMENT.match(text):
        return mask_statements(text)
    if has_one(_SQL_WORDS, lowered) and (begin := _STATEMENT_IN_TEXT.search(text)) is not None:
        at = begin.start(begin.lastgroup) if begin.lastgroup else begin.end()
        comment = text.rfind({"*": "/*", "\n": "--"}.get(text[begin.start()], "\0"), 0, begin.start())
        if comment >= 0 and text.count("/*") < 2:  # the comment may say what it is
            at = comment
        return text[:at] + mask_statements(text[at:])
    return text


def _is_named(names: Sequence[str], lowered: str) -> bool:
    return (
        has_one(names, lowered)
        or ("key" in lowered and _KEY.search(lowered) is not None)
        or ("pin" in lowered and _PIN.search(lowered) is not None)
    )


def _has_rarer_hint(lowered: str) -> bool:
    """Whether the text has a hint that is searched for only with another sign."""
    return (
        ("-" in lowered and (has_one(_FORMS_WITH_DASH, lowered) or has_one(_OPTIONS, lowered)))
        or ("$" in lowered and _VERIFIER.search(lowered) is not None)
        or ("pin" in lowered and _PIN.search(lowered) is not None)
        or (lowered.count(":") > 3 and _PORT.search(lowered) is not None)
    )


def may_hold_secret(statement: str) -> bool:
    """Whether `redact_statement` has to read the text closely; that takes about twenty times as long."""
    lowered = joined(statement.lower())
    return has_one(_SQL_HINTS, lowered) or _has_rarer_hint(lowered)


def redact_statement(text: str, *, cut: bool = False) -> str:
    """Return SQL with its secrets masked, whatever its first word is.

    `cut`: it is the beginning of a statement. The word that makes a literal a secret may be in the missing rest, so all
    literals of its last statement are masked.

    >>> redact_statement("commit; insert into users (name, password) values ('bob', 's3cret'); select 'seen'")
    "commit; insert into users (name, password) values ('********', '********'); select 'seen'"
    >>> redact_statement("set app.token to s3cret")
    'set app.token to ********'
    """
    if cut:
        text = mask_statements(text, cut=True)
    lowered = text.lower()
    if "||" in lowered:
        lowered = joined(lowered)
    hinted = has_one(_SQL_HINTS, lowered) or _has_rarer_hint(lowered)
    if lowered[:12].partition(" ")[0] not in _FIRST_WORDS and _STATEMENT.match(text) is None:
        return redact(mask_statements(text) if hinted else text)
    if not hinted:
        return text
    if named := _is_named(_SQL_NAMES, lowered):
        text = mask_statements(text, cut=cut)
    if " -" in text and names_program(text):
        text = mask_command_lines(text)
    if named:
        text = mask_named(mask_options(text) if " -" in text else text, sql=True)
    return mask_places(text, lowered)


def _masked_words(words: Sequence[Any]) -> list[str] | None:
    """Return the words of a command, masked as a command line; None if they are something else."""
    if len(words) < 2 or not all(isinstance(word, str) for word in words) or not any(word[:1] == "-" for word in words):
        return None
    try:
        masked = shlex.split(redact(shlex.join(words)))
    except ValueError:  # a mask covers a quote
        return None
    return masked if len(masked) == len(words) else None


def redact_json(value: Any, *, secret: bool = False) -> Any:
    """Return plain JSON with its texts redacted, and masked where a member's name is that of a secret.

    `secret`: it is the value of such a member.

    >>> redact_json({"user": "bob", "password": "x", "log": ["token=y"]})
    {'user': 'bob', 'password': '********', 'log': ['token=********']}
    >>> redact_json({"name": "DB_PASSWORD", "value": "x"})
    {'name': 'DB_PASSWORD', 'value': '********'}
    """
    if isinstance(value, str):
        return MASK if secret and value else redact(value)
    if isinstance(value, dict):
        called = value.get("name", value.get("key"))
        pair = isinstance(called, str) and is_secret_name(called)
        return {
            redact(str(name)): redact_json(
                one, secret=secret or is_secret_name(str(name)) or name == "auth" or (pair and name == "value")
            )
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        return _masked_words(value) or [redact_json(one, secret=secret) for one in value]
    if secret and not isinstance(value, bool) and isinstance(value, int | float) and abs(value) >= _SECRET_NUMBER:
        return MASK
    return value
