"""CPU time and memory of processes, from /proc, in the kernel's clock ticks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def cpu_ms(pid: int) -> float:
    """Return user and system time of a process and its ended children, milliseconds."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return sum(int(field) for field in fields[11:15]) * TICK_MS


def resident_mb(pid: int) -> float:
    """Return the resident memory, MB (2^20)."""
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def peak_mb(pid: int) -> float:
    """Return the peak resident memory (VmHWM), MB (2^20). Unlike getrusage, it excludes the parent's."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def cost(groups: Mapping[str, Sequence[int]], seconds: float) -> dict[str, float]:
    """Measure the CPU of each group of processes over the same `seconds`, milliseconds per second."""
    before = {name: sum(map(cpu_ms, pids)) for name, pids in groups.items()}
    begun = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - begun
    return {name: (sum(map(cpu_ms, pids)) - before[name]) / elapsed for name, pids in groups.items()}
