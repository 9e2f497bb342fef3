"""The doctor's report as text: what is there in one line each, what is missing with what is lost and what mends it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from dba_console.cli.doctor.check import Check
from dba_console.errors import ExitCode
from dba_console.panels.cells import clean

_SIGNS = {"ok": "ok     ", "missing": "missing", "unknown": "unknown"}
_CRITICAL = "MISSING"


def report(checks: Sequence[Check], target: str, source: str) -> str:
    """Checks by area, then a sentence that counts them."""
    lines = [f"{clean(target)}, {source}"]
    for area, group in groupby(checks, key=lambda check: check.area):
        lines += ["", area]
        for check in group:
            lines += _lines(check)
    return "\n".join([*lines, "", summary(checks)])


def summary(checks: Sequence[Check]) -> str:
    missing = [check for check in checks if check.status == "missing"]
    critical = [check for check in missing if check.critical is not None]
    if not missing:
        return "nothing is missing"
    named = ", ".join(check.id for check in critical)
    tail = f"critical: {named}" if critical else "none of it critical"
    return f"{len(missing)} of {len(checks)} missing; {tail}"


def exit_code(checks: Sequence[Check]) -> int:
    """0 when nothing critical is missing, else the exit code of the first that is."""
    return next((c.critical for c in checks if c.status == "missing" and c.critical is not None), int(ExitCode.OK))


def _lines(check: Check) -> list[str]:
    sign = _CRITICAL if check.status == "missing" and check.critical is not None else _SIGNS[check.status]
    lines = [f"  {sign}  {clean(check.text)}"]
    if check.status != "ok":
        if check.lost:
            lines.append(f"             lost: {clean(check.lost)}")
        if check.fix:
            lines.append(f"             mend: {clean(check.fix)}")
    return lines
