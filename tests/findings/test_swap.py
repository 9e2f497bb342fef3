"""A program that really swaps, in a control group smaller than itself; and swap that merely lies there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.cluster import Cluster
from dba_console.demo.incidents.page_cache import choose
from dba_console.frames.model import Frame
from tests.background import wait_until
from tests.findings.watching import watching
from tests.requirements import lacking, require_tool

pytestmark = pytest.mark.root

MB = 1 << 20
_PROGRAM = """
import os, sys
held = bytearray(96 << 20)
print("held", flush=True)
while True:
    for at in range(0, len(held), 4096):
        held[at] = at & 255
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
    way = choose()
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
        wait_until(lambda: not procs.read_text(), what="the end of the program")
        way.group.rmdir()


def no_longer(frame: Frame) -> bool:
    """Swap is still there, and nothing is said of it."""
    return bool(frame.memory.swap_total_bytes) and all(row.rule != "swap-in-use" for row in frame.findings)


def test_pages_that_go_out_and_come_in_are_told_and_pages_that_lie_there_are_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    with swap_file(tmp_path / "swap"), watching(cluster.dsn(), tmp_path) as seen:
        assert seen.news("swap-in-use") == [], "an empty swap is no finding"
        with swapping():
            found = seen.open("swap-in-use", 30, severity="warning")
        assert found.text.startswith("The host swaps: ")
        assert found.evidence["swap_in_per_s"] >= 50 and found.evidence["swap_out_per_s"] >= 50
        gone = seen.watch.until(
            lambda frame: all(row.rule != "swap-in-use" for row in frame.findings), 40, what="its end"
        )
        assert gone.memory.swap_total_bytes
