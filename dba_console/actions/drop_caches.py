"""The action drop-caches: drop clean page cache, directory entries and inodes.

Source: Documentation/admin-guide/sysctl/vm.rst. Not a cure: it ends a reclaim stall until the cache has filled again.
The cost comes afterwards, as reads.
"""

from __future__ import annotations

import mmap
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from msgspec import Struct

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.sysctl import refuse_unwritable, write_kernel_file
from dba_console.core.units import human_bytes, human_duration
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.kernel_counters import meminfo_values
from dba_console.watch.probes.host.kernel_files import read_file
from dba_console.watch.probes.host.postmasters import find_postmasters

# Current read rate of the disk under the server's data, measured on a part of its biggest file.
#
# Reads with O_DIRECT, so that cached data does not falsify the rate and the measurement does not fill the cache.
# May hang with the disk: called in a lane.

MEASURE_TIME_S = 0.3
CHUNK_BYTES = 1 << 20
"""The maximum readahead of a sequential scan; reading 8 kB pages would be slower on any disk."""
MIN_FILE_BYTES = 16 << 20
MAX_FILES = 5000
"""Maximum number of files checked for the biggest one."""


@dataclass(frozen=True, slots=True)
class ReadRate:
    """A measured read rate."""

    bytes_per_s: float | None
    read_bytes: int
    source: str
    note: str = ""
    """Why the rate is unknown."""


def read_rate(proc: str = "/proc", *, directory: str | None = None) -> ReadRate:
    """Measure on the biggest file below `directory`, or below the data directory of the only server on this host."""
    if directory is None:
        directories = [one.data_directory for one in find_postmasters(proc) if one.data_directory]
        if len(directories) != 1:
            return ReadRate(None, 0, "", f"{len(directories) or 'no'} servers on this host show their data directory")
        directory = f"{directories[0]}/base"
    path, size = _find_biggest_file(directory)
    if path is None or size < MIN_FILE_BYTES:
        return ReadRate(None, 0, "", "the server has no file big enough to measure with")
    try:
        return _measure(path, size)
    except OSError as error:
        return ReadRate(None, 0, "", f"{path} cannot be read with O_DIRECT: {error.strerror}")


def _find_biggest_file(directory: str) -> tuple[str | None, int]:
    best: tuple[str | None, int] = (None, 0)
    checked = 0
    for place, _, names in os.walk(directory, onerror=None):
        for name in names:
            checked += 1
            try:
                size = os.stat(f"{place}/{name}", follow_symlinks=False).st_size
            except OSError:
                continue
            if size > best[1]:
                best = (f"{place}/{name}", size)
        if checked > MAX_FILES:
            break
    return best


def _measure(path: str, size: int) -> ReadRate:
    """Read from a random position. Raises OSError; EINVAL if the file system has no O_DIRECT."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    buffer = mmap.mmap(-1, CHUNK_BYTES)  # aligned, as O_DIRECT requires
    try:
        chunks = size // CHUNK_BYTES
        first = random.randrange(chunks)
        started, done = time.monotonic(), 0
        for number in range(chunks):
            if (spent := time.monotonic() - started) >= MEASURE_TIME_S:
                break
            done += os.preadv(fd, [buffer], (first + number) % chunks * CHUNK_BYTES)
        spent = time.monotonic() - started
        return ReadRate(done / spent, done, path) if done else ReadRate(None, 0, path, "nothing could be read")
    finally:
        buffer.close()
        os.close(fd)


WRITE_TIMEOUT_S = 300.0
"""The kernel walks the whole cache before the write returns: seconds for hundreds of GB, more in a stall."""
RATE_TIMEOUT_S = 5.0
LEVEL_NAMES = {1: "page cache", 2: "directory entries and inodes", 3: "page cache, directory entries and inodes"}


class DropCachesSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `drop-caches`."""

    level: Literal[1, 2, 3] = 1
    """1: page cache; 2: directory entries and inodes; 3: both."""


class DropCaches(Action):
    name: ClassVar[str] = "drop-caches"
    summary: ClassVar[str] = (
        "Makes the kernel drop clean page cache (level 1), directory entries and inodes (2), or both (3). Estimates "
        "before how long reading it again takes, and reports after how much memory became free. No undo."
    )
    Settings: ClassVar[type[Struct]] = DropCachesSettings
    needs_server: ClassVar[bool] = False
    needs_root: ClassVar[bool] = True
    no_undo: ClassVar[str] = "dropped cache cannot be restored, only read again"

    def preview(self, settings: DropCachesSettings, context: ActionContext) -> ActionPreview:
        """Measures the read rate on the server's own files for 0.3 s; unknown while I/O is stalled."""
        path = _path(context)
        exact = f"echo {settings.level} > {path}"
        try:
            values = _read_values(context)
        except (OSError, KeyError, ValueError) as error:
            text = f"the memory of this host cannot be read: {error}"
            return ActionPreview(text=text, exact=exact, refusal=text)
        rate = None if settings.level == 2 else _measure_read_rate(context)
        text, message = _estimate_cost(settings.level, values, rate)
        return refuse_unwritable(ActionPreview(text=text, exact=exact, values=values | message), path, context)

    def act(
        self, settings: DropCachesSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        path, before = _path(context), _read_values(context)
        control.report_progress(f"dropping {LEVEL_NAMES[settings.level]}")
        started = time.monotonic()
        lane = Lane("drop-caches", context.clock)
        try:
            lane.call(lambda: write_kernel_file(path, str(settings.level)), WRITE_TIMEOUT_S)
        except LaneTimeout:
            text = (
                f"the kernel did not finish dropping {LEVEL_NAMES[settings.level]} within "
                f"{human_duration(WRITE_TIMEOUT_S)}"
            )
            return ActionResult(state="unknown", text=text)
        except OSError as error:
            return ActionResult(state="failed", text=f"{path} cannot be written: {error.strerror}")
        finally:
            lane.close()
        took = time.monotonic() - started
        after = _read_values(context)
        dropped, freed = before["cached_bytes"] - after["cached_bytes"], after["free_bytes"] - before["free_bytes"]
        text = (
            f"{human_bytes(max(0, dropped))} of cache dropped in {human_duration(took)}, {human_bytes(freed)} more free"
        )
        return ActionResult(state="ok", text=text, values=after | {"dropped_bytes": dropped, "took_s": round(took, 3)})

    def settle(self, settings: DropCachesSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """Uses the kernel's counters (drop_pagecache, drop_slab in /proc/vmstat); a drop by another program counts too,
        as the effect is the same.
        """
        name = "drop_slab_count" if settings.level == 2 else "drop_pagecache_count"
        try:
            now = _read_values(context)
        except (OSError, KeyError, ValueError) as error:
            return ActionResult(state="unknown", text=f"the memory of this host cannot be read: {error}")
        before, count = preview.values.get(name), now.get(name)
        if not isinstance(before, int) or not isinstance(count, int) or count < before:
            return ActionResult(
                state="unknown", text="this kernel does not count drops, or the host was rebooted", values=now
            )
        if count == before:
            return ActionResult(state="failed", text="the kernel counted no drop since: nothing was done", values=now)
        drops = "one drop" if count - before == 1 else f"{count - before} drops"
        return ActionResult(state="ok", text=f"the kernel counted {drops} since, by any program", values=now)


def _path(context: ActionContext) -> str:
    return f"{context.proc}/sys/vm/drop_caches"


def _read_values(context: ActionContext) -> dict[str, Any]:
    """Return bytes and counters now. Raises OSError, KeyError, ValueError for unexpected kernel files."""
    memory = meminfo_values(read_file(f"{context.proc}/meminfo"))
    counts = _parse_drop_counts(read_file(f"{context.proc}/vmstat"))
    return {
        "free_bytes": memory[b"MemFree:"],
        "cached_bytes": memory[b"Cached:"],
        "shmem_bytes": memory.get(b"Shmem:", 0),
        "mapped_bytes": memory.get(b"Mapped:", 0),
        "dirty_bytes": memory[b"Dirty:"] + memory[b"Writeback:"],
        "slab_reclaimable_bytes": memory.get(b"SReclaimable:", 0),
        "drop_pagecache_count": counts.get(b"drop_pagecache"),
        "drop_slab_count": counts.get(b"drop_slab"),
    }


def _parse_drop_counts(data: bytes) -> dict[bytes, int]:
    words = (line.split() for line in data.splitlines())
    return {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[0].startswith(b"drop_")}


def droppable_bytes(values: Mapping[str, Any]) -> int:
    """Return the upper limit of droppable cache: without shared memory (shared_buffers) and dirty pages.

    >>> droppable_bytes({"cached_bytes": 100, "shmem_bytes": 30, "dirty_bytes": 20})
    50
    """
    return max(0, int(values["cached_bytes"]) - int(values["shmem_bytes"]) - int(values["dirty_bytes"]))


def _estimate_cost(level: int, values: Mapping[str, Any], rate: ReadRate | None) -> tuple[str, dict[str, Any]]:
    """Return the cost as one sentence and as values."""
    if level == 2:
        size = int(values["slab_reclaimable_bytes"])
        return f"up to {human_bytes(size)} of directory entries and inodes would be dropped, and looked up again", {}
    size = droppable_bytes(values)
    message: dict[str, Any] = {"droppable_bytes": size}
    text = f"up to {human_bytes(size)} of {human_bytes(values['cached_bytes'])} page cache would be dropped"
    if rate is None or rate.bytes_per_s is None:
        why = "not measured" if rate is None else rate.note
        return f"{text}; the time to read it again is unknown ({why})", message
    seconds = size / rate.bytes_per_s
    message |= {"read_bytes_per_s": round(rate.bytes_per_s), "reread_s": round(seconds, 1)}
    speed = human_bytes(rate.bytes_per_s, per_s=True)
    return (
        f"{text}; reading all of it again takes {human_duration(seconds)} (estimated: {speed}, measured on "
        f"{human_bytes(rate.read_bytes)} of {rate.source})"
    ), message


def _measure_read_rate(context: ActionContext) -> ReadRate | None:
    lane = Lane("read-rate", context.clock)
    try:
        return lane.call(lambda: read_rate(context.proc), RATE_TIMEOUT_S)
    except LaneTimeout:
        return ReadRate(None, 0, "", f"a read did not return within {RATE_TIMEOUT_S:g} s: I/O is stalled")
    finally:
        lane.close()
