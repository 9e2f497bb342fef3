"""Declarations of the configuration, of runbook tables and attributes, and of action settings: fields of a msgspec
Struct, each with a docstring. `TableReader` checks values against them, `table_lines` prints the table of the reference
page, `json_schema` the JSON Schema.
"""

from __future__ import annotations

import functools
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo

from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError, suggest
from dba_console.core.units import parse_duration, parse_size

KeyPath = tuple[str, ...]


class Form(Struct, frozen=True, kw_only=True, eq=False):
    """Syntax of a value that its Python type does not determine: `Annotated[str, Form(…)]`."""

    noun: str
    """With its article, as in messages: `a duration`."""
    read: Callable[[Any], Any]
    """Returns the value. Raises ValueError or TypeError for a value of another form, UsageError to say more."""
    takes: tuple[type, ...] = (str,)
    """Types that a value may have where it is written."""
    written: str = ""
    """As in the reference page; empty: the noun without its article."""
    hint: str = ""
    schema: dict[str, Any] = {}
    """JSON Schema; empty: a string."""

    def takes_type_of(self, value: Any) -> bool:
        """Return whether a value has one of the types. A bool is not a number."""
        return isinstance(value, self.takes) and not (isinstance(value, bool) and not {bool, object} & {*self.takes})


def one_of(*choices: str | int) -> Form:
    """Return the form of a value that must be one of these."""

    def read(value: Any) -> Any:
        if value not in choices:
            raise UsageError(f"{value!r} is not one of its values", hint=suggest(str(value), map(str, choices)))
        return value

    written = ", ".join(f"`{choice}`" for choice in choices)
    return Form(noun="one of its values", read=read, takes=(str, int), written=written, schema={"enum": [*choices]})


def matching(noun: str, pattern: re.Pattern[str], written: str = "", hint: str = "") -> Form:
    """Return the form of a text that must match a regular expression as a whole."""

    def read(value: str) -> str:
        if pattern.fullmatch(value) is None:
            raise ValueError
        return value

    schema = {"type": "string", "pattern": f"^{pattern.pattern}$"}
    return Form(noun=noun, read=read, written=written, hint=hint, schema=schema)


def list_of(form: Form, noun: str, hint: str = "") -> Form:
    """Return the form of a list of values of another form."""

    def read(values: list[Any]) -> tuple[Any, ...]:
        if not all(map(form.takes_type_of, values)):
            raise TypeError
        return tuple(map(read_entry, values))

    def read_entry(value: Any) -> Any:
        try:
            return form.read(value)
        except ValueError:
            raise UsageError(f"{value!r} is not {form.noun}", hint=hint) from None

    schema = {"type": "array", "items": form.schema or {"type": "string"}}
    return Form(noun=noun, read=read, takes=(list,), hint=hint, schema=schema)


def duration(read: Callable[[str], float], written: str = "duration, as in `30s`") -> Form:
    """Return the form of a duration."""
    return Form(noun="a duration", read=read, written=written)


Duration = Annotated[str, duration(parse_duration)]
Size = Annotated[str, Form(noun="a size", read=parse_size, written="size, as in `10MB`")]


class InvalidSetting(Struct, frozen=True):
    """One problem of a value or table."""

    path: KeyPath
    """Path of the key, or of the table in which one is missing."""
    text: str
    hint: str = ""


class TableReader:
    """Reads tables by their declarations, and collects all problems.

    In messages `name` is the outermost table, `word` means a key, and `before` is the prefix of a key.
    """

    def __init__(self, name: str, word: str = "key", before: str = "") -> None:
        self._name, self._word, self._before = name, word, before
        self.problems: list[InvalidSetting] = []

    def read(self, table: Mapping[str, Any], kind: type[Struct], path: KeyPath = ()) -> dict[str, Any]:
        """Return the valid values by the names of the fields.

        >>> class Example(Struct, forbid_unknown_fields=True):
        ...     every: Duration
        >>> reader = TableReader("the example")
        >>> reader.read({"evry": "5s"}, Example), [problem.text for problem in reader.problems]
        ({}, ["the example has no key 'evry'", "the example needs 'every'"])
        """
        fields = declared_fields(kind)
        called = self._label(path) if path else self._name
        check: Callable[[str, Any], None] | None = getattr(kind, "check_value", None)
        values: dict[str, Any] = {}
        for name, value in table.items():
            if value is None and name in fields and types.NoneType in typing.get_args(fields[name].type):
                continue  # not given: an empty result, as TOML has no null
            if name in fields:
                if (read := self._value(value, fields[name].type, (*path, name), check)) is not None:
                    values[fields[name].name.removesuffix("_")] = read  # as of `from_`
            elif kind.__struct_config__.forbid_unknown_fields:
                hint = suggest(name, fields, what="it can have")
                self._add((*path, name), f"{called} has no {self._word} {name!r}", hint)
        for name, field in fields.items():
            if field.required and name not in table:
                choices = form_of(field.type).schema.get("enum", ())
                hint = suggest("", map(str, choices)) or _without_links(field_notes(kind).get(field.name, ""))
                self._add(path, f"{called} needs {name!r}", hint)
        return values

    def _label(self, path: KeyPath) -> str:
        return self._before + dotted_key(path)

    def _add(self, path: KeyPath, text: str, hint: str | None = "") -> None:
        self.problems.append(InvalidSetting(path, text, hint or ""))

    def _value(self, value: Any, kind: Any, path: KeyPath, check: Callable[[str, Any], None] | None = None) -> Any:
        """Return the value in its type, or report the problem and return None."""
        table = _table_of(kind)
        form = form_of(kind)
        try:
            if not form.takes_type_of(value):
                raise TypeError
            if _is_struct(table):
                return self.read(value, table, path)
            if table is not None:
                return self._entries(value, table, path)
            read = form.read(value)
            if check is not None:
                check(path[-1], value)
        except UsageError as error:
            self._add(path, f"{self._label(path)}: {error.message}", error.hint)
        except (ValueError, TypeError, LookupError) as error:
            self._mistyped(value, form, path, error)
        else:
            return read
        return None

    def _entries(self, table: Mapping[str, Any], kind: Any, path: KeyPath) -> dict[str, Any]:
        """Return the values of a table with free names as keys."""
        key_kind, entry_kind = typing.get_args(kind)
        names = [name for name in table if self._value(name, key_kind, (*path, name)) is not None]
        return {name: self._value(table[name], entry_kind, (*path, name)) for name in names}

    def _mistyped(self, value: Any, form: Form, path: KeyPath, error: Exception) -> None:
        """Report a value of another form. Only a text is shown: others may contain a password."""
        hint = form.hint or f"write {form.written}" * bool(form.written)
        if isinstance(error, msgspec.ValidationError) and type(value) in (list, dict) and "$" in str(error):
            reason, hint = f": {error}", ""  # about an entry
        elif isinstance(value, str):
            reason = f": {value!r} is not {form.noun}"
        else:
            reason = f" must be {form.noun}, not {_type_word(value)}"
            if not form.hint and str in form.takes and type(value) in (int, float):
                hint = f'write it in quotes: "{value}"'
        self._add(path, f"{self._label(path)}{reason}", hint)


def find_invalid(
    table: Mapping[str, Any],
    kind: type[Struct],
    name: str,
    word: str = "key",
    before: str = "",
    *,
    complete: bool = True,
) -> list[InvalidSetting]:
    """Return all problems of a table. `complete`: each value is final, so that the struct can check them together."""
    reader = TableReader(name, word, before)
    reader.read(table, kind)
    if complete and not reader.problems:
        try:
            convert(dict(table), kind)
        except msgspec.ValidationError as error:
            return [InvalidSetting((), f"{name}: {error}")]
    return reader.problems


def dotted_key(path: KeyPath) -> str:
    """Return a key path as in TOML.

    >>> dotted_key(("targets", "db 1", "dsn"))
    'targets."db 1".dsn'
    """
    return ".".join(name if name.replace("-", "").replace("_", "").isalnum() else f'"{name}"' for name in path)


@functools.cache
def declared_fields(kind: type[Struct]) -> dict[str, FieldInfo]:
    """Return the fields of a struct by their written names."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


@functools.cache
def field_notes(kind: type[Struct]) -> dict[str, str]:
    """Return the docstring below each field of a struct, its bases and the structs it joins, on one line."""
    import ast
    import inspect
    import textwrap

    notes: dict[str, str] = {}
    for base in (*kind.__bases__, *getattr(kind, "joins", ())):
        if base is not Struct and issubclass(base, Struct):
            notes |= field_notes(base)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except OSError:
        return notes  # made of other structs, or no source files: messages have no hint
    assert isinstance(tree, ast.ClassDef)
    name: str | None = None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif name is not None and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            notes[name] = " ".join(str(node.value.value).split())
            name = None
    return notes


def _without_links(note: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", note)


def leaf_settings(kind: type[Struct], at: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every single value below a struct with its type, except in tables with free names as keys."""
    for name, field in declared_fields(kind).items():
        if (table := _table_of(field.type)) is None:
            yield (*at, name), _split(field.type)[0]
        elif _is_struct(table):
            yield from leaf_settings(table, (*at, name))


# The reference page.


def table_lines(kind: type[Struct], prefix: str = "") -> list[str]:
    """Return the Markdown table of a struct: syntax, default and meaning of each value."""
    return ["| name | value | default | meaning |", "|---|---|---|---|", *table_rows(kind, prefix)]


def table_rows(kind: type[Struct], prefix: str = "") -> Iterator[str]:
    """Yield the rows of the table, with a row for each value of inner tables."""
    notes = field_notes(kind)
    for name, field in declared_fields(kind).items():
        value_kind, key = field.type, f"{prefix}{name}"
        if (table := _table_of(value_kind)) is not None and not _is_struct(table):
            key_kind, value_kind = typing.get_args(table)
            key += f".{form_of(key_kind).written or 'NAME'}"
            table = _table_of(value_kind)
        if table is not None:
            yield from table_rows(table, f"{key}.")
        else:
            meaning = notes.get(field.name, "").replace("|", "\\|")
            yield f"| `{key}` | {written_form(value_kind)} | {_default_text(field)} | {meaning} |"


def written_form(kind: Any) -> str:
    """Return the syntax of a value, as in the reference page.

    >>> written_form(str | None), written_form(list[int]), written_form(Duration), written_form(Literal["a", "b"])
    ('text', 'list of whole numbers', 'duration, as in `30s`', '`a`, `b`')
    """
    form = form_of(kind)
    return form.written or form.noun.removeprefix("a ").replace(" or a ", " or ")


def toml_text(value: Any) -> str:
    """Return a default as in TOML: large whole numbers without a decimal point, for readability.

    >>> toml_text(80.0), toml_text(50 * 1024.0**3), toml_text(True), toml_text(["a"])
    ('80.0', '53687091200', 'true', '["a"]')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value >= 1e6 and value.is_integer():
        return str(int(value))
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value).replace("'", '"')


def _default_text(field: FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default_factory is NODEFAULT else field.default_factory()
    return "–" if value in (None, "", (), {}) else f"`{toml_text(value)}`"


# JSON Schema, for editors and other tools.


def json_schema(kind: type[Struct], title: str = "", fields: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of a struct, or of some of its fields."""
    notes = field_notes(kind)
    taken = {name: field for name, field in declared_fields(kind).items() if fields is None or name in fields}
    schema: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema"} if title else {}
    schema |= {"title": title} if title else {}
    schema |= {"type": "object", "properties": {}}
    for name, field in taken.items():
        schema["properties"][name] = {"description": _without_links(notes[field.name])} if field.name in notes else {}
        schema["properties"][name] |= _type_schema(field.type)
    if kind.__struct_config__.forbid_unknown_fields:
        schema["additionalProperties"] = False
    if required := [name for name, field in taken.items() if field.required]:
        schema["required"] = required
    return schema


def _type_schema(kind: Any) -> dict[str, Any]:
    base, form = _split(kind)
    if form is not None:
        return form.schema or {"type": "string"}
    if _is_struct(base):
        return json_schema(base)
    if typing.get_origin(base) is dict:
        return {"type": "object", "additionalProperties": _type_schema(typing.get_args(base)[1])}
    if typing.get_origin(base) is list:
        return {"type": "array", "items": _type_schema(typing.get_args(base)[0])}
    return msgspec.json.schema(base)


# Types.

_NOUNS: dict[Any, str] = {str: "text", bool: "true or false", int: "a whole number", float: "a number", Any: "a value"}
_PLURALS: dict[Any, str] = {str: "texts", int: "whole numbers", float: "numbers"}


def form_of(kind: Any) -> Form:
    """Return the form of a type, with or without an annotation."""
    base, form = _split(kind)
    takes = dict if _table_of(kind) is not None else object
    return form or Form(noun=_noun(base), read=functools.partial(convert, kind=base), takes=(takes,))


def _split(kind: Any) -> tuple[Any, Form | None]:
    """Return the type without None, and its annotated form."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        rest = [one for one in typing.get_args(kind) if one is not types.NoneType]
        kind = rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]  # noqa: UP007
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        return type(choices[0]), one_of(*choices)
    if typing.get_origin(kind) is Annotated:
        return kind.__origin__, next((one for one in kind.__metadata__ if isinstance(one, Form)), None)
    return kind, None


def _table_of(kind: Any) -> Any:
    """Return the struct of a table, or the dict of one with free names as keys; None for a single value."""
    base, form = _split(kind)
    if form is None and typing.get_origin(base) is dict:
        entry = typing.get_args(base)[1]
        return base if _is_struct(entry) or _split(entry)[1] is not None else None
    return base if form is None and _is_struct(base) else None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _noun(kind: Any) -> str:
    """Return a type as in messages."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return f"a list of {_PLURALS.get(arguments[0], 'rows')}"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_noun(one) for one in arguments if one is not int or float not in arguments)
    return _NOUNS.get(kind, "a table" if origin is dict or _is_struct(kind) else str(kind))


def _type_word(value: Any) -> str:
    words = {bool: "true or false", str: "text", int: "a number", float: "a number", dict: "a table", list: "a list"}
    return words.get(type(value), "nothing" if value is None else "a date or time")
