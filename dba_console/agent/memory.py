"""The newest readings, kept so that a console that attaches sees everything at once and not part by part."""

from __future__ import annotations

import threading

from dba_console.samples.sample import Part, Sample


class Newest:
    """The last two parts of each name, written by the tick, read by the listener's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: dict[str, tuple[Part | None, Part]] = {}
        self._last: Sample | None = None

    def absorb(self, sample: Sample) -> None:
        with self._lock:
            self._last = sample
            for part in sample.parts:
                known = self._parts.get(part.name)
                self._parts[part.name] = (known[1] if known else None, part)

    def key_sample(self) -> Sample | None:
        """The last sample with the last two parts of every name, older ones first; None before the first tick."""
        with self._lock:
            if self._last is None:
                return None
            pairs = list(self._parts.values())
            parts = [old for old, _ in pairs if old is not None] + [new for _, new in pairs]
            return Sample(self._last.seq, self._last.wall_us, self._last.mono_us, parts, self._last.boot)
