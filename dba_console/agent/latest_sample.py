"""The newest readings, kept so that a console that attaches sees everything at once and not part by part."""

from __future__ import annotations

import threading

from dba_console.frames.picture import Picture
from dba_console.samples.sample import Sample
from dba_console.session.keysample import key_sample


class LatestSample:
    """The picture after the last tick, written by the tick, read by the listener's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._picture = Picture()
        self._last: Sample | None = None

    def absorb(self, sample: Sample) -> Picture:
        """Take the sample in; the picture after it."""
        with self._lock:
            self._picture = self._picture.with_sample(sample)
            self._last = sample
            return self._picture

    def picture(self) -> Picture:
        """The newest; never changed, only replaced."""
        with self._lock:
            return self._picture

    def key_sample(self) -> Sample | None:
        """The last sample with the last two readings of every part; None before the first tick."""
        with self._lock:
            return None if self._last is None else key_sample(self._last, self._picture)
