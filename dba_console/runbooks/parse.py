"""Parse a runbook document into headings, prose and fences with their lines; their meaning is checked elsewhere.

A fence that looks like a block but would not run is an error: indented, inside a list or a quotation, inside another
fence that is never closed, or with invalid braces. A block that silently does not run is the worst failure of a
runbook.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore, inline, text_join
from markdown_it.token import Token
from msgspec import Struct

from dba_console.recording.plan import Prose
from dba_console.runbooks.problems import Problem, Problems

# Braces of a fence or a heading: `{kind word attribute attribute=value attribute="a value" #name}`.

QUOTES = "\"'"


class BracesError(Exception):
    """Invalid braces; the message follows a colon."""


class Braces(Struct, frozen=True):
    """Content of braces."""

    words: tuple[str, ...] = ()
    """Words without a value, in order; the first is the kind of a block."""
    values: dict[str, str] = {}
    name: str = ""
    """`#name`."""


def split_braces(info: str) -> tuple[str, str | None]:
    """Return the text before the braces and the text between them; None if there are no braces.

    >>> split_braces("sql {check}"), split_braces("sql")
    (('sql', 'check'), ('sql', None))
    """
    start = info.find("{")
    if start < 0:
        if "}" in info:
            raise BracesError("closing brace without an opening one")
        return info.strip(), None
    before, rest = info[:start].strip(), info[start + 1 :]
    end = _closing(rest)
    if rest[end + 1 :].strip():
        raise BracesError(f"text after the braces: {rest[end + 1 :].strip()!r}")
    return before, rest[:end]


def parse_braces(text: str) -> Braces:
    """Return the words and values between braces. Raises BracesError.

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
                raise BracesError(f"{key!r} is given twice" if key else f"{token!r} has no name before =")
            values[key] = value
        else:
            words.append(token)
    return Braces(tuple(words), values, name)


def _closing(text: str) -> int:
    """Return the position of the closing brace, ignoring quoted text."""
    quote = ""
    for at, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote = sign
        elif sign == "{":
            raise BracesError("brace inside braces; quote it if it is part of a value")
        elif sign == "}":
            return at
    raise BracesError(f"quote {quote} is never closed" if quote else "the brace is never closed")


def _tokens(text: str) -> list[tuple[str, int | None]]:
    """Return the tokens without quotes, each with the position of its first quote (None: unquoted)."""
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


LONGEST = 100_000
"""Maximum bytes of a document: more than twice the longest that is shipped."""
LONGEST_PARAGRAPH = 10_000
"""A longer one is shown as it is written: emphasis and links take some hundred bytes of memory per character."""
LONGEST_ID = 60
_CANDIDATE = re.compile(r"^(?P<indent>[\s>*+\-0-9.)]*)(?P<marks>`{3,}+|~{3,}+)[^`]*\{")
_MARKS = re.compile(r"^ {0,3}(`{3,}|~{3,})")


class Fence(Struct, frozen=True, kw_only=True):
    """A fence with its parsed info string."""

    line: int
    """Line of its opening."""
    language: str
    braces: Braces | None
    """None: prose."""
    body: str


class Section(Struct, frozen=True, kw_only=True):
    """A heading of level two with its content; the part before the first heading has no title."""

    line: int
    title: str
    slug: str
    braces: Braces
    fences: tuple[Fence, ...]
    prose: tuple[Prose, ...]


class Document(Struct, frozen=True, kw_only=True):
    """A parsed document."""

    title: str
    title_line: int
    head: Section
    """The part before the first step."""
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]


def slug(title: str) -> str:
    """Return the id of a heading: lower-case letters and digits, everything else becomes a dash.

    >>> slug("Is this a reclaim stall?"), slug("Größe & Ort")
    ('is-this-a-reclaim-stall', 'grosse-ort')
    """
    plain = unicodedata.normalize("NFKD", title.replace("ß", "ss")).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_ID].strip("-")


def parse(text: str) -> Document:
    """Parse a document. Never raises: what cannot be parsed is in its problems."""
    problems = Problems()
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    tokens = markdown_tokens(text)
    _swallowed(lines, tokens, problems)
    titles = [(_line(token), tokens[at + 1].content.strip()) for at, token in enumerate(tokens) if _heads(token, "h1")]
    if len(titles) != 1:
        line = titles[1][0] if titles else 1
        problems.add(line, "the runbook has a second title" if titles else "the runbook has no title",
                     "write one `# What it does` at the top; steps are headings of level two: `## …`")  # fmt: skip
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if _heads(token, "h2"):
            groups.append([])
        groups[-1].append(token)
    head, *sections = (_section(group, problems) for group in groups)
    return Document(
        title=titles[0][1] if titles else "",
        title_line=titles[0][0] if titles else 1,
        head=head,
        sections=tuple(sections),
        problems=problems.sorted(),
    )


def markdown_tokens(text: str) -> list[Token]:
    """Return the blocks of a text; those with text hold it without marks, in their meta."""
    markdown = MarkdownIt("commonmark").disable("text_join")
    markdown.core.ruler.at("inline", _keep_texts)
    return markdown.parse(text)


def _keep_texts(state: StateCore) -> None:
    """Keep the text of each paragraph instead of its tokens, so that those of one at a time take memory."""
    for token in state.tokens:
        if token.type == "inline" and len(token.content) <= LONGEST_PARAGRAPH:
            one = StateCore(token.content, state.md, state.env, [token])
            inline(one)
            text_join(one)
            token.meta["text"] = _inline_text(token.children or [])
            token.children = None


def _heads(token: Token, tag: str) -> bool:
    """Return whether it begins a heading of that level, outside of lists and quotations."""
    return token.type == "heading_open" and token.tag == tag and token.level == 0


def _section(tokens: Sequence[Token], problems: Problems) -> Section:
    """Return the section of a heading of level two and all up to the next; the first one has no heading."""
    line, title = 1, ""
    if tokens and _heads(tokens[0], "h2"):
        line, title = _line(tokens[0]), tokens[1].content.strip()
        tokens = tokens[3:]
    braces = Braces()
    if "{" in title:
        try:
            title, text = split_braces(title)
            braces = parse_braces(text or "")
        except BracesError as error:
            problems.add(line, f"invalid braces of the heading: {error}")
            title = title.partition("{")[0].strip()
    title = re.sub(r"[`*]", "", title)
    fences = {id(token): _fence(token, problems) for token in tokens if token.type == "fence" and token.level == 0}
    blocks = {one for one, fence in fences.items() if fence.braces and "example" not in fence.braces.words}
    prose = prose_of([token for token in tokens if id(token) not in blocks])
    return Section(line=line, title=title, slug=slug(title), braces=braces, fences=tuple(fences.values()), prose=prose)


def prose_of(tokens: Sequence[Token]) -> tuple[Prose, ...]:
    """Return the text of a section from its tokens; without titles, rules and comments."""
    found: list[Prose] = []
    depth, lead, tag, end = 0, "", "", 0

    def add(text: str, kind: Literal["text", "heading", "code"], token: Token) -> None:
        nonlocal end, lead
        first, last = token.map or (end, end)
        found.append(Prose(text, kind, lead if kind == "text" else "", bool(found) and first > end))
        end, lead = last, " " * len(lead)

    for token in tokens:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                depth += 1
            case "bullet_list_close" | "ordered_list_close":
                depth -= 1
                lead = "  " * depth
            case "list_item_open":
                lead = "  " * (depth - 1) + (f"{token.info}{token.markup} " if token.info else "· ")
            case "blockquote_open" | "blockquote_close":
                lead = "> " if token.nesting > 0 else ""
            case "heading_open" | "paragraph_open":
                tag = token.tag
            case "inline" if tag == "p" and token.content.startswith("|"):  # a table
                for row in token.content.splitlines():
                    add(row.strip(), "text", token)
            case "inline" if tag != "h1":
                add(token.meta.get("text", token.content), "text" if tag == "p" else "heading", token)
            case "fence" | "code_block":
                add(token.content, "code", token)
            case "html_block" if not token.content.lstrip().startswith("<!--"):
                add(token.content, "code", token)
    return tuple(found)


def _inline_text(children: Sequence[Token]) -> str:
    """Return the text without the marks of emphasis; code keeps its marks, and a link shows its address."""
    text, links, literal = "", [""], [False]
    for child, following in zip_longest(children, children[1:]):
        match child.type:
            case "code_inline":
                text += child.markup + child.content + child.markup
            case "softbreak" | "hardbreak":
                text += " "
            case "em_open":  # in `a*b*c` and `count(*), sum(*)` the signs are no emphasis
                content = following.content if following is not None else ""
                literal.append(bool(re.search(r"\w\Z", text)) or bool(re.match(r"[^\w\"'(`]", content)))
                text += child.markup if literal[-1] else ""
            case "em_close":
                text += child.markup if literal.pop() else ""
            case "link_open":
                links.append(str(child.attrs["href"]))
            case "link_close":
                address = links.pop()
                text += "" if text.endswith(address) else f" ({address})"
            case _:
                text += child.content
    return text


def _fence(token: Token, problems: Problems) -> Fence:
    line = token.map[0] + 1 if token.map else 1
    try:
        language, text = split_braces(token.info.strip())
        read = None if text is None else parse_braces(text)
    except BracesError as error:
        problems.add(line, f"invalid braces of the block: {error}",
                     "write them as {kind attribute=value attribute=\"a value\"}")  # fmt: skip
        language, read = token.info.partition("{")[0].strip(), None
        # The author meant it to run: do not treat it as prose.
        return Fence(line=line, language=language, braces=Braces(("example",)), body=token.content)
    return Fence(line=line, language=language, braces=read, body=token.content)


def _swallowed(lines: Sequence[str], tokens: Sequence[Token], problems: Problems) -> None:
    """Report every line that looks like the opening of a runnable fence but is not one."""
    opened = {token.map[0] for token in tokens if token.type == "fence" and token.level == 0 and token.map}
    fences = [token for token in tokens if token.type == "fence" and token.map]
    for token in fences:
        if not _closed(lines, token):
            problems.add(_line(token), "this block is never closed", f"close it with {token.markup}")
    for at, line in _candidates(lines):
        if at in opened:
            if line.startswith(" "):
                problems.add(at + 1, "a block with braces is indented", "start it at the beginning of the line")
            continue
        enclosing = next((fence for fence in fences if fence.map and fence.map[0] < at < fence.map[1]), None)
        if enclosing is not None:
            if not _may_hold(enclosing, line):
                problems.add(
                    at + 1,
                    f"this block would not run: it is inside the one opened in line {_line(enclosing)}",
                    "close that one first; a fence that shows a fence needs a longer mark",
                )
        elif not _commented(lines, tokens, at):
            problems.add(
                at + 1,
                "this block would not run: it is indented, or inside a list or a quotation",
                "start it at the beginning of a line, after an empty line",
            )


def _candidates(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for at, line in enumerate(lines):
        if _CANDIDATE.match(line):
            yield at, line


def _closed(lines: Sequence[str], token: Token) -> bool:
    if token.map is None or token.level > 0:
        return True
    # An unclosed one may end a line after the last one.
    end = min(token.map[1], len(lines))
    last = lines[end - 1].strip() if end - 1 > token.map[0] else ""
    return bool(last) and set(last) == {token.markup[0]} and len(last) >= len(token.markup)


def _may_hold(enclosing: Token, line: str) -> bool:
    """Return whether a fence shows the line as an example: without braces, and with longer marks."""
    marks = _MARKS.match(line)
    inner = marks[1] if marks else ""
    return "{" not in enclosing.info and (inner[:1] != enclosing.markup[0] or len(inner) < len(enclosing.markup))


def _commented(lines: Sequence[str], tokens: Sequence[Token], at: int) -> bool:
    for token in tokens:
        if token.type == "html_block" and token.map and token.map[0] <= at < token.map[1]:
            return lines[token.map[0]].lstrip().startswith("<!--")
    return False


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 1
