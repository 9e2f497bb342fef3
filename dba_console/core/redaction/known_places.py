"""Masks secrets in known places (a URI, a header, a message of the server, a file of settings), and secrets with a form
of their own (stored verifiers, private keys, tokens).

A pattern takes time linear in the length of the text: repetitions are possessive or bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dba_console.core.redaction.secret_names import is_secret_name
from dba_console.core.redaction.token_forms import TOKEN, TOKEN_HINTS

MASK = "********"


def _key_columns(match: re.Match[str]) -> str:
    """`Key (name, password)=(bob, …)`."""
    names = re.split(r"\W+", match[2])
    return _without_row(match) if any(map(is_secret_name, names)) else match[0]


def _failing_row(match: re.Match[str]) -> str:
    """`Failing row contains (1, bob, …)`, if the message before it names a secret."""
    before = match.string[max(0, match.start() - 400) : match.start()].lower()
    return _without_row(match) if has_one(("pass", "secret", "token", "credential", "pwd"), before) else match[0]


def _without_row(match: re.Match[str]) -> str:
    end = match[4].rfind(")")
    return f"{match[1]}{match[2]}{match[3]}{MASK}{match[4][end:] if end >= 0 else ''}"


def _set_in_environment(match: re.Match[str]) -> str:
    """`setenv PASSWORD …`, `ENV PASSWORD …`."""
    return f"{match[1]}{match[2]}{match[3]}{MASK}" if is_secret_name(match[2].strip()) else match[0]


class _Place(NamedTuple):
    hints: tuple[str, ...]
    """Lower-case text; one of them is present where the pattern matches: a search for the pattern is more expensive."""
    pattern: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str]


_AFTER = rf"\1{MASK}"
_URIS = (
    # The user information extends to the last @. https://token@host has no user; a long text may be cut before the @.
    _Place(
        ("://",),
        re.compile(r"(://[^\s:/@'\"]{0,256}:)(?!\d{1,5}(?:[/?#,]|$))(?:[^\s'\"<>@]{0,1024}+@)++"),
        rf"\1{MASK}@",
    ),
    _Place(("://",), re.compile(r"(?i)(\b(?:https?|git|ftps?|s3|ssh)://)[^\s:/@]{12,}+(?=@)"), _AFTER),
    _Place(("://",), re.compile(r"(://[^\s:/@'\"]{1,256}:)(?!\d{1,5}$)(?!\*{8}$)[^\s/@]++$"), _AFTER),
    _Place(("thin:",), re.compile(r"(:thin:[\w$.]{1,64}/)[^\s@/]++(?=@)"), _AFTER),
)
_HEADERS = (
    _Place(
        ("auth", "cookie"),
        re.compile(
            r"(?i)(?<![\w-])((?:(?:proxy-)?authorization|x-[\w-]{0,32}auth(?:-\w{1,32}){0,3}|(?:set-)?cookie)"
            r"(\\?[\"'])?\s{0,8}:\s{0,8}\\?[\"']?(?:(?:bearer|basic|token|digest|apikey|negotiate)\s{1,8})?)"
            r"(?(2)[^\r\n'\"\\]++|(?:[^\r\n'\"\\]|(?<==)\"[^\r\n\"]*+\")++)"
        ),
        _AFTER,
    ),
    _Place(("-key:", "-key :"), re.compile(r"(?i)(-key\s{0,8}:\s{0,8})(?=\S{0,200}\d)[^\s'\"]{8,}"), _AFTER),
    # of any program, as in archive_command; not the ids of a user and a group
    _Place(
        (" -u", "-user"),
        re.compile(
            r"(\s(?:-u|--user|--proxy-user)(?:\s{1,8}|=)?['\"]?[^\s:'\"]{1,128}:)(?!//|\d{1,10}(?:[\s'\"]|$))[^\s'\"]++"
        ),
        _AFTER,
    ),
    _Place(("bearer ", "basic "), re.compile(r"(?i)\b((?:bearer|basic)\s{1,8})[A-Za-z0-9._~+/=-]{6,}"), _AFTER),
)
_PARAMETER = r"\$\d{1,5} ?= ?"
_PARAMETER_VALUE = r"(?:'(?:[^']|'')*+(?:'|$)|[^\s,'\"})]++)"
_MESSAGES = (
    _Place(
        ("parameter",),
        re.compile(rf"(?i)(\bparameters?:? {_PARAMETER}){_PARAMETER_VALUE}(?:, ?{_PARAMETER}{_PARAMETER_VALUE})*+"),
        _AFTER,
    ),
    _Place(
        ("key (",),
        re.compile(r"(\bKey \()([^()\n]{1,400}(?:\([^()\n]{0,100}\)[^()\n]{0,100}){0,3})(\)=\()([^\n]++)"),
        _key_columns,
    ),
    _Place(("row contains",), re.compile(r"([Ff]ailing row contains )(\()()([^\n]++)"), _failing_row),
    _Place(
        (", line ",),
        re.compile(
            r"(?i)(, line \d{1,12}, column [\w ]{0,64}?(?:pass|pwd|secret|token|credential)\w{0,64}: )\"[^\n]*+"
        ),
        _AFTER,
    ),
)
_PASSFILE = (
    _Place(
        (":*:", ":5", ":6", ":1", ":2", ":3", ":4", ":7", ":8", ":9"),
        re.compile(
            r"(?m)(?<![^\s'\"=])([^\s:'\"/]{1,128}:(?:\d{3,5}|\*):[^\s:]{1,128}:"
            r"(?=[^\s:]{0,128}[g-zG-Z_*])[^\s:]{1,128}:)[^\s'\"]++"
        ),
        _AFTER,
    ),
)
"""A line of ~/.pgpass."""
_FILES = (
    # of userlist.txt, of netrc, of ldap.conf and redis.conf, of a Dockerfile, of a Docker configuration
    _Place(
        ('" "',),
        re.compile(r"(?m)((?:^|: )[ \t]{0,8}\"[^\"\n]{1,128}\" \")(?:[^\"\n]|\"\")++(?=\"(?:[ \t]*$|[ \t]{1,8}\"\"))"),
        _AFTER,
    ),
    _Place(("login ",), re.compile(r"(\blogin\s{1,8}\S{1,128}\s{1,8}(?:password|passwd)\s{1,8})\S++"), _AFTER),
    _Place(
        ("bindpw", "rootpw", "requirepass", "masterauth", "userpassword"),
        re.compile(
            r"(?i)(\b(?:ldap_)?(?:bindpw|rootpw|rootbindpw|requirepass|masterauth)\s{1,8}(?![=:])"
            r"|\buserPassword::?\s{0,8})\S++"
        ),
        _AFTER,
    ),
    _Place(
        ("setenv ", "setx ", "env ", "arg ", "set -"),
        re.compile(r"(\b(?:setenv|setx|ENV|ARG|set -\w{1,3}))([ \t]{1,8}\w{1,128})([ \t]{1,8})[^\s=]++"),
        _set_in_environment,
    ),
    _Place(
        ("_auth", 'auth"', 'auth\\"'),
        re.compile(r"(?i)(\b_auth\s{0,4}=\s{0,4}|\\?\"auth\\?\"\s{0,8}:\s{0,8}\\?\")[\w+/=-]{6,}"),
        _AFTER,
    ),
)
_VERIFIERS = (
    _Place(
        ("scram-sha",),
        re.compile(r"\bSCRAM-SHA-256\$\d{1,9}:[A-Za-z0-9+/=]++\$[A-Za-z0-9+/=]++:[A-Za-z0-9+/=]++"),
        MASK,
    ),
    _Place(("md5",), re.compile(r"\bmd5[0-9a-f]{32}\b"), MASK),
    _Place(
        ("$1$", "$2", "$5$", "$6$", "$7$", "$y$", "$gy$", "$apr1$", "$argon2", "crypt$", "$pbkdf2", "{s"),
        re.compile(
            r"(?i)\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2i?d?|s?crypt|pbkdf2[\w-]{0,16})\$[\w./=,$+-]{8,}"
            r"|\{s?sha\d{0,3}\}[\w+/=]{12,}"
        ),
        MASK,
    ),
)
_KEYS = (
    _Place(
        ("private key",),
        re.compile(
            r"(?s)(-----BEGIN [A-Z ]{0,20}PRIVATE KEY[A-Z ]{0,9}-----).*?"
            r"(-----END [A-Z ]{0,20}PRIVATE KEY[A-Z ]{0,9}-----|$)"
        ),
        rf"\1{MASK}\2",
    ),
)
_GROUPS = (
    (("auth", "cookie", "-key", "bearer ", "basic ", " -u", "-user"), _HEADERS),
    (("://", "thin:"), _URIS),
    (("parameter", "key (", "row contains", ", line "), _MESSAGES),
    (("pass", "pw", "auth", "env ", "setx ", "arg ", "set -", '" "'), _FILES),
    ((":",), _PASSFILE),
    (("$", "md5", "scram-sha", "{s"), _VERIFIERS),
    (("-",), _KEYS),
    (TOKEN_HINTS, (_Place(TOKEN_HINTS, TOKEN, MASK),)),
)
"""Each with text of which one is present if one of its places is."""


def mask_places(text: str, lowered: str) -> str:
    """Return the text with the secrets masked that are in a known place or have a known form. `lowered`: the text in
    lower case."""
    for needed, places in _GROUPS:
        if has_one(needed, lowered):
            for hints, pattern, replacement in places:
                if has_one(hints, lowered):
                    text = pattern.sub(replacement, text)
    return text


def has_one(hints: Sequence[str], text: str) -> bool:
    """Whether one of the hints is in the text."""
    for hint in hints:  # noqa: SIM110 - a generator takes twice as long
        if hint in text:
            return True
    return False
