"""What the console costs the host it watches, read from /proc like everybody else's cost."""

from __future__ import annotations

import os
import resource

from dba_console.clock import Clock
from dba_console.probes.host.procstat import read_stat
from dba_console.samples.agent_health import AgentHealth

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


class OwnCost:
    """Reads the agent's own CPU and memory, and the CPU of the server process behind its connection."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def read(
        self, counters: tuple[int, int, int], backend_pid: int | None, lanes: list[str], late_us: int
    ) -> AgentHealth:
        """A reading with everything but the recording and the consoles, which the agent adds."""
        queries, query_us, received = counters
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return AgentHealth(
            cpu_us=int((usage.ru_utime + usage.ru_stime) * 1e6),
            rss=_resident(),
            queries=queries,
            query_us=query_us,
            bytes_received=received,
            recorder_lag_us=0,
            recorded=0,
            dropped=0,
            stuck_lanes=len(lanes),
            lanes=lanes,
            consoles=0,
            late_us=late_us,
            backend_cpu_us=None if backend_pid is None else _backend_cpu(backend_pid),
            recording="off",
        )


def _resident() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


def _backend_cpu(pid: int) -> int | None:
    """Microseconds of CPU of a server process on this host, None where there is no such process to read."""
    stat = read_stat("/proc", pid)
    return None if stat is None else (stat.user_ticks + stat.system_ticks) * 1_000_000 // _TICKS
