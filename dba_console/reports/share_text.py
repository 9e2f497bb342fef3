"""For shared copies: replace names, addresses, paths and data in text.

Names are those learnt from typed fields, and whatever stands where a name stands (`user=`, `role "…"`, `-h`,
`user@host`, a URI). The same code learns and replaces: while the map is learning, it returns what it is given.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Literal
from urllib.parse import unquote

from dba_console.core.redact import MASK, names_secret, redact, redact_statement
from dba_console.reports.share_encodings import replace_encoded
from dba_console.reports.share_index import NameIndex
from dba_console.reports.share_names import IDENTIFIER, Kind, NameMap, is_kept, ordinary_words, organisation_in
from dba_console.reports.share_statements import REMOVED, StatementRewriter
from dba_console.reports.share_words import KEYWORDS

Level = Literal["none", "secrets", "names", "all"]
_CACHE = 50_000

_FIELDS: dict[str, Kind] = {
    "host": "host", "hostaddr": "host", "hostname": "host", "server": "host", "client": "host", "client_addr": "host",
    "remote": "host", "remote_host": "host", "rhost": "host", "user": "user", "username": "user", "usename": "user",
    "role": "user", "rolname": "user", "owner": "user", "db": "database", "dbname": "database", "database": "database",
    "datname": "database", "app": "application", "application": "application", "application_name": "application",
    "fallback_application_name": "application", "slot": "slot", "slot_name": "slot", "primary_slot_name": "slot",
    "table": "relation", "relation": "relation", "relname": "relation", "index": "relation", "schema": "schema",
    "nspname": "schema", "tablespace": "tablespace", "spcname": "tablespace", "cluster_name": "node", "node": "node",
    "subscription": "subscription", "publication": "subscription", "identity": "user", "pghost": "host",
    "pghostaddr": "host", "pguser": "user", "pgdatabase": "database", "pgappname": "application",
}  # fmt: skip
_MEMBERS = (
    "host", "hostaddr", "hostname", "user", "username", "usename", "rolname", "dbname", "database", "datname",
    "application_name", "slot_name", "primary_slot_name", "cluster_name", "nspname", "relname", "client_addr",
    "remote_host",
)  # fmt: skip
"""Fields that are names in JSON and YAML too; others, as `role` and `index`, are also words of a program."""
_NOUNS: dict[str, Kind] = {
    "role": "user", "user": "user", "database": "database", "relation": "relation", "table": "relation",
    "index": "relation", "view": "relation", "sequence": "relation", "constraint": "relation", "trigger": "relation",
    "function": "relation", "partition": "relation", "schema": "schema", "slot": "slot", "host": "host",
    "server at": "host", "server": "host", "host name": "host", "tablespace": "tablespace",
    "subscription": "subscription",
    "publication": "subscription", "standby": "application", "application": "application", "column": "column",
}  # fmt: skip
_OPTIONS: dict[str, Kind] = {
    "-h": "host", "--host": "host", "-U": "user", "--username": "user", "-d": "database", "--dbname": "database",
    "-t": "relation", "--table": "relation", "-n": "schema", "--schema": "schema", "-S": "slot", "--slot": "slot",
    "-T": "relation", "--exclude-table": "relation",
}  # fmt: skip
_VALUE = r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s,;&'\"()\[\]]*[^\s,;&'\"()\[\].:]"
_ASSIGNED = re.compile(
    rf"(?i)(?:(?<![\w-])|(?<=\bpg\d-)|(?<=\brepo\d-))({'|'.join(sorted(_FIELDS, key=len, reverse=True))})"
    rf"(\s?=\s?)({_VALUE})"
)
_QUOTED_NOUN = re.compile(rf"(?i)\b({'|'.join(sorted(_NOUNS, key=len, reverse=True))})(\s)\"((?:[^\"]|\"\")+)\"")
_JSON_MEMBER = re.compile(rf"(?i)(\"(?:{'|'.join(_MEMBERS)})\")(\s{{0,8}}:\s{{0,8}})(\"[^\"\\]+\")")
_YAML_MEMBER = re.compile(rf"(?im)^([ \t]{{0,40}}(?:- )?(?:{'|'.join(_MEMBERS)}))(:[ \t]{{1,8}})(\S+)[ \t]*$")
_UNQUOTED_NOUN = re.compile(
    r"\b((?:permission denied for|must be owner of) (?:foreign )?(\w+))(\s)([^\s\"',;:()]{1,128})|"
    r"(\bPL/\w+ function)(\s)([^\s\"'(]{1,128})(?=\()"
)
"""Messages that do not quote the name (aclcheck_error of aclchk.c, plpgsql_compile_error_callback)."""
_TITLE = re.compile(
    r"(\bpostgres: )(?:([\w-]{1,64})(: ))?(\S{1,64})( )(\S{1,64})(?= (?:\[local\]|[\w.:%-]{1,80}\(\d{1,5}\)))"
)
"""Process title of a session (init_ps_display): `postgres: [CLUSTER: ]USER DATABASE ADDRESS(PORT)`."""
_MORE_OF_URI = re.compile(
    r"(?i)(?<=tgres://|resql://)((?:[^\s/@'\"<>]{0,256}@)?)([^\s/@?'\"<>;()]{0,1000})"
    r"(/[^\s/?'\"<>,;:&()]{0,256}[^\s/?'\"<>,;:&().])?"
)
_OPTION = re.compile(rf"(?<!\S)({'|'.join(_OPTIONS)})(\s+|=|(?<=-[Uhd])(?=\w\w))(?!-)({_VALUE})")
_PROGRAM = re.compile(r"\b(?:pg_\w+|psql|\w+db|barman|pgbackrest|patronictl|repmgr|wal-g)\b")
_URI = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://)(?:([^\s/@:'\"]*)((?::[^\s/@'\"]*)?)@)?([^\s/:'\"?,]+)")
_AT_HOST = re.compile(r"(?<![\w.@/:+-])([A-Za-z_][\w.+-]*)@([A-Za-z][\w.-]*[\w]|\[unknown\]|\[local\])")
_SYSTEM_IDENTIFIER = re.compile(
    rf"(?i)(\b(?:(?:system|primary's|standby's)[ _]identifier|boot_id)(?: is| was| became)?[\"']?\s{{0,4}}[:=]?"
    rf"\s{{0,40}}[\"']?)({IDENTIFIER})\b"
)
"""As pg_controldata, the server and this program write it."""
_TARGET = re.compile(r"(?<![\w@/.:-])([\w.+-]+)(:\d{1,5})@([A-Za-z][\w.-]*\w)")
"""`database:port@host`, the name of a target."""
_COPY_HOST = re.compile(r"(?<![\w/.-])([A-Za-z][\w.-]*)(?=:[/~])")
_COPIES = re.compile(r"\b(?:rsync|scp|sftp|ssh|barman|pgbackrest|mount)\b")
_DOMAINS = (
    "com|net|org|io|dev|local|localdomain|internal|intranet|intra|lan|corp|example|invalid|home|arpa|cloud|"
    "eu|de|fr|uk|ca|nl|fi|dk|pl|ch|cz|pt|br|jp|cn|au|nz|ru|ua|tr|il|kr|sg|za|mx|gov|edu"
)
_FULL_NAME = re.compile(rf"(?<![\w.@/-])((?:[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\.)+(?:{_DOMAINS}))(?![\w-]|\.\w)")
_DOMAIN_END = re.compile(rf"\.(?:{_DOMAINS})(?![\w-])")
_PATH = re.compile(r"(?<![\w/.)\]}%])/(?!/)[^\s'\"`,;:|()<>\[\]{}=&*?]*[^\s'\"`,;:|()<>\[\]{}=&*?.]")
_REMOTE_PATH = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^/:\s]+):(/.*)", re.S)
"""`server:/export`, the source of an NFS mount."""
_WITH_PORT = re.compile(r"([^()]+)\((\d+)\)")
"""As in titles of server processes."""
_ODD = re.compile(r"[\s'\"`,;:|()<>\[\]{}=&*?]")
_V4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_V6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,39}(?:\d{0,3}(?:\.\d{1,3}){3})?(?![\w:])")
_V4_DASHES = re.compile(r"(?<![\w-])(ip-|)(\d{1,3}(?:-\d{1,3}){3})(?!\w|-\w)")
"""As in the names of virtual machines."""
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
_SECRET_ENDING, _SECRET_ENDING_OF_PATH = (
    re.compile(rf"(?:{'|'.join(map(re.escape, endings))})(?![a-z0-9])")
    for endings in (_SECRET_ENDINGS, _SECRET_ENDINGS_OF_PATHS)
)
_SECRET_HINTS = (*_SECRET_NAMES, *_SECRET_ENDINGS_OF_PATHS, *_SECRET_WORDS)
SECRET_PATH = "<path of a secret>"
_KEY_LINE = re.compile(r"(?m)^(?=[^a-z\n]*[a-z])(?=[^A-Z\n]*[A-Z])(?=[^g-zG-Z\n]*[g-zG-Z])[A-Za-z0-9+/]{60,76}={0,2}$")
"""A line of a key in PEM or OpenSSH format; a document is rewritten line by line. A digest in hexadecimal is none."""
_DATA = (
    (re.compile(r"(?s)(\bKey \([^)]{0,1000}\)=)\(.*\)"), r"\1(…)"),
    (re.compile(r"(?s)([Ff]ailing row contains )\(.*\)"), r"\1(…)"),
    (re.compile(r"(?s)(\b(?:local|remote) (?:row|tuple) |replica identity (?:full )?)\(.*\)"), r"\1(…)"),
    (re.compile(r"(?is)(\bparameters: )\$1 = .*"), r"\1…"),
    (
        re.compile(
            r"(?s)(\b(?:invalid|malformed|unterminated|out of range|too long)\b[^:]{0,80}: |"
            r"\bCOPY [^\n\"]{1,200}?, line \d+(?:, column [^\n\"]{1,200}?)?: |"
            r"\b[Vv]alue (?=\"[^\"]*\" is )|\bToken )\".*\""
        ),
        r'\1"…"',
    ),
    (re.compile(r"(: )(\\\")(?:[^\"\\]|\\[^\"])*\\\""), r"\1\2…\2"),  # the same in JSON
    (re.compile(r"(?s)(\bJSON data, line \d+: ).*"), r"\1…"),
)
"""Values of columns and parameters in PostgreSQL's messages (errdetail of elog)."""
_KEY_COLUMNS = re.compile(r"(\bKey \()([^()]{1,1000})(?=\)=)")
_COPIED = re.compile(r"(\bCOPY )([^\n\",]{1,128})(, line \d+(?:, column )?)((?<=, column )[^\n\":,]{1,128})?")
_DATA_HINTS = (
    "Key (", "ailing row", " row (", " tuple (", "identity ", "arameters: ", "nvalid ", "alformed ", "terminated ",
    " range", "too long", "COPY ", "alue ", "Token ", "JSON data",
)  # fmt: skip
_QUOTED = re.compile(r"([\"'`«“‘])([^\"'`«»“”‘’]{1,128})([\"'`»”’])")
_IDENTIFIER = re.compile(r"\"(?:[^\"]|\"\")+\"|[^\W\d][\w$]*")


class TextRewriter:
    """Rewrites the strings of a session by what they are: `rewrite("user", "app")`, `rewrite("text", "…")`."""

    def __init__(self, names: NameMap, level: Level) -> None:
        self.level: Level = level
        self.names = names
        self._masked: Counter[str] = Counter()
        self.secret_paths: set[str] = set()
        """Paths of secrets that were masked."""
        self._cache: dict[tuple[str, str], str] = {}
        self._statements = StatementRewriter(names, leave_out=level == "all")
        self._index = NameIndex()
        self._ordinary: dict[str, str] = {}
        self._odd_paths: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._kinds: dict[str, Callable[[str], str]] = {
            "text": self._text, "query": self._statements.query, "path": self._path, "host": self._host,
            "relation": self._relation, "note": self._note, "series": self._series, "holds": self._holds,
            "who": partial(self._name, "user"), "key": self._key, "command": self._command,
            "standbys": self._standbys, "target": self._target,
        }  # fmt: skip

    def end_learning(self) -> None:
        """Replace from now on what was learnt."""
        self.names.end_learning()
        self.index_names()

    def index_names(self) -> None:
        """Replace every name of the map in all text."""
        self._cache.clear()
        self._addresses.clear()
        self._masked.clear()
        self._statements.count = 0
        self._index = NameIndex(ordinary_words())
        inside = self.names.inside()
        for name, spelling, text in self.names.spellings():
            self._index.add(spelling, text, inside=name in inside)
        self._ordinary = dict(self.names.originals(searched=False))

    @property
    def masked(self) -> dict[str, int]:
        """Return the number of other replacements: statements, paths of secrets, notes removed."""
        return {**self._masked, "statements": self._statements.count}

    def rewrite(self, kind: str, text: str) -> str:
        """Return the text for the shared session. `kind`: a kind of name, or text, query, path, note, series, holds,
        who, command, key."""
        if not text or self.level == "none":
            return text
        if self.names.guessing:  # a field may say later what it is
            return self._rewritten(kind, text)
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
            return text if kind in ("key", "series") else self._without_secrets(text, statement=kind == "query")
        special = self._kinds.get(kind)
        return special(text) if special is not None else self._name(kind, text)  # type: ignore[arg-type]

    def _without_secrets(self, text: str, *, statement: bool = False) -> str:
        text = _KEY_LINE.sub(MASK, redact_statement(text) if statement else redact(text))
        lowered = text.lower()
        return _TOKEN.sub(self._token, text) if any(hint in lowered for hint in _SECRET_HINTS) else text

    def _token(self, match: re.Match[str]) -> str:
        """Return a word of a text, masked if it is the path of a secret."""
        path = match[0].rstrip(".:")
        if not _is_secret_path(path.lower()):
            return match[0]
        self._masked["paths of secrets"] += 1
        if "/" in path:
            self.secret_paths.add(path)
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
            self._masked["notes removed"] += 1
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
        if not colon or what == "device":
            return text
        if what == "safety":
            identifier, dot, field = rest.partition(".")
            return f"{what}:{self.names.name('identifier', identifier)}{dot}{field}"
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
            if (organisation := organisation_in(domain)) is not None:
                self.names.name("word", organisation)
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

    def _text(self, text: str) -> str:
        """Return free text."""
        text = self._without_secrets(text)
        made = self._statements.in_text(text, self._plain)
        return made if made is not None else self._plain(self._statements.parts_of_text(text))

    def _plain(self, text: str) -> str:
        if any(hint in text for hint in _DATA_HINTS):
            for pattern, replacement in _DATA:
                text = pattern.sub(replacement, text)
            text = _COPIED.sub(self._copied, _KEY_COLUMNS.sub(self._key_columns, text))
        for odd, whole in sorted(self._odd_paths.items(), key=lambda one: -len(one[0])):
            text = text.replace(odd, whole)
        if not self.names.learning:
            # Before what only looks like a name: `db=my shop` ends after the name, not at the blank.
            text = self._encoded_in(self._names_in(text))
        self.names.guessing = True
        text = self._typed_in_text(text)
        if "/" in text:
            text = _PATH.sub(lambda match: self._path(match[0]), text)
        text = self._addresses_in(text)
        self.names.guessing = False
        return text

    def _copied(self, match: re.Match[str]) -> str:
        """`COPY t1, line 3, column email`."""
        column = self.names.name("column", match[4]) if match[4] else ""
        return f"{match[1]}{self.names.name('relation', match[2])}{match[3]}{column}"

    def _key_columns(self, match: re.Match[str]) -> str:
        return match[1] + ", ".join(self.names.name("column", one.strip('"')) for one in match[2].split(", "))

    def _typed_in_text(self, text: str) -> str:
        """Rewrite what stands where a name stands."""
        if "=" in text:
            text = _ASSIGNED.sub(lambda match: self._value(match, _FIELDS), text)
        if '"' in text:
            text = _QUOTED_NOUN.sub(lambda match: self._value(match, _NOUNS), text)
            text = _JSON_MEMBER.sub(self._member, text)
        if ": " in text:
            text = _YAML_MEMBER.sub(self._member, text)
            text = _TITLE.sub(self._title, text)
        if "dentifier" in text or "boot_id" in text:
            text = _SYSTEM_IDENTIFIER.sub(lambda match: match[1] + self.names.name("identifier", match[2]), text)
        text = _UNQUOTED_NOUN.sub(self._noun, text)
        if "-" in text and _PROGRAM.search(text):
            text = _OPTION.sub(lambda match: self._value(match, _OPTIONS), text)
        if "://" in text:
            text = _MORE_OF_URI.sub(self._more_of_uri, _URI.sub(self._uri, text))
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

    def _member(self, match: re.Match[str]) -> str:
        """`"user": "kim"`, or `user: kim` alone on its line."""
        value = match[3].strip("\"'")
        sign = match[3][0] if match[3][0] in "\"'" else ""
        if not value or value == MASK or value.isdecimal() or value[0] in "$%<*{[|>&!#":
            return match[0]
        kind = _FIELDS[match[1].lstrip(" \t-").strip('"').lower()]
        return f"{match[1]}{match[2]}{sign}{self.rewrite(kind, value)}{sign}"

    def _noun(self, match: re.Match[str]) -> str:
        if match[5]:
            return f"{match[5]}{match[6]}{self._relation(match[7])}"
        kind = _NOUNS.get(match[2].lower(), "relation")
        return f"{match[1]}{match[3]}{self.rewrite(kind, match[4])}"

    def _title(self, match: re.Match[str]) -> str:
        cluster = "" if match[2] is None else self.names.name("node", match[2]) + match[3]
        user, database = self.names.name("user", match[4]), self.names.name("database", match[6])
        return f"{match[1]}{cluster}{user}{match[5]}{database}"

    def _more_of_uri(self, match: re.Match[str]) -> str:
        """Return a URI of libpq after its scheme, with its further hosts and its database."""
        first, *others = match[2].split(",")
        hosts = ",".join([first, *(self._host(unquote(one)) if one else one for one in others)])
        if match[3] is None:
            return match[1] + hosts
        database = unquote(match[3][1:])
        made = self.names.name("database", database)
        return f"{match[1]}{hosts}{match[3] if made == database else f'/{made}'}"

    def _uri(self, match: re.Match[str]) -> str:
        scheme, user, rest, host = match.groups()
        if scheme.lower() == "file://":
            return match[0]
        login = "" if user is None else f"{self.names.name('user', unquote(user))}{rest}@"
        return f"{scheme}{login}{self._host(unquote(host))}"

    def _addresses_in(self, text: str) -> str:
        if "." in text:
            text = _V4.sub(lambda match: self._address(match[0]), text)
        if "-" in text:
            text = _V4_DASHES.sub(self._with_dashes, text)
        if ":" in text:
            text = _V6.sub(lambda match: self._address(match[0]), text)
            text = _MAC.sub(self._mac, text)
        return text

    def _with_dashes(self, match: re.Match[str]) -> str:
        """`ip-10-1-2-3`, or the digits of an address that is known."""
        text = match[2].replace("-", ".")
        made = self._address(text) if match[1] else self.names.known(text) or text
        return match[1] + made.replace(".", "-") if made != text else match[0]

    def _mac(self, match: re.Match[str]) -> str:
        """Return a locally administered address."""
        if self.names.learning:
            return match[0]
        digest = self.names.digest(match[0].lower().replace("-", ":"))
        return ":".join(("02", *(digest[at : at + 2] for at in range(0, 10, 2))))

    def _names_in(self, text: str) -> str:
        """Replace every learnt name; ordinary words only where they are quoted."""
        text = self._index.replace(text)
        if self._ordinary:
            text = _QUOTED.sub(lambda match: match[1] + self._ordinary.get(match[2], match[2]) + match[3], text)
        return text

    def _encoded_in(self, text: str) -> str:
        return replace_encoded(text, lambda plain: self._names_in(self._addresses_in(plain)))


def _is_secret_path(path: str) -> bool:
    """
    >>> [_is_secret_path(path) for path in ("/x/server.key.old", "client.pem", "/home/kim/.pgpass", "o.key", "/x/keys")]
    [True, True, True, False, False]
    """
    name = path.rpartition("/")[2]
    # Also a copy of it: `server.key.old`, `id_rsa.pub`.
    if any(name.startswith(one) for one in _SECRET_NAMES) or _SECRET_ENDING.search(name):
        return True
    if "/" not in path:
        return False
    return _SECRET_ENDING_OF_PATH.search(name) is not None or any(word in name for word in _SECRET_WORDS)


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
