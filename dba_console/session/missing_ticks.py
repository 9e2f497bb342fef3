"""Ticks that are missing: told from the numbers and times of the samples that came."""

from __future__ import annotations

from dba_console.samples.sample import Sample
from dba_console.session.backlog import Gap

SILENCE = 5
"""Intervals without a sample that count as a gap: less is a slow tick, which its own times show."""


class TickWatch:
    """Compares each sample with the one before."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._before: Sample | None = None
        self._dropped = 0

    def next(self, sample: Sample, dropped: int) -> list[Gap]:
        """The gap between the last sample and this one, if there is one. `dropped`: all that the queue gave up."""
        before, self._before = self._before, sample
        lost_here, self._dropped = dropped - self._dropped, dropped
        if before is None:
            return []
        missing = max(0, sample.seq - before.seq - 1) if sample.boot == before.boot else 0
        silent_us = sample.mono_us - before.mono_us
        if lost_here > 0:
            reason = "the recorder could not keep up"
            return [Gap(before.wall_us, sample.wall_us, max(missing, lost_here), reason)]
        if missing:
            return [Gap(before.wall_us, sample.wall_us, missing, "ticks were skipped before they reached the recorder")]
        if silent_us > SILENCE * self._interval_us:
            return [Gap(before.wall_us, sample.wall_us, 0, f"no sample came for {silent_us / 1e6:.0f} s")]
        return []
