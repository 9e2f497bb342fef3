"""One line of the doctor's report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from dba_console.core.errors import ExitCode
from dba_console.watch.panels.text_elements import clean

Status = Literal["ok", "missing", "unknown"]


class DoctorCheck(Struct, frozen=True, kw_only=True):
    """What was looked at and what was found.

    `text` is what is the case. Where the status is not ok, `lost` says what the console cannot show or do, and `fix`
    is the command, setting or file that mends it (None where nothing on this host would).
    """

    id: str
    area: str
    status: Status
    text: str
    lost: str | None = None
    fix: str | None = None
    critical: int | None = None
    """Exit code of `doctor` when this is missing; None: the console works without it."""


def ok(area: str, id: str, text: str) -> DoctorCheck:
    return DoctorCheck(id=id, area=area, status="ok", text=text)


def missing(
    area: str, id: str, text: str, *, lost: str, fix: str | None = None, critical: int | None = None
) -> DoctorCheck:
    return DoctorCheck(id=id, area=area, status="missing", text=text, lost=lost, fix=fix, critical=critical)


def unknown(area: str, id: str, text: str, *, lost: str | None = None, fix: str | None = None) -> DoctorCheck:
    return DoctorCheck(id=id, area=area, status="unknown", text=text, lost=lost, fix=fix)


# The doctor's report as text: what is there in one line each, what is missing with what is lost and what mends it.

_STATUS_WORDS = {"ok": "ok     ", "missing": "missing", "unknown": "unknown"}
_CRITICAL_WORD = "MISSING"


def report_text(checks: Sequence[DoctorCheck], target: str, source: str) -> str:
    """Checks by area, then a sentence that counts them."""
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
        return "nothing is missing"
    named = ", ".join(check.id for check in critical)
    tail = f"critical: {named}" if critical else "none of it critical"
    return f"{len(missing)} of {len(checks)} missing; {tail}"


def exit_code(checks: Sequence[DoctorCheck]) -> int:
    """0 when nothing critical is missing, else the exit code of the first that is."""
    return next((c.critical for c in checks if c.status == "missing" and c.critical is not None), int(ExitCode.OK))


def _check_lines(check: DoctorCheck) -> list[str]:
    sign = _CRITICAL_WORD if check.status == "missing" and check.critical is not None else _STATUS_WORDS[check.status]
    lines = [f"  {sign}  {clean(check.text)}"]
    if check.status != "ok":
        if check.lost:
            lines.append(f"             lost: {clean(check.lost)}")
        if check.fix:
            lines.append(f"             mend: {clean(check.fix)}")
    return lines
