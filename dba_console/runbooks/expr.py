"""Evaluate the expressions of checks, waits and conditions: comparisons of panel fields, results and inputs; no code.

Three-valued logic as in SQL: an unknown operand makes a comparison unknown, `and`, `or` and `not` pass it on, and
unknown never counts as true. Every operand is evaluated, because the explanation lists every value.
"""

from __future__ import annotations

import ast
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct
from simpleeval import InvalidExpression, SimpleEval

from dba_console.core.units import human_duration
from dba_console.runbooks.result_tables import format_value, replace_units
from dba_console.watch.frames.model import PANEL_NAMES, Frame

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
    return {root: hints[SPOKEN.get(root, root)] for root in ROOTS}


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
    evaluator = Evaluator(scope)
    try:
        value = evaluator.value(text)
    except (InvalidExpression, SyntaxError, TypeError, ValueError, ZeroDivisionError, RecursionError) as error:
        message = str(error) or type(error).__name__
        return ExpressionResult(
            holds=None, text=evaluator.explained(), values=evaluator.seen, error=f"{text.strip()}: {message}"
        )
    explained = evaluator.explained()
    if value is not None and not isinstance(value, bool):
        return ExpressionResult(
            holds=None, text=explained, values=evaluator.seen,
            error=f"{text.strip()} is {format_value('', value)}, not true or false",
        )  # fmt: skip
    return ExpressionResult(holds=value, text=explained, values=evaluator.seen)


def evaluate_measurement(body: str, scope: Scope) -> tuple[dict[str, Any], str]:
    """Return the values of a measurement's lines (`name = expression`, or a field) and the text that shows them."""
    values: dict[str, Any] = {}
    value_texts = []
    for name, expression in measure_lines(body):
        evaluator = Evaluator(scope)
        try:
            values[name] = evaluator.value(expression)
        except (InvalidExpression, SyntaxError, TypeError, ValueError, ZeroDivisionError, RecursionError):
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


class FrameRows(list[Any]):
    """Rows or values of a list in the frame; a column is a list again."""


class _Root:
    """A panel, the target, or the results of a block: the left side of a dot."""

    def __init__(self, name: str, value: Any, age: str = "", known: bool = True) -> None:
        self.name, self.value, self.age, self.known = name, value, age, known


class Evaluator(SimpleEval):  # type: ignore[misc, unused-ignore]
    """Evaluates one expression and records the values it reads."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(functions={name: getattr(self, f"_do_{name}") for name in FUNCTIONS}, names={})
        allowed = {
            ast.Expr, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.Call, ast.Subscript,
            ast.Attribute, ast.Constant,
        }  # fmt: skip
        self.nodes: dict[type[ast.AST], Callable[..., Any]]
        self.operators: dict[type[ast.AST], Callable[..., Any]]
        self.nodes = {kind: node for kind, node in self.nodes.items() if kind in allowed}
        self.nodes[ast.Tuple] = self.nodes[ast.List] = self._sequence
        operators = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.USub, ast.UAdd)
        self.operators = {kind: operator for kind, operator in self.operators.items() if kind in operators}
        self._scope = scope
        self._ages: dict[str, str] = {}
        self.seen: dict[str, Any] = {}

    def value(self, text: str) -> Any:
        """Return the value; None if unknown. Raises InvalidExpression, SyntaxError, TypeError."""
        tree = ast.parse(" ".join(replace_units(text).split()), mode="eval")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._final(self._eval(tree.body))

    def explained(self) -> str:
        """Return each value that was read, with unit and age, in order of first use."""
        return ", ".join(
            f"{name} {format_value(name, value)}{self._ages.get(name, '')}" for name, value in self.seen.items()
        )

    def oldest(self) -> str:
        return next(iter(self._ages.values()), "")

    def _final(self, value: Any) -> Any:
        if isinstance(value, _Root):
            raise InvalidExpression(f"{value.name} is a whole panel or result; name one of its fields")
        return value

    def _note_value(self, name: str, value: Any, age: str = "") -> Any:
        self.seen[name] = len(value) if _has_rows(value) else list(value) if isinstance(value, FrameRows) else value
        if age:
            self._ages[name] = age
        return value

    # Evaluation of each kind of node; the method names are those of simpleeval.

    def _eval_name(self, node: ast.Name) -> Any:
        name = node.id
        if name in ("true", "false"):
            return name == "true"
        if name in self._scope.results:
            return _Root(name, self._scope.results[name])
        if name in self._scope.inputs:
            value = self._scope.inputs[name]
            self.seen[name] = "(secret)" if name in self._scope.secrets else value
            return value
        if name in ROOTS:
            return self._panel(name)
        return self._note_value(name, None)

    def _panel(self, name: str) -> _Root:
        frame = self._scope.frame
        if frame is None:
            return _Root(name, None, " (nothing read yet)", known=False)
        panel = getattr(frame, SPOKEN.get(name, name))
        age_s = getattr(panel, "age_s", None)
        status = getattr(panel, "status", "ok")
        age = "" if age_s is None else f" ({human_duration(age_s)} old)"
        if status not in KNOWN_STATUS:
            return _Root(name, panel, f" ({name} is {status})", known=False)
        return _Root(name, panel, age)

    def _eval_attribute(self, node: ast.Attribute) -> Any:
        if node.attr.startswith("_"):
            raise InvalidExpression(f"{node.attr} is not a field")
        owner = self._eval(node.value)
        name = ast.unparse(node)
        if isinstance(owner, _Root):
            if not owner.known or owner.value is None:
                return self._note_value(name, None, owner.age)
            return self._note_value(name, _part(owner.value, node.attr), owner.age)
        if isinstance(owner, FrameRows):
            self.seen.pop(ast.unparse(node.value), None)
            return self._note_value(name, FrameRows(_part(row, node.attr) for row in owner), self._age_of(node.value))
        if owner is None:
            return self._note_value(name, None)
        self.seen.pop(ast.unparse(node.value), None)
        return self._note_value(name, _part(owner, node.attr), self._age_of(node.value))

    def _age_of(self, node: ast.AST) -> str:
        return self._ages.get(ast.unparse(node), "")

    def _eval_subscript(self, node: ast.Subscript) -> Any:
        owner, key = self._eval(node.value), self._eval(node.slice)
        if isinstance(owner, dict):
            return self._note_value(ast.unparse(node), owner.get(key))
        if owner is None or key is None:
            return self._note_value(ast.unparse(node), None)
        if not isinstance(owner, FrameRows):
            raise InvalidExpression(f"{ast.unparse(node.value)} is not a list; select a row as in disks.mounts['/var']")
        found = next((row for row in owner if _key(row) == key), None)
        age = self._age_of(node.value)
        self.seen.pop(ast.unparse(node.value), None)
        name = ast.unparse(node)
        if age:
            self._ages[name] = age
        if found is None:
            self.seen[name] = None
        return found

    def _sequence(self, node: ast.Tuple | ast.List) -> tuple[Any, ...]:
        return tuple(self._final(self._eval(one)) for one in node.elts)

    def _eval_binop(self, node: ast.BinOp) -> Any:
        left, right = self._final(self._eval(node.left)), self._final(self._eval(node.right))
        if left is None or right is None:
            return None
        if not all(isinstance(one, (int, float)) for one in (left, right)):
            raise InvalidExpression(f"{ast.unparse(node)}: arithmetic needs numbers")
        if isinstance(node.op, ast.Div) and right == 0:
            return None
        operator: Callable[[Any, Any], Any] | None = self.operators.get(type(node.op))
        if operator is None:
            raise InvalidExpression(f"{ast.unparse(node)}: unsupported operator; use + - * /")
        return operator(left, right)

    def _eval_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self._final(self._eval(node.operand))
        if isinstance(node.op, ast.Not):
            return None if value is None else not _truth(value, node.operand)
        if value is None:
            return None
        if not isinstance(value, (int, float)):
            raise InvalidExpression(f"{ast.unparse(node)}: arithmetic needs numbers")
        return -value if isinstance(node.op, ast.USub) else value

    def _eval_boolop(self, node: ast.BoolOp) -> bool | None:
        values = [self._final(self._eval(one)) for one in node.values]
        truths = [None if value is None else _truth(value, one) for value, one in zip(values, node.values, strict=True)]
        decisive = isinstance(node.op, ast.Or)
        if decisive in truths:
            return decisive
        return None if None in truths else not decisive

    def _eval_compare(self, node: ast.Compare) -> bool | None:
        operands = [self._final(self._eval(one)) for one in (node.left, *node.comparators)]
        verdicts = [
            _compared(kind, left, right)
            for kind, left, right in zip(node.ops, operands, operands[1:], strict=False)
        ]  # fmt: skip
        if False in verdicts:
            return False
        return None if None in verdicts else True

    def _eval_call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            raise InvalidExpression(f"unknown function {ast.unparse(node.func)}; available: {', '.join(FUNCTIONS)}")
        return self.functions[node.func.id](*[self._eval(one) for one in node.args])

    # The functions.

    def _do_count(self, rows: Any) -> int | None:
        if rows is None:
            return None
        return len(_rows(rows, "count"))

    def _do_max(self, *values: Any) -> Any:
        return self._extreme(max, values)

    def _do_min(self, *values: Any) -> Any:
        return self._extreme(min, values)

    def _extreme(self, pick: Callable[[list[Any]], Any], values: tuple[Any, ...]) -> Any:
        figures = list(_rows(values[0], "max and min") if len(values) == 1 and values[0] is not None else values)
        # An unknown value might be the largest.
        return None if not figures or None in figures else pick(figures)

    def _do_sum(self, rows: Any) -> Any:
        figures = [] if rows is None else list(_rows(rows, "sum"))
        return None if rows is None or None in figures else sum(figures)

    def _do_abs(self, value: Any) -> Any:
        return None if value is None else abs(value)

    def _do_known(self, value: Any) -> bool:
        return self._final(value) is not None

    def _do_finding(self, rule: str) -> bool | None:
        frame = self._scope.frame
        if frame is None or not (frame.judged or frame.findings):
            return self._note_value(f"finding('{rule}')", None) and None
        found = any(rule in (one.rule, one.id) or rule in one.chain for one in frame.findings)
        self._note_value(f"finding('{rule}')", found)
        return found


def _part(owner: Any, name: str) -> Any:
    """Return a field of a record. Raises InvalidExpression for anything else."""
    if isinstance(owner, Mapping):
        value = owner.get(name)
    elif isinstance(owner, Struct) and name in owner.__struct_fields__:
        value = getattr(owner, name)
    else:
        raise InvalidExpression(f"unknown field {name}")
    return FrameRows(value) if isinstance(value, list) else value


def _has_rows(value: Any) -> bool:
    return (
        isinstance(value, FrameRows) and bool(value) and not isinstance(value[0], (int, float, str, bool, type(None)))
    )


def _key(row: Any) -> Any:
    for key in KEYS:
        value = row.get(key) if isinstance(row, Mapping) else getattr(row, key, None)
        if value is not None:
            return value
    return None


def _rows(value: Any, function: str) -> FrameRows:
    if not isinstance(value, FrameRows):
        raise InvalidExpression(f"{function} takes a list")
    return value


def _truth(value: Any, node: ast.expr) -> bool:
    if not isinstance(value, bool):
        raise InvalidExpression(f"{ast.unparse(node)} is not true or false")
    return value


def _compared(kind: ast.cmpop, left: Any, right: Any) -> bool | None:
    """Return the result of one comparison; None if a side is unknown."""
    if left is None or right is None:
        return None
    if isinstance(kind, (ast.In, ast.NotIn)):
        if not isinstance(right, (tuple, list)):
            raise InvalidExpression("`in` takes a list, as in role in ('primary', 'standby')")
        if left not in right and None in right:
            return None
        return (left in right) is isinstance(kind, ast.In)
    if isinstance(kind, (ast.Eq, ast.NotEq)):
        return bool((left == right) is isinstance(kind, ast.Eq))
    figures = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if not figures and not (isinstance(left, str) and isinstance(right, str)):
        raise InvalidExpression("< <= > >= compare two numbers or two texts")
    if isinstance(kind, ast.Lt):
        return bool(left < right)
    if isinstance(kind, ast.LtE):
        return bool(left <= right)
    if isinstance(kind, ast.Gt):
        return bool(left > right)
    if isinstance(kind, ast.GtE):
        return bool(left >= right)
    raise InvalidExpression("is and is not are not supported; write == or !=")
