"""Masks the secrets of SQL statements, and removes the data of statements.

Only the server knows which literal of a statement is a secret. In a statement that names one (a keyword, a column, a
function, an argument, a literal such as `'{password}'`), all literals and long numbers are masked, and what it sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from dba_console.core.redaction.secret_names import is_secret_name, names_secret

MASK = "********"
_MASKED = f"'{MASK}'"
_MAX_QUOTE_DEPTH = 3
"""Nesting depth of dollar quotes that is parsed; deeper ones are masked as a whole."""
_TOKEN = re.compile(
    r"""(?six)
    (?P<comment> --[^\n]*+ | /\* )
    | (?P<literal> (?:\b e '(?:[^'\\]|\\.|'')*+(?:'|$)) | (?:\b (?:u&|b|x|n))? '(?:[^']|'')*+(?:'|$) )
    | (?P<dollar> \$(?P<tag>(?:[a-z_]\w*+)?)\$ (?P<body>.*?) (?:\$(?P=tag)\$|$) )
    | (?P<name> "(?:[^"]|"")*+(?:"|$) | [^\W\d][\w$]*+ )
    | (?P<number> (?<![\w$])\d[\w.]*+ )
    | (?P<end> ; )
    """
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_SECRET_FUNCTIONS = ("crypt", "pgp_sym", "hmac", "gen_salt")
_LOGIN = re.compile(r"log_?in|log_?on|sign_?in|auth(?!or)")
"""Functions that take a secret as an argument without a name."""
_HARMLESS_NAMES = frozenset(("password_encryption", "ssl_key_file", "passfile"))
_SECRET_IN_TEXT = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|secret|credential|(?<![a-z])(?:token|pwd)|api_?key|private_?key)\w{0,64}+"
    r"(?![\w.\"']{0,3}\s{0,4}[=:])"
)
"""In a literal or a comment, except before an assignment: its value is masked alone."""
_IDENTIFIER = re.compile(r"[\[{%\"\s]{0,4}([\w.,:-]{1,64})[\]}%\"\s]{0,4}")
_JOIN = re.compile(r"'[ \t\n]{0,8}\|\|[ \t\n]{0,8}(?:[eE]|[uU]&)?'")
_SIGNS = ("=", ":=", "=>")
_LONG_NUMBER = 4
"""Digits of a number that may be a secret wherever it is in the statement."""
_VALUES_ENDS = ("values", "select", "returning", "on", "from", "where")
_ROLE_OPTIONS_LIST = """
    admin and bypassrls connection createdb createrole encrypted for group in inherit is login nobypassrls
    nocreatedb nocreaterole noinherit nologin noreplication nosuperuser null of or replication role set
    superuser sysid the to user valid
"""
_ROLE_OPTIONS = frozenset(_ROLE_OPTIONS_LIST.split())
_VALUE_WORDS_LIST = """
    and array as case conflict current_date current_timestamp current_user default do else end false from in is
    localtimestamp not nothing null on or returning row select session_user set then true update user values
    when where
"""
_VALUE_WORDS = frozenset(_VALUE_WORDS_LIST.split())


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    """Whether a name of a statement, in lower case, is about a secret."""
    if name in _HARMLESS_NAMES:
        return False
    return is_secret_name(name) or "passw" in name or "secret" in name or any(one in name for one in _SECRET_FUNCTIONS)


def joined(text: str) -> str:
    """Return the text with literals joined that the statement joins: 'pass' || 'word'."""
    return _JOIN.sub("", text) if "||" in text else text


def statement_tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a statement, each with its kind: comment, literal, dollar (a dollar-quoted literal), number,
    name, end (a semicolon), empty (anything between), or cut: a literal whose end only the server knows, and the rest.
    """
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        kind, end = token.lastgroup or "", _token_end(token)
        if token.start() > at:
            yield "", text[at : token.start()]
        if kind == "literal" and token[0][0] not in "eE" and "\\'" in token[0]:
            # If backslashes escape, this literal continues; only the server knows.
            yield "cut", text[token.start() :]
            return
        yield kind, text[token.start() : end]
        at = end
    if at < len(text):
        yield "", text[at:]


def _token_end(token: re.Match[str]) -> int:
    """Return the end of a token; comments nest."""
    if token[0] != "/*":
        return token.end()
    depth = 0
    for edge in _COMMENT_EDGE.finditer(token.string, token.start()):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(token.string)


def normalise(text: str) -> str:
    """Return a statement without its data: `?` for each literal and number, comments removed. Names stay.

    >>> normalise("select 'a''b', E'c', $$d$$, -1.5e3 /* e */ from t1 where id = $1")
    'select ?, ?, ?, -?   from t1 where id = $1'
    """
    shown = {"comment": " ", "literal": "?", "dollar": "?", "number": "?", "cut": "? …"}
    return "".join(shown.get(kind, body) for kind, body in statement_tokens(text))


def mask_statements(text: str, *, cut: bool = False) -> str:
    """Return the text, which is SQL, with the literals of each statement masked that names a secret.

    `cut`: it is the beginning of a text: of its last statement, all literals are masked.
    """
    return _StatementMasker(0).mask(text, cut=cut)


class _StatementMasker:
    """Masks the statements of one text. The body of a function is one statement: what it names may be set before."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._parts: list[str] = []
        self._last_secret: int | None = None
        """Where the text last names a secret."""
        self._prepared = False
        """A prepared statement names a secret: EXECUTE gives its values."""
        self._begin_statement()

    def _begin_statement(self) -> None:
        self._literals: list[int] = []
        self._hidden: list[int] = []
        """Parts that are masked if the statement names a secret: long numbers, words where a value is."""
        self._texts: list[str] = []
        self._secret = False
        self._words: list[str] = []
        """The first words."""
        self._last = ""
        """The last name, in lower case."""
        self._in_values = False
        self._setting = "possible"
        """`possible` where SET may stand, `names` after it, then `value`."""
        self._value_from = 0
        """First part of the value of a SET, which extends to the end of its statement."""
        self._values: list[tuple[int, int]] = []
        """Parts of such values."""

    def mask(self, text: str, *, cut: bool = False) -> str:
        """Return the text; of a cut one, the literals of the last statement are masked."""
        parts, at = self._parts, 0
        while (token := _TOKEN.search(text, at)) is not None:
            start, end, kind = token.start(), _token_end(token), token.lastgroup or ""
            between, body = text[at:start], text[start:end]
            parts.append(between)
            self._see_between(between)
            if (
                kind == "literal"
                and "\\'" in body
                and body[0] not in "eE"
                and (cut or self._is_secret_rest(text, start))
            ):
                self._literals.append(len(parts))
                parts.append(_MASKED)
                self._secret, at = self._secret or not cut, len(text)
                break
            at = end
            if kind == "end":
                self._end_setting()
                if self._depth == 0:
                    self._end_statement()
            parts.append(self._read(kind, body, between.strip(), token))
        parts.append(text[at:])
        for index in self._literals if cut else ():
            parts[index] = _MASKED
        self._end_setting()
        self._end_statement()
        return "".join(parts)

    def _is_secret_rest(self, text: str, start: int) -> bool:
        """Whether the rest of a text, from a literal with `\\'` on, is masked as one literal: if backslashes escape, it
        continues; only the server knows."""
        if self._last_secret is None:
            self._last_secret = max((found.start() for found in _SECRET_IN_TEXT.finditer(text)), default=-1)
        return self._secret or self._last_secret >= start

    def _see_between(self, between: str) -> None:
        if self._setting == "names" and "(" in between:
            self._setting = ""
        if self._setting == "names" and "=" in between:
            self._begin_value()

    def _begin_value(self) -> None:
        self._setting, self._value_from = "value", len(self._parts)

    def _end_setting(self) -> None:
        if self._setting == "value":
            self._values.append((self._value_from, len(self._parts)))
        self._setting = "possible"

    def _read(self, kind: str, body: str, between: str, token: re.Match[str]) -> str:
        """Return a token as it is shown if the statement names no secret."""
        index = len(self._parts)
        if kind == "name":
            self._read_name(body, between, token)
            return body
        last = self._last
        if kind != "comment":
            self._last = ""
        if kind == "comment":
            self._secret = self._secret or _SECRET_IN_TEXT.search(body) is not None
        elif kind == "number":
            if last == "key" and between in _SIGNS:
                return MASK
            if len(body) >= _LONG_NUMBER or self._in_values or (between and _is_secret(last)):
                self._hidden.append(index)
        elif kind in ("literal", "dollar"):
            self._literals.append(index)
            # The name is often harmless, as in `where key = 'x'`: nothing else of the statement is masked.
            return _MASKED if last == "key" and between in _SIGNS else self._read_literal(kind, body, token)
        return body

    def _read_literal(self, kind: str, body: str, token: re.Match[str]) -> str:
        inner = token["body"] if kind == "dollar" else body.strip("'")
        if kind == "dollar" and inner and (self._words[:1] in (["do"], ["create"]) or "'" in inner or "$" in inner):
            if self._depth == _MAX_QUOTE_DEPTH:
                return _MASKED
            return body.replace(inner, _StatementMasker(self._depth + 1).mask(inner), 1)
        self._texts.append(inner)
        identifier = _IDENTIFIER.fullmatch(inner)
        if identifier is not None and any(map(_names_secret_in_literal, identifier[1].split(","))):
            self._secret = True
        return body

    def _read_name(self, body: str, between: str, token: re.Match[str]) -> None:
        index, before = len(self._parts), self._last
        quoted = body[0] == '"'
        name = body.strip('"').lower()
        self._last = name
        after = token.string[token.end() : token.end() + 1]
        if self._setting != "value" and (_is_secret(name) or (after == "(" and _LOGIN.search(name))):
            self._secret = True
        self._read_setting(name)
        if len(self._words) < 2:
            self._words.append(name)
        if name in _VALUES_ENDS and not quoted:
            self._in_values = name == "values"
        elif self._in_values:
            if quoted or (name not in _VALUE_WORDS and after not in "(." and between[-1:] not in (".", ":")):
                self._hidden.append(index)
        elif (quoted and _is_secret(before) and between in ("", *_SIGNS)) or (
            before == "password"
            and not between
            and token.string[token.start() - 1].isspace()
            and self._is_of_role(name)
        ):
            self._hidden.append(index)
        elif name == "key" and self._words[0] == "insert":
            self._secret = True

    def _is_of_role(self, name: str) -> bool:
        """Whether this name after PASSWORD is a password without quotes."""
        return (
            self._words[0] in ("alter", "create") and self._words[-1] in ("role", "user") and name not in _ROLE_OPTIONS
        )

    def _read_setting(self, name: str) -> None:
        """Follow SET name TO value, also of ALTER SYSTEM, ROLE and DATABASE."""
        if name == "set" and (self._setting == "possible" or self._words[:1] == ["alter"]):
            self._setting = "names"
        elif self._setting == "possible" and name not in ("begin", "then", "else", "loop"):
            self._setting = ""
        elif self._setting == "names" and name == "to":
            self._begin_value()
            self._value_from += 1
        elif self._setting == "names" and names_secret(name) and name not in _HARMLESS_NAMES:
            self._secret = True

    def _end_statement(self) -> None:
        first = self._words[0] if self._words else ""
        if not self._secret:
            whole = "".join(self._texts)
            self._secret = _SECRET_IN_TEXT.search(whole) is not None or (self._prepared and first == "execute")
        if self._secret:
            self._prepared = self._prepared or first == "prepare"
            self._hide()
        self._begin_statement()

    def _hide(self) -> None:
        parts = self._parts
        for index in self._literals:
            parts[index] = _MASKED
        for index in self._hidden:
            parts[index] = MASK
        for begin, end in self._values:
            value = "".join(parts[begin:end])
            shown = value.strip()
            if shown and shown != _MASKED:
                gap, rest = value[: value.index(shown)], value[value.index(shown) + len(shown) :]
                parts[begin:end] = [gap + MASK + rest] + [""] * (end - begin - 1)


def _names_secret_in_literal(name: str) -> bool:
    return is_secret_name(name) or ("." in name and names_secret(name))
