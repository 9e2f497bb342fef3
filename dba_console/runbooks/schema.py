"""What may stand in a runbook, declared once: the reader checks against it, the reference page and the JSON Schema are
made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args

from msgspec import Struct

from dba_console.recording.plan import Kind
from dba_console.runbooks.values import TYPES

Shape = Literal[
    "text", "name", "flag", "int", "number", "duration", "size", "texts", "names", "test", "confirm", "switch", "any",
    "exits", "options", "result", "tables",
]  # fmt: skip
"""How a value is read; `test` is an expression, or SQL after `sql:`; `switch` is written yes or no."""

SHAPES: dict[str, str] = {
    "text": "text",
    "name": "name: small letters, digits, `-` and `_`",
    "flag": "alone, without a value",
    "int": "whole number",
    "number": "number",
    "duration": "duration, as in `30s`",
    "size": "size, as in `10MB`",
    "texts": "list of texts",
    "names": "names, separated by commas",
    "test": "expression, or SQL after `sql:`",
    "confirm": "`ack`, `yes`, `type:target`, `type:count`, `type:name` (of the one thing an action acts on, of several "
    'how many) or `type:"a phrase"`, in which `%(name)s` is an input',
    "switch": "`yes` or `no`",
    "any": "as the type of the input has it",
    "exits": "whole numbers, separated by commas",
    "result": "name: small letters, digits and `_`",
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
"""A fence of these languages within a step looks as if it would run."""


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
    kinds: frozenset[str] = frozenset()
    """Of an attribute: the kinds that take it; empty: all."""


class BlockKind(Struct, frozen=True):
    """A kind of block."""

    name: str
    languages: tuple[str, ...]
    help: str
    keys: tuple[KeySpec, ...] = ()
    """Of its table, with language toml."""
    free: bool = False
    """The table is checked elsewhere: settings of an action."""


ACTING = frozenset({"change", "run", "action"})
CONFIRMED = frozenset({"change", "run", "action", "confirm", "undo"})
NAMED = frozenset({"measure", "preview", "change", "run", "action", "input", "manual"})

RUNBOOK: tuple[KeySpec, ...] = (
    KeySpec("id", "name", "what it is called on the command line and in findings; the name of its file", required=True),
    KeySpec("answers", "texts", "rules of the findings it is offered for"),
    KeySpec("needs", "texts", "`root`, `server`, `superuser`, `pg_monitor`, `pg_signal_backend` or another role of the "
        "server's, or a program on the path: looked at before anything else"),
    KeySpec("strict", "switch", "`true`: no step may be skipped, none jumped to"),
    KeySpec("reverts", "switch", "`true`: where it fails or is aborted before a point of no return, every step is "
        "reverted, the last one first, without a question; also headless"),
    KeySpec("tag", "text", "tag of its lines in session.log; else the id in capitals"),
    KeySpec("min_version", "int", "lowest major version of the server it is for"),
    KeySpec("max_version", "int", "highest major version of the server it is for"),
    KeySpec("inputs", "tables", "tables `[inputs.NAME]`: values asked for before the start"),
)  # fmt: skip
"""Of the block `toml {runbook}` before the first step."""

INPUT: tuple[KeySpec, ...] = (
    KeySpec("type", "text", "what is taken", required=True, choices=tuple(TYPES)),
    KeySpec("help", "text", "what it is for, in a few words; asked with it"),
    KeySpec("default", "any", "the value where none is given"),
    KeySpec(
        "required", "switch", "`false`: it may be left out, and is unknown then; else one without default is asked for"
    ),
    KeySpec("choices", "texts", "with type `choice`: what it can be"),
    KeySpec("minimum", "any", "lowest value, written as the type is"),
    KeySpec("maximum", "any", "highest value, written as the type is"),
    KeySpec("pattern", "text", "regular expression the whole text has to match"),
)
"""Of a table `[inputs.NAME]`, and of a block `input` (which has a name besides)."""

STEP: tuple[KeySpec, ...] = (
    KeySpec("point_of_no_return", "flag", "what was done before it can no longer be taken back once it has begun"),
    KeySpec("branch", "flag", "reached by a decision only; passed over when walked onto from above"),
    KeySpec("then", "name", "id of the later step that follows it, or `end`"),
    KeySpec("panels", "names", "panels in view while it runs; else those its expressions name"),
)
"""Between braces after the heading of a step."""

ATTRIBUTES: tuple[KeySpec, ...] = (
    KeySpec("title", "text", "what the block is for, in a few words"),
    KeySpec("when", "test", "it applies only if this holds; else the block is skipped"),
    KeySpec("done", "test",
        "what it is for is already there: the block is skipped; also settles an act of unknown end"),
    KeySpec("timeout", "duration", "how long it may take", to="timeout_s"),
    KeySpec("on", "text", "`primary`, `standby` or a target of the configuration; else the target of the run"),
    KeySpec("role", "text", "`monitor`: over a connection that can only read; `operator`: over the one that acts",
        choices=("monitor", "operator")),
    KeySpec("confirm", "confirm", "what a person has to say before it runs", kinds=CONFIRMED),
    KeySpec("people", "int", "`2`: a second person confirms as well, from another login", kinds=CONFIRMED),
    KeySpec("usual", "duration", "what it takes as a rule", to="usual_s"),
    KeySpec("urgent", "flag", "shown as what must not wait"),
    KeySpec("as", "result", "name of its result for later blocks", to="name", kinds=NAMED),
    KeySpec("host", "flag", "touches this host only: no server has to be identified first", kinds=frozenset({"run"})),
    KeySpec("tag", "text", "tag of its lines", kinds=frozenset({"run", "undo"})),
    KeySpec("undo", "text", "`none`: nothing of it has to be taken back, or nothing can be", choices=("none",),
        kinds=ACTING),
    KeySpec("transaction", "switch",
        "`no`: outside a transaction, as VACUUM needs", kinds=frozenset({"change", "undo"})),
    KeySpec("lock_timeout", "duration", "how long it may wait for a lock; else 2s", to="lock_timeout_s",
        kinds=frozenset({"change", "undo"})),
    KeySpec("each", "flag", "executed once for each row of the preview, its columns as values",
        kinds=frozenset({"change"})),
    KeySpec("of", "result", "name of the preview it is bound to; else the one before it in the step", to="rows_from",
        kinds=frozenset({"change"})),
    KeySpec("at_most", "int", "more rows than this and it fails", kinds=frozenset({"preview"})),
    KeySpec("chosen", "result",
        "a column that is true or false: rows where it is not true are shown, and not chosen at "
        "first", kinds=frozenset({"preview"})),
    KeySpec("empty", "text", "what no row means: the change after it is skipped, or the preview fails",
        choices=("skip", "fail"), kinds=frozenset({"preview"})),
    KeySpec("databases", "result",
        "name of an earlier preview: it is asked in each database named there (`datname`), one "
        "after the other, and its rows are those of all", kinds=frozenset({"preview"})),
    KeySpec("against", "result",
        "name of an earlier measurement it is compared with; without lines of its own it takes "
        "the same fields again", kinds=frozenset({"measure"})),
    KeySpec("exit", "exits", "exit codes that count as success; else 0", kinds=frozenset({"run", "check", "undo"})),
    KeySpec("reads", "text",
        "whose messages it prints: they are followed object by object, and its end is told by phase; "
        "exit code 1 of `pg_restore` counts as success only where it says how many errors it ignored",
        choices=("pg_dump", "pg_restore", "psql"), kinds=frozenset({"run"})),
    KeySpec("archive", "text", "with `reads`: the dump that is written or read, for what it holds",
        kinds=frozenset({"run"}), reference=True),
    KeySpec("jobs", "text", "with `reads`: how many of its objects go on at once", kinds=frozenset({"run"}),
        reference=True),
)  # fmt: skip
"""Between braces after the kind of a block."""

KINDS: tuple[BlockKind, ...] = (
    BlockKind("check", ("expr", "sql", "sh"), "Must hold; reads only. SQL: the first column of its one row is true. A "
           "command: it exits with 0. An error, or a value that is not known, fails it."),
    BlockKind("measure", ("expr", "sql"),
        "Takes numbers, to be compared later: lines `field` or `name = expression`, or "
           "SQL whose one row names them by its columns."),
    BlockKind("preview", ("sql",),
        "Shows the rows that the next `change` of the step acts on, and on no others. Before "
           "the confirmation rows can be left out; only those that are chosen are acted on."),
    BlockKind("change", ("sql",), "Changes the server, in a transaction of its own. `%(rows)s` is the preview's chosen "
           "rows as JSON; with `each`, every column of a row is a value."),
    BlockKind("run", ("sh", "toml"), "Runs a command: a script for bash, or with toml an argv.", (
        KeySpec("argv", "texts", "program and arguments; an argument that is `%(name)s` is that value", required=True),
    )),
    BlockKind("action", ("toml",), "One of the console's own actions, `{action NAME}`, with its settings: "
           "[actions.md](actions.md).", free=True),
    BlockKind("wait", ("toml",), "Waits until something holds, showing value, trend and what is left.", (
        KeySpec("until", "test", "what it waits for"),
        KeySpec("hold_for", "duration", "how long that has to hold without a break; alone: simply lets that time pass",
            to="hold_for_s", reference=True),
        KeySpec("until_time", "text", "a time, `03:30` or RFC 3339", reference=True),
        KeySpec("every", "duration", "how often to look; else 5s", to="every_s", reference=True),
        KeySpec("timeout", "duration", "when to ask what to do; needed with `until`", to="timeout_s", reference=True),
    )),
    BlockKind("confirm", ("toml",), "Asks a person for a word, `{confirm yes}`, `{confirm type:target}`; covers the "
           "acting blocks after it in the step.", (
        KeySpec("text", "text", "what is asked"),
    )),
    BlockKind("choose", ("toml",), "A decision: each option leads to a later step.", (
        KeySpec("question", "text", "what is asked", required=True),
        KeySpec("options", "options",
            "`key` is typed, `text` says what it means, `goto` is the id of a later step, `next` "
            "or `end`", required=True),
    )),
    BlockKind("manual", ("toml",), "A person does it, and says what they saw.", (
        KeySpec("text", "text", "what has to be done", required=True),
        KeySpec("evidence", "text", "what is asked for afterwards; else what was seen"),
    )),
    BlockKind("input", ("toml",), "Asks for a value that is known only now; named by `as`.", INPUT),
    BlockKind("repeat", ("toml",), "Goes back to a step, round after round.", (
        KeySpec("from", "name", "id of the step each round begins with; else this one"),
        KeySpec("every", "duration", "time between two rounds", to="every_s", required=True, reference=True),
        KeySpec("times", "int", "how many rounds there are at most", reference=True),
        KeySpec("while", "test", "goes on as long as this holds"),
        KeySpec("ask", "switch", "`true`: asks before each round"),
    )),
    BlockKind("undo", ("sql", "sh"), "Takes its step back; offered when a run is aborted, never done by itself."),
)  # fmt: skip

BY_NAME: Mapping[str, BlockKind] = {kind.name: kind for kind in KINDS}

assert set(BY_NAME) == set(get_args(Kind))


def attributes_of(kind: str) -> Iterator[KeySpec]:
    """The attributes a kind takes."""
    for key in ATTRIBUTES:
        if not key.kinds or kind in key.kinds:
            yield key
