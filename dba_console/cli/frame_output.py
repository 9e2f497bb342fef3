"""Build frames from pictures with their history, and print them as text or as one JSON object."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dba_console.cli.live_source import MAX_EVENTS, LiveView
from dba_console.core.errors import ConsoleError, SessionError, UsageError
from dba_console.core.sanitize import escape_json
from dba_console.watch.drawing.overview import show_json, show_text
from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.model import Frame
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.subjects import PANEL_NAMES

if TYPE_CHECKING:
    from dba_console.recording.recording import Recording

Points = list[tuple[int, dict[str, float]]]

HISTORY_US = 600_000_000
"""Ten minutes, for trends and charts."""
HISTORY_TIMEOUT_S = 1.0


class FrameBuilder:
    """Builds the frame of each view; keeps ten minutes of history for growth rates and fill forecasts."""

    def __init__(self, session: str | None = None, until_us: int | None = None) -> None:
        self.history = ChartHistory()
        if session is not None and until_us is not None:
            self.history.extend(_read_history(Path(session), until_us))

    def build(self, view: LiveView) -> Frame:
        picture = view.picture
        self.history.add(picture.wall_us, view.point)
        return derive(picture, self.history, view.events)

    def build_recorded(self, recording: Recording, wall_us: int) -> Frame:
        """Return the frame at a time of a recording, with the ten minutes before it. Raises SessionError."""
        picture = recording.picture_at(wall_us)
        if picture is None:
            raise SessionError(f"nothing was recorded at that time in {recording.directory.name}")
        self.history.clear()
        self.history.extend(recording.points(wall_us - HISTORY_US, wall_us))
        return derive(picture, self.history, recording.events(to_us=wall_us, limit=MAX_EVENTS))


def frame_text(frame: Frame, names: Sequence[str], width: int, history: ChartHistory, *, ascii: bool = False) -> str:
    """Return the named panels in full, or the overview if none is named.

    `ascii`, or a locale that is not UTF-8, uses only ASCII characters.
    """
    plain = ascii or not (sys.stdout.encoding or "").lower().startswith("utf")
    return show_text(frame, list(names) or None, width, history, ascii=plain).rstrip("\n")


def frame_json(frame: Frame, names: Sequence[str]) -> str:
    """Return the frame as the contract's one-line JSON object, limited to the named panels if any."""
    encoded = show_json(frame)
    if names:
        value = msgspec.json.decode(encoded)
        value["panels"] = {name: panel for name, panel in value["panels"].items() if name in names}
        encoded = msgspec.json.encode(value)
    return escape_json(encoded.decode())


def is_panel(name: str) -> bool:
    return name in PANELS


def require_json_panels(names: Sequence[str]) -> None:
    """Raise UsageError for a panel that has text but no fields in the JSON object."""
    for name in names:
        if name not in (*PANEL_NAMES, "findings"):
            raise UsageError(f"the panel {name!r} is not in the JSON object", hint="the console's cost is under `self`")


def terminal_width() -> int:
    """Return the output width: the terminal's columns or $COLUMNS, else 80."""
    return shutil.get_terminal_size((80, 24)).columns


def _read_history(session: Path, until_us: int) -> Points:
    """Return the recorded history of the last ten minutes; empty if the disk does not answer in time."""
    try:
        with closing(Lane("recording")) as lane:
            return lane.call(lambda: _read_points(session, until_us), HISTORY_TIMEOUT_S)
    except (LaneTimeout, ConsoleError, OSError):
        return []


def _read_points(session: Path, until_us: int) -> Points:
    from dba_console.recording.recording import Recording

    with closing(Recording.open(session)) as recording:
        return recording.points(until_us - HISTORY_US, until_us - 1)
