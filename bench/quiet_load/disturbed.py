"""Insert disturbances into a recorded hour: gaps, clock steps forward and back, agent restarts. Pure.

None of them may raise a finding. Counter resets are part of the hour itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import structs

from dba_console.watch.samples.sample import Sample

EVERY_US = 600_000_000
GAP_US = 60_000_000
STEP_US = 3_600_000_000


def disturbed(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield the samples with a minute missing every ten minutes, and another disturbance five minutes later.

    These are in turn: the host's wall clock is set an hour forward, it is set back, the agent is restarted.
    """
    began_us, happened, ahead_us, runs = None, 0, 0, 0
    for sample in samples:
        began_us = sample.mono_us if began_us is None else began_us
        at_us = sample.mono_us - began_us
        while (at_us + EVERY_US // 2) // EVERY_US > happened:
            happened += 1
            ahead_us = {1: STEP_US, 2: 0}.get(happened % 3, ahead_us)
            runs += happened % 3 == 0
        if at_us % EVERY_US >= EVERY_US - GAP_US:
            continue
        yield structs.replace(sample, wall_us=sample.wall_us + ahead_us, boot=f"{sample.boot}{runs or ''}")
