"""Dropping caches: its preview, its effect, its result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dba_console.actions.action import ActionContext, PlainControl
from dba_console.actions.drop_caches import DropCaches, DropCachesSettings, droppable_bytes, read_rate
from tests.requirements import lacking

ACTION = DropCaches()
LEVEL_1 = DropCachesSettings()
MEMINFO = """\
MemTotal:       16000000 kB
MemFree:         1000000 kB
Buffers:          100000 kB
Cached:          9000000 kB
Dirty:             50000 kB
Writeback:         10000 kB
Shmem:           2000000 kB
SReclaimable:     400000 kB
"""


@pytest.fixture
def context(tmp_path: Path) -> ActionContext:
    proc = tmp_path / "proc"
    (proc / "sys" / "vm").mkdir(parents=True)
    (proc / "sys" / "vm" / "drop_caches").write_text("0\n")
    (proc / "meminfo").write_text(MEMINFO)
    counted(proc, 3)
    return ActionContext(proc=str(proc), sys=str(tmp_path / "sys"))


def counted(proc: Path | str, drops: int) -> None:
    Path(proc, "vmstat").write_text(f"nr_free_pages 1\ndrop_pagecache {drops}\ndrop_slab 0\n")


def test_the_preview_shows_what_would_be_dropped_and_why_its_cost_is_unknown(context: ActionContext) -> None:
    action_preview = ACTION.preview(LEVEL_1, context)
    assert action_preview.refusal is None
    assert action_preview.exact == f"echo 1 > {context.proc}/sys/vm/drop_caches"
    assert action_preview.text == (
        "up to 6.6 GB of 8.6 GB page cache would be dropped; the time to read it again is unknown (no servers on this "
        "host show their data directory)"
    )
    assert action_preview.values["droppable_bytes"] == (9_000_000 - 2_000_000 - 60_000) * 1024


def test_shared_buffers_and_dirty_pages_do_not_count_as_droppable_cache() -> None:
    assert droppable_bytes({"cached_bytes": 100, "shmem_bytes": 90, "dirty_bytes": 20}) == 0


def test_the_requested_level_is_written(context: ActionContext) -> None:
    settings = DropCachesSettings(level=3)
    done = ACTION.act(settings, ACTION.preview(settings, context), context, PlainControl())
    assert done.state == "ok"
    assert Path(context.proc, "sys/vm/drop_caches").read_text() == "3\n"


def test_afterwards_the_freed_memory_is_reported(context: ActionContext) -> None:
    action_preview = ACTION.preview(LEVEL_1, context)

    class Kernel(PlainControl):
        """Drops on request, as the kernel would."""

        def report_progress(
            self, text: str, done: float | None = None, total: float | None = None, unit: str = ""
        ) -> None:
            after = MEMINFO.replace("9000000", "3000000").replace(" 1000000", " 7000000")
            Path(context.proc, "meminfo").write_text(after)

    done = ACTION.act(LEVEL_1, action_preview, context, Kernel())
    assert done.text.startswith("5.7 GB of cache dropped in ")
    assert done.text.endswith(", 5.7 GB more free")
    assert done.undo is None


def test_an_unknown_outcome_is_resolved_by_the_kernel_counter(context: ActionContext) -> None:
    action_preview = ACTION.preview(LEVEL_1, context)
    assert ACTION.settle(LEVEL_1, action_preview, context).state == "failed"
    counted(context.proc, 4)
    assert ACTION.settle(LEVEL_1, action_preview, context).state == "ok"
    counted(context.proc, 0)
    assert ACTION.settle(LEVEL_1, action_preview, context).state == "unknown"


def test_a_kernel_without_that_counter_leaves_the_outcome_unknown(context: ActionContext) -> None:
    Path(context.proc, "vmstat").write_text("nr_free_pages 1\n")
    action_preview = ACTION.preview(LEVEL_1, context)
    assert ACTION.settle(LEVEL_1, action_preview, context).state == "unknown"


def test_without_the_proc_file_it_is_refused(context: ActionContext) -> None:
    Path(context.proc, "sys/vm/drop_caches").unlink()
    action_preview = ACTION.preview(LEVEL_1, context)
    assert action_preview.refusal == f"{context.proc}/sys/vm/drop_caches cannot be written"


def test_on_a_host_other_than_that_of_the_server_it_is_refused(context: ActionContext) -> None:
    elsewhere = ActionContext(proc=context.proc, sys=context.sys, server_is_local=False)
    assert ACTION.preview(LEVEL_1, elsewhere).refusal == "the server is not proven to run on this host"


def test_the_read_rate_is_measured_without_the_cache(tmp_path: Path) -> None:
    (tmp_path / "16384").write_bytes(os.urandom(32 << 20))
    rate = read_rate(directory=str(tmp_path))
    if rate.bytes_per_s is None and "Invalid argument" in rate.note:
        lacking("the file system of temporary files has no O_DIRECT")
    assert rate.bytes_per_s is not None
    assert rate.bytes_per_s > 0
    assert 0 < rate.read_bytes <= 32 << 20


def test_without_a_large_enough_table_there_is_no_rate(tmp_path: Path) -> None:
    (tmp_path / "16384").write_bytes(b"small")
    assert read_rate(directory=str(tmp_path)).bytes_per_s is None


def test_the_kernel_of_this_host_counts_a_drop() -> None:
    """Level 2: what it costs is looked up again in no time."""
    context, settings = ActionContext(), DropCachesSettings(level=2)
    if not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        return  # not root, or in a container: refused, as told above
    action_preview = ACTION.preview(settings, context)
    done = ACTION.act(settings, action_preview, context, PlainControl())
    assert done.state == "ok"
    assert ACTION.settle(settings, action_preview, context).state == "ok"
