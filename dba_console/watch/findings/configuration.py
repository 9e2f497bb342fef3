"""The table `[findings]` of the configuration, made from the families of rules and their thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import NODEFAULT, Struct

from dba_console.watch.findings.rule import Family
from dba_console.watch.findings.rule_engine import FAMILIES
from dba_console.watch.findings.thresholds import RuleThresholds, threshold_name


class Findings(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The table without the thresholds."""

    off: list[str] = []
    """Names of rules that are not evaluated."""


@cache
def findings_table() -> type[Struct]:
    """Return the declaration of the table: a table of thresholds for each family."""
    tables = [
        (family.name, kind := thresholds_table(family), msgspec.field(default_factory=kind)) for family in FAMILIES
    ]
    return msgspec.defstruct("FindingsTable", tables, bases=(Findings,), module=__name__, kw_only=True, frozen=True)


def thresholds_table(family: Family) -> type[Struct]:
    """Return the declaration of `[findings.FAMILY]`, with the thresholds of all its structs."""
    fields = []
    for kind in family.thresholds:
        for field in msgspec.structs.fields(kind):
            has_value = field.default_factory is NODEFAULT
            default = {"default": field.default} if has_value else {"default_factory": field.default_factory}
            fields.append((field.name, field.type, msgspec.field(**default)))
    joins = {"joins": tuple(family.thresholds)}  # their docstrings are those of the fields
    return msgspec.defstruct(
        "ThresholdsTable", fields, bases=(RuleThresholds,), namespace=joins, module=__name__, frozen=True
    )


def find_order_conflict(findings: Mapping[str, Any]) -> tuple[tuple[str, str], str] | None:
    """Return the first threshold that contradicts another, as (family, name) and a message."""
    for kind in (kind for family in FAMILIES for kind in family.thresholds):
        for group in kind.in_order():
            for lower, upper in pairwise(group):
                low, high = _value(findings, lower), _value(findings, upper)
                if low > high:
                    at = lower if lower.__name__ in findings.get(kind.family, {}) else upper
                    names = f"findings.{threshold_name(lower)} ({low})", f"findings.{threshold_name(upper)} ({high})"
                    return (kind.family, at.__name__), f"{names[0]} must be at most {names[1]}"
    return None


def _value(findings: Mapping[str, Any], threshold: Any) -> Any:
    kind = threshold.__objclass__
    return findings.get(kind.family, {}).get(threshold.__name__, getattr(kind(), threshold.__name__))
