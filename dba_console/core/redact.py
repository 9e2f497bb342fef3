"""Secrets out of text before it is shown, logged or stored.

Nothing here knows where text goes; whoever writes text that came from a connection string, an error of libpq or a
query calls `redact` first. Passing text twice changes nothing.

Two ways lead to a secret. In SQL a statement that names a password, a token or a key by a word of its own (a keyword, a
column, a function, an argument) has all its literals masked: which of them is the secret, only the server knows. In all
other text a secret is what stands behind its name and a sign of assignment, or where a program is known to take it.
"""

from __future__ import annotations

import re

MASK = "********"
_MASKED = f"'{MASK}'"

_QUOTED = (
    r"""\*{8}(?=[}\]]*(?:['"\s,;&)]|$))|"""  # masked already
    r"""''(?=[^\s'])(?:[^'\\]|\\.|'(?!'))*(?:''|$)"""  # as it stands within a literal of SQL, its quotes doubled
    r"""|\\'(?:[^'\\]|\\[^'])*(?:\\'|$)"""  # the same in an E'' literal
    r"""|'(?:[^'\\]|\\.|'')*(?:'|$)"""  # the server cuts long statements: there may be no end
    r"""|"(?:[^"\\]|\\.)*(?:"|$)"""
)
_WORD = (
    r"passw(?:or)?ds?|passwd|pwd|passphrase|passcode|secret|credentials?|"
    r"(?:auth|access|session|bearer|refresh|api|my|id)[_-]?tokens?|"
    r"(?:access|secret|api|private|signing|encryption|master|account|shared)[_-]?key"
)
_NAMED = rf"(?:{_WORD}|secret[_-][\w-]{{0,64}}key|token)"
"""A name that says it, or the end of a longer one, as of PGPASSWORD or AWS_SECRET_ACCESS_KEY."""
_BARE = r"(?:[^\s,;&)'\"]|[,;&)](?![\s'\"]|$|[\w-]+[=:])|['\"]{1,2}(?=\w))+"
"""A value without quotes around it: to a blank, or to a sign behind which another one begins."""
_SCHEME = r"(?:bearer|basic|token|digest|apikey|negotiate)"
_NAMES = (
    "passw", "passphrase", "passcode", "pwd", "secret", "credential", "token", "access_key", "access-key", "accesskey",
    "api_key", "api-key", "apikey", "private_key", "private-key", "privatekey", "signing_key", "signing-key",
    "encryption_key", "encryption-key", "master_key", "master-key", "account_key", "account-key", "shared_key",
    "shared-key",
)  # fmt: skip
_ASSIGNED = r"[\"']?\s*(?:=>|:=|=|:(?![:/]))\s*"
_PATTERNS = (
    # keyword/value conninfo, environment, options, JSON, YAML, headers, named arguments
    (
        _NAMES,
        re.compile(rf"(?i)({_NAMED}{_ASSIGNED}(?:{_SCHEME}\s+)?)({_QUOTED}|{_BARE})", re.S),
        rf"\1{MASK}",
    ),
    (
        ("authorization",),
        re.compile(rf"(?i)\b((?:proxy-)?authorization{_ASSIGNED}[\"']?(?:{_SCHEME}\s+)?)({_BARE})"),
        rf"\1{MASK}",
    ),
    (("-key:", "-key :"), re.compile(r"(?i)(-key\s*:\s*)((?=\S{0,200}\d)[^\s'\"]{8,})"), rf"\1{MASK}"),
    (("bearer ", "basic "), re.compile(r"(?i)\b((?:bearer|basic)\s+)([A-Za-z0-9._~+/=-]{6,})"), rf"\1{MASK}"),
    # options of commands, as in archive_command: --password x, curl -u user:x, sshpass -p x, mysql -px
    (_NAMES, re.compile(rf"(?i)((?<![\w-])--[\w-]*{_NAMED}\s+)({_QUOTED}|{_BARE})", re.S), rf"\1{MASK}"),
    (
        (" -u", "-user"),
        re.compile(r"(\s(?:-u|--user|--proxy-user)(?:\s+|=)?['\"]?[^\s:'\"]+:)([^\s'\"]+)"),
        rf"\1{MASK}",
    ),
    (("sshpass",), re.compile(rf"(\bsshpass\s+(?:-[ePv]\s+)*-p\s*)({_QUOTED}|\S+)"), rf"\1{MASK}"),
    (
        ("mysql", "mariadb"),
        re.compile(rf"((?<![\w-])(?:mysql|mariadb)[\w-]*+[^|;&]{{0,200}}?\s-p)({_QUOTED}|[^\s-]\S*)"),
        rf"\1{MASK}",
    ),
    # URI userinfo: postgresql://user:secret@host, to the last @ before the path; https://token@host; cut short
    (("://",), re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,63}://[^\s:/@]*:)([^\s/]+)(@)"), rf"\1{MASK}\3"),
    (("://",), re.compile(r"(?i)(\b(?:https?|git|ftps?|s3|ssh)://)([^\s:/@]{12,})(@)"), rf"\1{MASK}\3"),
    (
        ("://",),
        re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,63}://[^\s:/@]+:)(?!\d{1,5}$)(?!\*{8}$)([^\s/@]+)$"),
        rf"\1{MASK}",
    ),
    # SQL in other text: PASSWORD 'secret', ENCRYPTED PASSWORD 'md5...', also E'', U&'' and dollar quotes
    (
        ("password",),
        re.compile(
            r"(?i)(\bpassword(?:\s|/\*(?:[^*]|\*(?!/))*\*/|--[^\n]*\n)+)"
            r"((?:e|u&)?'(?:[^'\\]|\\.|'')*'?(?:[^\S\n]*+\n\s*+'(?:[^']|'')*'?)*|\$(\w*)\$.*?(?:\$\3\$|$))",
            re.S,
        ),
        rf"\1'{MASK}'",
    ),
    # stored verifiers wherever they stand
    (
        ("scram-sha",),
        re.compile(r"\bSCRAM-SHA-256\$\d+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+"),
        MASK,
    ),
    (("md5",), re.compile(r"\bmd5[0-9a-f]{32}\b"), MASK),
)
"""Each with what a text has that it may match, in small letters: a search costs far more, and statements are asked for
each second."""
_HINTS = (
    "passw", "phrase", "passc", "pwd", "secret", "credential", "token", "key", "bearer ", "basic ", "authorization",
    "://", " -u", "-user", "sshpass", "mysql", "mariadb", "scram-sha", "md5", "crypt", "pgp_sym", "hmac", "gen_salt",
)  # fmt: skip
"""Text without any of these holds nothing to mask: what is asked first, of every text."""
_SQL_SECRET_WORDS = (*_NAMES, "crypt", "pgp_sym", "hmac", "gen_salt")
"""What a statement has that may carry a secret."""
_SQL = re.compile(
    r"(?is)(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*+\*/|\()*+(?:select|insert|update|delete|merge|with|values|alter|create|set|call|do|"
    r"copy|prepare|execute|explain|import|comment|security|begin|declare|perform|truncate|grant|table)\b"
)
"""How a text begins that is SQL."""
_TOKEN = re.compile(
    r"""(?six)
    (?P<comment> --[^\n]* | /\* )
    | (?P<literal> (?:\b e '(?:[^'\\]|\\.|'')*(?:'|$)) | (?:\b (?:u&|b|x|n))? '(?:[^']|'')*(?:'|$) )
    | (?P<dollar> \$(?P<tag>(?:[a-z_]\w*)?)\$ (?P<body>.*?) (?:\$(?P=tag)\$|$) )
    | (?P<name> "(?:[^"]|"")*(?:"|$) | [^\W\d][\w$]* )
    | (?P<number> (?<![\w$])\d[\w.]* )
    | (?P<end> ; )
    """
)
_MAX_QUOTE_DEPTH = 3
"""Dollar quotes within dollar quotes that are looked into; what lies deeper is masked whole."""


_SECRET_SETTING = re.compile(rf"(?i)(?:{_NAMED}|(?:^|[._-])key)(?:_command)?$")


def names_secret(parameter: str) -> bool:
    """Whether a configuration parameter holds a secret by its name: `my.token`, `ssl_passphrase_command`.

    >>> [names_secret(name) for name in ("my.token", "app.api_key", "password_encryption", "ssl_key_file")]
    [True, True, False, False]
    """
    return _SECRET_SETTING.search(parameter) is not None


_COMMENT_EDGE = re.compile(r"/\*|\*/")


def redact(text: str, *, cut: bool = False) -> str:
    """`text` with every password, URI userinfo secret and stored verifier replaced by eight asterisks.

    `cut`: it is the beginning of a statement. The word that makes a literal a secret may stand in the rest, so the
    last statement in it loses all its literals.

    >>> redact("host=db password=s3cret user=app"), redact("postgresql://app:s3cret@db/x")
    ('host=db password=******** user=app', 'postgresql://app:********@db/x')
    >>> redact("ALTER ROLE app PASSWORD 'it''s'")
    "ALTER ROLE app PASSWORD '********'"
    >>> redact("insert into users (name, password) values ('bob', 's3cret'); select 'seen'")
    "insert into users (name, password) values ('********', '********'); select 'seen'"
    """
    lowered = text.lower()
    if cut:
        text = _mask_literals(text, cut=True)
    if not any(one in lowered for one in _HINTS):
        return text
    if not cut and any(one in lowered for one in _SQL_SECRET_WORDS) and _SQL.match(text):
        text = _mask_literals(text)
    for hints, pattern, replacement in _PATTERNS:
        if any(one in lowered for one in hints):
            text = pattern.sub(replacement, text)
    return text


def normalise(text: str) -> str:
    """A statement without its data: `?` for each literal and number, nothing for a comment. Names stay.

    >>> normalise("select 'a''b', E'c', $$d$$, -1.5e3 /* e */ from t1 where id = $1")
    'select ?, ?, ?, -?   from t1 where id = $1'
    """
    parts: list[str] = []
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        kind, body, end = token.lastgroup, token[0], _token_end(token)
        shown = {"comment": " ", "literal": "?", "dollar": "?", "number": "?"}.get(kind or "", body)
        parts += [text[at : token.start()], shown]
        at = end
        if kind == "literal" and body[0] not in "eE" and "\\'" in body:
            # Where backslashes escape, this literal goes on; only the server knows.
            return "".join([*parts, " …"])
    return "".join([*parts, text[at:]])


def _token_end(token: re.Match[str]) -> int:
    """Where a token ends; comments nest."""
    if token[0] != "/*":
        return token.end()
    depth = 0
    for edge in _COMMENT_EDGE.finditer(token.string, token.start()):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(token.string)


def _mask_literals(text: str, depth: int = 0, *, cut: bool = False) -> str:
    """The literals of each statement masked that carries a secret, and, of a text that was cut, of the last one. What
    stands in dollar quotes may be SQL itself."""
    parts: list[str] = []
    literals: list[int] = []
    at, carries = 0, False

    def end_statement() -> None:
        for place in literals if carries else ():
            parts[place] = _MASKED
        literals.clear()

    while (token := _TOKEN.search(text, at)) is not None:
        kind, end = token.lastgroup, _token_end(token)
        body = text[token.start() : end]
        if kind == "name":
            lowered = body.lower()
            carries = carries or any(one in lowered for one in _SQL_SECRET_WORDS)
        elif kind == "dollar" and (inner := token["body"]):
            body = _MASKED if depth == _MAX_QUOTE_DEPTH else body.replace(inner, _mask_literals(inner, depth + 1), 1)
        parts += [text[at : token.start()], body]
        at = end
        if kind in ("literal", "dollar"):
            literals.append(len(parts) - 1)
        elif kind == "end":
            end_statement()
            carries = False
    carries = carries or cut
    end_statement()
    return "".join([*parts, text[at:]])
