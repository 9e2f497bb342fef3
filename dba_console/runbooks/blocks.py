"""Convert a fence into a block: parse its kind, attributes and settings, and the head of a runbook with its inputs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.errors import ConsoleError, UsageError
from dba_console.core.units import parse_duration, parse_size
from dba_console.recording.plan import Block, BlockCondition, Confirmation, Input, Level
from dba_console.runbooks.block_kind import BlockKind
from dba_console.runbooks.kinds import KINDS
from dba_console.runbooks.parse import Fence
from dba_console.runbooks.problems import Problems, suggest
from dba_console.runbooks.schema import ALIASES, INPUT, RUNBOOK, SHAPES, KeySpec
from dba_console.runbooks.values import TYPES, WHOLE, backtracking_risk, value_of

# Values as an author writes them, converted by the declaration of their key.

NAME = re.compile(r"[a-z][a-z0-9_-]*")
RESULT = re.compile(r"[a-z][a-z0-9_]*")
"""Names usable in expressions and in the environment."""
TEST_SQL = "sql:"
_SWITCH = {"yes": True, "no": False, "true": True, "false": False, True: True, False: False}
_LEVELS: Mapping[str, Level] = {"ack": "ack", "yes": "yes"}


class InvalidValue(Exception):
    """Invalid value; the message, if any, is the hint."""


def read_table(
    table: Mapping[str, Any], keys: Iterable[KeySpec], line_of: Callable[[str], int], problems: Problems, where: str
) -> dict[str, Any]:
    """Return the values of a table under the names of the plan. Report unknown, missing and invalid keys."""
    known_keys = {key.name: key for key in keys}
    values: dict[str, Any] = {}
    for name, value in table.items():
        key = known_keys.get(name)
        if key is None:
            problems.add(line_of(name), f"{where} has no key {name!r}", suggest(name, known_keys, what="it can have"))
            continue
        read = read_value(key, value, line_of(name), problems)
        if read is not None:
            values[key.to or key.name] = read
    for key in known_keys.values():
        if key.required and key.name not in table:
            problems.add(line_of(""), f"{where} needs {key.name!r}", ", ".join(key.choices) or key.help)
    return values


def read_value(key: KeySpec, value: Any, line: int, problems: Problems) -> Any:
    """Return the value, or report the problem and return None."""
    if key.reference and isinstance(value, str) and WHOLE.fullmatch(value):
        return value
    try:
        read = _READERS[key.shape](value)
    except (InvalidValue, ConsoleError, ValueError, TypeError) as error:
        detail = str(error) if isinstance(error, InvalidValue) else ""
        problems.add(line, f"{key.name}: {value!r} is not {_article(key)}", detail or f"write {SHAPES[key.shape]}")
        return None
    if key.choices and read not in key.choices:
        problems.add(line, f"{key.name} cannot be {read!r}", suggest(str(read), key.choices))
        return None
    return read


def read_test(text: Any) -> dict[str, str]:
    """Return `{"language": …, "text": …}` of a condition: an expression, or SQL after `sql:`."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue('as in "memory.free_bytes > 1GB", or "sql: select count(*) = 0 from …"')
    stripped = text.strip()
    if stripped.startswith(TEST_SQL):
        return {"language": "sql", "text": stripped[len(TEST_SQL) :].strip()}
    return {"language": "expr", "text": stripped}


def read_confirmation(text: Any) -> Confirmation:
    """Parse a confirmation: `ack`, `yes`, `type:target`, `type:count`, `type:name`, `type:a phrase`."""
    if isinstance(text, str):
        if text in _LEVELS:
            return Confirmation(level=_LEVELS[text])
        kind, _, phrase = text.partition(":")
        if kind == "type" and phrase.strip():
            return Confirmation(level="type", text=phrase.strip())
    raise InvalidValue


def _article(key: KeySpec) -> str:
    what = {"flag": "a flag", "texts": "a list of texts", "test": "a condition", "confirm": "a confirmation",
            "switch": "yes or no", "int": "a whole number", "names": "a list of names", "exits": "exit codes",
            "options": "a list of options", "result": "a name"}  # fmt: skip
    return what.get(key.shape, f"a {key.shape}")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise InvalidValue
    return value


def _result(value: Any) -> str:
    if not isinstance(value, str) or not RESULT.fullmatch(value):
        raise InvalidValue("expressions use it: lower-case letters, digits and _")
    return value


def _flag(value: Any) -> bool:
    if value is not True:
        raise InvalidValue("write it without a value")
    return True


def _int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidValue
    read = int(value)
    if read < 0:
        raise InvalidValue
    return read


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidValue
    return float(value)


def _duration(value: Any) -> float:
    if not isinstance(value, str) or value.strip().replace(".", "").isdigit():
        raise InvalidValue("with its unit: 250ms, 5s, 10m, 2h")
    return parse_duration(value)


def _size(value: Any) -> int:
    if not isinstance(value, str):
        raise InvalidValue
    return parse_size(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise InvalidValue('as in ["a", "b"]')
    return tuple(value)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(_name(one.strip()) for one in _text(value).split(","))


def _exits(value: Any) -> tuple[int, ...]:
    return tuple(_int(one.strip()) for one in _text(value).split(","))


def _switch(value: Any) -> bool:
    if value not in _SWITCH:
        raise InvalidValue
    return _SWITCH[value]


def _options(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise InvalidValue("as in [[options]] with key, text and goto")
    for one in value:
        if not isinstance(one, dict) or set(one) != {"key", "text", "goto"}:
            raise InvalidValue("each option has exactly key, text and goto")
        if not all(isinstance(text, str) and text.strip() for text in one.values()):
            raise InvalidValue("key, text and goto are texts")
    return [dict(one) for one in value]


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "text": _text, "name": _name, "flag": _flag, "int": _int, "number": _number, "duration": _duration, "size": _size,
    "texts": _texts, "names": _names, "test": read_test, "confirm": read_confirmation, "switch": _switch,
    "any": lambda value: value, "tables": lambda value: value, "result": _result, "exits": _exits, "options": _options,
}  # fmt: skip


# Head of a runbook: id, answered findings, requirements, and the inputs asked for before the start.

RESERVED = frozenset({"rows", "true", "false", "and", "or", "not", "in", "is", "if", "else", "for"})
LARGEST_VERSION = 99


class RunbookHead(Struct, frozen=True, kw_only=True):
    """Values of the block `toml {runbook}`."""

    id: str = ""
    answers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    strict: bool = False
    reverts: bool = False
    tag: str = ""
    min_version: int | None = None
    max_version: int | None = None
    inputs: tuple[Input, ...] = ()
    lines: dict[str, int] = {}
    """Line of each key, and of each input by name."""


def head_of(table: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems) -> RunbookHead:
    """Return the head from its table; invalid values are reported and left out."""
    values = read_table(table, RUNBOOK, line_of, problems, "the runbook")
    inputs = values.pop("inputs", {})
    if not isinstance(inputs, dict) or not all(isinstance(one, dict) for one in inputs.values()):
        problems.add(line_of("inputs"), "each input must be a table", "as in [inputs.every], then type = …")
        inputs = {}
    for need in values.get("needs", ()):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", need):
            problems.add(line_of("needs"), f"{need!r} is not a role or a program", 'as in "pg_monitor"')
    if values.get("tag") and not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", values["tag"]):
        problems.add(line_of("tag"), f"tag {values['tag']!r} is not valid", "letters, digits, - and _")
    if (values.get("min_version") or 0) > (values.get("max_version") or LARGEST_VERSION):
        problems.add(line_of("max_version"), "min_version is above max_version")
    read = [input_of(name, one, line_of, problems) for name, one in inputs.items()]
    lines = {name: line_of(name) for name in (*table, *inputs)}
    return RunbookHead(**values, inputs=tuple(one for one in read if one is not None), lines=lines)


def input_of(name: str, table: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems) -> Input | None:
    """Return the input of a table, or report the problem and return None."""
    where = f"input {name}" if name else "an input"
    if name and (not RESULT.fullmatch(name) or name in RESERVED):
        problems.add(line_of(name), f"an input cannot be named {name!r}", "lower-case letters, digits and _")
        return None
    values = read_table(table, INPUT, lambda key: _within(name, key, line_of), problems, where)
    if "type" not in values:
        return None
    kind = values["type"]
    if (kind == "choice") != ("choices" in values):
        problems.add(line_of(name), f'{where}: choices and type = "choice" need each other', 'choices = ["a", "b"]')
        return None
    if kind == "secret" and "default" in table:
        problems.add(line_of(name), f"{where}: a secret cannot have a default", "do not write secrets into a document")
        return None
    limits = {key: values.pop(key, None) for key in ("minimum", "maximum")}
    default = values.pop("default", None)
    one = Input(
        name=name,
        type=kind,
        help=values.get("help", ""),
        required=values.get("required", True),
        choices=values.get("choices", ()),
        secret=kind == "secret",
        pattern=_pattern(values.get("pattern"), where, line_of(name), problems),
    )
    return _with_values(one, default, limits, line_of, problems)


def _with_values(
    one: Input, default: Any, limits: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems
) -> Input:
    """Return the input with its default and limits, converted to its type."""
    for name, written in [*limits.items(), ("default", default)]:
        if written is None:
            continue
        try:
            value = value_of(one, written)
        except UsageError as error:
            problems.add(line_of(one.name), f"input {name.removesuffix('imum')}: {error.message}", error.hint or "")
            continue
        if name != "default" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            problems.add(line_of(one.name), f"input {one.name}: {TYPES[one.type]} has no {name.removesuffix('imum')}")
        else:
            one = replace(one, **{name: value})
    return one


def _pattern(text: str | None, where: str, line: int, problems: Problems) -> str | None:
    if text is None:
        return None
    try:
        re.compile(text)
        why = backtracking_risk(text)
    except (re.error, RecursionError, OverflowError) as error:
        problems.add(line, f"{where}: the pattern is not a valid regular expression: {error}")
        return None
    if why is not None:
        problems.add(line, f"{where}: matching the pattern may take forever: it has {why}", "simplify the pattern")
        return None
    return text


def _within(name: str, key: str, line_of: Callable[[str], int]) -> int:
    """Return the line of a key of an input's table; the line of the table if another table may have the same key."""
    return line_of(name) if name else line_of(key)


FIELDS = frozenset(Block.__struct_fields__)
PEOPLE = 2
LONGEST_BLOCK = 16_000
"""Maximum characters of a block: it must be readable before it runs."""
_SYNONYMS = {"approve": "confirm", "ask": "input", "branch": "choose", "cleanup": "undo", "command": "run",
          "decision": "choose", "exec": "run", "loop": "repeat", "prompt": "input", "query": "preview",
          "rollback": "undo", "script": "run", "shell": "run", "sleep": "wait", "sql": "change",
          "verify": "check"}  # fmt: skip
"""Names of other formats -> kind of block."""


def block_of(fence: Fence, block_id: Callable[[str, str], str], problems: Problems) -> Block | None:
    """Return the block of a fence with braces, or report the problem and return None.

    `block_id` returns the id for a kind and a `#name`.
    """
    assert fence.braces is not None
    kind = _kind(fence, problems)
    if kind is None:
        return None
    if len(fence.body) > LONGEST_BLOCK:
        problems.add(fence.line, f"the block has more than {LONGEST_BLOCK} characters", "move it into a file")
        return None
    words = list(fence.braces.words[1:])
    fields = _second_word(kind, words, fence.line, problems) | _attributes(kind, fence, words, problems)
    settings = _settings(kind, fence, problems)
    return _build_block(kind, fence, block_id(kind.name, fence.braces.name), fields, settings, problems)


def toml_of(fence: Fence, problems: Problems) -> dict[str, Any]:
    """Return the TOML table of a fence; report invalid TOML and return an empty table."""
    try:
        return tomllib.loads(fence.body)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = fence.line + (int(at[1]) if at else 0)
        problems.add(line, f"the settings are not valid TOML: {error}", 'as in every = "30s"')
        return {}


def lines_of(fence: Fence) -> Callable[[str], int]:
    """Return a function that gives the line of a key in the document; the line of the fence if it is not found."""
    lines = fence.body.splitlines()

    def line_of(key: str) -> int:
        pattern = re.compile(rf"^\s*(?:\[+\s*)?(?:\w+\.)*\"?{re.escape(key)}\"?\s*(?:[=.\]])") if key else None
        for at, line in enumerate(lines, start=1):
            if pattern and pattern.match(line):
                return fence.line + at
        return fence.line

    return line_of


def _kind(fence: Fence, problems: Problems) -> BlockKind | None:
    words = fence.braces.words if fence.braces else ()
    if not words:
        problems.add(fence.line, "the braces have no kind", f"as in {{check}}; {suggest('', KINDS)}")
        return None
    name = words[0]
    kind = KINDS.get(name)
    if kind is None:
        hint = f"did you mean {_SYNONYMS[name]}?" if name in _SYNONYMS else suggest(name, KINDS)
        problems.add(fence.line, f"unknown kind of block {name!r}", hint)
        return None
    if fence.language not in kind.languages:
        language = ALIASES.get(fence.language.lower(), fence.language.lower())
        hint = f"write {language}" if language in kind.languages else f"it is written in {', '.join(kind.languages)}"
        language_text = f"language {fence.language!r}" if fence.language else "no language"
        problems.add(fence.line, f"a block {name} cannot have {language_text}", hint)
        return None
    return kind


def _second_word(kind: BlockKind, words: list[str], line: int, problems: Problems) -> dict[str, Any]:
    """Take the field that is the word after the kind: the name of an action, or the level of a confirmation."""
    if kind.word == "action":
        if words and NAME.fullmatch(words[0]):
            return {"action": words.pop(0)}
        problems.add(line, "the action has no name", "as in {action drop-caches}; `docs/actions.md` lists them")
    elif kind.word == "confirm" and words:
        try:
            level = read_confirmation(words[0])
        except InvalidValue:
            return {}
        words.pop(0)
        return {"confirm": level}
    return {}


def _attributes(kind: BlockKind, fence: Fence, words: Sequence[str], problems: Problems) -> dict[str, Any]:
    keys = {key.name: key for key in kind.all_attributes()}
    values_given: dict[str, Any] = dict(fence.braces.values) if fence.braces else {}
    values_given.update(dict.fromkeys(words, True))
    values: dict[str, Any] = {}
    for name, value in values_given.items():
        key = keys.get(name)
        if key is None:
            problems.add(fence.line, f"a block {kind.name} has no attribute {name!r}", _attribute_hint(name, keys))
        elif value is True and key.shape not in ("flag",):
            problems.add(fence.line, f"{name} has no value", f"as in {name}=…")
        else:
            read = read_value(key, value, fence.line, problems)
            if read is not None:
                values[key.to or key.name] = read
    return values


def _attribute_hint(name: str, keys: Mapping[str, Any]) -> str:
    kinds = [kind.name for kind in KINDS.values() if name in kind.attributes]
    if kinds:
        return f"it is for {', '.join(kinds)}"
    return suggest(name, keys, what="it can have")


def _settings(kind: BlockKind, fence: Fence, problems: Problems) -> dict[str, Any]:
    if fence.language != "toml":
        if not fence.body.strip() and not kind.may_be_empty:
            problems.add(fence.line, f"the block {kind.name} is empty")
        return {}
    table = toml_of(fence, problems)
    if kind.free:
        return table
    if kind.keys is INPUT:
        name = fence.braces.values.get("as", "") if fence.braces else ""
        read = input_of(name, table, lines_of(fence), problems)
        settings: dict[str, Any] = msgspec.to_builtins(read) if read is not None else {}
        return settings
    return read_table(table, kind.keys, lines_of(fence), problems, f"a block {kind.name}")


def _build_block(
    kind: BlockKind,
    fence: Fence,
    block_id: str,
    attributes: dict[str, Any],
    settings: dict[str, Any],
    problems: Problems,
) -> Block:
    """Return the block: attributes that are not fields of Block become settings."""
    people = attributes.pop("people", None)
    fields = {name: value for name, value in attributes.items() if name in FIELDS}
    settings |= {name: value for name, value in attributes.items() if name not in FIELDS}
    for name in ("when", "done"):
        if name in fields:
            fields[name] = BlockCondition(**fields[name])
    if people:
        _second_person(fields, people, fence.line, problems)
    if "tag" in fields and not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", fields["tag"]):
        problems.add(fence.line, f"tag {fields['tag']!r} is not valid", "letters, digits, - and _")
    kind.compile(fields, settings, fence.line, problems)
    return Block(
        id=block_id,
        kind=kind.name,  # type: ignore[arg-type]
        line=fence.line,
        language=fence.language,  # type: ignore[arg-type]
        body="" if fence.language == "toml" else fence.body,
        settings=settings,
        **fields,
    )


def _second_person(fields: dict[str, Any], people: int, line: int, problems: Problems) -> None:
    if people != PEOPLE:
        problems.add(line, f"people={people} is not supported", "write people=2, or remove it")
    elif "confirm" not in fields:
        problems.add(line, "people=2 needs a confirmation", "add confirm=type:target")
    else:
        fields["confirm"] = msgspec.structs.replace(fields["confirm"], people=PEOPLE)
