"""Figures of the findings about I/O."""

from __future__ import annotations

from msgspec import Struct


class IoLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.io]`."""

    stalled_pct: float = 35.0
    """Share of `window_s` in which every task that had work waited for I/O (PSI io full)."""
    stalled_clear_pct: float = 20.0
    """An open finding lasts until the share is below this."""
    critical_pct: float = 60.0
    """Most of the time lost, as the example of story S1 tells it (61 %)."""
    window_s: float = 10.0
    """As long as the shortest average of the kernel, but taken from its total, which does not lag."""
    waiting_sessions: int = 2
    """Sessions whose statement waits for I/O and has run for `waiting_s`: without them a busy disk is no stall."""
    critical_sessions: int = 5
    """So many in three readings of five seconds."""
    waiting_s: float = 1.0
    """A hundred times what a statement of milliseconds takes; in story S1 it was 30 s."""
    stuck_processes: int = 2
    """Processes of the server that hang in the kernel and make no progress for `stuck_s`."""
    stuck_s: float = 2.5
    """Three readings one second apart, and a little less: in story S7 it was 28 s."""
    unanswered_s: float = 2.5
    """A device has requests in flight and completes none."""
    blocked_processes: int = 4
    """Without PSI: tasks blocked in every reading of `blocked_s`, with so much iowait."""
    blocked_s: float = 2.5
    """As `stuck_s`."""
    blocked_iowait_pct: float = 20.0
    """Of all CPU time: half a CPU of two, and less on more."""
    saturated_pct: float = 95.0
    """Time with a request in flight, %util of `iostat -x`."""
    saturated_clear_pct: float = 80.0
    """An open finding lasts until it is below this."""
    saturated_s: float = 20.0
    """Busy in every reading of so long."""
    saturated_times: float = 2.0
    """Queue or latency against what is usual for this device: utilisation alone means nothing on parallel ones."""
    slow_times: float = 4.0
    """Times the usual latency of this device; half of it keeps the finding open."""
    slow_ms: float = 20.0
    """Milliseconds below which no disk that turns is called slow: a seek and a turn take 5 to 13."""
    slow_flash_ms: float = 10.0
    """For a device that usually answers within 2 ms."""
    slow_requests_per_s: float = 20.0
    """Of fewer requests an average tells nothing."""
    slow_s: float = 30.0
    """Shorter it is a burst: a checkpoint, a dump that begins, a file that is removed."""
    usual_minutes: int = 3
    """What is usual is known after so many whole minutes, the last one left out."""
