"""Compare two moments of a server: what changed, the largest change first. Pure.

Goes by the declarations of the frame: a field added there is compared without a change here. Rows of tables are matched
by the fields that identify them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import log2
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dba_console.clusters.subject.panel import PoolerRow
from dba_console.core.clock import rfc3339
from dba_console.core.units import UNKNOWN, human_bytes, human_count, human_duration, human_pct
from dba_console.watch.drawing.text_elements import clean
from dba_console.watch.drawing.time_formats import date_and_time
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.model import Finding, Frame, chart_titles
from dba_console.watch.frames.picture import Picture, PictureFacts
from dba_console.watch.locks.panel import EpisodeRow, LockNode
from dba_console.watch.panel import unit_of
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.replication.panel import StandbyRow
from dba_console.watch.safety.panel import HorizonRow
from dba_console.watch.sessions.panel import SessionRow
from dba_console.watch.subjects import PANEL_NAMES

if TYPE_CHECKING:
    from dba_console.recording.recording import Recording

SHOWN = 40
"""Changes in the text; all of them are in the JSON object."""
MIN_WEIGHT = 0.15
"""Doublings: a number that changed by less than a tenth is left out."""
MAX_DISTANCE_US = 10_000_000
"""A sample further before the time asked for is mentioned."""
_NOISE = {
    "bytes": 16 << 20, "bytes/s": 1 << 20, "%": 2.0, "ms": 2.0, "s": 2.0, "1/s": 5.0, "1/min": 1.0,
    "transactions": 100_000.0, "multixacts": 100_000.0,
}  # fmt: skip
"""By unit: what a quiet server changes by in a second. A change from 0 is measured against it."""
_AGING = (
    "age_s", "elapsed_s", "uptime_s", "watched_s", "wait_s", "wall_s", "busy_s", "xact_s", "unread_s", "oldest_s",
    "idle_s",
)  # fmt: skip
"""Ends of names of times that grow as time passes."""
_AGE_NOISE_S = 30.0
_FAR_S = 7 * 86400.0
"""A forecast further ahead is no news."""
_SESSION_SHARE = 0.3
"""Numbers of single sessions come after those of the server."""
_TABLE_WORDS = {"trees": "sessions that block or wait", "episodes": "sessions that blocked others", "rows": ""}
_ALWAYS_MOVING = {
    "lsn", "last_archived_wal", "query", "query_bytes", "status", "note", "age_s", "seq", "since", "until",
    "process_state", "episodes_since",
}  # fmt: skip
_NAMED_CHANGE = 6.0
"""Weight of a change of a setting, a version or a role: as a number that grew 64-fold."""
_FINDING_WEIGHT = {"critical": 20.0, "warning": 12.0, "info": 3.0}
_KEYS: dict[type[Struct], tuple[str, ...]] = {
    SessionRow: ("pid", "backend_start"),
    LockNode: ("pid", "backend_start"),
    EpisodeRow: ("pid", "backend_start"),
    HorizonRow: ("kind", "who"),
    PoolerRow: ("name", "database"),
    StandbyRow: ("application", "client"),
    ProgressRow: ("kind", "database", "pid", "process"),
}
"""Fields that identify a row, where the first one does not."""
_DESCRIBING = ("application", "user", "database", "relation", "state", "mode", "wal_status", "source")


class MomentChange(Struct, frozen=True, kw_only=True):
    """One difference."""

    area: str
    """A panel, or server, settings, findings."""
    field: str | None
    """As in `show --json`; a table's name for new and gone rows."""
    row: str | None = None
    """The row of a table."""
    kind: str = "changed"
    """changed, new, gone."""
    before: Any = None
    after: Any = None
    unit: str = ""
    rows: list[str] = []
    """Names of new or gone rows."""
    text: str
    """In words; sanitized."""
    weight: float
    """How large: for numbers the doublings."""


class Comparison(Struct, frozen=True, kw_only=True):
    """The differences from one moment to another, the largest first."""

    from_us: int
    to_us: int
    changes: list[MomentChange]
    unknown: list[str] = []
    """Fields known at only one of the moments."""
    notes: list[str] = []
    """What could not be compared."""


def server_settings(picture: Picture) -> dict[str, str]:
    """Return the server's settings known at that time, as text with units."""
    return {
        name: _setting_text(one.value, one.unit) for name, one in PictureFacts(picture, ChartHistory()).settings.items()
    }


def compare(
    before: Frame,
    after: Frame,
    settings: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
    areas: Sequence[str] = (),
) -> Comparison:
    """Return what changed from `before` to `after`, of these panels only if any are given.

    `settings`: of the server at both moments, see `server_settings`.
    """
    work = _Work((after.at_us - before.at_us) / 1e6)
    changes = [*_finding_changes(before, after)]
    changes += work.struct_changes("server", before.target, after.target)
    if settings[0] and settings[1]:  # a server whose settings cannot be read has not lost them
        changes += _named_changes("settings", None, *settings)
    for panel in PANEL_NAMES:
        if panel != "events":
            changes += work.struct_changes(panel, getattr(before, panel), getattr(after, panel))
    if areas:
        changes = [change for change in changes if change.area in areas]
    changes.sort(key=lambda change: (-change.weight, change.text))
    unknown = sorted(name for name in work.unknown if not areas or name.partition(".")[0] in areas)
    notes = [
        note for panel in PANEL_NAMES if not areas or panel in areas for note in _status_notes(panel, before, after)
    ]
    return Comparison(from_us=before.at_us, to_us=after.at_us, changes=changes, unknown=unknown, notes=notes)


def compare_recorded(recording: Recording, from_us: int, to_us: int, areas: Sequence[str] = ()) -> Comparison:
    """Return what changed between two times of a recording. Raises SessionError if nothing was recorded at one."""
    from dba_console.reports.recorded_moments import FrameReader, one_picture

    frames, settings, notes = [], [], []
    reader = FrameReader(recording)
    for at_us in (from_us, to_us):
        picture, _ = one_picture(recording, at_us)
        if at_us - picture.wall_us > MAX_DISTANCE_US:
            notes.append(
                f"nothing was recorded at {date_and_time(at_us)}: {date_and_time(picture.wall_us)} is compared"
            )
        frames.append(reader.frame(picture))
        settings.append(server_settings(picture))
    found = compare(frames[0], frames[1], (settings[0], settings[1]), areas)
    return msgspec.structs.replace(found, notes=[*notes, *found.notes])


def comparison_object(found: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON types."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return {"from": rfc3339(plain.pop("from_us")), "to": rfc3339(plain.pop("to_us")), **plain}


def comparison_lines(found: Comparison, limit: int = SHOWN) -> list[str]:
    """Return the comparison as text."""
    later_s = (found.to_us - found.from_us) / 1e6
    later = f"{human_duration(abs(later_s))} {'later' if later_s >= 0 else 'earlier'}"
    lines = [f"from {date_and_time(found.from_us)} to {date_and_time(found.to_us)} ({later}), largest change first", ""]
    lines += [f"  {change.area:<12} {change.text}" for change in found.changes[:limit]]
    if not found.changes:
        lines.append("  no change that is larger than usual from one second to the next")
    if (smaller := len(found.changes) - limit) > 0:
        lines.append(f"  {smaller} smaller changes are not shown; --json lists all")
    if found.notes or found.unknown:
        lines += ["", *(f"  {note}" for note in found.notes)]
    if found.unknown:
        names = ", ".join(found.unknown[:8]) + (", …" if len(found.unknown) > 8 else "")
        lines.append(f"  known at only one of the two times: {names}")
    return lines


# Findings, settings, status.


def _finding_changes(before: Frame, after: Frame) -> Iterator[MomentChange]:
    old, new = ({one.id: one for one in frame.findings} for frame in (before, after))
    for name in old.keys() | new.keys():
        was, now = old.get(name), new.get(name)
        one = now or was
        if one is None or (was is not None and now is not None and was.severity == now.severity):
            continue
        kind = "new" if was is None else "gone" if now is None else "changed"
        known_until = "" if kind != "gone" else f" (until {date_and_time(before.at_us)} or later)"
        text = f"{kind}, {one.severity}: {one.text}{known_until}" if kind != "changed" else _severity_text(was, one)
        yield MomentChange(
            area="findings", field="findings", row=name, kind=kind, before=None if was is None else was.severity,
            after=None if now is None else now.severity, text=clean(text),
            weight=max(_FINDING_WEIGHT.get(each.severity, 3.0) for each in (was, now) if each is not None),
        )  # fmt: skip


def _severity_text(was: Finding | None, now: Finding) -> str:
    return f"now {now.severity}, was {UNKNOWN if was is None else was.severity}: {now.text}"


def _named_changes(
    area: str, field: str | None, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Iterator[MomentChange]:
    """Yield the differences of two mappings of names to values, as settings are."""
    for name in sorted({*old, *new}):
        was, now = old.get(name), new.get(name)
        if was != now:
            text = f"{name} changed from {_plain(was)} to {_plain(now)}"
            yield MomentChange(
                area=area, field=field or name, row=name if field else None, before=was, after=now, text=clean(text),
                weight=_NAMED_CHANGE,
            )  # fmt: skip


def _status_notes(panel: str, before: Frame, after: Frame) -> Iterator[str]:
    found = [(frame.at_us, getattr(frame, panel)) for frame in (before, after)]
    if all(one.status == "unsupported" for _, one in found):
        return
    for at_us, one in found:
        if one.status != "ok":
            why = f": {' '.join(one.note.split())}" if one.note else ""
            yield clean(f"{panel} at {date_and_time(at_us)}: {one.status}{why}")


def _setting_text(value: str, unit: str | None) -> str:
    size, seconds = _SETTING_SIZES.get(unit or ""), _SETTING_TIMES.get(unit or "")
    try:
        if size is not None and int(value) > 0:
            return human_bytes(int(value) * size)
        if seconds is not None and float(value) > 0:
            return human_duration(float(value) * seconds)
    except ValueError:
        pass
    return f"{value} {unit}" if unit else value


_SETTING_SIZES = {"B": 1, "kB": 1 << 10, "8kB": 8 << 10, "MB": 1 << 20}
_SETTING_TIMES = {"ms": 0.001, "s": 1.0, "min": 60.0}


# Fields and rows.


class _Work:
    """Compares the fields of structs; collects those known at only one moment."""

    def __init__(self, elapsed_s: float) -> None:
        self._elapsed_s = elapsed_s
        self.unknown: set[str] = set()

    def struct_changes(
        self, area: str, old: Struct, new: Struct, table: str = "", row: str | None = None
    ) -> Iterator[MomentChange]:
        """Yield the differences of two structs of one type: a panel, or a row of a table."""
        for name in _fields(type(new)):
            if name in _ALWAYS_MOVING:
                continue
            was, now = getattr(old, name), getattr(new, name)
            if was == now:
                continue
            if isinstance(now, list) and isinstance(was, list):
                if row is None:
                    yield from self._list_changes(area, name, was, now)
            elif isinstance(now, dict) and isinstance(was, dict):
                yield from _named_changes(area, name, was, now)
            else:
                change = self._value_change(area, name, was, now, table, row)
                if change is not None:
                    yield change

    def _list_changes(self, area: str, table: str, was: list[Any], now: list[Any]) -> Iterator[MomentChange]:
        old, new = _by_key(was), _by_key(now)
        for kind, here, there in (("new", new, old), ("gone", old, new)):
            if found := [value for key, value in here.items() if key not in there]:
                yield _rows_change(area, table, kind, found, (len(was), len(now)))
        for key in new.keys() & old.keys():
            before, after = old[key], new[key]
            if isinstance(after, Struct) and type(before) is type(after):
                yield from self.struct_changes(area, before, after, table, _row_name(after))
            elif isinstance(after, dict) and isinstance(before, dict):
                for name in after.keys() & before.keys():
                    change = self._value_change(area, str(name), before[name], after[name], table, _row_name(after))
                    if change is not None:
                        yield change

    def _value_change(
        self, area: str, name: str, was: Any, now: Any, table: str, row: str | None
    ) -> MomentChange | None:
        if was is None and now is None:
            return None
        unit = unit_of(name)
        if _is_number(was) and _is_number(now):
            if (was is not None and now is not None) or name == "longest_wait_s":  # None: nobody waits
                return self._number_change(area, name, was or 0.0, now or 0.0, table, row)
            if not name.endswith("_in_s"):  # without a forecast it is None: that is known too
                self.unknown.add(f"{area}.{f'{table}.' if table else ''}{name}")
                return None
            weight = 3.0 if (was or now or 0.0) < _FAR_S else 0.3
        elif was is None or now is None:
            weight = 0.5
        else:
            weight = _NAMED_CHANGE if area == "server" else 0.4 if table == "rows" else 1.5
        text = f"{_title(area, name, table, row)} changed from {value_text(was, unit)} to {value_text(now, unit)}"
        return MomentChange(
            area=area, field=f"{table}.{name}" if table else name, row=row, before=was, after=now, unit=unit,
            text=clean(text), weight=weight,
        )  # fmt: skip

    def _number_change(
        self, area: str, name: str, was: float, now: float, table: str, row: str | None
    ) -> MomentChange | None:
        unit = unit_of(name)
        if name.endswith(_AGING) and abs(now - was - self._elapsed_s) <= max(2.0, 0.02 * abs(self._elapsed_s)):
            return None
        noise = _AGE_NOISE_S if name.endswith(_AGING) and name != "longest_wait_s" else float(_NOISE.get(unit, 1.0))
        weight = _weight(was, now, unit, noise) * (_SESSION_SHARE if area == "sessions" else 1.0)
        if abs(now - was) < noise or weight < MIN_WEIGHT:
            return None
        verb = "rose" if now > was else "fell"
        values = f"{value_text(was, unit)} to {value_text(now, unit)}"
        text = f"{_title(area, name, table, row)} {verb} from {values}{_ratio_text(was, now, unit)}"
        return MomentChange(
            area=area, field=f"{table}.{name}" if table else name, row=row, before=was, after=now, unit=unit,
            text=clean(text), weight=round(weight, 3),
        )  # fmt: skip


def _rows_change(area: str, table: str, kind: str, found: list[Any], counts: tuple[int, int]) -> MomentChange:
    names = [_row_name(value) for value in found]
    shown = [name if count == 1 else f"{count} × {name}" for name, count in _grouped(found, names).most_common()]
    listed = "; ".join(shown[:5]) + (f"; and {len(shown) - 5} more" if len(shown) > 5 else "")
    what = _TABLE_WORDS.get(table, table.replace("_", " "))
    text = f"{f'{what}, ' if what else ''}{f'{len(names)} ' if len(names) > 1 else ''}{kind}: {listed}"
    return MomentChange(
        area=area, field=table, kind=kind, before=counts[0], after=counts[1], rows=[clean(name) for name in names],
        text=clean(text), weight=round(2.0 + log2(len(names)), 3),
    )  # fmt: skip


def _grouped(found: list[Any], names: list[str]) -> Counter[str]:
    """Return the names; many sessions are counted by what they have in common."""
    if len(found) <= 3 or not isinstance(found[0], SessionRow | LockNode):
        return Counter(names)
    return Counter(", ".join(filter(None, (row.application, row.user, row.database))) or "?" for row in found)


def _by_key(values: Sequence[Any]) -> dict[object, Any]:
    """Return rows by what identifies them, with the rows below them; of equal ones the second is another."""
    found: dict[object, Any] = {}
    for value in _flat(values):
        key, again = _key(value), 0
        while (key, again) in found:
            again += 1
        found[key, again] = value
    return found


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """Yield rows and the rows of the same kind below them, as the sessions that wait for one."""
    for value in values:
        yield value
        if isinstance(value, LockNode):
            yield from _flat(value.waiters)


def _key(row: Any) -> tuple[Any, ...]:
    if isinstance(row, Struct):
        return tuple(getattr(row, name) for name in _KEYS.get(type(row), _fields(type(row))[:1]))
    return tuple(value for value in row.values() if isinstance(value, str)) if isinstance(row, dict) else (row,)


def _row_name(row: Any) -> str:
    """Return the name of a row: what identifies it, and what describes it.

    >>> _row_name(SessionRow(pid=7, user="web", database="shop", state="active")), _row_name("no WAL archive")
    ('pid 7 (web, shop, active)', 'no WAL archive')
    """
    if not isinstance(row, Struct):
        return ", ".join(map(str, _key(row)))
    names = _KEYS.get(type(row), _fields(type(row))[:1])
    parts = [(name, getattr(row, name)) for name in names if name != "backend_start"]
    first = " ".join(
        f"{name} {value}" if name in ("pid", "process", "node") else str(value) for name, value in parts if value
    )
    more = [str(value) for name in _DESCRIBING if name not in names and (value := getattr(row, name, None))]
    return f"{first} ({', '.join(more)})" if more else first


@cache
def _fields(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind))


# Numbers and words.


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _weight(was: float, now: float, unit: str, noise: float) -> float:
    if was * now < 0:
        return log2((abs(was) + abs(now) + noise) / noise)
    doublings = abs(log2((abs(now) + noise) / (abs(was) + noise)))
    # From 80 to 97 % is a quarter of a doubling, and the end of the room there is.
    return max(doublings, abs(now - was) / 10) if unit == "%" else doublings


def _ratio_text(was: float, now: float, unit: str) -> str:
    if unit == "%":
        return f" ({now - was:+.0f} points)"
    if was <= 0 or now < 0:
        return ""
    ratio = now / was
    if ratio >= 2:
        return f" (×{ratio:.1f})" if ratio < 99.5 else f" (×{human_count(ratio)})"
    return f" ({(ratio - 1) * 100:+.0f}%)"


def _title(area: str, name: str, table: str, row: str | None) -> str:
    """Return the words of a field: those of its chart, else of its name without the unit."""
    words = name
    for end in ("_bytes_per_s", "_per_s", "_per_min", "_bytes", "_pct", "_ms", "_in_s", "_s"):
        if name.endswith(end):
            words = name.removesuffix(end) + (" in" if end == "_in_s" else "")
            break
    chart = None if row else chart_titles().get(f"{area}.{name}")
    title = chart if chart is not None and chart != area else words.replace("_", " ")
    return f"{row}: {title}" if row else title


def value_text(value: Any, unit: str) -> str:
    """Return a value with its unit.

    >>> value_text(6_657_199_309, "bytes"), value_text(0.4, "s"), value_text(12, ""), value_text(None, "s")
    ('6.2 GB', '0.4s', '12', 'none')
    """
    if not _is_number(value) or value is None:
        return _plain(value)
    match unit:
        case "bytes" | "bytes/s":
            return human_bytes(value, per_s=unit == "bytes/s")
        case "%":
            return human_pct(value)
        case "s":
            return human_duration(value)
        case "1/s":
            return human_count(value, per_s=True)
        case "":
            return f"{value:,}" if isinstance(value, int) else human_count(value)
        case _:
            return f"{human_count(value)} {unit.replace('1/min', 'a minute')}"


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or '""'
