"""Kernel settings that decide how a database behaves here, and memory by NUMA node.

Meaning of each: Documentation/admin-guide/sysctl/vm.rst, .../mm/transhuge.rst, .../numastat.rst.
"""

from __future__ import annotations

import os
import re

from dba_console.probes.host.kernel_files import read_file, read_int, read_word
from dba_console.probes.host.memory import meminfo_values
from dba_console.samples.host import HostSettings, NumaNode

_THP = ("kernel/mm/transparent_hugepage", "kernel/mm/redhat_transparent_hugepage")


def read_settings(proc: str, sys: str) -> HostSettings:
    """All settings now; None for each that this kernel does not have or does not let us read."""
    vm = f"{proc}/sys/vm"
    return HostSettings(
        kernel=read_word(f"{proc}/sys/kernel/osrelease") or os.uname().release,
        hostname=read_word(f"{proc}/sys/kernel/hostname") or os.uname().nodename,
        zone_reclaim_mode=read_int(f"{vm}/zone_reclaim_mode"),
        thp=_chosen(sys, "enabled"),
        thp_defrag=_chosen(sys, "defrag"),
        swappiness=read_int(f"{vm}/swappiness"),
        dirty_ratio=read_int(f"{vm}/dirty_ratio"),
        dirty_background_ratio=read_int(f"{vm}/dirty_background_ratio"),
        watermark_scale_factor=read_int(f"{vm}/watermark_scale_factor"),
        watermark_boost_factor=read_int(f"{vm}/watermark_boost_factor"),
        min_free_kbytes=read_int(f"{vm}/min_free_kbytes"),
        overcommit_memory=read_int(f"{vm}/overcommit_memory"),
        task_delayacct=read_int(f"{proc}/sys/kernel/task_delayacct"),
        numa=read_numa(sys),
    )


def _chosen(sys: str, name: str) -> str | None:
    """The word in brackets of a transparent_hugepage file."""
    for directory in _THP:
        text = read_word(f"{sys}/{directory}/{name}")
        if text is not None:
            match = re.search(r"\[([^\]]+)\]", text)
            return match[1] if match else None
    return None


def read_numa(sys: str) -> list[NumaNode]:
    """Memory of each node in the order of their numbers; empty where the kernel shows none."""
    base = f"{sys}/devices/system/node"
    try:
        names = os.listdir(base)
    except OSError:
        return []
    numbers = sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name))
    return [node for number in numbers if (node := _node(base, number)) is not None]


def _node(base: str, number: int) -> NumaNode | None:
    try:
        meminfo = read_file(f"{base}/node{number}/meminfo")
        values = meminfo_values(meminfo.replace(b"Node %d " % number, b""))
        total, free = values[b"MemTotal:"], values[b"MemFree:"]
    except (OSError, KeyError, ValueError):
        return None
    counters = _numastat(f"{base}/node{number}/numastat")
    return NumaNode(
        number, total, free, values.get(b"FilePages:"), counters.get(b"numa_miss"), counters.get(b"numa_foreign")
    )


def _numastat(path: str) -> dict[bytes, int]:
    try:
        words = read_file(path).split()
        return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False)}
    except (OSError, ValueError):
        return {}
