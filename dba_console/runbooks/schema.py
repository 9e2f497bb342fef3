"""Schema of the runbook format: keys and attributes; the tables of blocks are declared by their kinds. Documents are
checked against it; docs/runbook-format.md and the JSON Schema are generated from it.
"""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from dba_console.runbooks.values import TYPES

Shape = Literal[
    "text", "name", "flag", "int", "number", "duration", "size", "texts", "names", "test", "confirm", "switch", "any",
    "exits", "options", "result", "tables",
]  # fmt: skip
"""Syntax of a value; `test` is a condition (an expression, or SQL after `sql:`), `switch` is yes or no."""

SHAPES: dict[str, str] = {
    "text": "text",
    "name": "name: lower-case letters, digits, `-` and `_`",
    "flag": "no value",
    "int": "whole number",
    "number": "number",
    "duration": "duration, as in `30s`",
    "size": "size, as in `10MB`",
    "texts": "list of texts",
    "names": "names, separated by commas",
    "test": "expression, or SQL after `sql:`",
    "confirm": "`ack`, `yes`, `type:target`, `type:count`, `type:name` (name of the object an action acts on; of "
    'several, their count) or `type:"a phrase"`, in which `%(name)s` is an input',
    "switch": "`yes` or `no`",
    "any": "value of the input's type",
    "exits": "whole numbers, separated by commas",
    "result": "name: lower-case letters, digits and `_`",
    "tables": "tables",
    "options": "list of tables with `key`, `text` and `goto`",
}

Language = Literal["sql", "sh", "expr", "toml"]
LANGUAGES: tuple[str, ...] = get_args(Language)
ALIASES: dict[str, str] = {
    "bash": "sh", "shell": "sh", "zsh": "sh", "console": "sh", "psql": "sql", "postgresql": "sql", "pgsql": "sql",
    "expression": "expr", "yaml": "toml", "json": "toml", "ini": "toml",
}  # fmt: skip
RUNNABLE: frozenset[str] = frozenset({*LANGUAGES, "bash", "shell", "zsh", "psql", "postgresql", "pgsql"})
"""A fence of these languages inside a step looks as if it would run."""


class KeySpec(Struct, frozen=True):
    """One key of a table, or one attribute between braces."""

    name: str
    shape: Shape
    help: str
    required: bool = False
    choices: tuple[str, ...] = ()
    to: str = ""
    """Name of the value in the compiled plan, where it differs."""
    reference: bool = False
    """`%(input)s` may stand for the value."""


RUNBOOK: tuple[KeySpec, ...] = (
    KeySpec("id", "name", "name on the command line and in findings; equals the name of its file", required=True),
    KeySpec("answers", "texts", "rules whose findings it is offered for"),
    KeySpec("needs", "texts", "`root`, `server`, `superuser`, `pg_monitor`, `pg_signal_backend` or another role of the "
        "server, or a program on PATH: checked before anything else"),
    KeySpec("strict", "switch", "`true`: no step can be skipped or jumped to"),
    KeySpec("reverts", "switch", "`true`: if the run fails or is aborted before a point of no return, every step is "
        "reverted, the last one first, without a question; also headless"),
    KeySpec("tag", "text", "tag of its lines in session.log; default: the id in capitals"),
    KeySpec("min_version", "int", "lowest major version of the server"),
    KeySpec("max_version", "int", "highest major version of the server"),
    KeySpec("inputs", "tables", "tables `[inputs.NAME]`: values asked for before the start"),
)  # fmt: skip
"""Keys of the block `toml {runbook}` before the first step."""

INPUT: tuple[KeySpec, ...] = (
    KeySpec("type", "text", "type of the value", required=True, choices=tuple(TYPES)),
    KeySpec("help", "text", "short description, shown with the question"),
    KeySpec("default", "any", "value if none is given"),
    KeySpec(
        "required",
        "switch",
        "`false`: the input is optional, unknown if not given; else it is asked for if it has no default",
    ),
    KeySpec("choices", "texts", "allowed values of type `choice`"),
    KeySpec("minimum", "any", "lowest value, in the syntax of the type"),
    KeySpec("maximum", "any", "highest value, in the syntax of the type"),
    KeySpec("pattern", "text", "regular expression that the whole text must match"),
)
"""Keys of a table `[inputs.NAME]`, and of a block `input` (which also has a name)."""

STEP: tuple[KeySpec, ...] = (
    KeySpec("point_of_no_return", "flag", "once this step has started, earlier steps can no longer be reverted"),
    KeySpec("branch", "flag", "runs only when a decision leads to it; otherwise skipped"),
    KeySpec("then", "name", "id of the later step that follows it, or `end`"),
    KeySpec("panels", "names", "panels shown while it runs; default: those its expressions use"),
)
"""Attributes in braces after the heading of a step."""

COMMON_ATTRIBUTES: tuple[KeySpec, ...] = (
    KeySpec("title", "text", "purpose of the block, in a few words"),
    KeySpec("when", "test", "condition; if it does not hold, the block is skipped"),
    KeySpec("done", "test",
        "its effect already exists: the block is skipped; also decides an unknown outcome"),
    KeySpec("timeout", "duration", "maximum duration", to="timeout_s"),
    KeySpec("on", "text", "`primary`, `standby` or a target of the configuration; default: the target of the run"),
    KeySpec("role", "text", "`monitor`: read-only connection; `operator`: connection for changes",
        choices=("monitor", "operator")),
    KeySpec("usual", "duration", "typical duration", to="usual_s"),
    KeySpec("urgent", "flag", "shown as urgent"),
)  # fmt: skip
"""Attributes in braces after the kind of a block."""

ATTRIBUTES: tuple[KeySpec, ...] = (
    KeySpec("confirm", "confirm", "confirmation required before it runs"),
    KeySpec("people", "int", "`2`: a second operator must also confirm, from another login"),
    KeySpec("as", "result", "name of its result for later blocks", to="name"),
    KeySpec("host", "flag", "affects this host only: the server need not be identified"),
    KeySpec("tag", "text", "tag of its lines"),
    KeySpec("undo", "text", "`none`: nothing needs to be, or nothing can be, reverted", choices=("none",)),
    KeySpec("transaction", "switch", "`no`: run outside a transaction, as VACUUM requires"),
    KeySpec("lock_timeout", "duration", "lock_timeout of the transaction; default 2s", to="lock_timeout_s"),
    KeySpec("each", "flag", "executed once for each row of the preview, with its columns as values"),
    KeySpec("of", "result", "name of the preview whose rows it uses; default: the one before it in the step",
        to="rows_from"),
    KeySpec("at_most", "int", "maximum number of rows; with more it fails"),
    KeySpec("chosen", "result", "a boolean column: rows where it is not true are shown, but not preselected"),
    KeySpec("empty", "text", "if there are no rows: skip the change after it, or fail", choices=("skip", "fail")),
    KeySpec("databases", "result",
        "name of an earlier preview: run in each database listed there (`datname`), one "
        "after the other, and join the rows"),
    KeySpec("against", "result",
        "name of an earlier measurement to compare with; a block without lines measures "
        "the same fields again"),
    KeySpec("exit", "exits", "exit codes that count as success; default 0"),
    KeySpec("reads", "text",
        "program whose messages it prints: progress is shown per object, and the result per phase; "
        "exit code 1 of `pg_restore` counts as success only if it reports the number of ignored errors",
        choices=("pg_dump", "pg_restore", "psql")),
    KeySpec("archive", "text", "with `reads`: the dump that is written or read, for its list of objects",
        reference=True),
    KeySpec("jobs", "text", "with `reads`: number of parallel jobs", reference=True),
)  # fmt: skip
"""Attributes of some kinds, which name them."""
