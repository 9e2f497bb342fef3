"""Declarations of the runbook format: head, inputs, steps, attributes of blocks; the kinds declare their tables.
Documents are checked against them; docs/runbook-format.md and the JSON Schema are generated from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field, structs, to_builtins

from dba_console.core.declarations import Form, duration, json_schema, list_of, matching, one_of
from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError
from dba_console.core.units import parse_duration
from dba_console.recording.plan import Confirmation, Level
from dba_console.runbooks.values import TYPES, WHOLE, backtracking_risk

Language = Literal["sql", "sh", "expr", "toml"]
LANGUAGES: tuple[str, ...] = get_args(Language)
ALIASES: dict[str, str] = {
    "bash": "sh", "shell": "sh", "zsh": "sh", "console": "sh", "psql": "sql", "postgresql": "sql", "pgsql": "sql",
    "expression": "expr", "yaml": "toml", "json": "toml", "ini": "toml",
}  # fmt: skip
RUNNABLE: frozenset[str] = frozenset({*LANGUAGES, "bash", "shell", "zsh", "psql", "postgresql", "pgsql"})
"""A fence of these languages inside a step looks as if it would run."""

NAME = re.compile("[a-z][a-z0-9_-]*")
RESULT = re.compile("[a-z][a-z0-9_]*")
"""Names usable in expressions and in the environment."""
_INPUT = re.compile("(?!(rows|true|false|and|or|not|in|is|if|else|for)$)[a-z][a-z0-9_]*")
_SWITCH = {"yes": True, "no": False, "true": True, "false": False, True: True, False: False}
_LEVELS: Mapping[str, Level] = {"ack": "ack", "yes": "yes"}

# Forms of values. Attributes are texts; values of tables have their TOML type.


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError
    return value


def _count(value: int | str) -> int:
    if (count := int(value)) < 0:
        raise ValueError
    return count


def _seconds(value: str) -> float:
    if value.strip().replace(".", "").isdigit():
        raise ValueError
    return parse_duration(value)


def _separated(form: Form, noun: str, written: str) -> Form:
    """Return the form of a text with values of another form, separated by commas."""
    return Form(noun=noun, read=lambda value: tuple(form.read(one.strip()) for one in _text(value).split(",")),
                written=written)  # fmt: skip


def _pattern(value: str) -> str:
    try:
        re.compile(_text(value))
        risk = backtracking_risk(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"not a valid regular expression: {error}") from None
    if risk is not None:
        raise UsageError(f"matching may take forever: the pattern has {risk}", hint="simplify the pattern")
    return value


def _options(value: list[Any]) -> Any:
    if not value:
        raise ValueError
    return to_builtins(convert(value, list[DecisionOption]))


def _test(text: str) -> dict[str, str]:
    """Return `{"language": …, "text": …}` of a condition: an expression, or SQL after `sql:`. Raises ValueError."""
    stripped = _text(text).strip()
    sql = stripped.removeprefix("sql:")
    return {"language": "expr" if sql == stripped else "sql", "text": sql.strip()}


def read_confirmation(text: str) -> Confirmation:
    """Parse a confirmation: `ack`, `yes`, `type:target`, `type:count`, `type:name`, `type:a phrase`."""
    if text in _LEVELS:
        return Confirmation(level=_LEVELS[text])
    kind, _, phrase = text.partition(":")
    if kind != "type" or not phrase.strip():
        raise ValueError
    return Confirmation(level="type", text=phrase.strip())


def _or_input(form: Form) -> Form:
    """Return the form of a value for which `%(input)s` may stand."""

    def read(value: Any) -> Any:
        return value if isinstance(value, str) and WHOLE.fullmatch(value) else form.read(value)

    return structs.replace(form, read=read, written=f"{form.written or form.noun.removeprefix('a ')}, or `%(input)s`")


_TEXT = Form(noun="a text", read=_text)
_SECONDS = structs.replace(duration(_seconds), hint="with its unit: 250ms, 5s, 10m, 2h")
_COUNT = Form(noun="a whole number", read=_count, takes=(int, str), schema={"type": ["integer", "string"]})
FLAG = Form(noun="a flag", read=bool, takes=(bool,), written="no value", hint="write it without a value",
            schema={"const": True})  # fmt: skip
_NAME = matching("a name", NAME, "name: lower-case letters, digits, `-` and `_`")
_RESULT = matching("a name", RESULT, "name: lower-case letters, digits and `_`",
                   "expressions use it: lower-case letters, digits and _")  # fmt: skip
_NEED = matching("a role or a program", re.compile("[A-Za-z0-9_][A-Za-z0-9_.+-]*"))
Text = Annotated[str, _TEXT]
TextOrInput = Annotated[str, _or_input(_TEXT)]
Name = Annotated[str, _NAME]
ResultName = Annotated[str, _RESULT]
InputName = Annotated[str, matching("a name of an input", _INPUT, "NAME", "lower-case letters, digits and _")]
Tag = Annotated[str, matching("a tag", re.compile("[A-Za-z0-9_-]{1,32}"), "letters, digits, `-` and `_`")]
Pattern = Annotated[str, Form(noun="a regular expression", read=_pattern)]
Flag = Annotated[bool, FLAG]
Count = Annotated[int, _COUNT]
CountOrInput = Annotated[int | str, _or_input(_COUNT)]
SecondsText = Annotated[float, _SECONDS]
SecondsOrInput = Annotated[float | str, _or_input(_SECONDS)]
Texts = Annotated[tuple[str, ...], list_of(_TEXT, "a list of texts", 'as in ["a", "b"]')]
Needs = Annotated[tuple[str, ...], list_of(_NEED, "a list of roles or programs", 'as in ["pg_monitor"]')]
Names = Annotated[tuple[str, ...], _separated(_NAME, "a list of names", "names, separated by commas")]
ExitCodes = Annotated[tuple[int, ...], _separated(_COUNT, "exit codes", "whole numbers, separated by commas")]
YesNo = Annotated[bool, Form(noun="yes or no", read=_SWITCH.__getitem__, takes=(bool, str),
                             written="`true` or `false`, also `yes` or `no`",
                             schema={"enum": [True, False, "yes", "no"]})]  # fmt: skip
Condition = Annotated[
    dict[str, str], Form(noun="a condition", read=_test, written="expression, or SQL after `sql:`",
                         hint='as in "memory.free_bytes > 1GB", or "sql: select count(*) = 0 from …"')
]  # fmt: skip
ConfirmationText = Annotated[
    Confirmation,
    Form(
        noun="a confirmation",
        read=read_confirmation,
        written="`ack`, `yes`, `type:target`, `type:count`, `type:name` (name of the object an action acts on; of "
        'several, their count) or `type:"a phrase"`, in which `%(name)s` is an input',
    ),
]


class DecisionOption(Struct, forbid_unknown_fields=True):
    """An option of a decision."""

    key: Annotated[str, Meta(pattern=r"\S")]
    text: Annotated[str, Meta(pattern=r"\S")]
    goto: Annotated[str, Meta(pattern=r"\S")]


Options = Annotated[
    list[dict[str, str]],
    Form(
        noun="a list of options",
        read=_options,
        takes=(list,),
        written="list of tables with `key`, `text` and `goto`",
        hint="as in [[options]] with key, text and goto",
        schema={"type": "array", "items": json_schema(DecisionOption), "minItems": 1},
    ),
]


class InputTable(Struct, forbid_unknown_fields=True, kw_only=True):
    """Keys of a table `[inputs.NAME]`, and of a block `input` (which also has a name)."""

    type: Annotated[str, one_of(*TYPES)]
    """type of the value"""
    help: Text | None = None
    """short description, shown with the question"""
    default: Any = None
    """value if none is given, in the syntax of the type"""
    required: YesNo = True
    """`false`: the input is optional, unknown if not given; else it is asked for if it has no default"""
    choices: Texts | None = None
    """allowed values of type `choice`"""
    minimum: Any = None
    """lowest value, in the syntax of the type"""
    maximum: Any = None
    """highest value, in the syntax of the type"""
    pattern: Pattern | None = None
    """regular expression that the whole text must match"""


class RunbookTable(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Keys of the block `toml {runbook}` before the first step."""

    id: Name
    """name on the command line and in findings; equals the name of its file"""
    answers: Texts = ()
    """rules whose findings it is offered for"""
    needs: Needs = ()
    """`root`, `server`, `superuser`, `pg_monitor`, `pg_signal_backend` or another role of the server, or a program on
    PATH: checked before anything else"""
    strict: YesNo = False
    """`true`: no step can be skipped or jumped to"""
    reverts: YesNo = False
    """`true`: if the run fails or is aborted before a point of no return, every step is reverted, the last one first,
    without a question; also headless"""
    tag: Tag = ""
    """tag of its lines in session.log; default: the id in capitals"""
    min_version: Count | None = None
    """lowest major version of the server"""
    max_version: Count | None = None
    """highest major version of the server"""
    inputs: dict[InputName, InputTable] = {}


class StepAttributes(Struct, forbid_unknown_fields=True, kw_only=True):
    """Attributes in braces after the heading of a step."""

    point_of_no_return: Flag | None = None
    """once this step has started, earlier steps can no longer be reverted"""
    branch: Flag | None = None
    """runs only when a decision leads to it; otherwise skipped"""
    then: Name | None = None
    """id of the later step that follows it, or `end`"""
    panels: Names = ()
    """panels shown while it runs; default: those its expressions use, else those of the step before"""


COMMON_ATTRIBUTES = ("title", "when", "done", "timeout", "on", "role", "usual", "urgent")


class BlockAttributes(Struct, forbid_unknown_fields=True, kw_only=True):
    """Attributes in braces after the kind of a block; those that are not common are named by their kinds."""

    title: Text | None = None
    """purpose of the block, in a few words"""
    when: Condition | None = None
    """condition; if it does not hold, the block is skipped"""
    done: Condition | None = None
    """its effect already exists: the block is skipped; also decides an unknown outcome"""
    timeout_s: SecondsText | None = field(name="timeout", default=None)
    """maximum duration"""
    on: Text | None = None
    """`primary`, `standby` or a target of the configuration; default: the target of the run"""
    role: Literal["monitor", "operator"] | None = None
    """`monitor`: read-only connection; `operator`: connection for changes"""
    usual_s: SecondsText | None = field(name="usual", default=None)
    """typical duration"""
    urgent: Flag | None = None
    """shown as urgent"""
    confirm: ConfirmationText | None = None
    """confirmation required before it runs"""
    people: Count | None = None
    """`2`: a second operator must also confirm, from another login"""
    name: ResultName | None = field(name="as", default=None)
    """name of its result for later blocks"""
    host: Flag | None = None
    """affects this host only: the server need not be identified"""
    tag: Tag = ""
    """tag of its lines"""
    undo: Literal["none"] | None = None
    """`none`: nothing needs to be, or nothing can be, reverted"""
    transaction: YesNo = True
    """`no`: run outside a transaction, as VACUUM requires"""
    lock_timeout_s: SecondsText | None = field(name="lock_timeout", default=None)
    """lock_timeout of the transaction; default 2s"""
    each: Flag | None = None
    """executed once for each row of the preview, with its columns as values"""
    rows_from: ResultName | None = field(name="of", default=None)
    """name of the preview whose rows it uses; default: the one before it in the step"""
    at_most: Count | None = None
    """maximum number of rows; with more it fails"""
    chosen: ResultName | None = None
    """a boolean column: rows where it is not true are shown, but not chosen at first"""
    empty: Literal["skip", "fail"] = "skip"
    """if there are no rows: skip the change after it, or fail"""
    databases: ResultName | None = None
    """name of an earlier preview: run in each database listed there (`datname`), one after the other, and join the
    rows"""
    against: ResultName | None = None
    """name of an earlier measurement to compare with; a block without lines measures the same fields again"""
    exit: ExitCodes = (0,)
    """exit codes that count as success"""
    reads: Literal["pg_dump", "pg_restore", "psql"] | None = None
    """program whose messages it prints: progress is shown per object, and the result per phase; exit code 1 of
    `pg_restore` counts as success only if it reports the number of ignored errors"""
    archive: TextOrInput | None = None
    """with `reads`: the dump that is written or read, for its list of objects"""
    jobs: TextOrInput | None = None
    """with `reads`: number of parallel jobs"""
