"""How memory reclaim is brought about here: really, and where the kernel allows it without harm to anybody's cache.

A reader in a control group of its own fills the page cache from a sparse file, which costs no disk; lowering the
group's limit makes the kernel take those pages back at once. Cached falls, free rises, and everybody else's cache
stays. Where no group can be made, the page cache of the whole host is dropped instead: that is real too, and costs the
host a re-read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dba_console.demo.incidents.loop_disk import MIB

DEFAULT_BYTES = 1536 * MIB
"""Half as much again as the gigabyte that has to fall."""
CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class ReclaimMethod:
    """One way of having page cache reclaimed; `group` None drops the whole host's."""

    description: str
    group: Path | None = None
    limit: str = ""
    """The group's file that limits its memory (Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst)."""
    unlimited: str = ""


DROP_CACHES = ReclaimMethod(
    "drop_caches: this host lets nobody make a memory control group, so its whole page cache goes"
)


def choose_method(cgroups: Path = CGROUPS) -> ReclaimMethod:
    """The gentlest way this host has. Its group does not exist yet."""
    name = f"dba-console-demo-{os.getpid()}"
    for way in (
        ReclaimMethod(
            "lowering the limit of a memory control group (v1)",
            cgroups / "memory" / name, "memory.limit_in_bytes", "-1",
        ),
        ReclaimMethod("lowering memory.high of a control group (v2)", cgroups / name, "memory.high", "max"),
    ):  # fmt: skip
        if _is_usable(way):
            return way
    return DROP_CACHES


def cache_bytes(wanted: int = DEFAULT_BYTES, meminfo: str | None = None) -> int:
    """Bytes of cache to fill: what is wanted, at most a third of what is available: no shortage, as in story S1.

    >>> cache_bytes(1536 << 20, "MemTotal: 8000000 kB\\nMemAvailable: 3000000 kB\\n") == 1000000 * 1024
    True
    """
    text = Path("/proc/meminfo").read_text() if meminfo is None else meminfo
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return min(wanted, int(line.split()[1]) * 1024 // 3)
    return wanted


def _is_usable(way: ReclaimMethod) -> bool:
    assert way.group is not None
    try:
        way.group.mkdir()
    except OSError:
        return False
    try:
        return (way.group / way.limit).exists()
    finally:
        way.group.rmdir()
