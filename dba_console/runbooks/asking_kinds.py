"""Kinds of blocks that ask the operator: confirmations, decisions, manual steps with a note, inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError
from dba_console.recording.plan import Block, Confirmation, Input, Plan
from dba_console.runbooks.block_kind import BlockKind
from dba_console.runbooks.changing_kinds import confirm, none_chosen
from dba_console.runbooks.problems import Problem, Problems
from dba_console.runbooks.row_choice import confirmed_preview
from dba_console.runbooks.run_view import Option
from dba_console.runbooks.schema import InputTable, Options, Text
from dba_console.runbooks.values import value_of
from dba_console.runbooks.walk_context import NotAnAnswer, Turn, WalkContext, confirms_start, end_run, place


class ConfirmTable(Struct, forbid_unknown_fields=True, kw_only=True):
    text: Text | None = None
    """text of the question"""


class Confirm(BlockKind):
    name = "confirm"
    languages = ("toml",)
    help = (
        "Asks for a confirmation, `{confirm yes}`, `{confirm type:target}`; covers the `change`, `run` and `action` "
        "blocks after it in the step."
    )
    label = "confirmation"
    table = ConfirmTable
    attributes = ("confirm", "people")
    word = "confirm"
    may_lead = True

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Ask it; it covers the changes after it in its step and counts rows of the preview before it."""
        step, _ = context.plan.block(block.id)
        shown = [one for one in step.blocks[: step.blocks.index(block)] if one.kind == "preview"]
        bound = confirmed_preview(context.plan, context.state, block)
        if bound is not None and not context.state.blocks[bound.id].chosen:
            yield from none_chosen(context, block, bound)
            return
        preview = bound or (shown[-1] if shown else None)
        rows = None if preview is None else context.state.blocks[preview.id].chosen
        count = None if rows is None else len(rows)
        yield from confirm(context, block, block.confirm or Confirmation(level="yes"), count=count)


class ChooseTable(Struct, forbid_unknown_fields=True, kw_only=True):
    question: Text
    """text of the question"""
    options: Options
    """`key` is typed, `text` describes it, `goto` is the id of a later step, `next` or `end`"""


class Choose(BlockKind):
    name = "choose"
    languages = ("toml",)
    help = "A decision: each option leads to a later step."
    label = "decision"
    table = ChooseTable
    rule = "same-key"

    def lint(self, plan: Plan, block: Block, actions: Mapping[str, Any] | None) -> Iterator[Problem]:
        """The options of a decision need different keys: the operator types one of them."""
        keys = [one["key"] for one in block.settings.get("options", ())]
        if len(set(keys)) != len(keys):
            yield Problem(line=block.line, text="two options have the same key")

    def targets(self, block: Block) -> tuple[str, ...]:
        """Return the steps that its options name."""
        return tuple(str(one["goto"]) for one in block.settings.get("options", ()))

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Ask a decision; the steps that it jumps over are recorded as skipped."""
        options = decisions(block)
        text = str(block.settings.get("question") or block.title or "How to continue?")
        answer, option, _ = yield from context.choose("choose", text, options, block=block)
        goto = leads_to(block, option.key)
        record_text = f"decision: {option.key}" + (f", jump to {place(goto)}" if goto else "")
        yield from context.answered(
            "choose", answer, f"{block.id}: {answer.who} chose {option.key}", block=block, answer=option.key
        )
        yield from context.write("choose.taken", record_text, block=block, who=answer.who, answer=option.key, goto=goto)

    def code_text(self, block: Block, values: Mapping[str, Any] | None = None) -> str:
        """Return the question and a line per option."""
        lines = [f"{one['key']}: {one['text']} → {one['goto']}" for one in block.settings.get("options", ())]
        settings = {name: value for name, value in block.settings.items() if name != "options"}
        return "\n".join(filter(None, (super().code_text(replace(block, settings=settings), values), *lines)))


def decisions(block: Block) -> tuple[Option, ...]:
    """Return the options of a `choose`."""
    return tuple(
        Option(key=str(one["key"]), text=str(one.get("text", ""))) for one in block.settings.get("options", ())
    )


def leads_to(block: Block, key: str) -> str:
    """Return the step that an option leads to, or `end`; empty: the next step."""
    goto = next((str(one.get("goto") or "") for one in block.settings.get("options", ()) if one["key"] == key), "")
    return "" if goto == "next" else goto


class ManualTable(Struct, forbid_unknown_fields=True, kw_only=True):
    text: Text
    """instructions"""
    evidence: Text | None = None
    """note that is asked for afterwards, as what shows that it is done"""


class Manual(BlockKind):
    name = "manual"
    languages = ("toml",)
    help = "A manual step: the operator does it and reports the result."
    label = "manual step, with a note"
    table = ManualTable
    attributes = ("as",)

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Ask the operator to do a manual step and to write a note about it, which must not be empty."""
        what = str(block.settings.get("text") or block.title or block.body or "follow the instructions")
        asked = str(block.settings.get("evidence") or "what shows that it is done")
        while True:
            answer = yield from context.ask("manual", f"{what}\nNote to record ({asked}):", block=block)
            if answer.text.strip():
                break
            yield from context.reject("a note is required: what was done, and what shows it")
        note = answer.text.strip()
        yield from context.answered(
            "manual",
            answer,
            f"{block.id}: done by {answer.who}: {note}",
            block=block,
            state="ok",
            answer=note,
        )


class InputKind(BlockKind):
    name = "input"
    languages = ("toml",)
    help = "Asks for a value that is not known before the run; named by `as`."
    table = InputTable
    attributes = ("as",)

    def compile(self, fields: dict[str, Any], settings: dict[str, Any], line: int, problems: Problems) -> None:
        """Report an input without a name."""
        if "name" not in fields:
            problems.add(line, "an input needs a name", "as in {input as=pid}")

    def walk(self, context: WalkContext, block: Block) -> Turn[None]:
        """Ask for the value."""
        yield from ask_value(context, block)


def declared_input(block: Block) -> Input:
    """Return the input that a block declares."""
    input_settings = {name: value for name, value in block.settings.items() if name in Input.__struct_fields__}
    return convert(
        {"type": "text", **input_settings, "name": block.name or str(input_settings.get("name", block.id))}, Input
    )


_EXISTS = {
    "role": "select exists (select from pg_roles where rolname = %({name})s) as there",
    "database": "select exists (select from pg_database where datname = %({name})s) as there",
    "relation": """
        select exists (
            select from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where case when %({name})s like '%"%' then c.oid = to_regclass(%({name})s)
                       else %({name})s = n.nspname || '.' || c.relname
                            or n.nspname = 'pg_catalog' and %({name})s = c.relname end
        ) as there""",
}
"""Type of input -> query whether the named object exists on the server."""


def missing_object(context: WalkContext, block: Block, one: Input, value: Any) -> Turn[str]:
    """Return a warning if a value names an object that does not exist on this server; empty if it exists or is unknown.

    Not an error: the object may be created later.
    """
    if one.type not in _EXISTS or value is None:
        return ""
    text = _EXISTS[one.type].replace("{name}", one.name)
    check_block = replace(block, kind="check", language="sql", body=text, settings={}, on="", timeout_s=None)
    result = yield from context.read_block(check_block, "check")
    return "" if result.error or result.holds is not False else f"{one.type} {value!r} does not exist on this server"


def ask_value(context: WalkContext, block: Block) -> Turn[None]:
    """Ask for a value. A secret is kept only in the memory of this process."""
    one = declared_input(block)
    text = one.help or block.title or f"Value of {one.name}"
    if one.default is not None or not one.required:
        text += f"; {EMPTY} for {'no value' if one.default is None else one.default}"
    doubted = None
    while True:
        answer = yield from context.ask("input", text, block=block, secret=one.secret)
        try:
            value = _value(one, answer.text)
        except UsageError as error:
            yield from context.reject(error.message)
            continue
        context.inputs[one.name] = value
        if value == doubted or not (why := (yield from missing_object(context, block, one, value))):
            break
        doubted = value
        yield from context.reject(f"{why}; enter it again to use it anyway")
    shown: dict[str, Any] = {} if one.secret else {"value": value}
    value_text = "a secret" if one.secret else str(value)
    text = f"{block.id}: {answer.who} entered {value_text}"
    yield from context.write(
        "input.given", text, block=block, who=answer.who, name=one.name, human_s=answer.human_s, **shown
    )


EMPTY = "-"
"""The answer that gives no value, or the default: Enter alone is not an answer."""


def _value(one: Input, text: str) -> Any:
    if text.strip() not in ("", EMPTY):
        return value_of(one, text)
    if one.default is not None:
        return value_of(one, one.default)
    if one.required:
        raise UsageError(f"{one.name} is required")
    return None


def ask_secrets_again(context: WalkContext) -> Turn[None]:
    """Ask again for secrets entered before a resume: no file contains them."""
    for _, block in context.plan.blocks():
        if block.kind != "input" or context.state.blocks[block.id].status != "ok":
            continue
        one = declared_input(block)
        if one.secret and one.name not in context.inputs:
            yield from ask_value(context, block)


def ask_start(context: WalkContext, text: str, *, yes: str, no: str, ending: str) -> Turn[None]:
    """Ask whether a run or a rehearsal may start. Only yes starts it; no ends it without changes.

    `yes` and `no` start the text of the record, `ending` is the reason recorded for the end.
    """
    answer = yield from context.ask("start", text, expects="yes")
    try:
        wanted = confirms_start(answer.text)
    except NotAnAnswer as why:
        yield from context.reject(str(why))
        return
    if wanted:
        yield from context.write("run.started", f"{yes} by {answer.who}", who=answer.who, human_s=answer.human_s)
    else:
        yield from context.answered("start", answer, f"{no}: {answer.who} answered no", answer="no")
        yield from end_run(context, "aborted", ending, answer.who)
