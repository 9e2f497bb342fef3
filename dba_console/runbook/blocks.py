"""A fence becomes a block: its kind, its attributes and settings read by their declarations."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dba_console.plans.plan import Block, BlockCondition, Confirmation
from dba_console.runbook.headings import input_of
from dba_console.runbook.parse import Fence
from dba_console.runbook.problems import Problems, suggest
from dba_console.runbook.schema import ALIASES, BY_NAME, KINDS, BlockKind, attributes_of
from dba_console.runbook.value_readers import NAME, read_confirmation, read_table, read_value

FIELDS = frozenset(Block.__struct_fields__)
PEOPLE = 2
LONGEST_BLOCK = 16_000
"""Characters: it is shown before it runs, and nobody reads more."""
_SYNONYMS = {"approve": "confirm", "ask": "input", "branch": "choose", "cleanup": "undo", "command": "run",
          "decision": "choose", "exec": "run", "loop": "repeat", "prompt": "input", "query": "preview",
          "rollback": "undo", "script": "run", "shell": "run", "sleep": "wait", "sql": "change",
          "verify": "check"}  # fmt: skip
"""What other formats call a kind."""


def block_of(fence: Fence, block_id: Callable[[str, str], str], problems: Problems) -> Block | None:
    """The block of a fence with braces; None after telling what is wrong with it.

    `block_id` gives the id for a kind and a `#name`.
    """
    assert fence.braces is not None
    kind = _kind(fence, problems)
    if kind is None:
        return None
    if len(fence.body) > LONGEST_BLOCK:
        problems.add(fence.line, f"the block has more than {LONGEST_BLOCK} characters", "put it into a file of its own")
        return None
    words = list(fence.braces.words[1:])
    action, level = _second_word(kind, words, fence.line, problems)
    attributes = _attributes(kind, fence, words, problems)
    settings = _settings(kind, fence, problems)
    if kind.name == "confirm" and level is not None:
        attributes.setdefault("confirm", level)
    return _build_block(kind, fence, block_id(kind.name, fence.braces.name), action, attributes, settings, problems)


def toml_of(fence: Fence, problems: Problems) -> dict[str, Any]:
    """The table of a fence; empty after telling that it is none."""
    try:
        return tomllib.loads(fence.body)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = fence.line + (int(at[1]) if at else 0)
        problems.add(line, f"the settings are not TOML: {error}", 'as in every = "30s"')
        return {}


def lines_of(fence: Fence) -> Callable[[str], int]:
    """The line of a key within the document; that of the fence where it cannot be found."""
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
    names = [kind.name for kind in KINDS]
    if not words:
        problems.add(fence.line, "the braces name no kind", f"as in {{check}}; {suggest('', names)}")
        return None
    name = words[0]
    kind = BY_NAME.get(name)
    if kind is None:
        hint = f"did you mean {_SYNONYMS[name]}?" if name in _SYNONYMS else suggest(name, names)
        problems.add(fence.line, f"there is no kind of block {name!r}", hint)
        return None
    if fence.language not in kind.languages:
        language = ALIASES.get(fence.language.lower(), fence.language.lower())
        hint = f"write {language}" if language in kind.languages else f"it is written in {', '.join(kind.languages)}"
        language_text = f"language {fence.language!r}" if fence.language else "no language"
        problems.add(fence.line, f"a block {name} with {language_text} cannot be read", hint)
        return None
    return kind


def _second_word(
    kind: BlockKind, words: list[str], line: int, problems: Problems
) -> tuple[str | None, Confirmation | None]:
    """The name of an action, the level of a confirmation; taken from the words."""
    if kind.name == "action":
        if words and NAME.fullmatch(words[0]):
            return words.pop(0), None
        problems.add(line, "an action has no name", "as in {action drop-caches}; `docs/actions.md` lists them")
    elif kind.name == "confirm" and words:
        try:
            level = read_confirmation(words[0])
        except Exception:
            return None, None
        words.pop(0)
        return None, level
    return None, None


def _attributes(kind: BlockKind, fence: Fence, words: Sequence[str], problems: Problems) -> dict[str, Any]:
    keys = {key.name: key for key in attributes_of(kind.name)}
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
    kinds = [kind.name for kind in KINDS if any(key.name == name for key in attributes_of(kind.name))]
    if kinds:
        return f"it is for {', '.join(kinds)}"
    return suggest(name, keys, what="it can have")


def _settings(kind: BlockKind, fence: Fence, problems: Problems) -> dict[str, Any]:
    if fence.language != "toml":
        if not fence.body.strip() and kind.name != "measure":
            problems.add(fence.line, f"the block {kind.name} is empty")
        return {}
    table = toml_of(fence, problems)
    if kind.free:
        return table
    if kind.name == "input":
        name = fence.braces.values.get("as", "") if fence.braces else ""
        read = input_of(name, table, lines_of(fence), problems)
        settings: dict[str, Any] = msgspec.to_builtins(read) if read is not None else {}
        return settings
    return read_table(table, kind.keys, lines_of(fence), problems, f"a block {kind.name}")


def _build_block(
    kind: BlockKind,
    fence: Fence,
    block_id: str,
    action: str | None,
    attributes: dict[str, Any],
    settings: dict[str, Any],
    problems: Problems,
) -> Block:
    """The block of what was read: attributes that are no field of a block are settings."""
    fields = {name: value for name, value in attributes.items() if name in FIELDS}
    if kind.free:
        strange = [name for name in attributes if name not in FIELDS and name != "people"]
        assert not strange, strange
    else:
        settings |= {name: value for name, value in attributes.items() if name not in FIELDS and name != "people"}
    for name in ("when", "done"):
        if name in fields:
            fields[name] = BlockCondition(**fields[name])
    if people := attributes.get("people"):
        _second_person(fields, people, fence.line, problems)
    if kind.name == "input" and "name" not in fields:
        problems.add(fence.line, "an input needs a name", "as in {input as=pid}")
    if kind.name == "preview":
        settings.setdefault("empty", "skip")
    if kind.name == "wait" and "timeout_s" not in fields and isinstance(settings.get("timeout_s"), float):
        fields["timeout_s"] = settings["timeout_s"]
    if fields.pop("tag", None) is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", attributes["tag"]):
        problems.add(fence.line, f"tag {attributes['tag']!r} cannot stand in a log", "letters, digits, - and _")
    return Block(
        id=block_id,
        kind=kind.name,  # type: ignore[arg-type]
        line=fence.line,
        language=fence.language,  # type: ignore[arg-type]
        body="" if fence.language == "toml" else fence.body,
        settings=settings,
        action=action,
        tag=attributes.get("tag", ""),
        **fields,
    )


def _second_person(fields: dict[str, Any], people: int, line: int, problems: Problems) -> None:
    if people != PEOPLE:
        problems.add(line, f"people={people} cannot be asked for", "people=2, or leave it out")
    elif "confirm" not in fields:
        problems.add(line, "people=2 has nothing to confirm", "add confirm=type:target")
    else:
        fields["confirm"] = msgspec.structs.replace(fields["confirm"], people=PEOPLE)
