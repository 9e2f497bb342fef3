"""Convert the fenced code blocks of a Markdown document into runbook blocks and inputs: kind, attributes, settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.declarations import TableReader, declared_fields, form_of
from dba_console.core.errors import UsageError, suggest
from dba_console.recording.plan import Block, BlockCondition, Input
from dba_console.runbooks.block_kind import BlockKind
from dba_console.runbooks.block_kind_registry import KINDS
from dba_console.runbooks.parse import Fence
from dba_console.runbooks.problems import Problems
from dba_console.runbooks.schema import (
    ALIASES,
    FLAG,
    NAME,
    BlockAttributes,
    InputTable,
    RunbookTable,
    read_confirmation,
)
from dba_console.runbooks.values import TYPES, value_of


def read_table(
    table: Mapping[str, Any],
    kind: type[Struct],
    line_of: Callable[[str], int],
    problems: Problems,
    name: str,
    word: str = "key",
) -> dict[str, Any]:
    """Return the valid values of a table, and report the problems of others with their lines."""
    reader = TableReader(name, word)
    values = reader.read(table, kind)
    for problem in reader.problems:
        # A key of an input has the line of the input's table: another table may have the same key.
        key = problem.path[1] if len(problem.path) > 1 else "".join(problem.path)
        problems.add(line_of(key), problem.text, problem.hint)
    return values


# Head of a runbook: id, answered findings, requirements, and the inputs asked for before the start.

LARGEST_VERSION = 99


class RunbookHead(RunbookTable, frozen=True, kw_only=True):
    """Values of the block `toml {runbook}`."""

    id: str = ""
    inputs: tuple[Input, ...] = ()  # type: ignore[assignment]
    lines: dict[str, int] = {}
    """Line of each key, and of each input by name."""


def head_of(table: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems) -> RunbookHead:
    """Return the head from its table; invalid values are reported and left out."""
    values = read_table(table, RunbookTable, line_of, problems, "the runbook")
    inputs = values.pop("inputs", {})
    if (values.get("min_version") or 0) > (values.get("max_version") or LARGEST_VERSION):
        problems.add(line_of("max_version"), "min_version is above max_version")
    read = [input_of(name, one, line_of, problems) for name, one in inputs.items()]
    lines = {name: line_of(name) for name in (*table, *inputs)}
    return RunbookHead(**values, inputs=tuple(one for one in read if one is not None), lines=lines)


def input_of(name: str, values: Mapping[str, Any], line_of: Callable[[str], int], problems: Problems) -> Input | None:
    """Return the input from the values of its table, or report the problem and return None."""
    where = f"input {name}" if name else "an input"
    if "type" not in values:
        return None
    kind = values["type"]
    if (kind == "choice") != ("choices" in values):
        problems.add(line_of(name), f'{where}: choices and type = "choice" need each other', 'choices = ["a", "b"]')
        return None
    if kind == "secret" and "default" in values:
        problems.add(line_of(name), f"{where}: a secret cannot have a default", "do not write secrets into a document")
        return None
    limits = {key: values.get(key) for key in ("minimum", "maximum")}
    one = Input(
        name=name,
        type=kind,
        help=values.get("help", ""),
        required=values.get("required", True),
        choices=values.get("choices", ()),
        secret=kind == "secret",
        pattern=values.get("pattern"),
    )
    return _with_values(one, values.get("default"), limits, line_of, problems)


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
            problems.add(
                line_of(one.name), f"input {one.name}: {TYPES[one.type].noun} has no {name.removesuffix('imum')}"
            )
        else:
            one = replace(one, **{name: value})
    return one


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
        except ValueError:
            return {}
        words.pop(0)
        return {"confirm": level}
    return {}


def _attributes(kind: BlockKind, fence: Fence, words: Sequence[str], problems: Problems) -> dict[str, Any]:
    given: dict[str, Any] = {**(fence.braces.values if fence.braces else {}), **dict.fromkeys(words, True)}
    fields = declared_fields(BlockAttributes)
    known = kind.all_attributes()
    for name, value in list(given.items()):
        if name not in known:
            kinds = [one.name for one in KINDS.values() if name in one.attributes]
            hint = f"it is for {', '.join(kinds)}" if kinds else suggest(name, known, what="it can have")
            problems.add(fence.line, f"a block {kind.name} has no attribute {name!r}", hint)
        elif value is True and form_of(fields[name].type) is not FLAG:
            problems.add(fence.line, f"{name} has no value", f"as in {name}=…")
        else:
            continue
        del given[name]
    return read_table(given, BlockAttributes, lambda _: fence.line, problems, f"a block {kind.name}")


def _settings(kind: BlockKind, fence: Fence, problems: Problems) -> dict[str, Any]:
    if fence.language != "toml":
        if not fence.body.strip() and not kind.may_be_empty:
            problems.add(fence.line, f"the block {kind.name} is empty")
        return {}
    table = toml_of(fence, problems)
    if kind.table is None:
        return table
    values = read_table(table, kind.table, lines_of(fence), problems, f"a block {kind.name}")
    if kind.table is not InputTable:
        return values
    name = fence.braces.values.get("as", "") if fence.braces else ""
    one = input_of(name, values, lines_of(fence), problems)
    settings: dict[str, Any] = {} if one is None else msgspec.to_builtins(one)
    return settings


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
