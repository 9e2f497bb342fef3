"""The directory of a run of the tests, and what a run that was killed left behind. Standard library only.

A run keeps everything temporary in one directory (TMPDIR), and holds a lock on it as long as it lives. A directory
whose lock is free belongs to nobody: the next run, or `make clean`, ends the processes that mention it, thaws and
unmounts what is mounted below it, detaches its loop devices and removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

MIN_FREE_BYTES = 6 << 30
"""Free in memory for a run: several times what four workers were seen to take."""
KILL_LIMIT_S = 10.0
"""Given to killed processes; one that hangs in a frozen file system goes once that is thawed."""


def parent_directory() -> Path:
    """Where this user's runs have their directories: a short path, for those of sockets are limited to 107 bytes.

    `$DBA_CONSOLE_TESTS`, else in memory where there is room and programs may be run: making the files of a server
    costs a fifth of the processor time there. Else /tmp.
    """
    place = os.environ.get("DBA_CONSOLE_TESTS") or ("/dev/shm" if _is_suitable(Path("/dev/shm")) else "/tmp")
    return Path(place) / f"dbat-{os.geteuid()}"


def disk_parent_directory() -> Path:
    """As `parent_directory`, for what has to lie on a disk."""
    return Path(f"/var/tmp/dbat-{os.geteuid()}")


def _is_suitable(directory: Path) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= MIN_FREE_BYTES and not found.f_flag & os.ST_NOEXEC


class Run:
    """A directory of one run of the tests, locked until `end`."""

    def __init__(self, parent: Path) -> None:
        with _locked(parent) as place:
            self.directory = next(path for number in count(1) if not (path := place / str(number)).exists())
            self.directory.mkdir()
            self.directory.chmod(0o1777)  # as /tmp: servers run as another user
            self._lock = os.open(self.directory, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def end(self, *, keep: bool = False) -> list[str]:
        """End and unmount what is left, and remove the directory unless `keep`; what was found, in words."""
        found = clear(self.directory, keep=keep)
        os.close(self._lock)
        return found


def remove_stale(*parents: Path) -> list[str]:
    """Clear the directories of runs that are no longer alive; what was found, in words."""
    found: list[str] = []
    for parent in parents or (parent_directory(), disk_parent_directory()):
        with _locked(parent) as place:
            for directory in sorted(place.iterdir()):
                if directory.is_dir() and not _alive(directory):
                    found += clear(directory)
    return found


def clear(directory: Path, *, keep: bool = False) -> list[str]:
    """End, unmount, detach and (unless `keep`) remove everything of a directory; what was found, in words."""
    found = [f"process {pid}: {command}" for pid, command in users_of(directory)]
    _end([pid for pid, _ in users_of(directory)])
    for mount in mounts_below(directory):
        found.append(f"mount {mount}")
        _quietly("fsfreeze", "-u", str(mount))
        if not _quietly("umount", str(mount)):
            _quietly("umount", "-l", str(mount))
    for device in loops_below(directory):
        found.append(f"loop device {device}")
        _quietly("losetup", "-d", str(device))
    _end([pid for pid, _ in users_of(directory)])  # what hung in a frozen mount
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)
    return found


def users_of(directory: Path) -> list[tuple[int, str]]:
    """Processes whose arguments, environment or working directory mention the directory, without this one's family."""
    wanted, own = os.fsencode(directory), set(_ancestors())
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        arguments = _read(f"/proc/{entry}/cmdline")
        if any(wanted in text for text in (arguments, _read(f"/proc/{entry}/environ"), _cwd(entry))):
            found.append((int(entry), arguments.replace(b"\0", b" ").decode(errors="replace")[:120]))
    return found


def mounts_below(directory: Path) -> list[Path]:
    """Mount points below the directory, the last mounted first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    paths = [Path(point.encode().decode("unicode_escape")) for point in points]
    return [path for path in reversed(paths) if path.is_relative_to(directory)]


def loops_below(directory: Path) -> list[Path]:
    """Loop devices whose file lies below the directory."""
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            path = backing.read_text().strip()
        except OSError:
            continue  # detached meanwhile
        if path.startswith(f"{directory}/"):
            found.append(Path("/dev") / backing.parts[3])
    return found


@contextmanager
def _locked(directory: Path) -> Iterator[Path]:
    """The directory of runs, in which nobody else makes or removes one."""
    directory.mkdir(mode=0o755, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            raise PermissionError(f"{directory} belongs to another user")
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory
    finally:
        os.close(lock)


def _alive(directory: Path) -> bool:
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _end(pids: Iterable[int]) -> None:
    left = list(pids)
    for pid in left:
        for number in (signal.SIGKILL, signal.SIGCONT):
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                pass  # gone, or not ours to end: it stays in the list of what was found
    until, tick = time.monotonic() + KILL_LIMIT_S, threading.Event()
    while any(_cwd(str(pid)) for pid in left) and time.monotonic() < until:
        tick.wait(0.02)


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid > 1:
        yield pid
        stat = _read(f"/proc/{pid}/stat")
        pid = int(stat.rpartition(b")")[2].split()[1]) if stat else 0


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _cwd(entry: str) -> bytes:
    try:
        return os.readlink(os.fsencode(f"/proc/{entry}/cwd"))
    except OSError:
        return b""


def _quietly(*command: str) -> bool:
    path = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    program = shutil.which(command[0], path=path)
    if program is None:
        return False
    return subprocess.run([program, *command[1:]], capture_output=True, check=False, timeout=30).returncode == 0


if __name__ == "__main__":
    for line in remove_stale():
        print(f"removed: {line}", file=sys.stderr)
