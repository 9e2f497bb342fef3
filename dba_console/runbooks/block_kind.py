"""Base of the kinds of blocks: one object says how a block of its kind is written, checked, executed, rehearsed and
shown. To add a kind, write a class, list it in `block_kind_registry.KINDS`, and add its name to `recording.plan.Kind`.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from dba_console.core.errors import UsageError
from dba_console.core.units import human_duration
from dba_console.recording.plan import Block, BlockCondition, Confirmation, Plan
from dba_console.runbooks.problems import Problem, Problems
from dba_console.runbooks.schema import COMMON_ATTRIBUTES
from dba_console.runbooks.values import WHOLE, arguments, for_sql, statement_text
from dba_console.runbooks.walk_context import Turn, WalkContext
from dba_console.runbooks.walk_requests import ReadResult


class BlockKind:
    """A kind of block. Methods of this class are the defaults: no lint rule, and a question to the operator."""

    name: ClassVar[str]
    languages: ClassVar[tuple[str, ...]]
    help: ClassVar[str]
    label: ClassVar[str] = ""
    """Title of a block without one, where the name is not clear."""
    table: ClassVar[type[msgspec.Struct] | None] = None
    """Declaration of its table, with language toml; None: the table holds the settings of an action."""
    inputs_replaced: ClassVar[bool] = False
    """Inputs are inserted into its settings at the start of a run."""
    attributes: ClassVar[tuple[str, ...]] = ()
    """Attributes besides the common ones."""
    word: ClassVar[str] = ""
    """Field whose value is the word after the kind."""
    may_be_empty: ClassVar[bool] = False
    may_lead: ClassVar[bool] = False
    """Checks after it may run before the start, because it has no effect that they could depend on."""
    rule: ClassVar[str] = ""
    """Name of its lint rule; empty: none."""

    @classmethod
    def all_attributes(cls) -> tuple[str, ...]:
        """Return the names of the attributes that it accepts."""
        return (*COMMON_ATTRIBUTES, *cls.attributes)

    def compile(self, fields: dict[str, Any], settings: dict[str, Any], line: int, problems: Problems) -> None:
        """Complete the fields and settings of a block, and report what is missing."""

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """Yield the problems of a block. `actions`: available actions by name; None: they are not checked."""
        yield from ()

    def targets(self, block: Block) -> tuple[str, ...]:
        """Return the steps that the block can lead to."""
        return ()

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Execute a block."""
        raise NotImplementedError

    def rehearse(self, context: WalkContext, block: Block) -> Turn[None]:
        """Record what the block would do."""
        settings = block.settings
        question = block.title or settings.get("question") or settings.get("text") or settings.get("help") or block.kind
        yield from record_rehearsed(context, block, f"would ask the operator: {question}")

    def describe(self, block: Block) -> str:
        """Return `change "Terminate them" · confirm: type the number of rows · typically 5s`."""
        return " · ".join(self.marks(block))

    def marks(self, block: Block) -> Iterator[str]:
        """Yield the parts of its description."""
        name = f"{block.kind} {block.action}" if block.action else block.kind
        yield name + (f" as {block.name}" if block.name else "") + (f" “{block.title}”" if block.title else "")
        if block.confirm is not None:
            yield confirmation_words(block.confirm)
        if block.on:
            yield f"on {block.on}"
        for word, test in (("only if", block.when), ("unless", block.done)):
            if test is not None:
                yield f"{word} {' '.join(test.text.split())}"
        if block.timeout_s is not None and "timeout_s" not in block.settings:
            yield f"timeout {human_duration(block.timeout_s)}"
        if block.usual_s is not None:
            yield f"typically {human_duration(block.usual_s)}"
        if not block.transaction:
            yield "outside a transaction"

    def code_text(self, block: Block, values: Mapping[str, Any] | None = None) -> str:
        """Return the exact code or settings of a block, with known `values` inserted."""
        if block.body:
            text = textwrap.dedent(block.body).rstrip()
            return text if values is None or block.language != "sql" else statement_text(text, for_sql(values))
        if values is not None and (argv := block.settings.get("argv")):
            return shlex.join(_argument(str(word), values) for word in argv)
        return "\n".join(f"{name} = {_setting(name, value)}" for name, value in block.settings.items())


def confirmation_words(one: Confirmation) -> str:
    """Return how a block is confirmed."""
    words = {"ack": "y", "yes": "yes", "target": "the target name", "count": "the number of rows",
             "name": "its name, or the number of rows"}  # fmt: skip
    phrase = f"“{one.text}”"
    if (named := WHOLE.fullmatch(one.text)) is not None:
        phrase = f"the value of {named[1]}"
    expected_text = words.get(one.text if one.level == "type" else one.level, phrase)
    return f"confirm: type {expected_text}" + (", two operators" if one.people > 1 else "")


def _argument(word: str, values: Mapping[str, Any]) -> str:
    try:
        return arguments([word], values)[0]
    except UsageError:  # the result of a block that has not run
        return word


def _setting(name: str, value: Any) -> str:
    if name.endswith("_s") and isinstance(value, (int, float)):
        return human_duration(value)
    if isinstance(value, dict) and set(value) == {"language", "text"}:
        return f"{value['language']}: {' '.join(str(value['text']).split())}"
    return str(msgspec.json.encode(value).decode())


def _basis(text: str, condition: BlockCondition) -> str:
    """Return the values that decided about a condition; a query without a text of its own says nothing in a log."""
    text = text or ("" if condition.language == "sql" else condition.text)
    return f": {text}" if text else ""


# What the kinds share when a block is walked.


def should_run(context: WalkContext, block: Block, item: str = "") -> Turn[bool]:
    """Evaluate `when` and `done`, and return whether the block runs. An unknown condition is a failure."""
    if block.when is not None:
        result = yield from context.read_block(block, "when", block.when)
        if result.holds is None or result.error:
            yield from _fail_unknown(context, block, "whether it applies", result, item)
            return False
        if not result.holds:
            yield from skip(context, block, f"not applicable{_basis(result.text, block.when)}", item)
            return False
    if block.done is not None:
        result = yield from context.read_block(block, "done", block.done)
        if result.holds is None or result.error:
            yield from _fail_unknown(context, block, "whether it is already done", result, item)
            return False
        if result.holds:
            yield from skip(context, block, f"already done{_basis(result.text, block.done)}", item)
            return False
    return True


def skip(context: WalkContext, block: Block, reason: str, item: str = "") -> Turn[None]:
    """Record that a block is skipped, and why."""
    yield from context.write("block.skipped", f"{block.id}: skipped, {reason}", block=block, reason=reason, item=item)


def _fail_unknown(context: WalkContext, block: Block, what: str, result: ReadResult, item: str) -> Turn[None]:
    yield from fail(context, block, result.append_to(f"unknown {what}"), item, machine_s=result.machine_s)


def fail(context: WalkContext, block: Block, note: str, item: str = "", **fields: Any) -> Turn[None]:
    """Record that a block failed before it was executed."""
    text = f"{block.id}: failed, {note}"
    yield from context.write("block.seen", text, block=block, state="failed", note=note, item=item, **fields)


def record_rehearsed(context: WalkContext, block: Block, note: str, **fields: Any) -> Turn[None]:
    """Record what a rehearsal shows of a block that it does not execute."""
    text = f"{block.id}: {note}"
    yield from context.write("block.skipped", text, block=block, state="rehearsed", reason=note, **fields)
