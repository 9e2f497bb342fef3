"""A program that really swaps, in a control group smaller than itself; and swap that merely lies there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.incidents.reclaim_stall import choose_method
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.samples.host import MemInfo
from tests.background import wait_until
from tests.findings.collector import LocalAgent, local_agent
from tests.requirements import lacking, require_tool
from tests.sql import LIMIT_S

pytestmark = [pytest.mark.root, pytest.mark.alone]
"""Swap is the host's: others would be swapped out to ours, and would wait for it."""
RULE = "swap-in-use"

MB = 1 << 20
_PROGRAM = """
import random
held = bytearray(96 << 20)
print("held", flush=True)
while True:
    at = random.randrange(0, len(held), 4096)
    held[at] = held[at] + 1 & 255
"""


@contextmanager
def swap_file(path: Path) -> Iterator[Path]:
    """128 MB of swap of our own; ends the test where this host allows none."""
    with path.open("wb") as file:
        for _ in range(128):
            file.write(bytes(MB))
    path.chmod(0o600)
    subprocess.run([require_tool("mkswap"), str(path)], check=True, stdout=subprocess.DEVNULL)
    on = subprocess.run([require_tool("swapon"), str(path)], check=False, capture_output=True, text=True)
    if on.returncode:
        lacking(f"no swap here: {on.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run([require_tool("swapoff"), str(path)], check=True)


@contextmanager
def swapping() -> Iterator[None]:
    """A program that goes over 96 MB without end where it may have 48 MB."""
    way = choose_method()
    if way.group is None:
        lacking("no memory control group can be made here")
    way.group.mkdir()
    starter = 'echo $$ > "$1/cgroup.procs"; exec "$2" -c "$3"'
    command = ["/bin/sh", "-c", starter, "starter", str(way.group), sys.executable, _PROGRAM]
    try:
        (way.group / way.limit).write_text(str(48 * MB))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout is not None and program.stdout.readline() == b"held\n"
                yield
            finally:
                program.kill()
    finally:
        procs = way.group / "cgroup.procs"
        wait_until(lambda: not procs.read_text(), LIMIT_S, what="the end of the program")
        way.group.rmdir()


def wait_until_swapped(agent: LocalAgent) -> None:
    """Tick once 500 pages more have gone out and 500 have come in."""
    before = swap_counters()
    wait_until(
        lambda: all(now - old >= 500 for now, old in zip(swap_counters(), before, strict=True)), LIMIT_S, what="traffic"
    )
    agent.tick()


def swap_counters() -> tuple[int, int]:
    """Pages swapped in and out since boot."""
    counted = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return int(counted["pswpin"]), int(counted["pswpout"])


def test_swap_traffic_is_reported_and_idle_swapped_pages_are_not(cluster: Cluster, disk_directory: Path) -> None:
    with swap_file(disk_directory / "swap"), local_agent(cluster.dsn(), RULE, calm_s=12) as agent:
        assert agent.changes == [], "an empty swap is no finding"
        with swapping():
            for _ in range(10):
                wait_until_swapped(agent)
            found = agent.until(RULE, severity="warning", within_s=2)
        assert found.text.startswith("The host swaps: ")
        assert found.evidence["swap_in_per_s"] >= 50 and found.evidence["swap_out_per_s"] >= 50
        agent.until_gone(RULE, within_s=40)
        memory = agent.picture.now("host.memory", MemInfo)
        assert memory is not None and memory.swap_total > 0, "swap is still there"
