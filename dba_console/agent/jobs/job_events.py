"""What is told of a job that ended, and of the file that could not be read. Pure."""

from __future__ import annotations

from msgspec import structs

from dba_console.agent.jobs.job_detection import EndedJob
from dba_console.agent.jobs.past_runs import RunFacts
from dba_console.frames.job_sessions import job_name
from dba_console.redact import redact
from dba_console.samples.event import Event
from dba_console.sanitize import clean
from dba_console.units import human_duration


def ended_event(
    one: EndedJob, usual_s: float | None, wall_us: int, mono_us: int, told: RunFacts | None = None
) -> Event:
    """The event of a job's end. Whether it succeeded is not known to who only saw its sessions: `ok` is None.

    Times in the details are host wall times; None where the beginning or the end was not seen. `told` is what its
    program was seen to do.
    """
    kind, database, user = one.key
    last_us = wall_us - (mono_us - one.last_us)
    started_us = None if one.elapsed_s is None else last_us - int(one.elapsed_s * 1e6)
    details = {
        "kind": kind,
        "database": database,
        "user": user,
        "started_us": started_us,
        "ended_us": None if one.end_unobserved else last_us,
        "seconds": None if one.seconds is None else round(one.seconds, 3),
        "ok": None if told is None else told.whole,
        **({} if told is None else _details(told)),
    }
    text = redact(_sentence(one, usual_s, (mono_us - one.last_us) / 1e6, told))
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.ended", text=text, details=details)


def _details(told: RunFacts) -> dict[str, object]:
    known = {name: value for name, value in structs.asdict(told).items() if value is not None and name != "whole"}
    known["phases"] = {phase.name: round(phase.wall_s, 3) for phase in told.phases}
    return known


def history_error_event(text: str, wall_us: int, mono_us: int) -> Event:
    """The event of a history that cannot be read or written."""
    return Event(wall_us=wall_us, mono_us=mono_us, kind="job.history", severity="warning", text=redact(clean(text)))


def _sentence(one: EndedJob, usual_s: float | None, unseen_s: float, told: RunFacts | None) -> str:
    name = job_name(one.key[0], one.key[1])
    if one.end_unobserved:
        return f"{name} is gone: when it ended is not known, for nothing was seen for {human_duration(unseen_s)}"
    if one.seconds is None:
        return f"{name} ended; when it began is not known"
    usual = "" if usual_s is None else f", usual {human_duration(usual_s)}"
    return f"{name} ended after {human_duration(one.seconds)}{usual}{_phases(told)}; {_outcome(told)}"


def _phases(told: RunFacts | None) -> str:
    """Wall time of each phase that took any."""
    took = [] if told is None else [phase for phase in told.phases if phase.wall_s > 0]
    words = ", ".join(f"{phase.name} {human_duration(phase.wall_s)}" for phase in took)
    return f" ({words})" if words else ""


def _outcome(told: RunFacts | None) -> str:
    if told is None or (told.whole is None and not told.errors):
        return "whether it succeeded is not known here"
    if told.whole is None:
        return f"{_errors(told)}, whether it went on is not known here"
    if not told.whole:
        ended = "" if told.exit is None else f", exit {told.exit}"
        return f"it failed{ended}" + (f": {clean(told.last_error)}" if told.last_error else "")
    return f"it went through, with {_errors(told)}" if told.errors else "it succeeded"


def _errors(told: RunFacts) -> str:
    return f"{told.errors} error{'' if told.errors == 1 else 's'}"
