"""Masks secrets that follow their name: `password=…`, `api_key: …`, `PASSWORD '…'`, `<secret>…`, `--passphrase …`.

The time is linear in the length of the text: every search begins at a word of a name, a repetition is possessive or
bounded, and what was matched is not read again.
"""

from __future__ import annotations

import re

from dba_console.core.redaction.secret_names import is_secret_name

MASK = "********"
_MASKED = f"'{MASK}'"
_NAME_LIMIT = 64
_WORDS = (
    "pass", "pw", "psk", "secret", "cred", "token", "key", "auth", "cookie", "sig", "otp", "pin",
)  # fmt: skip
_HIT = re.compile(
    r"""(?isx)
    [\w.-]{1,80}+
    (?P<sign>
        \\{0,4}["'`\])]{0,3}+ (?:::[\w ]{1,30}+)? \s{0,40}+ (?:=>|:=|<>|[=!]?=|~~\*?|:(?![:/])|->|\b(?:i?like)\b)
            (?:\s{0,40}+(?:any|all)?\s?\()? \s{0,40}+
      | (?P<element> (?:["']\s{0,8})?>(?:<!\[CDATA\[|(?=[^<])) )
      | \\{0,4}["']?[\s,;]{0,20}+ \\{0,4}["']?value\\{0,4}["']?\s{0,8}+[:=]\s{0,8}+
      | (?:\s{1,40}+ | /\*(?:[^*]|\*(?!/)){0,200}+\*/ | --[^\n]{0,200}+\n){1,4}+ (?=(?:e|u&)?'|\$[a-z_\d]{0,64}+\$)
      | \s(?:is|was|set\ to|changed\ to)[ ](?=["'`]|(?=\S{6})\S{0,40}?\d)
      | (?<=password)\s(?:[057]\s)(?=\S)
      | (?:(?<=password)|(?<=passphrase)|(?<=secret))\s(?=\\?")
      | (?<=password)\s(?:for|is\sgenerated\sfor|of)\s[^\n:"']{1,60}+:\s(?=\S{6})(?=\S{0,40}?\d)
    )
    """
)
"""A word of secrets with the rest of its name, and what is between the name and its value."""
_LEFT = re.compile(r"[\w.-]*+")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|digest|apikey|negotiate|ssws|aws4-hmac-sha256)[ \t]++(?=\S)")
_VALUE = re.compile(
    r"""(?sx)
    \*{8}(?=[}\]]{0,4}(?:['"\s,;:&)<\\]|/?>|$))                    # already masked
    | ''(?=[^\s'])(?:[^'\\]|\\.|'(?!'))*+(?:''|$)             # within an SQL literal, its quotes doubled
    | \\'(?:[^'\\]|\\[^'])*+(?:\\'|$)                         # the same in an E'' literal
    | \\"(?:[^"\\]|\\[^"])*+(?:\\"|$)                         # within a text in JSON
    | (?:[eE]|[uU]&)?'(?:[^'\\]|\\.|'')*+(?:'|$)              # the server cuts long statements: the end may be missing
    | "(?:[^"\\]|\\.)*+(?:"|$)
    | `[^`\n]*+(?:`|$)
    | \$(?P<tag>[a-zA-Z_]\w{0,64}+|)\$.*?(?:\$(?P=tag)\$|$)
    | \[[^\[\]{}\n]++\]? | \{[^{}\n]++\}?
    | (?:\\[ ]|[^\s,;&)'"<]|[,;&)](?![\s'"]|$|[\w-]{1,64}+[=:])|['"]{1,2}(?=\w)|<(?!/))++  # to a blank or another value
    """
)
_NOT_A_VALUE = re.compile(
    r"(?:\$\d{1,3}|\?|%s|%\(\w{1,64}\)s|null|none|true|false|NULL|None|True|False|:|\{\}?|\[\]?)(?=[\s,;)}\]]|$)"
)
_CONTINUED = re.compile(r"(?:[^\S\n]*+\n\s*+'(?:[^']|'')*+'?)++")
"""A literal that SQL joins to the one on the line before."""
_BLOCK = re.compile(r"(?:![\w-]{1,32}[ \t]++)?[|>][+-]?\d?[ \t]*+(?:#[^\n]*+)?\n")
"""A value of YAML on the next lines."""
_LINE_START = re.compile(r"[ \t]*+(?:-[ \t]++)?(?:export[ \t]++)?[\"']?")
_FUNCTION = re.compile(r"[a-zA-Z_][\w.]{0,64}+\(")


def _value_span(text: str, begin: int, *, sql: bool) -> tuple[int, int]:
    """Return the span of the value at `begin`; empty if it is none to mask."""
    scheme = _SCHEME.match(text, begin)
    begin = begin if scheme is None else scheme.end()
    if text.startswith(_MASKED, begin) or _NOT_A_VALUE.match(text, begin) or (sql and _FUNCTION.match(text, begin)):
        return begin, begin
    value = _VALUE.match(text, begin)
    end = begin if value is None else value.end()
    if value is not None and text[end - 1] == "'":
        more = _CONTINUED.match(text, end)
        end = end if more is None else more.end()
    return begin, end


def _line_of(text: str, at: int) -> int:
    """Return where the line begins, at most _NAME_LIMIT * 3 characters before."""
    first = max(0, at - 3 * _NAME_LIMIT)
    return max(first, text.rfind("\n", first, at) + 1)


def _block_span(text: str, name_at: int, begin: int) -> tuple[int, int] | None:
    """Return the lines of a YAML block that begins at `begin`; None if none does."""
    head = _BLOCK.match(text, begin)
    if head is None:
        return None
    indent = len(_LEFT_BLANKS.match(text, _line_of(text, name_at), name_at)[0])  # type: ignore[index]
    first = _LEFT_BLANKS.match(text, head.end())[0]  # type: ignore[index]
    if len(first) <= indent:
        return None
    end = head.end()
    while end < len(text):
        blanks = _LEFT_BLANKS.match(text, end)[0]  # type: ignore[index]
        after = text.find("\n", end)
        after = len(text) if after < 0 else after
        if after > end + len(blanks) and len(blanks) <= indent:
            break
        end = after + 1
    return head.end() + len(first), min(end, len(text)) - (1 if text[min(end, len(text)) - 1] == "\n" else 0)


_LEFT_BLANKS = re.compile(r"[ \t]*+")
_OBJECT = re.compile(r'.*?\b(?:table|relation|index|column|constraint|view|sequence|schema) "$', re.S)
"""A name in a message of the server: `of table "public.tokens": …`."""
_COUNT = re.compile(r"\d{1,4}\b")


def mask_named(text: str, *, sql: bool = False) -> str:
    """Return the text with the values masked that follow the name of a secret and a sign.

    A value that stands alone on its line, as in YAML, is the rest of the line; not in SQL.
    """
    parts: list[str] = []
    at = done = 0
    for begin in _positions(text):
        hit = _HIT.match(text, begin) if begin >= at else None
        if hit is None:
            continue
        at = hit.end()
        floor = max(done, begin - _NAME_LIMIT)
        while begin > floor and (text[begin - 1].isalnum() or text[begin - 1] in "_.-"):
            begin -= 1
        name = text[begin : hit.start("sign")]
        if not _is_named(name, text, begin, hit):
            continue
        start, end = _secret_span(text, begin, hit, sql=sql)
        if end > start:
            quoted = hit["sign"][-1:].isspace() and text[start] in "'$eEuU"
            parts += [text[done:start], f"'{MASK}'" if quoted and not hit["sign"].strip() else MASK]
            at = done = end
    return "".join([*parts, text[done:]]) if parts else text


def _positions(text: str) -> list[int]:
    """Return where words are of which names of secrets consist; much quicker than a search by a pattern."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few characters become two
        lowered = "".join(one if len(one.lower()) != 1 else one.lower() for one in text)
    found = []
    for word in _WORDS:
        at = lowered.find(word)
        while at >= 0:
            found.append(at)
            at = lowered.find(word, at + len(word))
    found.sort()
    return found


def _secret_span(text: str, name_at: int, hit: re.Match[str], *, sql: bool) -> tuple[int, int]:
    """Return the span of the value after a name and a sign; empty if it is none to mask."""
    sign, at = hit["sign"], hit.end()
    if hit["element"] is not None:
        end = text.find("<", at)
        return at, len(text) if end < 0 else end
    if not sql and sign.rstrip()[-1:] == ":" and (block := _block_span(text, name_at, at)) is not None:
        return block
    start, end = _value_span(text, at, sql=sql)
    return start, end if sql or end == start else _line_end(text, name_at, sign, start, end)


def _is_named(name: str, text: str, begin: int, hit: re.Match[str]) -> bool:
    """Whether what follows the name is a secret."""
    sign, before = hit["sign"], text[begin - 1 : begin]
    bare = name.strip(".-")
    if hit["element"] is not None:
        return before in ("<", ":", '"', "'") and is_secret_name(bare)
    if bare.lower() in ("sig", "key", "signature", "auth", "x-amz-signature"):
        return before in ("?", "&", ";")
    if before == '"' and _OBJECT.match(text, max(0, begin - 12), begin) is not None:
        return False
    if bare == "PASS" and sign.strip() == ":":
        return False
    if bare.lower() in ("pass", "token", "tokens", "pin", "cookie") and _COUNT.match(text, hit.end()):
        return before in ('"', "'", "-")
    return is_secret_name(bare)


def _line_end(text: str, name_at: int, sign: str, start: int, end: int) -> int:
    """Return the end of the value: of the line, if the name begins the line as in YAML or in a file of settings."""
    if text[start] in "'\"{[$*" or sign.strip() not in (":", "=") or (sign.strip() == "=" and sign[0] != " "):
        return end
    lead = _LINE_START.match(text, _line_of(text, name_at), name_at)
    if (lead is None or lead.end() < name_at) and text[name_at - 2 : name_at] != ": ":
        return end
    stop = text.find("\n", end)
    rest = text[end : len(text) if stop < 0 else stop].rstrip()
    if "=" in rest or rest[:1] in ("'", '"') or rest.startswith((" #", ",")):
        return end
    return end + len(rest)


_OPTION = re.compile(
    r"(?i)(?<![\w-])(--?[\w-]{0,48}(?:pass|pwd|secret|credential|token|key|pw)[\w-]{0,48}|/password|/pass)"
    r"([ \t]{1,8}|\\?[\"'],[ ]?(?=\\?[\"']))(?!-)"
    r"('(?:[^'\\\n]|\\.)*+'?|\"(?:[^\"\\\n]|\\.)*+\"?|\\\"(?:[^\"\\\n]|\\[^\"])*+(?:\\\")?|[^\s'\"|;&)]++)"
)


def _mask_option(match: re.Match[str]) -> str:
    if not is_secret_name(match[1].strip("-/")):
        return match[0]
    return f"{match[1]}{match[2]}{MASK}"


def mask_options(text: str) -> str:
    """Return the text with the values of options masked whose name is that of a secret: `--passphrase …`."""
    return _OPTION.sub(_mask_option, text)
