"""Reads a document: its headings, prose and fences with the lines they stand on. Says nothing yet of what they mean.

What looks like a block but would not run is an error here: a fence that is indented, stands in a list or a quotation,
was swallowed by another one that is never closed, or whose braces cannot be read. A block that silently does not run is
the worst that can happen to a runbook.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from dba_console.runbooks.problems import Problem, Problems

# The braces of a fence or a heading: `{kind word attribute attribute=value attribute="a value" #name}`.

QUOTES = "\"'"


class BracesError(Exception):
    """Braces that cannot be read; the message is the rest of a sentence."""


class Braces(Struct, frozen=True):
    """What stood between them."""

    words: tuple[str, ...] = ()
    """Those without a value, in their order; the first names the kind of a block."""
    values: dict[str, str] = {}
    name: str = ""
    """`#name`."""


def split_braces(info: str) -> tuple[str, str | None]:
    """What stands before the braces, and the text between them; None where there are none.

    >>> split_braces("sql {check}"), split_braces("sql")
    (('sql', 'check'), ('sql', None))
    """
    start = info.find("{")
    if start < 0:
        if "}" in info:
            raise BracesError("a brace is closed that was never opened")
        return info.strip(), None
    before, rest = info[:start].strip(), info[start + 1 :]
    end = _closing(rest)
    if rest[end + 1 :].strip():
        raise BracesError(f"something follows the braces: {rest[end + 1 :].strip()!r}")
    return before, rest[:end]


def parse_braces(text: str) -> Braces:
    """The words and values of it. Raises BracesError.

    >>> parse_braces('change confirm=type:"drop it" each #kill')
    Braces(words=('change', 'each'), values={'confirm': 'type:drop it'}, name='kill')
    """
    words: list[str] = []
    values: dict[str, str] = {}
    name = ""
    for token, quoted_from in _tokens(text):
        key, equals, value = token.partition("=")
        if token.startswith("#"):
            if name or equals:
                raise BracesError(f"{token!r} is a second name" if name else f"{token!r} is not a name")
            name = token[1:]
        elif equals and (quoted_from is None or quoted_from > len(key)):
            if not key or key in values:
                raise BracesError(f"{key!r} is given twice" if key else f"{token!r} has no name before its sign =")
            values[key] = value
        else:
            words.append(token)
    return Braces(tuple(words), values, name)


def _closing(text: str) -> int:
    """Where the braces end, counted outside quotes."""
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote = sign
        elif sign == "{":
            raise BracesError("a brace stands within braces; put it in quotes if it is part of a value")
        elif sign == "}":
            return at
    raise BracesError(f"a quote {quote} is never closed" if quote else "the brace is never closed")


def _tokens(text: str) -> list[tuple[str, int | None]]:
    """Tokens between blanks, quotes taken off; with each where its first quote stood, None where it has none."""
    tokens: list[tuple[str, int | None]] = []
    token, quoted, quote = "", None, ""
    for sign in [*text, " "]:
        if quote:
            if sign == quote:
                quote = ""
            else:
                token += sign
        elif sign in QUOTES:
            quote, quoted = sign, len(token) if quoted is None else quoted
        elif sign.isspace():
            if token or quoted is not None:
                tokens.append((token, quoted))
            token, quoted = "", None
        else:
            token += sign
    return tokens


LONGEST = 250_000
"""Bytes of a document: far more than anyone reads at night."""
LONGEST_ID = 60
_CANDIDATE = re.compile(r"^(?P<indent>[\s>*+\-0-9.)]*)(?P<marks>`{3,}|~{3,})[^`]*\{")
_MARKS = re.compile(r"^ {0,3}(`{3,}|~{3,})")


class Fence(Struct, frozen=True, kw_only=True):
    """A fence, with what its info string says."""

    line: int
    """Of its opening."""
    language: str
    braces: Braces | None
    """None: prose."""
    body: str


class Section(Struct, frozen=True, kw_only=True):
    """A heading of level two with what stands under it; the part before the first has no title."""

    line: int
    title: str
    slug: str
    braces: Braces
    fences: tuple[Fence, ...]
    prose: str


class Document(Struct, frozen=True, kw_only=True):
    """A document as it stands."""

    title: str
    title_line: int
    head: Section
    """What stands before the first step."""
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]


def slug(title: str) -> str:
    """The id of a heading: small letters and digits, everything else a dash.

    >>> slug("Is this a reclaim stall?"), slug("Größe & Ort")
    ('is-this-a-reclaim-stall', 'grosse-ort')
    """
    plain = unicodedata.normalize("NFKD", title.replace("ß", "ss")).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_ID].strip("-")


def parse(text: str) -> Document:
    """The document of this text. Never raises: what cannot be read stands in its problems."""
    problems = Problems()
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    tokens = MarkdownIt("commonmark").parse(text)
    _swallowed(lines, tokens, problems)
    titles = _headings(tokens, "h1")
    headings = _headings(tokens, "h2")
    fences = [_fence(token, problems) for token in tokens if token.type == "fence" and token.level == 0]
    if len(titles) != 1:
        line = titles[1][0] if titles else 1
        problems.add(line, "a runbook has one title" + (", this is a second one" if titles else ", this has none"),
                     "begin it with `# What it does`; steps are headings of level two: `## …`")  # fmt: skip
    starts = [start for start, _, _ in headings]
    head = _section(lines, fences, (1, "", 0), starts[0] if starts else len(lines) + 1, problems)
    sections = tuple(
        _section(lines, fences, heading, following, problems)
        for heading, following in zip(headings, [*starts[1:], len(lines) + 1], strict=False)
    )
    return Document(
        title=titles[0][1] if titles else "",
        title_line=titles[0][0] if titles else 1,
        head=head,
        sections=sections,
        problems=problems.sorted(),
    )


def _headings(tokens: Sequence[Token], tag: str) -> list[tuple[int, str, int]]:
    """Line, text and number of lines of each heading of that level which stands in nothing else."""
    found = []
    for at, token in enumerate(tokens):
        if token.type == "heading_open" and token.tag == tag and token.level == 0 and token.map:
            found.append((token.map[0] + 1, tokens[at + 1].content.strip(), token.map[1] - token.map[0]))
    return found


def _section(
    lines: Sequence[str], fences: Sequence[Fence], heading: tuple[int, str, int], end: int, problems: Problems
) -> Section:
    """What stands from a heading's line up to the line `end`."""
    line, title, height = heading
    within = tuple(fence for fence in fences if line <= fence.line < end)
    braces = Braces()
    if "{" in title:
        try:
            title, text = split_braces(title)
            braces = parse_braces(text or "")
        except BracesError as error:
            problems.add(line, f"the braces of the heading cannot be read: {error}")
            title = title.partition("{")[0].strip()
    title = re.sub(r"[`*]", "", title)
    prose = _prose(lines, within, line + height, end)
    return Section(line=line, title=title, slug=slug(title), braces=braces, fences=within, prose=prose)


def _prose(lines: Sequence[str], fences: Sequence[Fence], start: int, end: int) -> str:
    """The lines of a section without its runnable fences and its title."""
    runnable: set[int] = set()
    for fence in fences:
        if fence.braces is not None and "example" not in fence.braces.words:
            height = fence.body.count("\n") + 2
            runnable.update(range(fence.line, fence.line + height))
    kept = [lines[at - 1] for at in range(start, min(end, len(lines) + 1)) if at not in runnable]
    text = "\n".join(line for line in kept if not line.startswith("# "))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _fence(token: Token, problems: Problems) -> Fence:
    line = token.map[0] + 1 if token.map else 1
    try:
        language, text = split_braces(token.info.strip())
        read = None if text is None else parse_braces(text)
    except BracesError as error:
        problems.add(line, f"the braces of the block cannot be read: {error}",
                     "write them as {kind attribute=value attribute=\"a value\"}")  # fmt: skip
        language, read = token.info.partition("{")[0].strip(), None
        # It was meant to run: nothing may take it for prose.
        return Fence(line=line, language=language, braces=Braces(("example",)), body=token.content)
    return Fence(line=line, language=language, braces=read, body=token.content)


def _swallowed(lines: Sequence[str], tokens: Sequence[Token], problems: Problems) -> None:
    """Names every line that looks like the opening of a runnable fence and is none."""
    opened = {token.map[0] for token in tokens if token.type == "fence" and token.level == 0 and token.map}
    fences = [token for token in tokens if token.type == "fence" and token.map]
    for token in fences:
        if not _closed(lines, token):
            problems.add(_line(token), "this block is never closed", f"close it with {token.markup}")
    for at, line in _candidates(lines):
        if at in opened:
            if line.startswith(" "):
                problems.add(at + 1, "a block with braces is indented", "begin it at the start of the line")
            continue
        around = next((fence for fence in fences if fence.map and fence.map[0] < at < fence.map[1]), None)
        if around is not None:
            if not _may_hold(around, line):
                problems.add(
                    at + 1,
                    f"this block would not run: it lies within the one opened in line {_line(around)}",
                    "close that one first; a fence that shows a fence needs a longer mark around it",
                )
        elif not _commented(lines, tokens, at):
            problems.add(
                at + 1,
                "this block would not run: it is indented, or stands in a list or a quotation",
                "begin it at the start of a line, after an empty line",
            )


def _candidates(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for at, line in enumerate(lines):
        if _CANDIDATE.match(line):
            yield at, line


def _closed(lines: Sequence[str], token: Token) -> bool:
    if token.map is None or token.level > 0:
        return True
    # One that is never closed may end a line after the last one.
    end = min(token.map[1], len(lines))
    last = lines[end - 1].strip() if end - 1 > token.map[0] else ""
    return bool(last) and set(last) == {token.markup[0]} and len(last) >= len(token.markup)


def _may_hold(around: Token, line: str) -> bool:
    """A fence without braces may show one with shorter marks; that is an example on purpose."""
    marks = _MARKS.match(line)
    inner = marks[1] if marks else ""
    return "{" not in around.info and (inner[:1] != around.markup[0] or len(inner) < len(around.markup))


def _commented(lines: Sequence[str], tokens: Sequence[Token], at: int) -> bool:
    for token in tokens:
        if token.type == "html_block" and token.map and token.map[0] <= at < token.map[1]:
            return lines[token.map[0]].lstrip().startswith("<!--")
    return False


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 1
