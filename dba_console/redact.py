"""Secrets out of text before it is shown, logged or stored.

Nothing here knows where text goes; whoever writes text that came from a connection string, an error of libpq or a
query calls `redact` first. Passing text twice changes nothing.
"""

from __future__ import annotations

import re

MASK = "********"

_PATTERNS = (
    # keyword/value conninfo, environment and options: password=..., PGPASSWORD='...', sslpassword=...
    (re.compile(r"(?i)\b(\w*password\s*=\s*)('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|[^\s,;&)]+)"), rf"\1{MASK}"),
    # URI userinfo: postgresql://user:secret@host
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)([^\s/@]+)(@)"), rf"\1{MASK}\3"),
    # SQL: PASSWORD 'secret', ENCRYPTED PASSWORD 'md5...', also E'' and dollar quotes
    (re.compile(r"(?i)(\bpassword\s+)(e?'(?:[^'\\]|\\.|'')*'?|\$(\w*)\$.*?(?:\$\3\$|$))", re.S), rf"\1'{MASK}'"),
    # stored verifiers wherever they stand
    (re.compile(r"\bSCRAM-SHA-256\$\d+:[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+:[A-Za-z0-9+/=]+"), MASK),
    (re.compile(r"\bmd5[0-9a-f]{32}\b"), MASK),
)
_QUICK = re.compile(r"(?i)password|://|SCRAM-SHA|md5[0-9a-f]{8}")


def redact(text: str) -> str:
    """`text` with every password, URI userinfo secret and stored verifier replaced by eight asterisks.

    >>> redact("host=db password=s3cret user=app"), redact("postgresql://app:s3cret@db/x")
    ('host=db password=******** user=app', 'postgresql://app:********@db/x')
    >>> redact("ALTER ROLE app PASSWORD 'it''s'")
    "ALTER ROLE app PASSWORD '********'"
    """
    if _QUICK.search(text) is None:
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
