"""docs/runbook-format.md and the JSON Schema, made from the declarations that documents are read by."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from dba_console.recording.plan import FORMAT
from dba_console.runbooks import lint
from dba_console.runbooks.expr import FUNCTIONS, ROOTS
from dba_console.runbooks.lint import LINT_RULES
from dba_console.runbooks.schema import ATTRIBUTES, INPUT, KINDS, RUNBOOK, SHAPES, STEP, BlockKind, KeySpec
from dba_console.runbooks.values import TYPES

_HEAD = """# The format of runbooks

Printed by `python -m dba_console.runbooks`; a test holds it to what documents are read by. How one is written, with
examples, is told in [writing-runbooks.md](writing-runbooks.md). `python -m dba_console.runbooks --schema` prints the
JSON Schema of the tables and attributes below, for editors and other tools.

A runbook is a Markdown document with one title, a head, and steps. A step is a heading of level two; its id is the
heading in small letters with dashes. What runs are fences with braces after the language, at the start of their line:

    ```sql {check timeout=5s title="no standby is behind"}
    select count(*) = 0 from pg_stat_replication where replay_lag > interval '10 s'
    ```

Between the braces stands the kind, then attributes: a word alone, `name=value`, or `name="a value"`; `#name` gives the
block an id of its own, `step/name`, else it is `step/kind`. A fence without braces is prose; in a step, one of a
language that could run needs `{example}`. Unknown keys, kinds and attributes are errors. Documents are UTF-8.

A last section `## Sources` without blocks is no step: it says which versions of the server the document was tried on,
and where its claims are from. It is shown where the runbook is read, and not in a run.
"""

_VALUES = """## Values

Inputs, and results of earlier blocks that have `as=NAME`, reach code in these ways and no other:

| where | how |
|---|---|
| SQL | `%(name)s` a bound value · `%(name)I` a quoted identifier · `%(name)R` a quoted name with its schema · `%(name)L` a quoted literal, for commands that take no bound values; a part of a result as `%(before.used)s` |
| a command | `"$RB_name"` in double quotes; parts of a result as `"$RB_copy_exit"` |
| argv, settings of an action, times of `wait` and `repeat` | `"%(name)s"` as the whole value; a part of a result as `"%(before.used)s"` |
| an expression | `name`, `name.part` |

Results: `measure` has its values by their names, `preview` has `rows` (how many are chosen; as a whole value of an
action's setting, those rows themselves), `run` has `exit` and `first_line`. A `run` with `reads` has `errors`, `objects`
and `wall_s` besides, and of its phases the seconds from the first object's start to the last one's end, `schema_s`,
`data_s`, `indexes_s`, `constraints_s`, `rest_s`; with `_busy_s` those of all objects added up, which is more where
several went on beside each other. In a change bound to a preview `%(rows)s` is its chosen rows as JSON, and with
`each` every column of a row is a value.

In commands durations are seconds, sizes are bytes, yes and no are 1 and 0.
"""  # noqa: E501

_EXPRESSIONS = """## Expressions

Fields of the panels as `dba-console show --json` names them, of `target` and `self`, inputs and results, compared with
`== != < <= > >=` and `in`, joined by `and`, `or`, `not`, reckoned with `+ - * /`. Amounts have units: `64kB 10MB 1GB`,
`250ms 5s 10m 2h 3d`, `10%`. A row of a list is picked by its name, `disks.mounts['/var'].used_pct`; a column of all
rows is a list, `disks.mounts.used_pct`.

| function | what it gives |
|---|---|
| `count(list)` | how many rows |
| `max(list)`, `min(list)`, `sum(list)` | of a column; unknown where one of them is unknown |
| `abs(number)` | without its sign |
| `known(value)` | whether it is known; the only way to ask for that |
| `finding('RULE')` | whether a finding of this rule is open |

What is not known makes a comparison unknown, and an unknown check fails, an unknown `when` or `done` too: only what can
be told counts as true. A panel that is behind, timed out or failed is unknown as a whole.
"""


def markdown() -> str:
    """The whole page."""
    lines = [
        _HEAD,
        "## Head: `toml {runbook}`\n",
        *_table(RUNBOOK),
        "\n## Inputs: `[inputs.NAME]`\n",
        *_table(INPUT),
        "\nTypes: " + ", ".join(f"`{name}` ({what})" for name, what in TYPES.items()) + ".",
        "\nThat the server has no such role, database or relation is told before the start, and by a block `input` at "
        "once. An input called like a number of the finding (`application`, `mount`, `slot`) is offered what the "
        "finding says.",
        "\n## Steps: `## Heading {…}`\n",
        *_table(STEP),
        "\n## Blocks\n",
        *_kinds(),
        "\n## Attributes of blocks\n",
        *_attributes(),
        "\n" + _VALUES,
        _EXPRESSIONS,
        "## What the lint refuses\n",
        *_rules(),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(keys: Sequence[KeySpec]) -> Iterator[str]:
    yield "| key | value | meaning |"
    yield "|---|---|---|"
    for key in keys:
        needed = " (needed)" if key.required else ""
        yield f"| `{key.name}`{needed} | {_shape(key)} | {key.help} |"


def _shape(key: KeySpec) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    return SHAPES[key.shape].replace("|", "\\|") + (", or `%(input)s`" if key.reference else "")


def _kinds() -> Iterator[str]:
    for kind in KINDS:
        languages = ", ".join(f"`{language}`" for language in kind.languages)
        yield f"### {kind.name}\n"
        yield f"{kind.help} Languages: {languages}.\n"
        if kind.keys and kind.keys is not INPUT:
            yield from _table(kind.keys)
            yield ""
        elif kind.keys:
            yield "Its table is that of an input.\n"


def _attributes() -> Iterator[str]:
    yield "| attribute | value | of | meaning |"
    yield "|---|---|---|---|"
    for key in ATTRIBUTES:
        kinds = ", ".join(kind.name for kind in KINDS if kind.name in key.kinds) or "all"
        yield f"| `{key.name}` | {_shape(key)} | {kinds} | {key.help} |"


def _rules() -> Iterator[str]:
    yield "| rule | what it refuses, and why |"
    yield "|---|---|"
    for name, rule in {**LINT_RULES, "action": lint.no_such_action}.items():
        description = " ".join((inspect.getdoc(rule) or "").split()).replace("|", "\\|")
        yield f"| {name} | {description} |"
    yield "| undeclared | A name that is neither an input nor a result of an earlier block. |"
    yield "| unused-input | An input that is asked for and used nowhere. |"
    yield "| expression | Fields, functions and units that do not exist; what is neither true nor false. |"
    yield "| no-braces | A fence in a step that looks as if it would run. |"


def json_schema() -> dict[str, Any]:
    """JSON Schema of the head, of inputs and steps, and of each kind's table and attributes."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"dba-console runbook, format {FORMAT}",
        "$defs": {
            "runbook": _object(RUNBOOK, inputs={"type": "object", "additionalProperties": {"$ref": "#/$defs/inputOf"}}),
            "inputOf": _object(INPUT),
            "step": _object(STEP),
            **{kind.name: _kind(kind) for kind in KINDS},
        },
        "$ref": "#/$defs/runbook",
    }


def _kind(kind: BlockKind) -> dict[str, Any]:
    attributes = [key for key in ATTRIBUTES if not key.kinds or kind.name in key.kinds]
    properties: dict[str, Any] = {"language": {"enum": list(kind.languages)}, "attributes": _object(attributes)}
    if "toml" in kind.languages:
        properties["table"] = {"type": "object"} if kind.free else _object(kind.keys)
    return {"description": kind.help, "type": "object", "properties": properties, "additionalProperties": False}


def _object(keys: Sequence[KeySpec], **extra: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {key.name: extra.get(key.name, {"description": key.help, **_json_type(key)}) for key in keys},
    }
    if required := [key.name for key in keys if key.required]:
        schema["required"] = required
    return schema


def _json_type(key: KeySpec) -> dict[str, Any]:
    if key.choices:
        return {"enum": list(key.choices)}
    if key.shape == "tables":
        return {"type": "object"}
    if key.shape == "options":
        texts = {name: {"type": "string"} for name in ("key", "text", "goto")}
        item = {"type": "object", "properties": texts, "required": list(texts), "additionalProperties": False}
        return {"type": "array", "items": item, "minItems": 1}
    types: dict[str, dict[str, Any]] = {
        "flag": {"const": True},
        "int": {"type": ["integer", "string"]},
        "number": {"type": "number"},
        "texts": {"type": "array", "items": {"type": "string"}},
        "switch": {"enum": [True, False, "yes", "no"]},
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$"},
        "result": {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"},
        "any": {},
    }
    return types.get(key.shape, {"type": "string"})


assert set(FUNCTIONS) <= set(_EXPRESSIONS.replace("(", " ").replace("`", " ").split())
assert {"target", "self"} <= set(ROOTS)
