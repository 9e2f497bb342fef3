"""One line of the doctor's report."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

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
