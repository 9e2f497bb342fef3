"""Secrets out of text before it is shown, logged or stored.

Nothing here knows where text goes; whoever writes text that came from a connection string, an error of libpq or a
query calls `redact` first. Passing text twice changes nothing.
"""

from __future__ import annotations

import re

MASK = "********"

_QUOTED = (
    r"""\*{8}(?=['"\s,;&)]|$)|"""  # masked already
    r"""''(?=[^\s'])(?:[^'\\]|\\.|'(?!'))*(?:''|$)"""  # as it stands within a literal of SQL, its quotes doubled
    r"""|\\'(?:[^'\\]|\\[^'])*(?:\\'|$)"""  # the same in an E'' literal
    r"""|'(?:[^'\\]|\\.|'')*(?:'|$)"""  # the server cuts long statements: there may be no end
    r"""|"(?:[^"\\]|\\.)*(?:"|$)"""
)
_NAMED = r"\w*(?:passw(?:or)?d|passphrase|secret(?:[_-][\w-]*key)?|access[_-]?key|api[_-]?key|auth[_-]?token)"
_PATTERNS = (
    # keyword/value conninfo, environment and options: password=..., PGPASSWORD='...', sslpassword=..., --password=...
    (re.compile(rf"(?i)\b({_NAMED}\s*=\s*)({_QUOTED}|[^\s,;&)]+)", re.S), rf"\1{MASK}"),
    # options of commands, as in archive_command: --password secret, curl -u user:secret
    (re.compile(rf"(?i)(--{_NAMED}\s+)({_QUOTED}|[^\s,;&)]+)", re.S), rf"\1{MASK}"),
    (re.compile(r"(\s(?:-u|--user|--proxy-user)(?:\s+|=)?['\"]?[^\s:'\"]+:)([^\s'\"]+)"), rf"\1{MASK}"),
    # URI userinfo: postgresql://user:secret@host
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)([^\s/@]+)(@)"), rf"\1{MASK}\3"),
    # SQL: PASSWORD 'secret', ENCRYPTED PASSWORD 'md5...', also E'', U&'' and dollar quotes
    (
        re.compile(
            r"(?i)(\bpassword(?:\s|/\*(?:[^*]|\*(?!/))*\*/)+)((?:e|u&)?'(?:[^'\\]|\\.|'')*'?|\$(\w*)\$.*?(?:\$\3\$|$))",
            re.S,
        ),
        rf"\1'{MASK}'",
    ),
    # stored verifiers wherever they stand
    (re.compile(r"\bSCRAM-SHA-256\$\d+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+"), MASK),
    (re.compile(r"\bmd5[0-9a-f]{32}\b"), MASK),
)
_HINTS = (
    "passw", "passphrase", "secret", "access_key", "access-key", "accesskey", "api_key", "api-key", "apikey", "token",
    "://", " -u", "-user", "scram-sha", "md5",
)  # fmt: skip
"""Text without any of these holds nothing to mask. Asked of every statement each second: a search costs far more."""


def redact(text: str) -> str:
    """`text` with every password, URI userinfo secret and stored verifier replaced by eight asterisks.

    >>> redact("host=db password=s3cret user=app"), redact("postgresql://app:s3cret@db/x")
    ('host=db password=******** user=app', 'postgresql://app:********@db/x')
    >>> redact("ALTER ROLE app PASSWORD 'it''s'")
    "ALTER ROLE app PASSWORD '********'"
    """
    lowered = text.lower()
    if not any(hint in lowered for hint in _HINTS):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
