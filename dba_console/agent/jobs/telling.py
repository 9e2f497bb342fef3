"""What is told of a job that ended, and of the file that could not be read. Pure."""

from __future__ import annotations

from dba_console.agent.jobs.watch import Ended
from dba_console.frames.jobs import job_name
from dba_console.harmless import clean
from dba_console.redact import redact
from dba_console.samples.event import Event
from dba_console.units import human_duration


def ended_event(one: Ended, usual_s: float | None, wall_us: int, mono_us: int) -> Event:
    """The event of a job's end. Whether it succeeded is not known to who only saw its sessions: `ok` is None.

    Times in the details are host wall times; None where the beginning or the end was not seen.
    """
    kind, database, user = one.key
    last_us = wall_us - (mono_us - one.last_us)
    started_us = None if one.elapsed_s is None else last_us - int(one.elapsed_s * 1e6)
    details = {
        "kind": kind,
        "database": database,
        "user": user,
        "started_us": started_us,
        "ended_us": None if one.broken else last_us,
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "ok": None,
    }
    text = redact(_sentence(one, usual_s, (mono_us - one.last_us) / 1e6))
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.ended", text=text, details=details)


def trouble_event(text: str, wall_us: int, mono_us: int) -> Event:
    """The event of a history that cannot be read or written."""
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.history", severity="warning", text=redact(clean(text)))


def _sentence(one: Ended, usual_s: float | None, unseen_s: float) -> str:
    name = job_name(one.key[0], one.key[1])
    if one.broken:
        return f"{name} is gone: when it ended is not known, for nothing was seen for {human_duration(unseen_s)}"
    if one.seconds is None:
        return f"{name} ended; when it began is not known"
    usual = "" if usual_s is None else f", usual {human_duration(usual_s)}"
    return f"{name} ended after {human_duration(one.seconds)}{usual}; whether it succeeded is not known here"
