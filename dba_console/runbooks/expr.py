"""Expressions of checks, waits and conditions: fields of the panels, results and inputs compared; no code.

Three-valued: what is not known makes a comparison unknown, `and`, `or` and `not` carry that on as in SQL, and unknown
is never taken for yes. Every operand is evaluated, for the text that explains the verdict names every value.
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
from dba_console.watch.frames.model import PANELS, Frame

# The fields an expression may name: those of the panels, as `show --json` gives them, and of the target.

SPOKEN: dict[str, str] = {"self": "own"}
"""Names of `show --json` that the frame calls otherwise."""
ROOTS: tuple[str, ...] = (*PANELS, "target", "self")
KEYS: tuple[str, ...] = ("name", "path", "database", "application", "table", "kind", "pid", "node")
"""What a row of a list is found by, in this order: `disks.mounts["/var"]`, `replication.slots["old"]`."""


@cache
def structs() -> dict[str, type[msgspec.Struct]]:
    """The struct of each root."""
    hints = typing.get_type_hints(Frame)
    return {root: hints[SPOKEN.get(root, root)] for root in ROOTS}


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Name -> type of its fields."""
    return dict(typing.get_type_hints(struct))


def row_type(annotation: Any) -> type[msgspec.Struct] | None:
    """The struct of the rows of a list; None where it is no list of structs."""
    if typing.get_origin(annotation) is list:
        (inner,) = typing.get_args(annotation)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            return inner
    return None


def is_list(annotation: Any) -> bool:
    return typing.get_origin(annotation) is list


def all_fields() -> list[str]:
    """`panel.field` of everything there is, `panel.list.column` for the columns of rows."""
    names = []
    for root, struct in structs().items():
        for name, annotation in fields_of(struct).items():
            names.append(f"{root}.{name}")
            if rows := row_type(annotation):
                names.extend(f"{root}.{name}.{column}" for column in fields_of(rows))
    return names


KNOWN_STATUS = frozenset({"ok", "denied", "unsupported"})
"""A panel in another state shows what was read some time ago: its fields count as unknown. Where something is denied or
not there, the fields it is about are None of themselves."""
FUNCTIONS = ("count", "max", "min", "sum", "known", "finding", "abs")


class ExpressionResult(Struct, frozen=True, kw_only=True):
    """What became of an expression."""

    holds: bool | None
    """None: it could not be told."""
    text: str
    """Every value it looked at, with unit and age."""
    values: dict[str, Any] = {}
    error: str | None = None
    """It could not be evaluated at all."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names of an expression mean at one moment."""

    frame: Frame | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a block's result -> its values: `before.cached_bytes`, `idle.rows`, `copy.exit`."""
    secrets: frozenset[str] = frozenset()
    """Inputs whose values are not told."""


def evaluate(text: str, scope: Scope) -> ExpressionResult:
    """The verdict of an expression. Never raises."""
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
            error=f"{text.strip()} is {format_value('', value)}, and neither true nor false",
        )  # fmt: skip
    return ExpressionResult(holds=value, text=explained, values=evaluator.seen)


def evaluate_measurement(body: str, scope: Scope) -> tuple[dict[str, Any], str]:
    """The values of a measurement's lines, `name = expression` or a field, and the text that tells them."""
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
    """Name and expression of each line; a field is called by its last word.

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
    """Rows or values of a list of the frame; a column of it is a list again."""


class _Root:
    """A panel, the target, or the results of a block, named at the left of a dot."""

    def __init__(self, name: str, value: Any, age: str = "", known: bool = True) -> None:
        self.name, self.value, self.age, self.known = name, value, age, known


class Evaluator(SimpleEval):  # type: ignore[misc, unused-ignore]
    """Evaluates one expression and remembers what it looked at."""

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
        """Its value; None where unknown. Raises InvalidExpression, SyntaxError, TypeError."""
        tree = ast.parse(" ".join(replace_units(text).split()), mode="eval")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._final(self._eval(tree.body))

    def explained(self) -> str:
        """Each value it looked at, with unit and age, in the order they were met."""
        return ", ".join(
            f"{name} {format_value(name, value)}{self._ages.get(name, '')}" for name, value in self.seen.items()
        )

    def oldest(self) -> str:
        return next(iter(self._ages.values()), "")

    def _final(self, value: Any) -> Any:
        if isinstance(value, _Root):
            raise InvalidExpression(f"{value.name} is a whole panel or result; name a field of it")
        return value

    def _note_value(self, name: str, value: Any, age: str = "") -> Any:
        self.seen[name] = len(value) if _has_rows(value) else list(value) if isinstance(value, FrameRows) else value
        if age:
            self._ages[name] = age
        return value

    # What each part of an expression means. The names of the methods are the library's.

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
            raise InvalidExpression(f"{node.attr} is no field")
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
            raise InvalidExpression(f"{ast.unparse(node.value)} is no list; rows are picked as in disks.mounts['/var']")
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
            raise InvalidExpression(f"{ast.unparse(node)} reckons with what is no number")
        if isinstance(node.op, ast.Div) and right == 0:
            return None
        operator: Callable[[Any, Any], Any] | None = self.operators.get(type(node.op))
        if operator is None:
            raise InvalidExpression(f"{ast.unparse(node)}: only + - * / reckon")
        return operator(left, right)

    def _eval_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self._final(self._eval(node.operand))
        if isinstance(node.op, ast.Not):
            return None if value is None else not _truth(value, node.operand)
        if value is None:
            return None
        if not isinstance(value, (int, float)):
            raise InvalidExpression(f"{ast.unparse(node)} reckons with what is no number")
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
            raise InvalidExpression(f"{ast.unparse(node.func)} is no function; there are {', '.join(FUNCTIONS)}")
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
        # One that is not known might be the largest.
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
    """A field of a record; nothing else has any."""
    if isinstance(owner, Mapping):
        value = owner.get(name)
    elif isinstance(owner, Struct) and name in owner.__struct_fields__:
        value = getattr(owner, name)
    else:
        raise InvalidExpression(f"there is no field {name} in it")
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
        raise InvalidExpression(f"{ast.unparse(node)} is neither true nor false")
    return value


def _compared(kind: ast.cmpop, left: Any, right: Any) -> bool | None:
    """Of one comparison; None where a side is not known."""
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
        raise InvalidExpression("only two numbers, or two texts, can be compared by size")
    if isinstance(kind, ast.Lt):
        return bool(left < right)
    if isinstance(kind, ast.LtE):
        return bool(left <= right)
    if isinstance(kind, ast.Gt):
        return bool(left > right)
    if isinstance(kind, ast.GtE):
        return bool(left >= right)
    raise InvalidExpression("is and is not compare nothing here; write == or !=")
