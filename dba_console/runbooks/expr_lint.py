"""Check an expression before anything runs: its names, fields, functions and units."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from dba_console.core.errors import suggest
from dba_console.runbooks.expr import (
    ARITHMETIC,
    FUNCTIONS,
    ROOTS,
    all_fields,
    fields_of,
    is_list,
    parse_expression,
    row_type,
    structs,
)
from dba_console.runbooks.result_tables import unknown_unit
from dba_console.watch.subjects import PANEL_NAMES

_NODES = (
    ast.Expression, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.Call, ast.Subscript, ast.Attribute,
    ast.Constant, ast.Tuple, ast.List, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_VERDICTS = (ast.Compare, ast.BoolOp)


@dataclass(slots=True)
class ExpressionNames:
    """Names used in an expression, and its problems."""

    names: set[str] = field(default_factory=set)
    """Inputs and results."""
    panels: list[str] = field(default_factory=list)
    findings: set[str] = field(default_factory=set)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """Message and hint."""
    fields: bool = False
    """It uses live data; otherwise its value depends on inputs and results only."""


def read_expression(text: str, known: Collection[str], *, verdict: bool = True) -> ExpressionNames:
    """Return the names an expression uses. `known`: declared inputs and results; `verdict`: it must be a condition."""
    reading = ExpressionNames()
    if not text.strip():
        reading.wrong.append(("the expression is empty", "as in memory.free_bytes > 1GB"))
        return reading
    if unit := unknown_unit(text):
        reading.wrong.append((f"{unit} has an unknown unit", "write 64kB 10MB 1GB, 250ms 5s 10m 2h 3d, or 10%"))
        return reading
    try:
        tree = parse_expression(text)
    except SyntaxError:
        reading.wrong.append(_unreadable(text))
        return reading
    figure = _non_condition(tree, known) if verdict else ""
    if figure:
        reading.wrong.append((f"{figure} is not true or false", f"compare it, as in {figure} > 10"))
    elif verdict and not _is_condition(tree, known):
        reading.wrong.append((f"{text.strip()!r} is not a condition", "compare it, as in … > 10MB"))
    _walk(tree, reading, known)
    return reading


def reads_live_data(text: str, known: Collection[str]) -> bool:
    """Return whether an expression uses more than these inputs and results; true if it cannot be parsed.

    >>> reads_live_data("jobs > 4", {"jobs"}), reads_live_data("io.iowait_pct > jobs", {"jobs"})
    (False, True)
    """
    reading = read_expression(text, known, verdict=False)
    return reading.fields or bool(reading.findings) or bool(reading.wrong)


def _unreadable(text: str) -> tuple[str, str]:
    for sign, word in (("&&", "and"), ("||", "or"), ("<>", "!=")):
        if sign in text:
            return f"not a valid expression: {text.strip()!r}", f"write {word} for {sign}"
    if " = " in text:
        return f"not a valid expression: {text.strip()!r}", "== compares"
    if "%(" in text or "$RB_" in text:
        return f"not a valid expression: {text.strip()!r}", "write the name of an input alone, without % or $"
    return f"not a valid expression: {text.strip()!r}", "write one over fields, as in memory.free_bytes > 1GB and …"


def _is_condition(node: ast.expr, known: Collection[str]) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("known", "finding")
    # A field, a result or an input may be true or false: known only at run time.
    return isinstance(node, (*_VERDICTS, ast.Attribute)) or (
        isinstance(node, ast.Name) and (node.id in known or node.id in ("true", "false"))
    )


def _non_condition(node: ast.expr, known: Collection[str]) -> str:
    """Return the field that is used as a condition but is not a boolean; empty if there is none."""
    if isinstance(node, ast.BoolOp):
        return next((found for one in node.values if (found := _non_condition(one, known))), "")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _non_condition(node.operand, known)
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
        return ""
    root = node.value.id
    if root in known or root not in ROOTS or (kind := fields_of(structs()[root]).get(node.attr)) is None:
        return ""
    return "" if kind is bool or bool in get_args(kind) else f"{root}.{node.attr}"


def _walk(node: ast.AST, reading: ExpressionNames, known: Collection[str]) -> None:
    if not isinstance(node, _NODES) or (isinstance(node, ast.operator) and type(node) not in ARITHMETIC):
        construct = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__.lower()
        reading.wrong.append(
            (
                f"{construct} is not allowed in expressions",
                "allowed: fields, numbers and texts, + - * /, comparisons, in, and, or, not",
            )
        )
        return
    if isinstance(node, ast.Call):
        _call(node, reading, known)
    elif isinstance(node, (ast.Attribute, ast.Name, ast.Subscript)):
        _name(node, reading, known)
    else:
        for child in ast.iter_child_nodes(node):
            _walk(child, reading, known)


def _call(node: ast.Call, reading: ExpressionNames, known: Collection[str]) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
    if name not in FUNCTIONS:
        reading.wrong.append((f"unknown function {name}", suggest(name, FUNCTIONS, what="available:")))
    elif not node.args or node.keywords or (len(node.args) > 1 and name not in ("min", "max")):
        reading.wrong.append((f"{name} takes one argument", f"as in {name}(…)"))
    if name == "finding":
        reading.findings.update(str(one.value) for one in node.args if isinstance(one, ast.Constant))
    for argument in node.args:
        _walk(argument, reading, known)


def _name(node: ast.Attribute | ast.Name | ast.Subscript, reading: ExpressionNames, known: Collection[str]) -> None:
    """Check a dotted name: `panel.field`, `panel.list.column`, `panel.list[key].column`, `result.value`, an input."""
    parts = list(_parts(node, reading, known))
    root = parts[0]
    if root in known:
        reading.names.add(root)
        return
    reading.fields = reading.fields or root not in ("true", "false")
    if root in ("true", "false"):
        return
    if root not in ROOTS:
        dotted_name = ".".join(part for part in parts if part != "[]")
        names = all_fields() if len(parts) > 1 else [*known, *all_fields()]
        hint = (
            suggest(dotted_name, names, what="inputs and results here:")
            or "`dba-console show --json` lists every field"
        )
        reading.wrong.append((f"{dotted_name} is not a field, an input or a result", hint))
        return
    if root in PANEL_NAMES and root not in reading.panels:
        reading.panels.append(root)
    if wrong := _unknown_part(parts):
        reading.wrong.append(wrong)


def _parts(node: ast.AST, reading: ExpressionNames, known: Collection[str]) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield from _parts(node.value, reading, known)
        yield node.attr
    elif isinstance(node, ast.Subscript):
        yield from _parts(node.value, reading, known)
        yield "[]"
        _walk(node.slice, reading, known)
    elif isinstance(node, ast.Name):
        yield node.id
    else:
        yield ast.unparse(node)


def _unknown_part(parts: list[str]) -> tuple[str, str] | None:
    """Return the problem with the first unknown part of a dotted name, with its hint."""
    struct = structs()[parts[0]]
    path = parts[0]
    if len(parts) == 1:
        return f"{path} is a whole panel", f"name one of its fields, as in {path}.{next(iter(fields_of(struct)))}"
    annotation: Any = None
    for part in parts[1:]:
        if part == "[]":
            path += "[…]"
            if not is_list(annotation) and "dict" not in str(annotation):
                return f"{path} selects a row", f"{path.removesuffix('[…]')} is a single value"
            continue
        if annotation is not None:
            rows = row_type(annotation)
            if rows is None:
                if "dict" in str(annotation):
                    return None
                return f"{path} has no field {part}", f"{path} is a single value"
            struct = rows
        names = fields_of(struct)
        if part not in names:
            close = suggest(part, names, what=f"{path} has") or "`dba-console show --json` lists every field"
            return f"{path} has no field {part}", close
        path, annotation = f"{path}.{part}", names[part]
    return None
