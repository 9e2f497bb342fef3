"""Reads all fast host parts in one pass, in one thread of the agent.

A part that fails gets that as its status and note, and hides no other. What might hang (titles, the data directory)
runs in a lane; statvfs is in `file_systems`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from dba_console.core.clock import SYSTEM, Clock
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.data_directory import read_control_file
from dba_console.watch.probes.host.file_systems import ELSEWHERE, HostContext, hidepid_option
from dba_console.watch.probes.host.kernel_counters import (
    CpuReader,
    DiskReader,
    VmStatParser,
    parse_stalls,
    read_memory,
    read_settings,
)
from dba_console.watch.probes.host.kernel_files import KernelFile, printable
from dba_console.watch.probes.host.postmasters import data_directory_of
from dba_console.watch.probes.host.processes import ProcessReader, TitleReader
from dba_console.watch.samples.host import Pressure
from dba_console.watch.samples.sample import Part, Status, make_part

CONTROL_DEADLINE_S = 0.3

NO_POSTMASTER = "no server process of this target was found on this host"
NO_PSI = "this kernel has no pressure stall information: it needs 4.20 or later, and may need psi=1 on its command line"

Outcome = tuple[Any, Status, str | None]
"""A reading (None if missing), its status, its note."""


class _Missing(Exception):
    """A part that cannot be read now; the message is its note."""

    def __init__(self, status: Status, note: str) -> None:
        super().__init__(note)
        self.status = status
        self.note = note


class HostProbe:
    """Reads every `host.*` part except mounts. Created once; not thread-safe. `proc` other than /proc needs the same
    psutil.PROCFS_PATH."""

    def __init__(self, clock: Clock = SYSTEM, *, proc: str = "/proc", sys: str = "/sys") -> None:
        self._clock = clock
        self._proc = proc
        self._sys = sys
        self._page_size = os.sysconf("SC_PAGE_SIZE")
        self._files: dict[str, KernelFile] = {}
        self._vmstat = VmStatParser(self._page_size)
        self._cpu = CpuReader()
        self._disks = DiskReader(proc, sys)
        self._processes: ProcessReader | None = None
        self._titles = TitleReader(proc, clock)
        self._active_by_title: frozenset[int] = frozenset()
        self._control = Lane("data directory", clock)
        self._readers: dict[str, Callable[[HostContext], Outcome]] = {
            "host.cpu": lambda _: (self._cpu.read(self._file("stat")), "ok", None),
            "host.memory": lambda _: (read_memory(self._file("meminfo")), "ok", None),
            "host.vmstat": lambda _: (self._vmstat.parse(self._file("vmstat")), "ok", None),
            "host.pressure": lambda _: self._read_pressure(),
            "host.disks": lambda _: (self._disks.read(self._file("diskstats"), clock.mono_us()), "ok", None),
            "host.settings": lambda _: (read_settings(proc, sys), "ok", None),
            "host.processes": self._read_processes,
            "host.titles": self._read_titles,
            "host.control": self._read_control,
        }

    @property
    def stuck(self) -> list[str]:
        """Names of the lanes that hang now."""
        stuck = [self._control.name] if self._control.stuck else []
        return stuck + (["process titles"] if self._titles.stuck else [])

    def read(self, names: Sequence[str], context: HostContext) -> list[Part]:
        """Return one part for each name, in their order. Never raises."""
        if "host.titles" not in names:
            self._active_by_title = frozenset()
        return [self._part(name, context) for name in names]

    def _part(self, name: str, context: HostContext) -> Part:
        started = self._clock.mono_us()
        reading, status, note = self._outcome(name, context)
        ended = self._clock.mono_us()
        return make_part(name, reading, at_us=ended, took_us=ended - started, status=status, note=note)

    def _outcome(self, name: str, context: HostContext) -> Outcome:
        if not context.watched:
            return None, "unsupported", context.note or ELSEWHERE
        try:
            return self._readers[name](context)
        except _Missing as missing:
            return None, missing.status, missing.note
        except PermissionError as error:
            note = f"{_file_text(error)} is not readable: run the agent as root or as the server's owner"
            return None, "denied", note
        except FileNotFoundError as error:
            note = f"{_file_text(error)} does not exist: this kernel or container does not provide it"
            return None, "unsupported", note
        except Exception as error:
            return None, "error", f"{name} cannot be read: {error}"

    def _file(self, name: str) -> bytes:
        held = self._files.get(name)
        if held is None:
            held = self._files[name] = KernelFile(f"{self._proc}/{name}")
        return held.read()

    def _read_pressure(self) -> Outcome:
        try:
            cpu, io, memory = (parse_stalls(self._file(f"pressure/{name}")) for name in ("cpu", "io", "memory"))
        except OSError as error:
            if isinstance(error, PermissionError):
                raise
            # ENOENT: built without; EOPNOTSUPP: booted with psi=0.
            raise _Missing("unsupported", NO_PSI) from None
        return Pressure(cpu[0], *io, *memory), "ok", None

    def _read_processes(self, context: HostContext) -> Outcome:
        reader = self._process_reader(context)
        try:
            reading, note = reader.read(context.active_pids | self._active_by_title, self._delayacct())
        except ProcessLookupError:
            raise self._postmaster_ended(reader) from None
        return reading, "ok", note

    def _delayacct(self) -> int | None:
        """kernel.task_delayacct, None if the kernel has no such setting."""
        try:
            return int(self._file("sys/kernel/task_delayacct"))
        except (OSError, ValueError):
            return None

    def _read_titles(self, context: HostContext) -> Outcome:
        reader = self._process_reader(context)
        try:
            children = reader.children.read()
        except ProcessLookupError:
            raise self._postmaster_ended(reader) from None
        reading = self._titles.read(reader.postmaster, children)
        # In blind mode the titles are the only source of which backends are active.
        self._active_by_title = frozenset(row.pid for row in reading.rows if row.state and row.state != "idle")
        note = f"{reading.unreadable} process titles could not be read in time: those processes are blocked"
        return reading, "ok", note if reading.unreadable else None

    def _process_reader(self, context: HostContext) -> ProcessReader:
        pid = context.postmaster_pid
        if pid is None:
            hidden = hidepid_option(self._proc)
            why = f": {self._proc} is mounted with {hidden}, run it as root or the server's user" if hidden else ""
            raise _Missing("unsupported", NO_POSTMASTER + why)
        if self._processes is None or self._processes.postmaster != pid:
            if self._processes is not None:
                self._processes.close()
            self._processes = ProcessReader(self._proc, pid, self._page_size)
        return self._processes

    def _postmaster_ended(self, reader: ProcessReader) -> _Missing:
        reader.close()
        self._processes = None
        return _Missing("error", f"the postmaster, process {reader.postmaster}, has ended")

    def _read_control(self, context: HostContext) -> Outcome:
        directory = context.data_directory or context.paths.get("data")
        if directory is None and context.postmaster_pid is not None:
            directory = data_directory_of(self._proc, context.postmaster_pid)
        if directory is None:
            raise _Missing("unsupported", "the data directory of this target is unknown")
        path = directory
        try:
            return self._control.call(lambda: read_control_file(path, printable(path)), CONTROL_DEADLINE_S)
        except LaneTimeout:
            raise _Missing("timeout", f"{printable(path)} does not answer: its file system is stalled") from None

    def close(self) -> None:
        """Close files and idle lanes."""
        for held in self._files.values():
            held.close()
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        self._titles.close()
        self._control.close()


def _file_text(error: OSError) -> str:
    return printable(error.filename) if isinstance(error.filename, str | bytes) else "a file of the kernel"
