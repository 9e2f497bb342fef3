"""The processes of a postmaster: its children, found without reading every process of the host.

/proc/PID/task/PID/children is one short read (kernels with CONFIG_PROC_CHILDREN), but may leave out a process while
another one ends; so who vanishes from it is looked at before it is believed gone. Without that file the process list
is scanned, each process once.
"""

from __future__ import annotations

import os

from dba_console.probes.host.kernel_files import KernelFile
from dba_console.probes.host.procstat import read_stat


class PostmasterChildren:
    """The children of one postmaster. Used by one thread."""

    def __init__(self, proc: str, postmaster: int) -> None:
        self._proc = proc
        self._postmaster = postmaster
        self._file: KernelFile | None = KernelFile(f"{proc}/{postmaster}/task/{postmaster}/children")
        self._known: frozenset[int] = frozenset()
        self._last: bytes | None = None
        self._not_children: set[int] = set()

    def read(self) -> frozenset[int]:
        """Pids of all children now. Raises ProcessLookupError when the postmaster has ended."""
        listed = self._listed()
        if listed is None:
            self._known = frozenset(self._scanned())
        elif listed != self._last or not listed:
            found = {int(word) for word in listed.split()}
            missed = {pid for pid in self._known - found if self._is_child(pid)}
            self._known = frozenset(found | missed)
            # Who was missed is looked for again, even if the list stays as it is.
            self._last = None if missed else listed
        return self._known

    def _listed(self) -> bytes | None:
        """The list as the kernel writes it, None where it does not."""
        if self._file is None:
            return None
        listed: bytes | None
        try:
            listed = self._file.read().strip()
        except FileNotFoundError:
            self._file = listed = None  # this kernel has no such file, or the process is gone
        if not listed and not os.path.exists(f"{self._proc}/{self._postmaster}/stat"):
            raise ProcessLookupError(self._postmaster)
        return listed

    def _scanned(self) -> set[int]:
        alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        if self._postmaster not in alive:
            raise ProcessLookupError(self._postmaster)
        self._not_children &= alive
        found = self._known & alive
        for pid in alive - found - self._not_children:
            if self._is_child(pid):
                found |= {pid}
            else:
                self._not_children.add(pid)
        return set(found)

    def _is_child(self, pid: int) -> bool:
        stat = read_stat(self._proc, pid)
        return stat is not None and stat.parent == self._postmaster

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
