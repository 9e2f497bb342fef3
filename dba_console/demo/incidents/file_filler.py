"""Something that writes a file at a steady rate, as a dump or a log does, until the disk has only so much left."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from dba_console.demo.child_processes import end_child, start_child
from dba_console.demo.incidents.loop_disk import MIB
from dba_console.demo.server_account import Account, clean_environment
from dba_console.errors import ConsoleError

STEPS_PER_S = 4
PATIENCE_S = 10.0

# $1: the file, $2: MB at a time, $3: seconds between, $4: how often.
_SCRIPT = r"""
n=0
while [ $n -lt "$4" ]; do
    head -c "$2"M /dev/zero >> "$1" || exit 1
    n=$((n + 1))
    sleep "$3"
done
"""


class FileFiller:
    """A process of its own that fills the file system of `file`, as `account`, and ends with us.

    `leave_bytes` are left of what is free when it starts.
    """

    def __init__(self, file: Path, bytes_per_s: int, *, leave_bytes: int, account: Account) -> None:
        self._file = file
        step = max(1, bytes_per_s // MIB // STEPS_PER_S)
        room = os.statvfs(file.parent)
        steps = max(0, (room.f_bavail * room.f_frsize - leave_bytes) // (step * MIB))
        pause = f"{1 / STEPS_PER_S:g}"
        self._process = start_child(
            ["/bin/sh", "-c", _SCRIPT, "copy", str(file), str(step), pause, str(steps)],
            environment=clean_environment(),
            spawn=account.spawn,
        )

    @property
    def ended(self) -> bool:
        """True once it has written what it was to."""
        return self._process.poll() is not None

    def wait_begun(self) -> None:
        """Return when the file has grown. Raises ConsoleError when it does not."""
        pace = threading.Event()
        asked = 0.0
        while not (self._file.exists() and self._file.stat().st_size):
            if self.ended or asked > PATIENCE_S:
                raise ConsoleError(f"{self._file} could not be written")
            pace.wait(0.02)
            asked += 0.02

    def stop(self) -> None:
        """End it, and remove the file."""
        end_child(self._process)
        self._file.unlink(missing_ok=True)
