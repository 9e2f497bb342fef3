"""Evaluate the expressions of checks, waits and conditions: comparisons of panel fields, results and inputs; no code.

Three-valued logic as in SQL: an unknown operand makes a comparison unknown, `and`, `or` and `not` pass it on, and
unknown never counts as true. Every operand is evaluated, because the explanation lists every value.
"""

from __future__ import annotations

import ast
import operator
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from dba_console.core.units import human_duration
from dba_console.runbooks.result_tables import format_value, replace_units
from dba_console.watch.frames.model import Frame, panel_fields
from dba_console.watch.subjects import PANEL_NAMES

# Fields that an expression may name: those of the panels, as in `show --json`, and of the target.

SPOKEN: dict[str, str] = {"self": "own"}
"""Name in `show --json` -> name in the frame, where they differ."""
ROOTS: tuple[str, ...] = (*PANEL_NAMES, "target", "self")
KEYS: tuple[str, ...] = ("name", "path", "database", "application", "table", "kind", "pid", "node")
"""Columns that identify a row of a list, in this order: `disks.mounts["/var"]`, `replication.slots["old"]`."""


@cache
def structs() -> dict[str, type[msgspec.Struct]]:
    """Return the struct of each root."""
    hints = typing.get_type_hints(Frame)
    return panel_fields() | {root: hints[SPOKEN.get(root, root)] for root in ROOTS if root not in PANEL_NAMES}


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return name -> type of the fields of a struct."""
    return dict(typing.get_type_hints(struct))


def row_type(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the struct of a list's rows; None if it is not a list of structs."""
    if typing.get_origin(annotation) is list:
        (inner,) = typing.get_args(annotation)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return inner
    return None


def is_list(annotation: Any) -> bool:
    return typing.get_origin(annotation) is list


def all_fields() -> list[str]:
    """Return every field as `panel.field`, columns of rows as `panel.list.column`."""
    names = []
    for root, struct in structs().items():
        for name, annotation in fields_of(struct).items():
            names.append(f"{root}.{name}")
            if rows := row_type(annotation):
                names.extend(f"{root}.{name}.{column}" for column in fields_of(rows))
    return names


KNOWN_STATUS = frozenset({"ok", "denied", "unsupported"})
"""A panel with another status shows old values, so its fields count as unknown. Fields of what is denied or missing are
None anyway."""
FUNCTIONS = ("count", "max", "min", "sum", "known", "finding", "abs")


class ExpressionResult(Struct, frozen=True, kw_only=True):
    """Result of an expression."""

    holds: bool | None
    """None: unknown."""
    text: str
    """Every value that was read, with unit and age."""
    values: dict[str, Any] = {}
    error: str | None = None
    """Why it could not be evaluated."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Values of the names in an expression at one time."""

    frame: Frame | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a block's result -> its values: `before.cached_bytes`, `idle.rows`, `copy.exit`."""
    secrets: frozenset[str] = frozenset()
    """Inputs whose values are not shown."""


def evaluate(text: str, scope: Scope) -> ExpressionResult:
    """Return the result of an expression. Never raises."""
    evaluator = _Evaluator(scope)
    holds, problem = None, None
    try:
        value = evaluator.value(parse_expression(text))
        if value is None or isinstance(value, bool):
            holds = value
        else:
            problem = f"{text.strip()} is {format_value('', value)}, not true or false"
    except _FAILURES as error:
        problem = f"{text.strip()}: {str(error) or type(error).__name__}"
    return ExpressionResult(holds=holds, text=evaluator.explained(), values=evaluator.values, error=problem)


def evaluate_measurement(body: str, scope: Scope) -> tuple[dict[str, Any], str]:
    """Return the values of a measurement's lines (`name = expression`, or a field) and the text that shows them."""
    values: dict[str, Any] = {}
    value_texts = []
    for name, expression in measure_lines(body):
        evaluator = _Evaluator(scope)
        try:
            values[name] = evaluator.value(parse_expression(expression))
        except _FAILURES:
            values[name] = None
        value_texts.append(f"{name} {format_value(name, values[name])}{evaluator.oldest()}")
    return values, ", ".join(value_texts)


def measure_lines(body: str) -> list[tuple[str, str]]:
    """Return name and expression of each line; a field is named by its last part.

    >>> measure_lines("io.read_bytes_per_s\\nslots = count(replication.slots)  # all of them")
    [('read_bytes_per_s', 'io.read_bytes_per_s'), ('slots', 'count(replication.slots)')]
    """
    found = []
    for line in body.splitlines():
        text = line.partition("#")[0].strip()
        if not text:
            continue
        name, sign, expression = text.partition(" = ")
        found.append((name.strip(), expression.strip()) if sign else (text.rpartition(".")[2], text))
    return found


class ExpressionError(Exception):
    """Why an expression has no value."""


_FAILURES = (ExpressionError, SyntaxError, TypeError, ValueError, ArithmeticError, RecursionError, MemoryError)
"""What an expression of a foreign document can cause."""
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
"""No powers and no shifts: their results could fill the memory."""
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression; quantities with units become numbers. Raises SyntaxError and others."""
    return ast.parse(" ".join(replace_units(text).split()), mode="eval").body


class FrameRows(list[Any]):
    """Rows or values of a list in the frame; a column is a list again."""


class _Evaluator:
    """Evaluates one expression and records the values it reads. Only what has a case here can be evaluated."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._ages: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def explained(self) -> str:
        """Return each value that was read, with unit and age, in order of first use; the output of a command by its
        name alone."""
        return ", ".join(
            f"{name.removesuffix('.first_line')} {format_value(name, value)}{self._ages.get(name, '')}"
            for name, value in self.values.items()
        )

    def oldest(self) -> str:
        return next(iter(self._ages.values()), "")

    def value(self, node: ast.expr) -> Any:
        """Return the value; None if unknown. Raises one of `_FAILURES`."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name(id="true" | "false"):
                return node.id == "true"
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._field(node)
            case ast.Tuple() | ast.List():
                return tuple(self.value(one) for one in node.elts)
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                truths = [_truth(self.value(one), one) for one in node.values]
                decisive = isinstance(node.op, ast.Or)
                return decisive if decisive in truths else None if None in truths else not decisive
            case ast.Compare():
                operands = [self.value(one) for one in (node.left, *node.comparators)]
                verdicts = [_compared(kind, *pair) for kind, pair in zip(node.ops, pairwise(operands), strict=True)]
                return False if False in verdicts else None if None in verdicts else True
            case ast.Call():
                return self._call(node)
        raise ExpressionError(f"{ast.unparse(node)} is not allowed in expressions")

    def _field(self, node: ast.expr) -> Any:
        """Return an input, or a field of a panel or result: `panel.field`, `panel.list[key].column`."""
        parts: list[ast.Attribute | ast.Subscript] = []
        root = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            parts.insert(0, root)
            root = root.value
        if not isinstance(root, ast.Name):
            raise ExpressionError(f"{ast.unparse(root)} has no fields")
        value, age = self._root(root.id)
        if not parts and (root.id in self._scope.results or (root.id in ROOTS and root.id not in self._scope.inputs)):
            raise ExpressionError(f"{root.id} is a whole panel or result; name one of its fields")
        for part in parts:
            if isinstance(part, ast.Attribute):
                value = _column(value, part.attr)
            else:
                value = _selected(value, self.value(part.slice), part.value)
        name = ast.unparse(node)
        if not isinstance(value, Struct):
            shown = len(value) if _has_rows(value) else list(value) if isinstance(value, FrameRows) else value
            self.values[name] = "(secret)" if root.id in self._scope.secrets else shown
        if age:
            self._ages[name] = age
        return value

    def _root(self, name: str) -> tuple[Any, str]:
        """Return the value of a name and its age; a panel with old values is unknown."""
        if name in self._scope.results:
            return self._scope.results[name], ""
        if name in self._scope.inputs:
            return self._scope.inputs[name], ""
        if name not in ROOTS:
            return None, ""
        if self._scope.frame is None:
            return None, " (nothing read yet)"
        panel = getattr(self._scope.frame, SPOKEN.get(name, name))
        status = getattr(panel, "status", "ok")
        if status not in KNOWN_STATUS:
            return None, f" ({name} is {status})"
        age_s = getattr(panel, "age_s", None)
        return panel, "" if age_s is None else f" ({human_duration(age_s)} old)"

    def _arithmetic(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if (operation := ARITHMETIC.get(type(node.op))) is None:
            raise ExpressionError(f"{ast.unparse(node)}: unsupported operator; use + - * /")
        if left is None or right is None:
            return None
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise ExpressionError(f"{ast.unparse(node)}: arithmetic needs numbers")
        return None if operation is operator.truediv and right == 0 else operation(left, right)

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            truth = _truth(value, node.operand)
            return None if truth is None else not truth
        if isinstance(node.op, ast.Invert):
            raise ExpressionError(f"{ast.unparse(node)}: unsupported operator; use + - * /")
        if value is not None and not isinstance(value, int | float):
            raise ExpressionError(f"{ast.unparse(node)}: arithmetic needs numbers")
        return -value if value is not None and isinstance(node.op, ast.USub) else value

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        if name not in FUNCTIONS or node.keywords:
            raise ExpressionError(f"unknown function {name}; available: {', '.join(FUNCTIONS)}")
        arguments = [self.value(one) for one in node.args]
        if not arguments or (len(arguments) > 1 and name not in ("max", "min")):
            raise ExpressionError(f"{name} takes one argument")
        value = arguments[0]
        if name == "known":
            return value is not None
        if name == "finding":
            return self._finding(str(value))
        if value is None and len(arguments) == 1:
            return None
        if name == "abs":
            return abs(value)
        numbers = arguments if len(arguments) > 1 else _rows(value, name)
        if name == "count":
            return len(numbers)
        # An unknown value might be the largest.
        if None in numbers:
            return None
        return sum(numbers) if name == "sum" else (max if name == "max" else min)(numbers, default=None)

    def _finding(self, rule: str) -> bool | None:
        frame, found = self._scope.frame, None
        if frame is not None and (frame.judged or frame.findings):
            found = any(rule in (one.rule, one.id) or rule in one.chain for one in frame.findings)
        self.values[f"finding('{rule}')"] = found
        return found


def _column(owner: Any, name: str) -> Any:
    """Return a field of a record, or of each row of a list; None if the record is unknown. Raises ExpressionError."""
    if isinstance(owner, FrameRows):
        return FrameRows(_column(row, name) for row in owner)
    if owner is None:
        return None
    if isinstance(owner, Mapping):
        value = owner.get(name)
    elif isinstance(owner, Struct) and name in owner.__struct_fields__:
        value = getattr(owner, name)
    else:
        raise ExpressionError(f"unknown field {name}")
    return FrameRows(value) if isinstance(value, list) else value


def _selected(owner: Any, key: Any, node: ast.expr) -> Any:
    """Return the row of a list with this key; None if there is none. Raises ExpressionError."""
    if isinstance(owner, Mapping):
        return owner.get(key)
    if owner is None or key is None:
        return None
    if not isinstance(owner, FrameRows):
        raise ExpressionError(f"{ast.unparse(node)} is not a list; select a row as in disks.mounts['/var']")
    return next((row for row in owner if _key(row) == key), None)


def _has_rows(value: Any) -> bool:
    return (
        isinstance(value, FrameRows) and bool(value) and not isinstance(value[0], (int, float, str, bool, type(None)))
    )


def _key(row: Any) -> Any:
    values = (row.get(key) if isinstance(row, Mapping) else getattr(row, key, None) for key in KEYS)
    return next((value for value in values if value is not None), None)


def _rows(value: Any, function: str) -> FrameRows:
    if not isinstance(value, FrameRows):
        raise ExpressionError(f"{function} takes a list")
    return value


def _truth(value: Any, node: ast.expr) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ExpressionError(f"{ast.unparse(node)} is not true or false")
    return value


def _compared(kind: ast.cmpop, left: Any, right: Any) -> bool | None:
    """Return the result of one comparison; None if a side is unknown."""
    if left is None or right is None:
        return None
    if isinstance(kind, ast.In | ast.NotIn):
        if not isinstance(right, tuple | list):
            raise ExpressionError("`in` takes a list, as in role in ('primary', 'standby')")
        if left not in right and None in right:
            return None
        return (left in right) is isinstance(kind, ast.In)
    if isinstance(kind, ast.Eq | ast.NotEq):
        return bool((left == right) is isinstance(kind, ast.Eq))
    if (comparison := _ORDER.get(type(kind))) is None:
        raise ExpressionError("is and is not are not supported; write == or !=")
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise ExpressionError("< <= > >= compare two numbers or two texts")
    return comparison(left, right)
