"""TIME, as people write a moment of a session.

2026-11-20T14:53:07.5Z   RFC 3339; without a zone it is local time, a blank may stand for the T
14:53:07  14:53          that time of day within the session, the last one where it spans several days
-10m  +90s               before the end, after the start
finding:NAME  mark:TEXT  when the finding was raised, alone or in another; when the mark was made (the first that fits)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta

from dba_console.errors import SessionError, UsageError
from dba_console.samples.event import Event
from dba_console.units import parse_duration

_HINT = "write it as 2026-11-20T14:53:07Z, 14:53:07, -10m, +90s, finding:NAME or mark:TEXT"
_OPEN = ("finding.raised", "finding.changed")
"""Events that say a finding is there; one may be silenced before it is."""
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,6})?)?")


def parse_when(text: str, *, first_us: int, last_us: int, events: Sequence[Event] = ()) -> int:
    """Wall microseconds of TIME in a session from `first_us` to `last_us`. Raises UsageError naming the text.

    >>> parse_when("+90s", first_us=0, last_us=600_000_000), parse_when("-10m", first_us=0, last_us=700_000_000)
    (90000000, 100000000)
    >>> parse_when("1970-01-01T00:00:02.5Z", first_us=0, last_us=0)
    2500000
    """
    text = text.strip()
    kind, colon, rest = text.partition(":")
    if colon and kind in ("finding", "mark"):
        return _of_event(kind, rest, events)
    if text[:1] in ("+", "-"):
        span_us = int(parse_duration(text[1:]) * 1e6)
        return first_us + span_us if text[0] == "+" else last_us - span_us
    if (match := _TIME_OF_DAY.fullmatch(text)) is not None:
        return _time_of_day(text, match, first_us, last_us)
    try:
        moment = datetime.fromisoformat(text)
        return _microseconds(moment)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"not a time: {text!r}", hint=_HINT) from None


def _of_event(kind: str, text: str, events: Sequence[Event]) -> int:
    for event in events:
        if kind == "mark" and event.kind == "mark" and text in event.text:
            return event.occurred_us if event.occurred_us is not None else event.wall_us
        if kind == "finding" and event.kind in _OPEN and _names(event, text):
            return event.wall_us
    raise UsageError(f"no {kind} {text!r} in this session", hint="the events panel lists what there is")


def _names(event: Event, name: str) -> bool:
    """Whether that is its id or its rule, or one of those it is made of."""
    parts = [str(part) for part in (event.details.get("id"), event.details.get("name"), *_component_findings(event))]
    return name in parts or name in {part.partition(":")[0] for part in parts}


def _component_findings(event: Event) -> list[object]:
    return [*(event.details.get("chain") or ()), *(event.details.get("also") or ())]


def _time_of_day(text: str, match: re.Match[str], first_us: int, last_us: int) -> int:
    """The last such time that lies in the session; where none does, the one of its last day."""
    try:
        fraction = int(float(match[4] or 0) * 1e6)
        of_day = time(int(match[1]), int(match[2]), int(match[3] or 0), fraction)
    except ValueError:
        raise UsageError(f"not a time of day: {text!r}", hint=_HINT) from None
    try:
        day = datetime.fromtimestamp(last_us / 1e6).date()
        on_last_day = _microseconds(datetime.combine(day, of_day))
        if on_last_day <= last_us:
            return on_last_day
        day_before = _microseconds(datetime.combine(day - timedelta(days=1), of_day))
    except (ValueError, OverflowError, OSError) as error:
        raise SessionError(f"the times of this recording are in no calendar: {error}") from error
    return day_before if day_before >= first_us else on_last_day


def _microseconds(moment: datetime) -> int:
    """A time without zone is local."""
    return round(moment.timestamp() * 1e6)
