"""A rule: what it is called, when it is asked, how long it must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dba_console.findings.rule_context import RuleContext
from dba_console.findings.signal import Signal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way in which something can be wrong.

    `check` is asked in ticks in which one of `parts` was read anew, and in no other: what it saw last holds meanwhile.
    It yields nothing where all is well, and where it is not known.
    """

    name: str
    title: str
    """What it tells, in one line of the documentation."""
    parts: tuple[str, ...]
    check: Callable[[RuleContext], Iterable[Signal]]
    raise_after_s: float = 0.0
    """It must have been seen for so long, without a gap, before it is raised; `Signal.lasted_s` counts."""
    clear_after_s: float = 10.0
    """It must not have been seen for so long before it is cleared."""
    warm_up_s: float = 0.0
    """What it compares with, or must see last, takes so long to watch: before, that it says nothing says nothing."""
    settings: tuple[str, ...] = ()
    """Its figures, as `family.name` of `dba_console.limits`."""
    source: str = ""
    """Where its figures come from, in one line of the documentation."""
    runbook: str | None = None
    """The runbook its signals name, for the documentation."""
