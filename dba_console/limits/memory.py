"""Figures of the findings about memory."""

from __future__ import annotations

from msgspec import Struct

MB = 1 << 20
GB = 1 << 30


class MemoryLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.memory]`. Percentages of memory are of MemTotal."""

    fell_pct: float = 3.0
    """Page cache that goes within `window_s` to count, within the two bounds that follow."""
    fell_least_bytes: int = 512 * MB
    """On a small host this much, whatever its share."""
    fell_most_bytes: int = 1 * GB
    """On a big host so much is enough, where I/O stalls at the same time."""
    free_pct: float = 60.0
    """Share of it that free memory must have gained: else somebody needed the memory."""
    window_s: float = 30.0
    """Reclaim that goes on for longer is followed from its newest half minute."""
    reclaim_notice_pct: float = 3.0
    """A fall without a stall is worth a line from here on, and a warning from the next."""
    reclaim_warning_pct: float = 10.0
    """A tenth of memory is gigabytes to be read again on any database host."""
    memory_stalled_pct: float = 20.0
    """Share of the last ten seconds in which everybody waited for memory."""
    standstill_pct: float = 5.0
    """Bytes read and written, of those of the minute before, at which I/O has come to a stop without PSI to say so."""
    standstill_before_bytes_per_s: int = 1 * MB
    """Where so little was read and written before, nothing has come to a stop."""
    reread_bytes_per_s: int = 32 * MB
    """A third of what one disk reads in sequence, several times what it reads at random; below it nothing is told,"""
    reread_busy_pct: float = 20.0
    """nor where it costs the devices a smaller share of their time: of one NVMe's rate 32 MB/s is a fiftieth."""
    reread_s: float = 10.0
    """The mean over so long."""
    swap_pages_per_s: float = 50.0
    """In and out, each, over `swap_s`."""
    swap_s: float = 10.0
    """The mean over so long: a program started again touches pages of its own for a second or two."""
    swap_used_pct: float = 50.0
    """Used without traffic: a line, and no fault."""
    thp_shared_buffers_bytes: int = 1 * GB
    """With smaller shared buffers huge pages on demand are not worth a line."""
    oom_told_s: float = 900.0
    """How long a process killed for lack of memory stays on the screen."""
