"""Replace names, addresses, paths and data in text: names that were learnt from typed fields, and whatever stands where
a name stands (`user=`, `role "…"`, `-h`, `user@host`, a URI).

The same code learns and replaces: while the map is learning, it returns what it is given.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Literal
from urllib.parse import quote, unquote

from dba_console.core.redact import MASK, names_secret, redact, statement_tokens
from dba_console.reports.share_names import Kind, NameMap, is_kept
from dba_console.reports.share_words import BUILT_IN, KEYWORDS
from dba_console.watch.findings.phrases import query_text
from dba_console.watch.frames.job_sessions import command, command_object

Level = Literal["none", "secrets", "names", "all"]
REMOVED = "<removed>"
"""Replaces a text that the level leaves out."""
_CACHE = 50_000
_QUERIES = 50_000
_QUERY_KEY = 24

_FIELDS: dict[str, Kind] = {
    "host": "host", "hostaddr": "host", "hostname": "host", "server": "host", "client": "host", "client_addr": "host",
    "remote": "host", "rhost": "host", "user": "user", "username": "user", "usename": "user", "role": "user",
    "rolname": "user", "owner": "user", "db": "database", "dbname": "database", "database": "database",
    "datname": "database", "app": "application", "application": "application", "application_name": "application",
    "fallback_application_name": "application", "slot": "slot", "slot_name": "slot", "primary_slot_name": "slot",
    "table": "relation", "relation": "relation", "relname": "relation", "index": "relation", "schema": "schema",
    "nspname": "schema", "tablespace": "tablespace", "spcname": "tablespace", "cluster_name": "node", "node": "node",
    "subscription": "subscription", "publication": "subscription",
}  # fmt: skip
_NOUNS: dict[str, Kind] = {
    "role": "user", "user": "user", "database": "database", "relation": "relation", "table": "relation",
    "index": "relation", "view": "relation", "sequence": "relation", "constraint": "relation", "trigger": "relation",
    "function": "relation", "partition": "relation", "schema": "schema", "slot": "slot", "host": "host",
    "server at": "host", "server": "host", "tablespace": "tablespace", "subscription": "subscription",
    "publication": "subscription", "standby": "application", "application": "application", "column": "column",
}  # fmt: skip
_OPTIONS: dict[str, Kind] = {
    "-h": "host", "--host": "host", "-U": "user", "--username": "user", "-d": "database", "--dbname": "database",
    "-t": "relation", "--table": "relation", "-n": "schema", "--schema": "schema", "-S": "slot", "--slot": "slot",
    "-T": "relation", "--exclude-table": "relation",
}  # fmt: skip
_VALUE = r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s,;'\"()\[\]]*[^\s,;'\"()\[\].:]"
_ASSIGNED = re.compile(rf"(?i)(?<![\w-])({'|'.join(sorted(_FIELDS, key=len, reverse=True))})(\s?=\s?)({_VALUE})")
_QUOTED_NOUN = re.compile(rf"(?i)\b({'|'.join(sorted(_NOUNS, key=len, reverse=True))})(\s)\"((?:[^\"]|\"\")+)\"")
_OPTION = re.compile(rf"(?<!\S)({'|'.join(_OPTIONS)})(\s+|=|(?<=-[Uh])(?=\w\w))(?!-)({_VALUE})")
_PROGRAM = re.compile(r"\b(?:pg_\w+|psql|\w+db|barman|pgbackrest|patronictl|repmgr|wal-g)\b")
_URI = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)(?:([^\s/@:'\"]*)((?::[^\s/@'\"]*)?)@)?([^\s/:'\"?,]+)")
_AT_HOST = re.compile(r"(?<![\w.@/:+-])([A-Za-z_][\w.+-]*)@([A-Za-z][\w.-]*[\w])")
_TARGET = re.compile(r"(?<![\w@/.:-])([\w.+-]+)(:\d{1,5})@([A-Za-z][\w.-]*\w)")
"""`database:port@host`, the name of a target."""
_COPY_HOST = re.compile(r"(?<![\w/.-])([A-Za-z][\w.-]*)(?=:[/~])")
_COPIES = re.compile(r"\b(?:rsync|scp|sftp|ssh|barman|pgbackrest)\b")
_DOMAINS = (
    "com|net|org|io|dev|local|localdomain|internal|intranet|intra|lan|corp|example|invalid|home|arpa|cloud|"
    "eu|de|fr|uk|ca|nl|fi|dk|pl|ch|cz|pt|br|jp|cn|au|nz|ru|ua|tr|il|kr|sg|za|mx|gov|edu"
)
_FULL_NAME = re.compile(rf"(?<![\w.@/-])((?:[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\.)+(?:{_DOMAINS}))(?![\w-]|\.\w)")
_DOMAIN_END = re.compile(rf"\.(?:{_DOMAINS})(?![\w-])")
_PATH = re.compile(r"(?<![\w/.)\]}])/(?!/)[^\s'\"`,;:|()<>\[\]{}=&*?]*[^\s'\"`,;:|()<>\[\]{}=&*?.]")
_REMOTE_PATH = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^/:\s]+):(/.*)", re.S)
"""`server:/export`, the source of an NFS mount."""
_WITH_PORT = re.compile(r"([^()]+)\((\d+)\)")
"""As in titles of server processes."""
_ODD = re.compile(r"[\s'\"`,;:|()<>\[\]{}=&*?]")
_V4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_V6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,39}(?:\d{0,3}(?:\.\d{1,3}){3})?(?![\w:])")
_MAC = re.compile(r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])")
_ENDING = re.compile(
    r"(.+?)((?:\.(?:dump|sql|gz|zst|lz4|bz2|xz|log|conf|tar|toc|dat|txt|csv|json|ya?ml|toml|sh|py|backup|bak|partial|md|"
    r"pid|sock|lock|service|history|ready|done|old|new|tmp|part|db|ini))+)"
)
_TOKEN = re.compile(r"[^\s'\"`,;=()<>]+")
_SECRET_NAMES = frozenset(
    (
        ".pgpass",
        "pgpass.conf",
        ".netrc",
        ".my.cnf",
        ".authinfo",
        "userlist.txt",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
    )
)
_SECRET_ENDINGS = (".pem", ".p12", ".pfx", ".jks", ".keytab", ".kdbx", ".ppk")
_SECRET_ENDINGS_OF_PATHS = (*_SECRET_ENDINGS, ".key", ".asc", ".gpg")
_SECRET_WORDS = ("passw", "passphrase", "secret", "credential", "private-key", "private_key", "keyfile")
_SECRET_HINTS = (*_SECRET_NAMES, *_SECRET_ENDINGS_OF_PATHS, *_SECRET_WORDS)
SECRET_PATH = "<path of a secret>"
_STATEMENT_MARK = re.compile(
    r"(?i)\b(?:statement|query|command|parse \S{1,64}|bind \S{1,64}|execute [^:]{1,64})\s?[:=]\s+"
)
_STATEMENT = re.compile(
    r"(?is)(?:\s|--[^\n]*\n|/\*.*?\*/|\()*+(?:select|insert|update|delete|merge|with|values|alter|create|drop|set|call|do|"
    r"copy|prepare|execute|explain|vacuum|analyze|truncate|grant|revoke|begin|declare|fetch|refresh|reindex|cluster|"
    r"comment|lock|import|security)\b"
)
_WHOLE_STATEMENT = re.compile(
    r"(?is)\s*(?:select\b[^.]{0,2000}?\bfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|"
    r"merge\s+into\s|with\s+\w+\s+as\s*\(|alter\s+(?:table|system|database|role|user|index)\s|copy\s+\S+\s+(?:from|to)\s|"
    r"create\s+(?:unique\s+)?(?:index|table|role|user|database|view)\s|values\s*\()"
)
_SQL_OPTION = re.compile(r"((?<!\S)(?:-\w*c\s*|--command(?:=|\s+)))(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'\"'\"'|'\\'')*')")
"""A statement among the arguments of psql."""
_DATA = (
    (re.compile(r"(?s)(\bKey \([^)]*\)=)\(.*?\)(?= (?:already|is|conflicts|with)|$)"), r"\1(…)"),
    (re.compile(r"(?s)(Failing row contains )\(.*\)"), r"\1(…)"),
    (re.compile(r"(?is)(\bparameters: )\$1 = .*"), r"\1…"),
    (re.compile(r"(?s)(\binvalid (?:input )?(?:syntax|value)[^:]{0,80}: )\".*\""), r'\1"…"'),
    (re.compile(r"(?s)(\bCOPY \S+, line \d+, column \S+: )\".*\""), r'\1"…"'),
)
"""Values of columns and parameters in PostgreSQL's messages (errdetail of elog)."""
_DATA_HINTS = ("Key (", "Failing row", "arameters: ", "nvalid ", "COPY ")
_WORD = re.compile(r"[^\W_]+")
_QUOTED = re.compile(r"([\"'`«“‘])([^\"'`«»“”‘’]{1,128})([\"'`»”’])")
_PERCENT = re.compile(r"[\w.~%+!*'()/@-]+")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{8,}={0,2}(?![A-Za-z0-9+/_=-])")
_IDENTIFIER = re.compile(r"\"(?:[^\"]|\"\")+\"|[^\W\d][\w$]*")
_TABLES = """
    from join into update table only index view sequence truncate vacuum analyze analyse reindex cluster copy on
    inherits references verbose exists concurrently
"""
_TABLE_BEFORE = frozenset(_TABLES.split())
_NAMED_BEFORE: dict[str, Kind] = {
    "database": "database", "role": "user", "user": "user", "schema": "schema", "tablespace": "tablespace",
    "subscription": "subscription", "publication": "subscription", "owner": "user", "authorization": "user",
    "slot": "slot",
}  # fmt: skip


class TextRewriter:
    """Rewrites the strings of a session by what they are: `rewrite("user", "app")`, `rewrite("text", "…")`."""

    def __init__(self, names: NameMap, level: Level) -> None:
        self.level: Level = level
        self.names = names
        self.masked: Counter[str] = Counter()
        """Other replacements: `statements`, `paths of secrets`, `texts removed`."""
        self._cache: dict[tuple[str, str], str] = {}
        self._queries: OrderedDict[str, dict[str, str]] = OrderedDict()
        """Queries as sentences quote them, by their first characters."""
        self._index: dict[str, _Names] = {}
        self._ordinary: dict[str, str] = {}
        self._odd_paths: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._kinds: dict[str, Callable[[str], str]] = {
            "text": self._text, "query": self._query, "path": self._path, "host": self._host,
            "relation": self._relation, "note": self._note, "series": self._series, "holds": self._holds,
            "who": partial(self._name, "user"), "key": self._key, "command": self._command,
            "standbys": self._standbys, "target": self._target,
        }  # fmt: skip

    def end_learning(self) -> None:
        """Replace from now on what was learnt."""
        self.names.end_learning()
        self._cache.clear()
        self._addresses.clear()
        self.masked.clear()
        for spelling, text in self.names.spellings():
            first = _WORD.search(lowered := _lowered(spelling))
            if first is not None:
                sizes = self._index.setdefault(first[0], {})
                sizes.setdefault((len(spelling), first.start()), {}).setdefault(lowered, {})[spelling] = text
        self._index = {word: dict(sorted(sizes.items(), reverse=True)) for word, sizes in self._index.items()}
        self._ordinary = dict(self.names.originals(searched=False))

    def rewrite(self, kind: str, text: str) -> str:
        """Return the text for the shared session. `kind`: a kind of name, or text, query, path, note, series, holds,
        who, command, key."""
        if not text or self.level == "none":
            return text
        key = (kind, text)
        found = self._cache.get(key)
        if found is None:
            found = self._rewritten(kind, text)
            if len(self._cache) >= _CACHE:
                self._cache.clear()
            self._cache[key] = found
        return found

    def _rewritten(self, kind: str, text: str) -> str:
        if self.level == "secrets":
            return text if kind in ("key", "series") else self._without_secrets(text)
        special = self._kinds.get(kind)
        return special(text) if special is not None else self._name(kind, text)  # type: ignore[arg-type]

    def _without_secrets(self, text: str) -> str:
        text = redact(text)
        lowered = text.lower()
        return _TOKEN.sub(self._token, text) if any(hint in lowered for hint in _SECRET_HINTS) else text

    def _token(self, match: re.Match[str]) -> str:
        """Return a word of a text, masked if it is the path of a secret."""
        path = match[0].rstrip(".:")
        if not _is_secret_path(path.lower()):
            return match[0]
        self.masked["paths of secrets"] += 1
        return SECRET_PATH + match[0][len(path) :]

    def _name(self, kind: Kind, text: str) -> str:
        """Return a name that fills its field; what is no name of that kind alone is text."""
        text = text.strip()
        if kind == "host":
            return self._host(text)
        if kind == "relation":
            return self._relation(text)
        return self.names.name(kind, text)

    def _key(self, text: str) -> str:
        return text if self.names.learning else self.names.digest(text)

    def _note(self, text: str) -> str:
        """Return what a person wrote."""
        if self.level == "all":
            self.masked["notes removed"] += 1
            return REMOVED
        return self._text(text)

    def _standbys(self, text: str) -> str:
        """`FIRST 1 (a, "b")`, as in synchronous_standby_names."""

        def one(match: re.Match[str]) -> str:
            name = match[0].strip('"')
            return match[0] if name.lower() in ("first", "any") else self.names.name("application", name)

        return _IDENTIFIER.sub(one, text)

    def _target(self, text: str) -> str:
        """Return the name of a target: `database:port@host` (core/target.py), or as the configuration names it."""
        match = re.fullmatch(r"(.+?)((?::\d+)?)@(.+)", text)
        if match is None:
            return self.names.name("node", text)
        return f"{self.names.name('database', match[1])}{match[2]}@{self._host(match[3])}"

    def _command(self, text: str) -> str:
        """Return the value of a setting that is a command: it can name hosts and paths in any form."""
        return text if len(text) < 2 or text.startswith("(") else f"<command of {len(text.split())} words>"

    def _holds(self, text: str) -> str:
        """`tablespace:NAME` or a word of the program."""
        what, colon, name = text.partition(":")
        return f"{what}:{self.names.name('tablespace', name)}" if colon and what == "tablespace" else text

    def _series(self, text: str) -> str:
        """Return the name of a series of chart values (frames/chart_points.py)."""
        what, colon, rest = text.partition(":")
        if not colon or what in ("safety", "device"):
            return text
        if what in ("mount", "slot"):
            name, dot, field = rest.rpartition(".")
            return f"{what}:{self.rewrite('path' if what == 'mount' else 'slot', name)}{dot}{field}"
        if what == "progress" and rest.count(":") >= 4:
            command, pid, start, rest = rest.split(":", 3)
            relation, phase, rounds = rest.rsplit(":", 2)
            return ":".join((what, command, pid, start, self._relation(relation), phase, rounds))
        return f"{what}:{self._text(rest)}"

    def _host(self, text: str) -> str:
        if "," in text:
            return ",".join(self._host(one) for one in text.split(","))
        text = text.strip()
        if (with_port := _WITH_PORT.fullmatch(text)) is not None:
            return f"{self._host(with_port[1])}({with_port[2]})"
        if text[:1] in ("/", "@", "~"):
            return self._path(text)
        address, before, after = _address_of(text)
        if address:
            return before + self._address(address) + after
        name, colon, port = text.partition(":")
        if colon and not port.isdecimal():
            return self._text(text)
        if self.names.learning and not is_kept("host", name):
            short, _, domain = name.partition(".")
            self.names.name("host", short)
            self.names.name("domain", domain)
        return self.names.name("host", name) + colon + port

    def _address(self, text: str) -> str:
        found = self._addresses.get(text)
        if found is None:
            found = self._addresses[text] = self._new_address(text)
        return found

    def _new_address(self, text: str) -> str:
        bare, percent, zone = text.partition("%")
        try:
            return self.names.address(ipaddress.ip_address(bare)) + percent + zone
        except ValueError:
            return text

    def _relation(self, text: str) -> str:
        """`schema.name`, `database/OID`, `TABLE DATA schema.name`: identifiers with what is between them."""

        def one(match: re.Match[str]) -> str:
            name = match[0][1:-1].replace('""', '"') if match[0][0] == '"' else match[0]
            if match[0][0] != '"' and (name.upper() == name and name.lower() in KEYWORDS):
                return match[0]
            after = text[match.end() : match.end() + 1]
            kind: Kind = "schema" if after == "." else "database" if after == "/" else "relation"
            return self.names.known(name) or self.names.name(kind, name)

        return _IDENTIFIER.sub(one, text)

    def _path(self, text: str) -> str:
        if "/" not in text:
            return self._component(text)
        if (remote := _REMOTE_PATH.fullmatch(text)) is not None:
            return f"{self._host(remote[1])}:{self._path(remote[2])}"
        whole = "/".join(self._component(part) for part in text.split("/"))
        if _ODD.search(text):
            self._odd_paths[text] = whole
        return whole

    def _component(self, part: str) -> str:
        found = self.names.known(part)
        if found is not None:
            return found
        if is_kept("directory", part) or self.names.is_issued(part) or part == SECRET_PATH or part in "<>~@.":
            return part
        ending = _ENDING.fullmatch(part)
        if ending is not None:
            return self._component(ending[1]) + ending[2]
        if not self.names.learning and (text := self._names_in(part)) != part:
            return text
        return self.names.name("directory", part)

    def _query(self, text: str) -> str:
        """Return a statement without its data; at the level `all` nothing of it."""
        if text.startswith("<") or not text.strip():
            return text
        self.masked["statements"] += 1
        made = self._normalised(text)
        if self.level == "all" and not self.names.learning:
            made = _only_command(made)
        if not self.names.learning:
            self._remember_query(query_text(text), query_text(made))
        return made

    def _normalised(self, text: str) -> str:
        parts: list[str] = []
        number = max((int(one) for one in re.findall(r"\$(\d{1,5})\b", text)), default=0)
        tokens = list(statement_tokens(text))
        before = ""
        for at, (kind, body) in enumerate(tokens):
            if kind in ("literal", "dollar", "number", "cut"):
                number += 1
                parts.append(f"${number}" + (" …" if kind == "cut" else ""))
            elif kind == "comment":
                parts.append(" ")
            elif kind == "name":
                after = tokens[at + 1][1] if at + 1 < len(tokens) else ""
                made, kind_of = self._identifier(body, before, after.lstrip()[:1])
                parts.append(made)
                before = "from" if kind_of == "schema" else body.lower()
            else:
                parts.append(body)
                if "," not in body and body.strip() not in ("", ".", "("):
                    before = ""
        return "".join(parts)

    def _identifier(self, body: str, before: str, after: str) -> tuple[str, str]:
        """Return what replaces a name of a statement, and its kind. `before`: the word before it; `after`: the sign."""
        quoted = body[0] == '"'
        name = body.strip('"').replace('""', '"') if quoted else body
        if not quoted and (name.lower() in KEYWORDS or name.lower() in BUILT_IN):
            return body, ""
        kind: Kind = _NAMED_BEFORE.get(before, "relation" if before in _TABLE_BEFORE else "column")
        if after == "." and kind == "relation":
            kind = "schema"
        found = self.names.known(name)
        return (found if found is not None else self.names.name(kind, name if quoted else name.lower())), kind

    def _remember_query(self, shown: str, made: str) -> None:
        if len(shown) < 4:
            return
        self._queries.setdefault(shown[:_QUERY_KEY], {})[shown] = made
        self._queries.move_to_end(shown[:_QUERY_KEY])
        while len(self._queries) > _QUERIES:
            self._queries.popitem(last=False)

    def _with_quoted_queries(self, text: str) -> str:
        """Replace the queries that a finding quotes: `app (pid 8: update …)`."""
        at = 0
        while (at := text.find(": ", at)) >= 0:
            at += 2
            found = self._queries.get(text[at : at + _QUERY_KEY]) or self._queries.get(text[at:].rstrip(")."))
            if found is None:
                continue
            shown = max((one for one in found if text.startswith(one, at)), key=len, default=None)
            if shown is not None:
                text = text[:at] + found[shown] + text[at + len(shown) :]
                at += len(found[shown])
        return text

    def _text(self, text: str) -> str:
        """Return free text."""
        text = self._without_secrets(text)
        if _WHOLE_STATEMENT.match(text):
            return self._statement(text)
        for mark in _STATEMENT_MARK.finditer(text):
            if _STATEMENT.match(text, mark.end()):
                return self._plain(text[: mark.end()]) + self._statement(text[mark.end() :])
        if "psql" in text:
            text = _SQL_OPTION.sub(lambda match: match[1] + self._statement_argument(match[2]), text)
        return self._plain(self._with_quoted_queries(text))

    def _statement(self, text: str) -> str:
        """Return a statement within other text."""
        return REMOVED if self.level == "all" and not self.names.learning else self._normalised(text)

    def _statement_argument(self, quoted: str) -> str:
        sign, inner = quoted[0], quoted[1:-1]
        return sign + self._statement(inner.replace("'\"'\"'", "'") if sign == "'" else inner) + sign

    def _plain(self, text: str) -> str:
        if any(hint in text for hint in _DATA_HINTS):
            for pattern, replacement in _DATA:
                text = pattern.sub(replacement, text)
        for odd, whole in sorted(self._odd_paths.items(), key=lambda one: -len(one[0])):
            text = text.replace(odd, whole)
        if not self.names.learning:
            # Before what only looks like a name: `db=my shop` ends after the name, not at the blank.
            text = self._encoded_in(self._names_in(text))
        text = self._typed_in_text(text)
        if "/" in text:
            text = _PATH.sub(lambda match: self._path(match[0]), text)
        return self._addresses_in(text)

    def _typed_in_text(self, text: str) -> str:
        """Rewrite what stands where a name stands."""
        if "=" in text:
            text = _ASSIGNED.sub(lambda match: self._value(match, _FIELDS), text)
        if '"' in text:
            text = _QUOTED_NOUN.sub(lambda match: self._value(match, _NOUNS), text)
        if "-" in text and _PROGRAM.search(text):
            text = _OPTION.sub(lambda match: self._value(match, _OPTIONS), text)
        if "://" in text:
            text = _URI.sub(self._uri, text)
        if "@" in text:
            text = _TARGET.sub(lambda match: self._target(match[0]), text)
            text = _AT_HOST.sub(lambda match: f"{self.names.name('user', match[1])}@{self._host(match[2])}", text)
        if ":" in text and _COPIES.search(text):
            text = _COPY_HOST.sub(lambda match: self._host(match[1]), text)
        if "." in text and _DOMAIN_END.search(text):
            text = _FULL_NAME.sub(lambda match: self._host(match[1]), text)
        return text

    def _value(self, match: re.Match[str], kinds: dict[str, Kind]) -> str:
        what, between, value = match[1], match[2], match[3]
        if kinds is _NOUNS:
            return f'{what}{between}"{self.rewrite(kinds[what.lower()], value.replace(chr(34) * 2, chr(34)))}"'
        sign = value[0] if value[0] in "'\"" else ""
        value = value.strip(sign) if sign else value
        kind = kinds[what if kinds is _OPTIONS else what.lower()]
        if (
            "=" in value
            or "://" in value
            or value == MASK
            or value.isdecimal()
            or value.startswith(("$", "%", "<", "*"))
        ):
            return match[0]
        return f"{what}{between}{sign}{self.rewrite(kind, value)}{sign}"

    def _uri(self, match: re.Match[str]) -> str:
        scheme, user, rest, host = match.groups()
        if scheme.lower() == "file://":
            return match[0]
        login = "" if user is None else f"{self.names.name('user', unquote(user))}{rest}@"
        return f"{scheme}{login}{self._host(unquote(host))}"

    def _addresses_in(self, text: str) -> str:
        if "." in text:
            text = _V4.sub(lambda match: self._address(match[0]), text)
        if ":" in text:
            text = _V6.sub(lambda match: self._address(match[0]), text)
            text = _MAC.sub(self._mac, text)
        return text

    def _mac(self, match: re.Match[str]) -> str:
        """Return a locally administered address."""
        if self.names.learning:
            return match[0]
        digest = self.names.digest(match[0].lower().replace("-", ":"))
        return ":".join(("02", *(digest[at : at + 2] for at in range(0, 10, 2))))

    def _names_in(self, text: str) -> str:
        """Replace every learnt name, longest first, in any case; ordinary words only where they are quoted."""
        lowered = _lowered(text)
        parts: list[str] = []
        done = 0
        for word in _WORD.finditer(lowered):
            if word.start() < done:
                continue
            names = self._index.get(word[0])
            found = None if names is None else _match(names, text, lowered, word.start(), done)
            if found is not None:
                start, end, replacement = found
                parts += [text[done:start], replacement]
                done = end
        text = "".join([*parts, text[done:]]) if parts else text
        if self._ordinary:
            text = _QUOTED.sub(lambda match: match[1] + self._ordinary.get(match[2], match[2]) + match[3], text)
        return text

    def _encoded_in(self, text: str) -> str:
        """Replace names within what is written as in a URL, or in base64."""
        if "%" in text:
            text = _PERCENT.sub(self._in_percent, text)
        return _BASE64.sub(self._in_base64, text) if len(text) >= 8 else text

    def _in_percent(self, match: re.Match[str]) -> str:
        if "%" not in match[0]:
            return match[0]
        plain = unquote(match[0])
        made = self._names_in(self._addresses_in(plain))
        return match[0] if made == plain else quote(made, safe="/@")

    def _in_base64(self, match: re.Match[str]) -> str:
        if match[0].islower() or match[0].isupper() or match[0].isdecimal():
            return match[0]  # a word: base64 of text has letters of both cases
        body = match[0].rstrip("=").replace("-", "+").replace("_", "/")
        try:
            plain = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode()
        except (binascii.Error, ValueError):
            return match[0]
        if not plain.isprintable():
            return match[0]
        made = self._names_in(self._addresses_in(plain))
        return match[0] if made == plain else base64.b64encode(made.encode()).decode()


def _only_command(statement: str) -> str:
    """Return what the panels of long work need of a normalised statement: the command and its object.

    >>> _only_command("alter table relation_1 add column column_2 text"), _only_command("select 1")
    ('alter table relation_1 …', '<removed>')
    """
    if statement.startswith("autovacuum: "):
        return statement
    if command(statement) is None:
        return REMOVED
    named = command_object(statement)
    end = 40 if named is None else statement.find(named) + len(named)
    return statement if end >= len(statement) else f"{statement[:end]} …"


def _is_secret_path(path: str) -> bool:
    name = path.rpartition("/")[2]
    if name in _SECRET_NAMES or name.endswith(_SECRET_ENDINGS):
        return True
    return "/" in path and (name.endswith(_SECRET_ENDINGS_OF_PATHS) or any(word in name for word in _SECRET_WORDS))


_Names = dict[tuple[int, int], dict[str, dict[str, str]]]
"""Names with one first word: by length and by characters before that word, then in lower case, then as spelled."""


def _match(names: _Names, text: str, lowered: str, start: int, done: int) -> tuple[int, int, str] | None:
    """Return the longest name at a word: its start, its end, its pseudonym."""
    for (length, before), spelled in names.items():
        begin = start - before
        found = spelled.get(lowered[begin : begin + length]) if begin >= done else None
        if found is not None and not (begin + length < len(text) and _joins(text, begin + length)):
            replacement = found.get(text[begin : begin + length]) or next(iter(found.values()))
            return begin, begin + length, replacement
    return None


def _joins(text: str, end: int) -> bool:
    """Return whether a name that ends here is a part of a longer word."""
    return text[end - 1].isalnum() and text[end].isalnum()


def _lowered(text: str) -> str:
    """Return the text in lower case, of the same length."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower()[:1] or one for one in text)


def _address_of(text: str) -> tuple[str, str, str]:
    """Return the address in a host, and what is before and after it; empty if it is a name.

    >>> _address_of("[2001:db8::1]:5432"), _address_of("10.0.0.1:5432"), _address_of("2001:db8::1"), _address_of("db1")
    (('2001:db8::1', '[', ']:5432'), ('10.0.0.1', '', ':5432'), ('2001:db8::1', '', ''), ('', '', ''))
    """
    match = re.fullmatch(r"(\[?)([0-9A-Fa-f.:]+(?:%[\w.]+)?)((?:\])?(?::\d+)?(?:/\d+)?)", text)
    for address, after in () if match is None else ((text[len(match[1]) :], ""), match.group(2, 3), _last_port(match)):
        try:
            ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            continue
        return address, match[1] if match else "", after
    return "", "", ""


def _last_port(match: re.Match[str]) -> tuple[str, str]:
    address, colon, port = match[2].rpartition(":")
    return address, colon + port + match[3]


def holds_secret(setting: str) -> bool:
    """Return whether a setting is a command, a connection string or a file of a key: its value is not shown."""
    return names_secret(setting) or setting.endswith(("_command", "_conninfo", "_key_file", "_keyfile"))
