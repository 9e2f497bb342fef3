"""What the figures of findings may be: none below nothing, no share above the whole, no warning that comes late.

A figure that cannot mean anything is refused with its key, since a rule that never speaks is found out too late.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from dba_console.errors import UsageError
from dba_console.limits import Limits
from dba_console.limits.threshold_order import ORDERED_PAIRS

_DEFAULTS = Limits()


def check_threshold(family: str, name: str, value: Any) -> None:
    """One figure by itself. Raises UsageError with what is wrong with it.

    >>> check_threshold("disks", "full_warning_pct", 180.0)
    Traceback (most recent call last):
    dba_console.errors.UsageError: 180.0 is more than 100 %
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if not math.isfinite(value):
        raise UsageError(f"{value} is no threshold", hint="a rule that is not wanted is named in findings.off")
    if value < 0:
        raise UsageError(f"{value} is below 0", hint="a rule that is not wanted is named in findings.off")
    # Some shares are of something smaller than the whole, and by default above it.
    if name.endswith("_pct") and value > 100 >= getattr(getattr(_DEFAULTS, family), name):
        raise UsageError(f"{value} is more than 100 %")


def check_disabled_rules(names: list[str]) -> None:
    """Rules that are not to be asked, by their names. Raises UsageError for one that there is none of."""
    # Loaded here, because hardly any file names one, and every command reads the file.
    from dba_console.findings.registry import RULES

    known = [rule.name for rule in RULES]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else "`dba-console findings rules` lists them"
            raise UsageError(f"there is no rule {name!r}", hint=hint)


def find_order_conflict(thresholds: Mapping[str, Any]) -> tuple[tuple[str, str], str] | None:
    """The first figure that contradicts another, as (family, name) and a sentence; what is not set has its default."""
    for family, pairs in ORDERED_PAIRS.items():
        given = thresholds.get(family, {})
        for lower, upper in pairs:
            low, high = (given.get(name, getattr(getattr(_DEFAULTS, family), name)) for name in (lower, upper))
            if low > high:
                at = lower if lower in given else upper
                text = f"findings.{family}.{lower} ({low}) must not be above findings.{family}.{upper} ({high})"
                return (family, at), text
    return None
