"""The fields an expression may name: those of the panels, as `show --json` gives them, and of the target."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any

import msgspec

from dba_console.frames.model import PANELS, Frame

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
