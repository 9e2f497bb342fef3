"""/proc/meminfo in bytes (Documentation/filesystems/proc.rst).

Lines came with one kernel after another: what this one does not write is None.
"""

from __future__ import annotations

from dba_console.samples.host import MemInfo


def parse_memory(data: bytes) -> MemInfo:
    """The reading in /proc/meminfo. Raises KeyError where a line every kernel has is missing.

    MemAvailable exists since 3.14 and is not guessed before; HugePages_* are counts, everything else becomes bytes.
    """
    values = meminfo_values(data)
    may = values.get
    return MemInfo(
        total=values[b"MemTotal:"], free=values[b"MemFree:"], available=may(b"MemAvailable:"),
        buffers=values[b"Buffers:"], cached=values[b"Cached:"], swap_cached=may(b"SwapCached:"),
        active_file=may(b"Active(file):"), inactive_file=may(b"Inactive(file):"),
        dirty=values[b"Dirty:"], writeback=values[b"Writeback:"], anon=may(b"AnonPages:"), shmem=may(b"Shmem:"),
        slab=may(b"Slab:"), slab_reclaimable=may(b"SReclaimable:"),
        swap_total=values[b"SwapTotal:"], swap_free=values[b"SwapFree:"],
        commit_limit=may(b"CommitLimit:"), committed=may(b"Committed_AS:"), anon_huge=may(b"AnonHugePages:"),
        huge_total=may(b"HugePages_Total:"), huge_free=may(b"HugePages_Free:"), huge_reserved=may(b"HugePages_Rsvd:"),
        huge_page_size=may(b"Hugepagesize:"),
    )  # fmt: skip


def meminfo_values(data: bytes) -> dict[bytes, int]:
    """Name (with its colon) -> bytes, or a plain count where the kernel writes no unit."""
    values: dict[bytes, int] = {}
    for line in data.splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == b"kB":
            values[words[0]] = int(words[1]) * 1024
        elif len(words) == 2:
            values[words[0]] = int(words[1])
    return values
