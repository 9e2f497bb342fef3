"""/proc/stat: CPU times, context switches, running and blocked tasks (Documentation/filesystems/proc.rst)."""

from __future__ import annotations

import re

from dba_console.samples.host import Cpu

_CPU_LINE = re.compile(rb"^cpu\d", re.M)


def parse_cpu(data: bytes) -> Cpu:
    """The reading in /proc/stat. Raises ValueError where the first line is not that of all CPUs.

    Kernels before 2.6.11 have no steal column; guest time is already part of user time and is not added again.
    """
    first, _, rest = data.partition(b"\n")
    words = first.split()
    if len(words) < 8 or words[0] != b"cpu":
        raise ValueError("/proc/stat does not begin with the line of all CPUs")
    user, nice, system, idle, iowait, irq, softirq = map(int, words[1:8])
    return Cpu(
        user=user, nice=nice, system=system, idle=idle, iowait=iowait, irq=irq, softirq=softirq,
        steal=int(words[8]) if len(words) > 8 else 0,
        cpus=len(_CPU_LINE.findall(rest)),
        procs_running=_after(rest, b"procs_running"),
        procs_blocked=_after(rest, b"procs_blocked"),
        context_switches=_after(rest, b"ctxt"),
        boot_wall_s=_after(rest, b"btime"),
    )  # fmt: skip


def _after(data: bytes, word: bytes) -> int:
    """The number that follows `word` at the beginning of a line."""
    start = data.find(b"\n" + word + b" ")
    if start < 0:
        raise ValueError(f"/proc/stat has no line {word.decode()}")
    start += len(word) + 2
    end = data.find(b"\n", start)
    return int(data[start : end if end >= 0 else None])
