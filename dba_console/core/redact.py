"""Masks secrets in text before it is shown, logged or stored.

The code that outputs text from a connection string, an error of libpq or a query calls `redact` first. Redacting twice
changes nothing.

Secrets are found in three ways. In an SQL statement that names a password, a token or a key (a keyword, a column, a
function, an argument) all literals are masked, because only the server knows which one is the secret. In other text a
secret follows its name and an assignment sign, or is in a position where a program takes it. Private keys and tokens of
well-known services have a form of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MASK = "********"
_MASKED = f"'{MASK}'"

_QUOTED = (
    r"""\*{8}(?=[}\]]*(?:['"\s,;&)]|$))|"""  # already masked
    r"""''(?=[^\s'])(?:[^'\\]|\\.|'(?!'))*(?:''|$)"""  # within an SQL literal, its quotes doubled
    r"""|\\'(?:[^'\\]|\\[^'])*(?:\\'|$)"""  # the same in an E'' literal
    r"""|'(?:[^'\\]|\\.|'')*(?:'|$)"""  # the server cuts long statements: the end may be missing
    r"""|"(?:[^"\\]|\\.)*(?:"|$)"""
)
_WORD = (
    r"passw(?:or)?ds?|passwd|pwd|passphrase|passcode|secret|credentials?|"
    r"(?:auth|access|session|bearer|refresh|api|my|id)[_-]?tokens?|"
    r"(?:access|secret|api|private|signing|encryption|master|account|shared)[_-]?key"
)
_NAMED = rf"(?:{_WORD}|secret[_-][\w-]{{0,64}}key|token)"
"""A name of a secret, or the end of a longer one, as in PGPASSWORD or AWS_SECRET_ACCESS_KEY."""
_BARE = r"(?:[^\s,;&)'\"]|[,;&)](?![\s'\"]|$|[\w-]+[=:])|['\"]{1,2}(?=\w))+"
"""An unquoted value: to a blank, or to a separator before another value."""
_SCHEME = r"(?:bearer|basic|token|digest|apikey|negotiate)"
_NAMES = (
    "passw", "passphrase", "passcode", "pwd", "secret", "credential", "token", "access_key", "access-key", "accesskey",
    "api_key", "api-key", "apikey", "private_key", "private-key", "privatekey", "signing_key", "signing-key",
    "encryption_key", "encryption-key", "master_key", "master-key", "account_key", "account-key", "shared_key",
    "shared-key",
)  # fmt: skip
_TOKEN_STARTS = (
    "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "sk-", "k_live_", "xox", "npm_", "hvs.", "aiza",
    "sg.", "akia", "eyj",
)  # fmt: skip
"""Of GitHub, GitLab, OpenAI, Stripe, Slack, npm, Vault, Google, SendGrid, AWS, and of JSON Web Tokens (RFC 7519)."""
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
    # stored verifiers anywhere
    (
        ("scram-sha",),
        re.compile(r"\bSCRAM-SHA-256\$\d+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+"),
        MASK,
    ),
    (("md5",), re.compile(r"\bmd5[0-9a-f]{32}\b"), MASK),
    # secrets that are recognised by their own form: private keys (PEM, OpenSSH, PGP), tokens, JSON Web Tokens
    (
        ("private key",),
        re.compile(
            r"(-----BEGIN [A-Z ]{0,20}PRIVATE KEY[A-Z ]{0,9}-----).*?"
            r"(-----END [A-Z ]{0,20}PRIVATE KEY[A-Z ]{0,9}-----|$)",
            re.S,
        ),
        rf"\1{MASK}\2",
    ),
    (
        _TOKEN_STARTS,
        re.compile(
            r"(?<![A-Za-z0-9])(?:(?:gh[opsur]_|github_pat_|glpat-|sk-(?=[\w-]{0,40}[A-Za-z0-9]{16})|[sr]k_live_"
            r"|xox[a-z]-|npm_(?=[A-Za-z0-9]{30})|hvs\.|AIza|SG\.)(?=[\w.-]{0,40}\d)[\w.-]{16,}"
            r"|AKIA[A-Z0-9]{16}\b)|(?<![\w.-])eyJ[\w-]{8,}+(?:\.[\w-]*+){1,4}"
        ),
        MASK,
    ),
)
"""Each with the lower-case text that must be present for a match: a search is much more expensive, and statements are
redacted every second."""
_HINTS = (
    "pass", "pwd", "secret", "credential", "token", "key", "bearer ", "basic ", "authorization", "://", "mysql",
    "mariadb", "md5", "crypt", "hmac", "gh", "k_live_", "npm_", "aiza", "akia", "eyj", "hvs.", "sg.",
)  # fmt: skip
_HINTS_WITH_DASH = (" -u", "-user", "scram-sha", "sk-", "glpat-", "xox")
"""Text without any of these has nothing to mask: checked first, for every text."""
_SQL_SECRET_WORDS = (*_NAMES, "crypt", "pgp_sym", "hmac", "gen_salt")
"""Text in statements that may contain a secret."""
_SQL = re.compile(
    r"(?is)(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*+\*/|\()*+(?:select|insert|update|delete|merge|with|values|alter|create|set|call|do|"
    r"copy|prepare|execute|explain|import|comment|security|begin|declare|perform|truncate|grant|table)\b"
)
"""The start of SQL text."""
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
"""Nesting depth of dollar quotes that is parsed; deeper ones are masked as a whole."""


_SECRET_SETTING = re.compile(rf"(?i)(?:{_NAMED}|(?:^|[._-])key)(?:_command)?$")


def names_secret(parameter: str) -> bool:
    """Whether a configuration parameter holds a secret by its name: `my.token`, `ssl_passphrase_command`.

    >>> [names_secret(name) for name in ("my.token", "app.api_key", "password_encryption", "ssl_key_file")]
    [True, True, False, False]
    """
    return _SECRET_SETTING.search(parameter) is not None


_COMMENT_EDGE = re.compile(r"/\*|\*/")


def redact(text: str, *, cut: bool = False) -> str:
    """Return `text` with every password, URI userinfo secret and stored verifier replaced by eight asterisks.

    `cut`: it is the beginning of a statement. The word that makes a literal a secret may be in the missing rest, so all
    literals of its last statement are masked.

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
    if not (_has_one(_HINTS, lowered) or ("-" in lowered and _has_one(_HINTS_WITH_DASH, lowered))):
        return text
    if not cut and _has_one(_SQL_SECRET_WORDS, lowered) and _SQL.match(text):
        text = _mask_literals(text)
    for hints, pattern, replacement in _PATTERNS:
        if _has_one(hints, lowered):
            text = pattern.sub(replacement, text)
    return text


def _has_one(hints: Sequence[str], lowered: str) -> bool:
    for hint in hints:  # noqa: SIM110 - a generator takes twice as long
        if hint in lowered:
            return True
    return False


def normalise(text: str) -> str:
    """Return a statement without its data: `?` for each literal and number, comments removed. Names stay.

    >>> normalise("select 'a''b', E'c', $$d$$, -1.5e3 /* e */ from t1 where id = $1")
    'select ?, ?, ?, -?   from t1 where id = $1'
    """
    shown = {"comment": " ", "literal": "?", "dollar": "?", "number": "?", "cut": "? …"}
    return "".join(shown.get(kind, body) for kind, body in statement_tokens(text))


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


def _mask_literals(text: str, depth: int = 0, *, cut: bool = False) -> str:
    """Mask the literals of each statement that contains a secret, and, in a cut text, of the last one. Text in dollar
    quotes may be SQL itself."""
    parts: list[str] = []
    literals: list[int] = []
    at, has_secret = 0, False

    def end_statement() -> None:
        for index in literals if has_secret else ():
            parts[index] = _MASKED
        literals.clear()

    while (token := _TOKEN.search(text, at)) is not None:
        kind, end = token.lastgroup, _token_end(token)
        body = text[token.start() : end]
        if kind == "name":
            lowered = body.lower()
            has_secret = has_secret or any(one in lowered for one in _SQL_SECRET_WORDS)
        elif kind == "dollar" and (inner := token["body"]):
            body = _MASKED if depth == _MAX_QUOTE_DEPTH else body.replace(inner, _mask_literals(inner, depth + 1), 1)
        parts += [text[at : token.start()], body]
        at = end
        if kind in ("literal", "dollar"):
            literals.append(len(parts) - 1)
        elif kind == "end":
            end_statement()
            has_secret = False
    has_secret = has_secret or cut
    end_statement()
    return "".join([*parts, text[at:]])
