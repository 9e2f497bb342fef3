"""Incident: the disk of the data directory fills up: a copy is written beside the data at a steady rate. Root only.

It is a private disk on a loop device, so nothing else on the host runs out of space. The copy stops before the end: a
server that cannot write its WAL panics, and there would be nothing left to watch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import psutil

from dba_console.core.errors import ConsoleError
from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.clients import LoadPlan
from dba_console.demo.incidents.incident import Incident
from dba_console.demo.incidents.loop_disk import MIB, LoopDisk, loop_disk
from dba_console.demo.server_account import Account, clean_environment

if TYPE_CHECKING:
    from dba_console.demo.practice_server import PracticeGround
    from dba_console.demo.temporary_server import Settings

# Writes a file at a steady rate, as a dump or a log does, until a given space is left on the disk.

STEPS_PER_S = 4
PATIENCE_S = 10.0

# $1: the file, $2: MB at a time, $3: seconds between, $4: number of times.
_SCRIPT = r"""
n=0
while [ $n -lt "$4" ]; do
    head -c "$2"M /dev/zero >> "$1" || exit 1
    n=$((n + 1))
    sleep "$3"
done
"""


class FileFiller:
    """A separate process that fills the file system of `file`, as `account`, and ends with this one.

    Of the space free at its start `leave_bytes` are left.
    """

    def __init__(self, file: Path, bytes_per_s: int, *, leave_bytes: int, account: Account) -> None:
        self._file = file
        step = max(1, bytes_per_s // MIB // STEPS_PER_S)
        steps = max(0, (psutil.disk_usage(str(file.parent)).free - leave_bytes) // (step * MIB))
        pause = f"{1 / STEPS_PER_S:g}"
        self._process = start_child(
            ["/bin/sh", "-c", _SCRIPT, "copy", str(file), str(step), pause, str(steps)],
            environment=clean_environment(),
            spawn=account.spawn,
        )

    @property
    def ended(self) -> bool:
        """True once it has written everything."""
        return self._process.poll() is not None

    def wait_begun(self) -> None:
        """Return when the file has grown. Raises ConsoleError on timeout."""
        pace = threading.Event()
        waited_s = 0.0
        while not (self._file.exists() and self._file.stat().st_size):
            if self.ended or waited_s > PATIENCE_S:
                raise ConsoleError(f"{self._file} could not be written")
            pace.wait(0.02)
            waited_s += 0.02

    def stop(self) -> None:
        """End it, and remove the file."""
        end_child(self._process)
        self._file.unlink(missing_ok=True)


SIZE_BYTES = 4096 * MIB
BYTES_PER_S = 12 * MIB
BEGIN_PCT = 79.5
"""Used by older copies: from 80 % on a disk counts as filling, which is then reached in seconds."""
LEFT_BYTES = 160 * MIB
"""The copy stops here: 96 % used, after a minute, with space for the load's own WAL."""
OLDER, NEWER = "appdb-monday.dump", "appdb-tuesday.dump"


class DiskFilling(Incident):
    name: ClassVar[str] = "disk-filling"
    title: ClassVar[str] = f"one more copy grows beside the data, {BYTES_PER_S // MIB} MB/s"
    finding: ClassVar[str] = "disk-filling"
    within_s: ClassVar[float] = 10.0
    needs_root: ClassVar[bool] = True
    plan: ClassVar[LoadPlan] = LoadPlan(idle=60, forgotten=False, rate_per_s=50)
    settings: ClassVar[Settings] = {"max_wal_size": "64MB", "min_wal_size": "32MB"}

    def __init__(self) -> None:
        self._disk: LoopDisk | None = None
        self._filler: FileFiller | None = None

    @contextmanager
    def own_data_directory(self) -> Iterator[Path | None]:
        with loop_disk(SIZE_BYTES) as disk:
            self._disk = disk
            yield disk.data_directory

    def prepare(self, ground: PracticeGround) -> None:
        """Create the older copy: its blocks are allocated, not written."""
        assert self._disk is not None
        space = psutil.disk_usage(str(self._disk.path))
        whole = space.used + space.free  # as df: without the blocks reserved for root
        with (self._disk.path / OLDER).open("wb") as older:
            os.posix_fallocate(older.fileno(), 0, int(whole * BEGIN_PCT / 100) - space.used)

    def cause(self, ground: PracticeGround) -> None:
        """Return when the first bytes are written; the rest follows."""
        assert self._disk is not None
        self._filler = FileFiller(
            self._disk.path / NEWER, BYTES_PER_S, leave_bytes=LEFT_BYTES, account=ground.cluster.account
        )
        self._filler.wait_begun()

    def end(self, ground: PracticeGround) -> None:
        """Remove the copy."""
        if self._filler is not None:
            self._filler.stop()
            self._filler = None
