"""What the console itself costs, and whether it keeps up."""

from __future__ import annotations

from dba_console.frames.facts import PictureFacts
from dba_console.frames.model import SelfFrame
from dba_console.frames.rates import pair, rate
from dba_console.samples.agent_health import AgentHealth


def derive_own(facts: PictureFacts) -> SelfFrame:
    """The agent's cost over the last interval; CPU in percent of one core, as `top` says it."""
    now = facts.picture.now("self", AgentHealth)
    if now is None:
        return SelfFrame()
    frame = SelfFrame(
        rss_bytes=now.rss,
        queries=now.queries,
        recorder_lag_s=now.recorder_lag_us / 1e6,
        dropped=now.dropped,
        stuck_lanes=now.stuck_lanes,
        lanes=now.lanes,
        consoles=now.consoles,
        late_s=now.late_us / 1e6,
        recording=now.recording,
        recording_note=now.recording_note,
        readers_dropped=now.readers_dropped,
    )
    both = pair(facts.picture, "self", AgentHealth)
    if both is not None:
        new, old, seconds = both
        frame.cpu_pct = rate(new.cpu_us, old.cpu_us, seconds, 1e-4)
        frame.rules_cpu_pct = rate(new.judged_us, old.judged_us, seconds, 1e-4)
        frame.backend_cpu_pct = rate(new.backend_cpu_us, old.backend_cpu_us, seconds, 1e-4)
        waited_us = rate(new.query_us, old.query_us, 1.0)
        frame.query_ms = None if waited_us is None else waited_us / 1000
    return frame
