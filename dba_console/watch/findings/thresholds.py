"""What a threshold is: a field of a struct that stands beside the rules which use it.

    class SlotLimits(RuleThresholds, frozen=True):
        family = "wal"

        slot_grace_s: Judgement[float] = 60.0
        \"\"\"Grace time for a slot whose reader was seen: a standby that restarts returns.\"\"\"

The field has its name in `[findings.wal]`, with the unit, its kind, its default, and below it what it means and where
the default comes from. The configuration and docs/findings.md are made from these structs.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from msgspec import Struct

from dba_console.core.declarations import declared_fields
from dba_console.core.decoding import convert
from dba_console.core.errors import UsageError

T = TypeVar("T")


class Kind(NamedTuple):
    """How a default was found."""

    name: str


Measured = Annotated[T, Kind("measured")]
"""Read off an incident or a measurement."""
Computed = Annotated[T, Kind("computed")]
"""A constant or default of PostgreSQL or the kernel, or a multiple of one."""
Judgement = Annotated[T, Kind("judgement")]
"""Ours, or that of another monitoring tool."""

Ordered = tuple[tuple[Any, ...], ...]
"""Groups of thresholds of which none may be above the next one of its group."""


class RuleThresholds(Struct, forbid_unknown_fields=True, frozen=True):
    """Thresholds of rules."""

    family: ClassVar[str] = ""  # their table in the configuration, `[findings.FAMILY]`

    @classmethod
    def in_order(cls) -> Ordered:
        """Return which must be in order: warning before critical, clearing below raising."""
        return ()

    @classmethod
    def check_value(cls, name: str, value: Any) -> None:
        """Refuse an impossible threshold: a rule that can never fire would be noticed too late.

        >>> class Example(RuleThresholds, frozen=True):
        ...     full_pct: float = 80.0
        >>> Example.check_value("full_pct", 180.0)
        Traceback (most recent call last):
        dba_console.core.errors.UsageError: 180.0 is more than 100 %
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if not math.isfinite(value):
            raise UsageError(f"{value} is not a valid threshold", hint="to disable a rule, name it in findings.off")
        if value < 0:
            raise UsageError(f"{value} is negative", hint="to disable a rule, name it in findings.off")
        # Some percentages are of a smaller value, and exceed 100 by default.
        if name.endswith("_pct") and value > 100 >= getattr(cls(), name):
            raise UsageError(f"{value} is more than 100 %")


Thresholds = TypeVar("Thresholds", bound=RuleThresholds)


class Limits:
    """The thresholds in force: those given, else the defaults; and the names of rules that do not run."""

    def __init__(self, *given: RuleThresholds, off: Sequence[str] = ()) -> None:
        self.off = off
        self._configured: Mapping[str, Any] = {}
        self._known: dict[type[RuleThresholds], Any] = {type(each): each for each in given}

    @classmethod
    def configured(cls, findings: Mapping[str, Any]) -> Limits:
        """Return the thresholds of the table `[findings]`, whose values are valid."""
        limits = cls(off=findings.get("off", ()))
        limits._configured = findings
        return limits

    def of(self, kind: type[Thresholds]) -> Thresholds:
        """Return the thresholds of this kind."""
        if kind not in self._known:
            values = self._configured.get(kind.family, {})
            named = {name: values[name] for name in kind.__struct_fields__ if name in values}
            self._known[kind] = convert(named, kind)
        known: Thresholds = self._known[kind]
        return known


def threshold_name(threshold: Any) -> str:
    """Return the name of a field of a struct in `[findings]`.

    >>> class Example(RuleThresholds, frozen=True):
    ...     family = "disks"
    ...     full_pct: float = 80.0
    >>> threshold_name(Example.full_pct)
    'disks.full_pct'
    """
    return f"{threshold.__objclass__.family}.{threshold.__name__}"


def threshold_kind(threshold: Any) -> str | None:
    """Return how the default of a field of a struct was found: measured, computed or judgement; None for names."""
    field = declared_fields(threshold.__objclass__)[threshold.__name__]
    return next((each.name for each in typing.get_args(field.type) if isinstance(each, Kind)), None)
