"""Print docs/findings.md: `python -m dba_console.watch.findings > docs/findings.md`.

It is made from the rules, the causal links between them, and the thresholds with their defaults.

A rule is described by the docstring of its check, a threshold by the one below its field, so the document always
matches the code.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from dba_console.core.declarations import table_rows
from dba_console.core.units import human_duration
from dba_console.watch.findings.finding_groups import LINKS
from dba_console.watch.findings.rule import Family, Rule
from dba_console.watch.findings.rule_engine import FAMILIES, RULES
from dba_console.watch.findings.thresholds import threshold_kind, threshold_name
from dba_console.watch.samples.sample import PARTS

WIDTH = 120
_ORDER = [rule.name for rule in RULES]
HEAD = """# Findings

Printed by `python -m dba_console.watch.findings`; a test compares it with the rules.

A finding is one sentence about a problem, with the numbers that prove it and the time since when. The agent runs the
rules in every tick, whether or not a console is attached; findings are recorded, so a replay shows what was reported
then. An effect is joined with its cause: one finding, named after the cause, whose sentence starts with the effect.

A finding clears automatically when its rule has not seen it for the time given here. It can be acknowledged (until it
clears) or silenced (for a time, by its id or by the name of its rule). A rule without the data it needs reports
nothing; so does the first tick, and nothing is concluded across a gap. A problem that must last for a time is raised at
once if the server itself reports that it has lasted that long.

The thresholds are set in `[findings.FAMILY]` of the configuration file, as in `[findings.disks]`,
`full_warning_pct = 85.0`; `findings.off` names rules that do not run. Units are in the names: `_pct` a percentage from
0 to 100, `_s` seconds, `_bytes`, `_per_s`. The kind of a default: *measured* was read off an incident or a measurement,
*computed* is a constant or default of PostgreSQL or the kernel, or a multiple of one, *judgement* is ours or that of
another monitoring tool.

Where a default was read off an incident, it was one of these, on production servers: page cache was reclaimed, I/O
stopped, and 250 connections filled up; a nightly dump ended later each month; removing a 100 GB backup stopped all I/O
for 28 s at a time; WAL was on a RAM disk; data, WAL and temporary files were on one volume.
"""


def render_markdown() -> str:
    """Return the whole document."""
    lines = [HEAD, *_index()]
    for family in FAMILIES:
        lines += [f"## {family.title}", ""]
        for rule in family.rules:
            lines += [*_rule(rule), ""]
        lines += [*_thresholds(family), ""]
    return "\n".join(lines).rstrip() + "\n"


def _thresholds(family: Family) -> Iterator[str]:
    yield "| name | value | default | kind | meaning |"
    yield "|---|---|---|---|---|"
    for kind in family.thresholds:
        for name, row in zip(kind.__struct_fields__, table_rows(kind, f"findings.{family.name}."), strict=True):
            *start, meaning = row.split(" | ", 3)
            yield " | ".join([*start, threshold_kind(getattr(kind, name)) or "–", meaning])


def _index() -> Iterator[str]:
    yield "| rule | what it reports |"
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
    yield f"Runs when one of these is read: {', '.join(f'{PARTS[part].meaning} (`{part}`)' for part in rule.parts)}"
    seen = f"when seen for {human_duration(rule.raise_after_s)}" if rule.raise_after_s else "as soon as it is seen"
    if rule.warm_up_s:
        yield f"Conclusive after an observation of {human_duration(rule.warm_up_s)}"
    gone = f"when not seen for {human_duration(rule.clear_after_s)}" if rule.clear_after_s else "when it is gone"
    yield f"Raised {seen}, cleared {gone}"
    causes = list(dict.fromkeys(link.cause for link in LINKS if link.effect == rule.name))
    effects = sorted({link.effect for link in LINKS if link.cause == rule.name}, key=_ORDER.index)
    if causes:
        yield f"May be explained by {_names(causes)}"
    if effects:
        yield f"May explain {_names(effects)}"
    if rule.runbook is not None:
        yield f"Runbook: `{rule.runbook}`"
    if rule.settings:
        yield f"Thresholds: {_names(f'findings.{threshold_name(one)}' for one in rule.settings)}"
    if rule.source:
        yield f"Source: {rule.source}"


def _names(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _paragraphs(rule: Rule) -> list[str]:
    """Return the docstring of the check."""
    text = inspect.getdoc(rule.check) or ""
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    print(render_markdown(), end="")
