"""Page cache that really goes: a file cut short, a control group's limit, dropped caches; and what is none of that.

With thresholds small enough for any host: 192 MB raise a finding.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dba_console.demo.incidents.reclaim_stall import ReclaimMethod, choose_method
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.findings.thresholds import Limits
from dba_console.watch.memory.page_cache_rules import CacheDropLimits
from dba_console.watch.memory.reclaim_monitor import CacheFallLimits
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.findings.collector import LocalAgent, local_agent
from tests.requirements import lacking, require_tool
from tests.sql import query

MB = 1 << 20
CACHED = 192 * MB
SMALL = Limits(
    # Some tens of MB lie on lists of each CPU, neither cached nor counted as free.
    CacheFallLimits(fell_least_bytes=96 * MB, fell_most_bytes=96 * MB, free_pct=30),
    CacheDropLimits(reclaim_notice_pct=0.1, reclaim_warning_pct=0.2),
)
pytestmark = pytest.mark.alone
"""The page cache is the host's: what others read, write and free is part of what is measured."""
RULES = ("memory-reclaim", "reclaim-stall", "cache-dropped")


@pytest.fixture
def calm_agent(cluster: Cluster) -> Iterator[LocalAgent]:
    """A local agent with a baseline of this host."""
    with local_agent(cluster.dsn(), *RULES, limits=SMALL) as made:
        yield made


@pytest.fixture
def cached_file(disk_directory: Path) -> Iterator[Path]:
    """A file whose pages are in the page cache and clean."""
    path = disk_directory / "cached"
    with path.open("wb") as file:
        for _ in range(CACHED // MB):
            file.write(bytes(MB))
        file.flush()
        os.fsync(file.fileno())
    yield path
    path.unlink(missing_ok=True)


def page_cache() -> int:
    """Bytes, shared memory not counted."""
    return meminfo("Cached") - meminfo("Shmem")


def meminfo(name: str) -> int:
    """Bytes of a line of /proc/meminfo."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines[name].split()[0]) << 10


def test_a_truncated_file_is_reported_as_such_and_not_as_reclaim(calm_agent: LocalAgent, cached_file: Path) -> None:
    calm_agent.tick(3)
    os.truncate(cached_file, 0)
    found = calm_agent.until("memory-reclaim", within_s=20)
    assert found.severity == "info"
    assert found.evidence["cause"] == "file freed"
    assert found.text.startswith("Page cache fell ") and found.text.endswith(" MB: a file was freed")


def test_a_removed_file_is_reported_like_a_truncated_one(calm_agent: LocalAgent, cached_file: Path) -> None:
    calm_agent.tick(3)
    cached_file.unlink()
    assert calm_agent.until("memory-reclaim", within_s=20).evidence["cause"] == "file freed"


@contextmanager
def memory_group(way: ReclaimMethod) -> Iterator[Path]:
    """A memory control group, removed at the end."""
    assert way.group is not None
    way.group.mkdir()
    try:
        yield way.group
    finally:
        wait_until(lambda: not (way.group / "cgroup.procs").read_text() if way.group else True)
        way.group.rmdir()


@pytest.mark.root
def test_a_control_group_limit_is_reported_with_where_to_check(calm_agent: LocalAgent, disk_directory: Path) -> None:
    way = choose_method()
    if way.group is None:
        lacking("no memory control group can be made here")
    sparse = disk_directory / "sparse"
    sparse.touch()
    os.truncate(sparse, CACHED)
    reader = 'echo $$ > "$1/cgroup.procs"; exec cat "$2"'
    with memory_group(way) as place:
        subprocess.run(
            ["/bin/sh", "-c", reader, "reader", str(place), str(sparse)], check=True, stdout=subprocess.DEVNULL
        )
        calm_agent.tick(3)
        (place / way.limit).write_text(str(8 * MB))
        found = calm_agent.until("memory-reclaim", within_s=20)
    assert found.text.endswith(": memory reclaim (a memory cgroup's limit)")
    assert found.advice and "memory.events" in found.advice


@pytest.mark.root
def test_an_oom_killed_process_is_reported_and_one_that_exits_is_not(cluster: Cluster) -> None:
    way = choose_method()
    if way.group is None:
        lacking("no memory control group can be made here")
    command = [sys.executable, "-c", "import sys; sys.stdin.readline(); held = bytearray(64 << 20)"]
    with local_agent(cluster.dsn(), "oom-kill") as agent, memory_group(way) as place:
        subprocess.run(command, input=b"go\n", check=True)
        agent.tick(3)
        assert agent.rows == []
        with subprocess.Popen(command, stdin=subprocess.PIPE) as program:
            (place / "cgroup.procs").write_text(str(program.pid))
            for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max"):
                if (place / name).exists():  # the last two: no swap takes it instead
                    (place / name).write_text(str(16 * MB))
            program.communicate(b"go\n")
        assert program.returncode == -signal.SIGKILL
        found = agent.until("oom-kill", within_s=5)
    assert found.severity == "critical"
    assert found.text.startswith("The kernel killed a process for lack of memory, at ")


@pytest.mark.root
def test_dropped_caches_are_reported_at_once_with_the_dropped_amount(calm_agent: LocalAgent, cached_file: Path) -> None:
    calm_agent.tick(3)
    Path("/proc/sys/vm/drop_caches").write_text("1")
    found = calm_agent.until("cache-dropped", within_s=3)
    assert found.text.startswith("Page cache dropped: a process wrote drop_caches (drop_pagecache +1), ")
    fell = found.evidence["cached_fell_bytes"]
    assert isinstance(fell, int) and fell >= CACHED
    calm_agent.tick(6)
    assert calm_agent.open("memory-reclaim") == [], "what was dropped is told once"
    assert cached_file.exists()


def test_a_program_that_uses_memory_and_exits_is_not_a_cache_fall(calm_agent: LocalAgent) -> None:
    """The cache gives nothing, or gives way to it; when it ends free memory rises and no cache falls."""
    script = "import sys; held = bytearray(384 << 20); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None and program.stdout.readline() == b"held\n"
        calm_agent.tick(3)
        program.communicate()
    calm_agent.tick(8)
    assert calm_agent.open("memory-reclaim") == []


def test_a_file_copied_and_read_is_not_a_cache_fall(calm_agent: LocalAgent, cached_file: Path) -> None:
    copy = cached_file.with_name("copy")
    with contextlib.ExitStack() as stack:
        copier = stack.enter_context(subprocess.Popen([require_tool("cp"), str(cached_file), str(copy)]))
        while copier.poll() is None:
            calm_agent.tick()
    calm_agent.tick(8)
    assert calm_agent.open("memory-reclaim") == []


def test_a_server_that_stops_releases_shared_memory_and_no_cache(
    calm_agent: LocalAgent, fresh_cluster: FreshCluster
) -> None:
    made = fresh_cluster({"shared_buffers": "256MB"})
    query(made, "create unlogged table t (filler text)")
    query(made, "insert into t select repeat('x', 1000) from generate_series(1, 130000)")
    calm_agent.tick(3)
    before, shared = page_cache(), meminfo("Shmem")
    made.stop("immediate")
    assert shared - meminfo("Shmem") >= 96 * MB
    calm_agent.tick(8)
    assert before - page_cache() < 96 * MB
    assert calm_agent.open("memory-reclaim") == []
