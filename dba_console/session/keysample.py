"""The key sample: what the first of a block must repeat, so that reading can start there and lose nothing."""

from __future__ import annotations

from dba_console.frames.picture import Picture
from dba_console.samples.sample import Part, Sample


def key_sample(sample: Sample, picture: Picture) -> Sample:
    """`sample` with the last two readings, and the newest status, of every part known.

    `picture` is the one after `sample`. Each part keeps the time it was really read; absorbing the key sample into an
    empty picture gives the same readings as absorbing everything before it.
    """
    parts: list[Part] = []
    for name, latest in picture.latest.items():
        latest_parts = {latest.part.at_us: latest.part}
        for readings in (picture.current, picture.previous):
            if name in readings:
                part = readings[name].part
                latest_parts.setdefault(part.at_us, part)
        parts.extend(latest_parts[at_us] for at_us in sorted(latest_parts))
    return Sample(sample.seq, sample.wall_us, sample.mono_us, parts, sample.boot)
