"""A moment: all a frame is made of, whether it is now or was last week."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dba_console.frames.chart_history import ChartHistory
from dba_console.frames.derive import derive
from dba_console.frames.model import Frame
from dba_console.frames.picture import Picture
from dba_console.samples.event import Event


@dataclass(frozen=True, slots=True)
class Moment:
    picture: Picture
    history: ChartHistory
    """The ten minutes that led to it."""
    events: Sequence[Event]

    def frame(self) -> Frame:
        """What it means; some milliseconds of work, so asked for once per painting."""
        return derive(self.picture, self.history, self.events)
