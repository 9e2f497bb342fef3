"""How a dump grows on its disk: of a directory each data file, of a file its size.

A directory of 50,000 files is not looked at whole: its names are listed again only after it changed, and seldom where
listing is dear; a file is looked at while it grows and once at its end. What was not looked at yet is counted.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from dba_console.clock import SYSTEM, Clock
from dba_console.probes.host.kernel_files import printable

STATS = 3000
"""New files looked at in one look; some 15 ms."""
LISTING_TIME_SHARE = 50
"""Listing takes at most so-and-so-manieth part of the time."""
MAX_FILES = 500_000
"""Beyond these, files of a directory are not followed: large objects may be millions."""
COARSE_NS = 1_000_000_000
"""A directory changed so shortly before it was listed may have changed once more within the same tick of its clock."""
FINISHED_AFTER_US = 10_000_000
"""Where nobody tells which files are open: one that has not changed for so long is taken for finished."""
_DATA = re.compile(r"(\d+)\.dat(?:\.(?:gz|lz4|zst))?")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a directory dump."""

    dump_id: int
    name: str
    size: int
    """Bytes so far."""
    found_us: int | None
    """Host wall time of the look that first found it; None where it was there at the first look."""
    changed_us: int
    """Host wall time at which it was last written to: of a finished one its end."""


@dataclass(frozen=True, slots=True)
class OutputGrowth:
    """The output at one look."""

    exists: bool
    size: int = 0
    """Bytes of everything in it that was looked at."""
    allocated: int = 0
    """Bytes it takes on its disk."""
    files: int = 0
    pending: int = 0
    """Files listed and not looked at yet."""
    finished: tuple[DataFile, ...] = ()
    """Since the look before: whole now."""
    running: tuple[DataFile, ...] = ()
    """Being written."""
    open_files_known: bool = True
    """False: which are finished was judged by their quiet, for the files its processes have open cannot be seen."""
    note: str | None = None


@dataclass(slots=True)
class _FollowedFile:
    name: str
    found_us: int | None
    looks: int = 0
    size: int = 0
    allocated: int = 0
    changed_us: int = 0


class DumpOutput:
    """One output, look by look. Used by one thread."""

    def __init__(self, path: str, root: str = "", clock: Clock = SYSTEM) -> None:
        """`root`: prefix under which the paths of its process are found (`Program.root`)."""
        self.path = path
        self._place = root + path
        self._clock = clock
        self._names: set[str] = set()
        self._listed_ns = -1
        self._list_again = True
        self._next_us = 0
        self._first = True
        self._pending: deque[_FollowedFile] = deque()
        self._growing: dict[str, _FollowedFile] = {}
        self._size = self._allocated = 0
        self._too_many = False

    def measure(self, open_names: Collection[str] | None = None, jobs: int = 1) -> OutputGrowth:
        """How far it is. `open_names`: base names of the files its processes have open now (taken before this look),
        None where that cannot be seen; then the `jobs` files last written to count as under way."""
        try:
            at = os.stat(self._place)
        except FileNotFoundError:
            return OutputGrowth(False)
        except OSError as error:
            return OutputGrowth(False, note=f"{printable(self.path)} cannot be seen: {error.strerror}")
        if stat.S_ISREG(at.st_mode):
            return OutputGrowth(True, at.st_size, at.st_blocks * 512, 1)
        if not stat.S_ISDIR(at.st_mode):
            return OutputGrowth(
                True, note=f"{printable(self.path)} is neither a file nor a directory: its size says nothing"
            )
        try:
            self._list_new(at.st_mtime_ns)
        except OSError as error:
            return OutputGrowth(True, note=f"{printable(self.path)} cannot be listed: {error.strerror}")
        self._measure_files()
        finished = self._take_finished(open_names, jobs)
        note = f"of its files only {MAX_FILES:,} are followed" if self._too_many else None
        running = tuple(one for known in self._growing.values() if (one := _data_file(known)) is not None)
        return OutputGrowth(
            True, self._size, self._allocated, len(self._names), len(self._pending), finished, running,
            open_names is not None, note,
        )  # fmt: skip

    def _list_new(self, changed_ns: int) -> None:
        """Take new names in, where there may be some and it is not too soon."""
        now_us = self._clock.mono_us()
        if (changed_ns == self._listed_ns and not self._list_again) or now_us < self._next_us:
            return
        seen_us = None if self._first else self._clock.wall_us()
        new = set(os.listdir(self._place)) - self._names
        room = MAX_FILES - len(self._names)
        self._too_many = len(new) > room
        for name in sorted(new)[:room]:
            self._names.add(name)
            self._pending.append(_FollowedFile(name, seen_us))
        self._list_again = self._clock.wall_us() * 1000 - changed_ns < COARSE_NS
        self._listed_ns, self._first = changed_ns, False
        self._next_us = now_us + (self._clock.mono_us() - now_us) * LISTING_TIME_SHARE

    def _measure_files(self) -> None:
        """Look at the files that may grow, and at new ones as far as this look reaches."""
        for known in list(self._growing.values()):
            self._measure_file(known)
        for _ in range(min(len(self._pending), STATS)):
            self._measure_file(self._pending.popleft())

    def _measure_file(self, known: _FollowedFile) -> None:
        try:
            at = os.lstat(f"{self._place}/{known.name}")
        except OSError:
            # Removed, as a dump that starts anew does.
            self._growing.pop(known.name, None)
            self._names.discard(known.name)
            at = None
        size, allocated = (0, 0) if at is None or stat.S_ISDIR(at.st_mode) else (at.st_size, at.st_blocks * 512)
        self._size += size - known.size
        self._allocated += allocated - known.allocated
        known.size, known.allocated = size, allocated
        if at is not None and stat.S_ISREG(at.st_mode):
            known.looks += 1
            known.changed_us = at.st_mtime_ns // 1000
            self._growing[known.name] = known

    def _take_finished(self, open_names: Collection[str] | None, jobs: int) -> tuple[DataFile, ...]:
        if open_names is None:
            done = self._unchanged_files(jobs)
        else:
            # One found in this very look may have been opened after its processes were looked at.
            old_us = self._clock.wall_us() - FINISHED_AFTER_US
            done = [
                known
                for name, known in self._growing.items()
                if name not in open_names and (known.looks > 1 or known.changed_us < old_us)
            ]
        for known in done:
            del self._growing[known.name]
        return tuple(one for known in done if (one := _data_file(known)) is not None)

    def _unchanged_files(self, jobs: int) -> list[_FollowedFile]:
        newest_first = sorted(self._growing.values(), key=lambda known: known.changed_us, reverse=True)
        old_us = self._clock.wall_us() - FINISHED_AFTER_US
        return [known for at, known in enumerate(newest_first) if at >= max(1, jobs) and known.changed_us < old_us]


def _data_file(known: _FollowedFile) -> DataFile | None:
    number = dump_id_of(known.name)
    return None if number is None else DataFile(number, known.name, known.size, known.found_us, known.changed_us)


def dump_id_of(name: str) -> int | None:
    """The dump id a data file of a directory archive is named after; None for any other file.

    >>> dump_id_of("3358.dat.gz"), dump_id_of("/backup/d/3359.dat"), dump_id_of("toc.dat"), dump_id_of("blobs.toc")
    (3358, 3359, None, None)
    """
    found = _DATA.fullmatch(name.rpartition("/")[2])
    return None if found is None else int(found[1])
