"""A doctor check with its result, and the doctor's report as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from dba_console.core.errors import ExitCode
from dba_console.watch.drawing.text_elements import clean

Status = Literal["ok", "missing", "unknown"]


class DoctorCheck(Struct, frozen=True, kw_only=True):
    """The result of one check.

    `text` is the finding. If the status is not ok, `lost` names what the console cannot show or do, and `fix` is the
    command, setting or file that fixes it (None if nothing on this host would).
    """

    id: str
    area: str
    status: Status
    text: str
    lost: str | None = None
    fix: str | None = None
    critical: int | None = None
    """Exit code of `doctor` if this check fails; None: the console works without it."""


def ok(area: str, id: str, text: str) -> DoctorCheck:
    return DoctorCheck(id=id, area=area, status="ok", text=text)


def missing(
    area: str, id: str, text: str, *, lost: str, fix: str | None = None, critical: int | None = None
) -> DoctorCheck:
    return DoctorCheck(id=id, area=area, status="missing", text=text, lost=lost, fix=fix, critical=critical)


def unknown(area: str, id: str, text: str, *, lost: str | None = None, fix: str | None = None) -> DoctorCheck:
    return DoctorCheck(id=id, area=area, status="unknown", text=text, lost=lost, fix=fix)


# The report: checks that pass in one line each, others with their impact and the fix.

_STATUS_WORDS = {"ok": "ok     ", "missing": "warning", "unknown": "unknown"}
_CRITICAL_WORD = "FAILED "


def report_text(checks: Sequence[DoctorCheck], target: str, source: str) -> str:
    """Return the checks by area, then a summary line."""
    lines = [f"{clean(target)}, {source}"]
    for area, group in groupby(checks, key=lambda check: check.area):
        lines += ["", area]
        for check in group:
            lines += _check_lines(check)
    return "\n".join([*lines, "", summary_text(checks)])


def summary_text(checks: Sequence[DoctorCheck]) -> str:
    missing = [check for check in checks if check.status == "missing"]
    critical = [check for check in missing if check.critical is not None]
    if not missing:
        return "no warnings"
    named = ", ".join(check.id for check in critical)
    tail = f"critical: {named}" if critical else "none critical"
    return f"{len(missing)} of {len(checks)} checks with warnings; {tail}"


def exit_code(checks: Sequence[DoctorCheck]) -> int:
    """Return 0 if no critical check fails, else the exit code of the first that does."""
    return next((c.critical for c in checks if c.status == "missing" and c.critical is not None), int(ExitCode.OK))


def _check_lines(check: DoctorCheck) -> list[str]:
    sign = _CRITICAL_WORD if check.status == "missing" and check.critical is not None else _STATUS_WORDS[check.status]
    lines = [f"  {sign}  {clean(check.text)}"]
    if check.status != "ok":
        if check.lost:
            lines.append(f"             impact: {clean(check.lost)}")
        if check.fix:
            lines.append(f"             fix: {clean(check.fix)}")
    return lines
