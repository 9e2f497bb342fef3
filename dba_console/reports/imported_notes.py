"""Chat lines, pasted with their own times, as notes: Slack, Teams, IRC, Signal, WhatsApp, log lines. Pure.

No line is dropped: a line without a time continues the message before it, and what belongs to no message, or has a time
that cannot be one, is a note without a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from dba_console.core.errors import UsageError

MAX_TEXT = 7_000
"""Characters of one note: longer messages become several, because the text of an event is limited."""
_ROLLOVER = timedelta(hours=12)
"""A time of day earlier than the one before by more than this belongs to the next day."""
_ZONE_HINT = "name it: --zone Europe/Berlin, --zone +02:00, --zone UTC, or --zone local for this host's"


class ImportedNote(NamedTuple):
    """One message."""

    line: int
    """Number of its first line, from 1."""
    occurred_us: int | None
    """None: no time could be read."""
    author: str
    """Empty if unknown."""
    text: str


def parse_zone(name: str) -> tzinfo:
    """Return a time zone by IANA name, offset, `UTC` or `local`. Raises UsageError.

    >>> parse_zone("+02:00").utcoffset(None), parse_zone("utc")
    (datetime.timedelta(seconds=7200), datetime.timezone.utc)
    """
    if name.lower() == "local":
        return _LocalZone()
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if re.fullmatch(r"[+-]\d{1,2}(?::?\d{2})?", name):
        return _offset(name)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"unknown time zone {name!r}", hint=_ZONE_HINT) from None


class _LocalZone(tzinfo):
    """The host's time zone with its changes between summer and winter time."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        try:
            return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()
        except (OverflowError, ValueError, OSError):
            return timedelta(0)  # outside the host's calendar

    def fromutc(self, moment: datetime) -> datetime:
        try:
            return moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)
        except (OverflowError, ValueError, OSError):
            return moment

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "local"


def _offset(text: str) -> timezone:
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    try:
        span = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-span if text[0] == "-" else span)
    except ValueError:
        raise UsageError(f"unknown time zone {text!r}", hint=_ZONE_HINT) from None


# Times as chats write them.

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = rf"(?:{'|'.join(_MONTHS)})[a-z]*\.?"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\s+)?"
_DATE = (
    rf"{_WEEKDAY}(?:(?P<iso>\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}})"
    r"|(?P<numeric>\d{1,2}(?P<mark>[./-])\d{1,2}(?:(?P=mark)(?:\d{4}|\d{2}))?\.?)"
    rf"|(?P<words>\d{{1,2}}\.?\s+{_MONTH}(?:,?\s+\d{{4}})?|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?)"
    r"|today|yesterday)"
)
_TIME = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s?(?P<half>[ap])\.?m\b\.?)?(?:\s?(?P<zone>Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)(?![\w:]))?"
)
_NAMED_GROUP = re.compile(r"\?P<(\w+)>|\(\?P=(\w+)\)")


def _again(pattern: str) -> str:
    """Return the pattern with other names for its groups, to be used a second time in one expression."""
    return _NAMED_GROUP.sub(lambda name: f"?P<{name[1]}2>" if name[1] else f"(?P={name[2]}2)", pattern)


_STAMP = (
    rf"[\[(]?\s?(?:{_again(_TIME)}(?:,\s+|\s+•\s+){_again(_DATE)}"
    rf"|(?:{_DATE}(?:T|,?\s+(?:(?:at|um|•)\s+)?))?{_TIME}(?![\d:]))\s?[\])]?"
)
_STAMPED = re.compile(rf"(?i)(?P<indent>\s*)(?:[-*•|>]\s+)?(?P<stamp>{_STAMP})(?=\s|$|[-–—|:]\s)")
_HEAD = 200
"""Characters in which a line's time, date and author are searched."""
_NAME = r"[^\W\d_][\w.'’-]*(?: [\w.'’()&-]+){0,4}"
_NAME_FIRST = re.compile(rf"(?i)(?P<author>{_NAME})(?:\s{{2,}}|\t|\s+[-–—|]\s+|\s+(?=\[))(?P<stamp>{_STAMP})")
"""Two blanks, a dash or a bracket before the time: a sentence that ends with a time is not the head of a message."""
_DAY_LINE = re.compile(
    rf"(?i)[\s*=─–—-]*(?:day changed(?: to)?\s|log (?:opened|closed)\s)?\s*{_DATE}"
    rf"(?:\s+{_TIME}(?:\s+(?P<year>\d{{4}}))?"
    r"|\s+(?P<year2>\d{4}))?[\s*=─–—-]*"
)
_AUTHORED = re.compile(
    rf"<[@+~&% ]?(?P<nick>[^<>\s][^<>]{{0,60}})>\s?(?P<said>.*)"
    rf"|\*\s(?P<doer>\S+)\s(?P<did>.*)"
    rf"|[@+~&%]?(?P<piped>\S{{1,60}})\s*(?:\||\t)\s?(?P<line>.*)"
    rf"|(?P<name>{_NAME}):(?:\s+(?P<text>.*))?",
    re.S,
)
_LONE_NAME = re.compile(rf"\s*(?P<author>{_NAME})\s*")
_ODD_BLANKS = str.maketrans({"\u202f": " ", "\u00a0": " ", "\u200e": None, "\u200f": None, "\ufeff": None})
"""Blanks and marks that chat programs put around times."""


class _Stamp(NamedTuple):
    """A time as written: what of the date is known, the time of day, the zone."""

    dates: tuple[date, ...]
    """The dates that the text can mean; a year of 1 is unknown. Empty: no date."""
    clock: time
    zone: tzinfo | None
    half: bool
    """Written with am or pm."""


class _Open(NamedTuple):
    """The message that following lines continue."""

    line: int
    written: str
    """Its first line as it was."""
    occurred_us: int
    author: str
    lines: list[str]


class _Dates(NamedTuple):
    """How to complete times: the zone of those without one, and the session they are about."""

    zone: tzinfo | None
    first_us: int
    last_us: int

    def distance_us(self, moment: datetime) -> int:
        """Return how far outside the session it is, 0 within."""
        at_us = _microseconds(moment)
        return max(self.first_us - at_us, at_us - self.last_us, 0)


def _read_stamp(found: re.Match[str]) -> _Stamp | None:
    """Return the time of a match, None if no clock shows it."""
    groups = {name: found.group(name) or found.groupdict().get(f"{name}2") for name in _GROUPS}
    hour, minute, second = int(groups["hour"] or 0), int(groups["minute"] or 0), int(groups["second"] or 0)
    if half := groups["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    try:
        clock = time(hour, minute, min(second, 59), int((groups["fraction"] or "0")[:6].ljust(6, "0")))
        zone = groups["zone"]
        dates = _dates_of(groups)
        if second > 60 or (dates == () and any(groups[name] for name in ("iso", "numeric", "words"))):
            return None
        return _Stamp(dates, clock, None if zone is None else parse_zone(zone), half is not None)
    except (ValueError, UsageError):
        return None


_GROUPS = ("iso", "numeric", "words", "mark", "hour", "minute", "second", "fraction", "half", "zone")


def _dates_of(groups: dict[str, str | None]) -> tuple[date, ...]:
    if text := groups["iso"]:
        return _valid_dates([[int(part) for part in re.split(r"[-/.]", text)]])
    if text := groups["numeric"]:
        parts = [int(part) for part in re.split(r"[./-]", text.rstrip("."))]
        year = 1 if len(parts) < 3 else parts[2] + (2000 if parts[2] < 100 else 0)
        orders = [[year, parts[1], parts[0]]]
        if groups["mark"] != ".":
            orders.append([year, parts[0], parts[1]])
        return _valid_dates(orders)
    if text := groups["words"]:
        month = next(index for index, name in enumerate(_MONTHS, 1) if re.search(rf"(?i)\b{name}", text))
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        return _valid_dates([[numbers[1] if len(numbers) > 1 else 1, month, numbers[0]]])
    return ()


def _valid_dates(orders: Iterable[list[int]]) -> tuple[date, ...]:
    found = []
    for year, month, day in orders:
        try:
            # 29 February without a year is tried in the years of the session.
            found.append(date(4 if year == 1 and (month, day) == (2, 29) else year, month, day))
        except ValueError:
            continue
    return tuple(dict.fromkeys(found))


def _microseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6)


# Messages.


class _Messages:
    """Collects messages line by line."""

    def __init__(self, dates: _Dates, day: date | None) -> None:
        self._dates = dates
        self._day = day
        self._previous: datetime | None = None
        """The time of the message before, without its zone; None after a new date."""
        self._author = ""
        self._twelve = False
        """Times of this paste are written with am and pm; some programs leave it out of following messages."""
        self._open: _Open | None = None
        self.notes: list[ImportedNote] = []

    def add(self, number: int, line: str) -> None:
        plain = line.translate(_ODD_BLANKS).rstrip()
        head = plain[:_HEAD]
        if not plain:
            self._continue(number, "")
        elif (found := _DAY_LINE.fullmatch(head)) is not None and self._take_day(found):
            return
        elif (found := _STAMPED.match(head)) is not None:
            rest = plain[found.end("stamp") :].lstrip()
            self._begin(number, line, found, rest[1:].lstrip() if rest[:1] in ("-", "–", "—", "|", ":") else rest)
        elif (found := _NAME_FIRST.fullmatch(head)) is not None:
            self._author = found["author"]
            self._begin(number, line, found, "")
        else:
            self._continue(number, line)

    def close(self) -> None:
        """End the last message."""
        if self._open is None:
            return
        number, written, occurred_us, author, lines = self._open
        self._open = None
        text = " / ".join(filter(None, (line.strip() for line in lines))) or written.strip()
        self._add_note(number, occurred_us, author, text)

    def _add_note(self, number: int, occurred_us: int | None, author: str, text: str) -> None:
        for at in range(0, len(text), MAX_TEXT):
            self.notes.append(ImportedNote(number, occurred_us, author, text[at : at + MAX_TEXT]))

    def _take_day(self, found: re.Match[str]) -> bool:
        """Take the date of a line that separates days. False if it has none, or it begins a message."""
        year = found["year"] or found["year2"]
        groups = {name: found.group(name) for name in ("iso", "numeric", "words", "mark")}
        dates = _dates_of(groups)
        if not dates or (found["hour"] and not year) or (groups["numeric"] and len(re.findall(r"\d+", found[0])) < 3):
            return False
        if year:
            dates = tuple(one.replace(year=int(year)) for one in dates)
        self.close()
        self._day, self._previous = self._nearest(dates, time(12), self._dates.zone or UTC).date(), None
        return True

    def _begin(self, number: int, line: str, found: re.Match[str], rest: str) -> None:
        stamp = _read_stamp(found)
        if stamp is not None and not rest and found.re is _STAMPED:
            self._take_name_before(bool(found["indent"]) or bool(stamp.dates))
        self.close()
        try:
            occurred_us = None if stamp is None else self._resolve(stamp, number)
        except (OverflowError, ValueError, OSError):
            occurred_us = None  # outside the calendar
        if occurred_us is None:
            self._add_note(number, None, "", line.strip())
            return
        authored = _AUTHORED.fullmatch(rest)
        if authored is None:
            self._open = _Open(number, line, occurred_us, "" if rest else self._author, [rest])
            return
        author, text = next((authored[who], authored[what] or "") for who, what in _AUTHOR_GROUPS if authored[who])
        self._open = _Open(number, line, occurred_us, author.strip(), [text])

    def _take_name_before(self, likely: bool) -> None:
        """Take the line before a line of only a time as its author, if it can be a name."""
        lines = [] if self._open is None else self._open.lines
        if not lines and self.notes and self.notes[-1].occurred_us is None:
            candidate, alone = self.notes[-1].text, True
        elif len(lines) > 1:
            candidate, alone = lines[-1], not lines[-2].strip()
        else:
            return
        name = _LONE_NAME.fullmatch(candidate)
        if name is None or not (likely or alone):
            return
        self._author = name["author"]
        if lines:
            lines.pop()
        else:
            self.notes.pop()

    def _continue(self, number: int, line: str) -> None:
        if self._open is not None:
            self._open.lines.append(line)
        else:
            self._add_note(number, None, "", line.strip())

    # Times

    def _resolve(self, stamp: _Stamp, number: int) -> int:
        zone = stamp.zone or self._dates.zone
        if zone is None:
            raise UsageError(f"line {number}: the time has no zone", hint=_ZONE_HINT)
        clock = self._afternoon(stamp)
        if stamp.dates:
            moment = self._nearest(stamp.dates, clock, zone)
        elif self._day is None:
            moment = self._within_session(clock, zone, number)
        else:
            moment = datetime.combine(self._day, clock)
            if self._previous is not None and moment + _ROLLOVER < self._previous:
                moment += timedelta(days=1)
            moment = moment.replace(tzinfo=zone)
        before, self._day, self._previous = self._previous, moment.date(), moment.replace(tzinfo=None)
        if before is not None and before > self._previous and moment.replace(fold=1).utcoffset() != moment.utcoffset():
            moment = moment.replace(fold=1)  # the hour that summer time repeats at its end
        return _microseconds(moment)

    def _afternoon(self, stamp: _Stamp) -> time:
        """Return the time of day; without am and pm in a paste that has them, the first after the message before."""
        self._twelve = self._twelve or stamp.half
        clock, before = stamp.clock, self._previous
        if stamp.half or not self._twelve or before is None or not 1 <= clock.hour <= 12:
            return clock
        morning = clock.replace(hour=clock.hour % 12)
        afternoon = clock.replace(hour=clock.hour % 12 + 12)
        return afternoon if morning.replace(second=59) < before.time() else morning

    def _nearest(self, dates: tuple[date, ...], clock: time, zone: tzinfo) -> datetime:
        """Return the reading of an incomplete or ambiguous date that is nearest to the session."""
        years = {datetime.fromtimestamp(at / 1e6, zone).year for at in (self._dates.first_us, self._dates.last_us)}
        readings = [
            datetime.combine(day, clock, zone)
            for one in dates
            for day in ([one] if one.year > 4 else _in_years(one, years))
        ]
        if not readings:
            raise UsageError(f"no such day near the session: {dates[0]:%d %B}", hint="give the year, or --date")
        return min(readings, key=self._dates.distance_us)

    def _within_session(self, clock: time, zone: tzinfo, number: int) -> datetime:
        """Return the time of day on the only day of the session that has it. Raises UsageError if several have."""
        first = datetime.fromtimestamp(self._dates.first_us / 1e6, zone).date()
        last = datetime.fromtimestamp(self._dates.last_us / 1e6, zone).date()
        days = min((last - first).days, 400)
        readings = [datetime.combine(first + timedelta(days=day), clock, zone) for day in range(-1, days + 2)]
        within = [one for one in readings if not self._dates.distance_us(one)]
        if len(within) > 1:
            raise UsageError(
                f"line {number}: the session has {clock:%H:%M} on {len(within)} days",
                hint=f"name the first day: --date {within[0]:%Y-%m-%d}",
            )
        return min(readings, key=self._dates.distance_us)


_AUTHOR_GROUPS = (("nick", "said"), ("doer", "did"), ("piped", "line"), ("name", "text"))


def _in_years(day: date, years: Iterable[int]) -> Iterator[date]:
    for year in sorted(years):
        try:
            yield day.replace(year=year)
        except ValueError:
            continue  # 29 February


def parse_chat(
    text: str, *, zone: tzinfo | None, first_us: int, last_us: int, day: date | None = None
) -> list[ImportedNote]:
    """Return the messages of a paste in its order. `first_us`, `last_us`: the session, which decides on which day a
    time without a date was; `day`: the date of the first line. Raises UsageError where the zone or the day is missing.

    >>> [(note.author, note.text) for note in parse_chat("[1970-01-01T00:01Z] <ann> hi\\nthere", zone=None, first_us=0,
    ...  last_us=0)]
    [('ann', 'hi / there')]
    """
    messages = _Messages(_Dates(zone, first_us, last_us), day)
    for number, line in enumerate(text.split("\n"), 1):
        messages.add(number, line)
    messages.close()
    return messages.notes
