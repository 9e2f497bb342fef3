"""docs/findings.md, made from the rules themselves, the links between them, and the figures with their defaults.

What a rule sees stands in the docstring of its look, what a figure means in the one under its field; so neither can say
anything else than the code beside it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from dba_console.core.thresholds import Limits
from dba_console.core.units import human_duration
from dba_console.watch.findings import (
    cluster,
    connections,
    console,
    disks,
    io,
    jobs,
    locks,
    memory,
    safety,
    server,
    wal,
)
from dba_console.watch.findings.finding_groups import LINKS
from dba_console.watch.findings.rule import Rule
from dba_console.watch.samples.sample import PARTS

WIDTH = 120
HEAD = """# Findings

Printed by `python -m dba_console.watch.findings`; a test holds it to the rules.

A finding is one sentence about what is wrong, with the numbers that prove it, and since when. Rules look at every tick
in the agent, whether or not a console is attached; what they see is recorded, so that replay says what was said. What
explains something else is joined with it: one finding, named after its cause, whose sentence begins with what is felt.

A finding clears by itself when its rule has not seen it for the time given here. It can be acknowledged (until it
clears) or silenced (for a time, by its id or by the name of its rule). A rule that cannot know what it needs says
nothing; so does the first tick, and nothing is concluded across a gap. What must be seen for a time is raised at once
where the server itself says that it has lasted so long.

The figures stand in `[findings.FAMILY]` of the configuration file, as in `[findings.disks]`, `full_warning_pct = 85.0`;
`findings.off` names rules that are not asked at all. Units are in the names: `_pct` a share from 0 to 100, `_s`
seconds, `_bytes`, `_per_s`.
"""


class Family(NamedTuple):
    """A module of rules, and the name of its figures in `PaceLimits`."""

    title: str
    limits: str
    rules: Sequence[Rule]


FAMILIES = (
    Family("Connections", "connections", connections.RULES),
    Family("Locks", "locks", locks.RULES),
    Family("I/O", "io", io.RULES),
    Family("Memory", "memory", memory.RULES),
    Family("Checksums, transaction ids, autovacuum, catalogs", "safety", safety.RULES),
    Family("Dumps, restores", "jobs", jobs.RULES),
    Family("WAL, archiving, replication", "wal", wal.RULES),
    Family("Disks", "disks", disks.RULES),
    Family("The server", "server", server.RULES),
    Family("The cluster", "cluster", cluster.RULES),
    Family("The console itself", "console", console.RULES),
)


def render_markdown() -> str:
    """The whole document."""
    lines = [HEAD, *_index()]
    for family in FAMILIES:
        lines += [f"## {family.title}", ""]
        for rule in family.rules:
            lines += [*_rule(rule), ""]
        figures = list(threshold_rows(family.limits))
        if figures:
            lines += ["| figure | default | meaning |", "|---|---|---|", *figures, ""]
    return "\n".join(lines).rstrip() + "\n"


def _index() -> Iterator[str]:
    yield "| rule | what it tells |"
    yield "|---|---|"
    for family in FAMILIES:
        for rule in family.rules:
            yield f"| [`{rule.name}`](#{rule.name}) | {rule.title} |"
    yield ""


def _rule(rule: Rule) -> Iterator[str]:
    yield f"### `{rule.name}`"
    yield ""
    for paragraph in _paragraphs(rule):
        yield from _wrapped(paragraph)
        yield ""
    for fact in _rule_facts(rule):
        yield from _wrapped(f"- {fact}", "  ")


def _rule_facts(rule: Rule) -> Iterator[str]:
    yield f"Asked when one of these is read: {', '.join(f'{PARTS[part].meaning} (`{part}`)' for part in rule.parts)}"
    seen = (
        f"when it was seen for {human_duration(rule.raise_after_s)}" if rule.raise_after_s else "as soon as it is seen"
    )
    if rule.warm_up_s:
        yield f"Judged once it has been watched for {human_duration(rule.warm_up_s)}"
    gone = f"when it was not seen for {human_duration(rule.clear_after_s)}" if rule.clear_after_s else "when it is gone"
    yield f"Raised {seen}, cleared {gone}"
    causes = list(dict.fromkeys(link.cause for link in LINKS if link.effect == rule.name))
    effects = list(dict.fromkeys(link.effect for link in LINKS if link.cause == rule.name))
    if causes:
        yield f"May be explained by {_names(causes)}"
    if effects:
        yield f"May explain {_names(effects)}"
    if rule.runbook is not None:
        yield f"Runbook: `{rule.runbook}`"
    if rule.settings:
        yield f"Figures: {_names(f'findings.{setting}' for setting in rule.settings)}"
    if rule.source:
        yield f"Source: {rule.source}"


def _names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _paragraphs(rule: Rule) -> list[str]:
    """The docstring of what looks; of a look in another's care, that one's."""
    look = rule.check
    inner = inspect.getclosurevars(look).nonlocals.get("look") if inspect.isfunction(look) else None
    text = inspect.getdoc(inner or look) or ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def threshold_rows(family: str) -> Iterator[str]:
    """A row of a table for each figure of the family: its key in the configuration, default, meaning."""
    kind = type(getattr(Limits(), family))
    notes = field_notes(kind)
    for field in msgspec.structs.fields(kind):
        value = getattr(kind(), field.name)
        yield f"| `findings.{family}.{field.name}` | `{toml_text(value)}` | {notes.get(field.name, '')} |"


def toml_text(value: Any) -> str:
    """A default as TOML writes it: large whole numbers without a point, so that they can be read.

    >>> toml_text(80.0), toml_text(50 * 1024.0**3), toml_text(True), toml_text(["a"])
    ('80.0', '53687091200', 'true', '["a"]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value >= 1e6 and value.is_integer():
        return str(int(value))
    return str(value).replace("'", '"')


def field_notes(kind: type[Any]) -> dict[str, str]:
    """What the docstring under each field of a struct says, its bases' too, on one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    notes: dict[str, str] = {}
    for base in kind.__bases__:
        if base is not msgspec.Struct and issubclass(base, msgspec.Struct):
            notes |= field_notes(base)
    name: str | None = None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name is not None and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            notes[name] = " ".join(str(node.value.value).split()).replace("|", "\\|")
            name = None
    return notes


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
