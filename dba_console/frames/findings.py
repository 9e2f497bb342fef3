"""Findings as of the moment shown: what the agent concluded then, not what would be concluded now."""

from __future__ import annotations

from dba_console.frames.model import Finding, Frame
from dba_console.frames.picture import Picture
from dba_console.frames.timestamps import rfc3339
from dba_console.samples.findings import FindingNow, FindingsNow


def add_findings(frame: Frame, picture: Picture) -> Frame:
    """Put in the findings open at that moment, in the order they began, and whether any rule was asked."""
    conclusions = picture.now("findings", FindingsNow)
    if conclusions is not None:
        frame.judged = True
        frame.findings = [finding_of(row) for row in conclusions.rows]
        if conclusions.begun_us is not None:
            frame.judged_s = (picture.mono_us - conclusions.begun_us) / 1e6
        frame.pending = conclusions.pending
        if conclusions.failed:
            frame.findings_note = f"not all rules could be asked: {'; '.join(conclusions.failed)}"
    return frame


def finding_of(row: FindingNow) -> Finding:
    """A conclusion with its times written out."""
    return Finding(
        id=row.id,
        severity=row.severity,
        subject=row.subject,
        text=row.text,
        evidence=row.evidence,
        runbook=row.runbook,
        since=rfc3339(row.since_us),
        rule=row.rule,
        at=rfc3339(row.at_us),
        chain=row.chain,
        also=row.also,
        series=row.series,
        advice=row.advice,
        state=row.state,
        who=row.who,
        note=row.note,
        until=rfc3339(row.until_us),
    )
