"""The last minutes in memory: samples as they came, so that pausing and stepping need no recording.

Samples stay encoded; a picture is made again when one is asked for. What is forgotten is folded into the picture the
ring starts from, so slow parts read long ago are still there. Bounded by count and by bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dba_console.frames.picture import Picture
from dba_console.samples.sample import Sample

MAX_SAMPLES, MAX_BYTES = 120, 4 << 20
"""Two minutes at 1 Hz, and what the memory budget of the console leaves for it."""


class SampleBuffer:
    """Recent samples in the order they came. Times are wall microseconds."""

    def __init__(self, samples: int = MAX_SAMPLES, size: int = MAX_BYTES) -> None:
        self._limit = samples
        self._size_limit = size
        self._samples: deque[tuple[Sample, int]] = deque()
        self._size = 0
        self._base = Picture()

    def add(self, sample: Sample, size: int) -> None:
        """Keep `sample`, which takes `size` bytes; forget the oldest beyond the bounds, never the newest."""
        self._samples.append((sample, size))
        self._size += size
        while len(self._samples) > 1 and (len(self._samples) > self._limit or self._size > self._size_limit):
            oldest, taken = self._samples.popleft()
            self._size -= taken
            self._base = self._base.with_sample(oldest)

    @property
    def first_us(self) -> int | None:
        return self._samples[0][0].wall_us if self._samples else None

    @property
    def last_us(self) -> int | None:
        return self._samples[-1][0].wall_us if self._samples else None

    def samples(self) -> Iterator[Sample]:
        """What is kept, oldest first."""
        return (sample for sample, _ in self._samples)

    def covers(self, wall_us: int) -> bool:
        """True where the moment lies within what is kept."""
        return bool(self._samples) and self._samples[0][0].wall_us <= wall_us

    def picture_at(self, wall_us: int) -> Picture | None:
        """What was known at that moment; None where it lies before what is kept."""
        if not self.covers(wall_us):
            return None
        picture = self._base
        for sample, _ in self._samples:
            if sample.wall_us > wall_us:
                break
            picture = picture.with_sample(sample)
        return picture

    def step(self, wall_us: int, direction: int) -> int | None:
        """The time of the sample after (+1) or before (-1) `wall_us`; None where the ring does not reach."""
        times = [sample.wall_us for sample, _ in self._samples]
        if direction > 0:
            return next((at for at in times if at > wall_us), None)
        return next((at for at in reversed(times) if at < wall_us), None)
