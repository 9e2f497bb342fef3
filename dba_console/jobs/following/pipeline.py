"""Find the input and output files of a program, also through pipelines, and how far its input is read.

The offset in an input file is exact with any compression: `zcat dump.sql.gz | psql` has processed what is read of the
dump file, minus the contents of pipe and buffers. Data from or to another host are unknown; the reason is reported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from dba_console.core.sanitize import clean
from dba_console.jobs.following.open_files import (
    DescriptorLink,
    OpenFile,
    PipeEnds,
    pipe_key,
    read_links,
    read_open_file,
)
from dba_console.jobs.following.program_scanner import KINDS, RunningProgram, writes_files
from dba_console.watch.probes.host.kernel_files import process_text, read_once, read_stat

# The input and output of a job.


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file being read for a job. Workers of pg_restore seek in a custom archive, each with its own offset: there
    `bytes_read` does not show the progress."""

    path: str
    """As seen by the process that reads it; sanitized."""
    pid: int
    program: str
    """Name of the process that reads it."""
    fd: int
    pos: int
    size: int
    """Bytes of this file, possibly compressed."""
    before: int = 0
    """Bytes of the files that the same command read before this one (`cat part1 part2`)."""
    total: int = 0
    """Bytes of all these files; the size of a single one."""
    deleted: bool = False

    @property
    def bytes_read(self) -> int:
        """Bytes read so far of all these files."""
        return self.before + min(self.pos, self.size)


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file being written for a job."""

    path: str
    pid: int
    program: str
    fd: int
    size: int
    allocated: int
    deleted: bool = False


@dataclass(slots=True)
class DataFlow:
    """The input and output of a program in one scan."""

    inputs: list[InputFile] = field(default_factory=list)
    outputs: list[OutputFile] = field(default_factory=list)
    through: list[str] = field(default_factory=list)
    """Programs in between, as text: `gzip (process 812)`."""
    source_pid: int | None = None
    """pid of a dump whose output it reads."""
    sink_pid: int | None = None
    """pid of a restore that reads its output."""
    unknown: list[str] = field(default_factory=list)
    """What is unknown and why, in sentences."""
    pipes: set[str] = field(default_factory=set)
    """The pipes in between."""

    def add(self, writing: OutputFile) -> None:
        """Add an output file once, even with several descriptors (pg_dump duplicates its standard output)."""
        if all((one.path, one.pid) != (writing.path, writing.pid) for one in self.outputs):
            self.outputs.append(writing)


MAX_DEPTH = 8
"""Maximum programs between a job and the file at the end of its pipeline."""
MAX_OPERANDS = 2000
"""Maximum parts of a split dump (`cat dump.part* | …`) whose sizes are added."""
_CONCATENATING = frozenset(
    ("cat", "zcat", "gzip", "gunzip", "pigz", "unpigz", "zstd", "zstdcat", "unzstd", "lz4", "lz4cat", "bzip2", "bzcat",
     "lbzip2", "pbzip2", "xz", "xzcat", "pv")
)  # fmt: skip
"""Programs that read all files in their arguments, one after the other."""
_OVER_THE_NETWORK = frozenset(("ssh", "scp", "sftp", "curl", "wget", "aws", "gsutil", "rclone", "nc", "socat", "mc"))


class Pipelines:
    """Finds the data flows of programs, scan by scan. Not thread-safe."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._ends = PipeEnds(proc)
        self._last: dict[tuple[int, int], tuple[InputFile, ...]] = {}
        self._pipes_with_writer: set[str] = set()
        """Pipes whose writer was found before: if it is gone, it has written everything."""

    def read_flows(self, programs: list[RunningProgram]) -> dict[int, DataFlow]:
        """Return the current data flow of each program by pid."""
        self._ends.start_scan()
        pipes: set[str] = set()
        flows, last = {}, {}
        for program in programs:
            found = self._flow(program)
            pipes |= found.pipes
            key = (program.pid, program.start_ticks)
            if not found.inputs and not found.unknown:
                # Between two files of a pipeline, or all is read but not processed yet.
                found.inputs = [_fully_read(one) for one in self._last.get(key, ()) if one.pid not in program.pids]
            if found.inputs:
                last[key] = tuple(found.inputs)
            found.through, found.unknown = list(dict.fromkeys(found.through)), list(dict.fromkeys(found.unknown))
            flows[program.pid] = found
        self._ends.keep_only(pipes)
        self._pipes_with_writer &= pipes
        self._last = last
        return flows

    def _flow(self, program: RunningProgram) -> DataFlow:
        found = DataFlow()
        for pid in program.pids:
            try:
                links = read_links(self._proc, pid)
            except PermissionError:
                if not program.unknown:
                    found.unknown.append(
                        f"the files of {process_text(self._proc, pid)} are visible only to its user and root"
                    )
                break
            except OSError:
                continue  # ended meanwhile
            if _reads_input(program):
                self._inputs(program, pid, links, found)
            if writes_files(program):
                self._outputs(program, pid, links, found)
        return found

    def _inputs(self, program: RunningProgram, pid: int, links: list[DescriptorLink], found: DataFlow) -> None:
        """Find the files a restore reads itself, or through a pipe."""
        named = program.arguments.input is not None
        files = [one for link in links if (one := read_open_file(self._proc, pid, link)) is not None and _is_input(one)]
        own = [one for one in files if (one.fd > 2 if named else one.fd == 0)]
        found.inputs += [_input_file(one, program.kind) for one in own]
        if own or pid != program.pid:
            return
        for link in links:
            key = pipe_key(self._proc, pid, link) if named or link.fd == 0 else None
            # Unnamed pipes also connect a program with its workers.
            if key is not None and (not named or key.startswith("fifo:")):
                self._follow_upstream(key, pid, found, MAX_DEPTH)
            elif link.fd == 0 and not named and link.socket is not None:
                found.unknown.append(f"{program.kind} reads from a socket: the size of its input is unknown")

    def _follow_upstream(self, key: str, owner: int, found: DataFlow, deepest: int) -> None:
        found.pipes.add(key)
        holders = self._ends.find_holders(key, writing=True, owner=owner)
        if holders:
            self._pipes_with_writer.add(key)
        for pid in holders or ():
            if self._read_writer(pid, found, deepest):
                return
        if holders == () and key not in self._pipes_with_writer:
            found.unknown.append("the process that writes to its input pipe is visible only to its user and root")
        elif holders and not found.inputs and found.source_pid is None and not found.unknown:
            names = ", ".join(clean(process_text(self._proc, pid)) for pid in holders)
            found.unknown.append(f"{names} does not read from a file: the size of the input is unknown")

    def _read_writer(self, pid: int, found: DataFlow, deepest: int) -> bool:
        """Follow the input of a process that writes to the pipe; return whether its source was determined."""
        stat = read_stat(self._proc, pid)
        if stat is None:
            return False
        found.through.append(clean(process_text(self._proc, pid)))
        if stat.command in KINDS:
            found.source_pid = pid
            return True
        links = self._links(pid, stat.command, found, "its input comes over the network via {}: its size is unknown")
        if links is None:
            return True
        files = [one for link in links if (one := read_open_file(self._proc, pid, link)) is not None and _is_input(one)]
        if files:
            # Prefer a file given by name to its standard input.
            chosen = max(files, key=lambda one: (one.fd > 2, one.size))
            found.inputs.append(self._among_operands(_input_file(chosen, stat.command), chosen))
            return True
        stdin = next((link for link in links if link.fd == 0), None)
        key = None if stdin is None else pipe_key(self._proc, pid, stdin)
        if key is not None and deepest and key not in found.pipes:
            before = len(found.inputs), len(found.unknown), found.source_pid
            self._follow_upstream(key, pid, found, deepest - 1)
            return before != (len(found.inputs), len(found.unknown), found.source_pid)
        found.through.pop()
        return False

    def _links(self, pid: int, command: str, found: DataFlow, network: str) -> list[DescriptorLink] | None:
        """Return the descriptors of the process at the other end of a pipe; None with a reason in `found` if not
        readable or useless."""
        name = found.through[-1]
        if command in _OVER_THE_NETWORK:
            found.unknown.append(network.format(name))
            return None
        try:
            return read_links(self._proc, pid)
        except OSError:
            found.unknown.append(f"the files of {name} are visible only to its user and root")
            return None

    def _among_operands(self, reading: InputFile, file: OpenFile) -> InputFile:
        """Return the input file with the total of all files in its program's arguments."""
        if reading.program not in _CONCATENATING:
            return reading
        sizes = _operand_sizes(self._proc, reading.pid)
        at = next((index for index, one in enumerate(sizes) if one[:2] == (file.device, file.inode)), None)
        if at is None:
            return reading
        return replace(reading, before=sum(one[2] for one in sizes[:at]), total=sum(one[2] for one in sizes))

    def _outputs(self, program: RunningProgram, pid: int, links: list[DescriptorLink], found: DataFlow) -> None:
        named = program.arguments.output not in (None, "-")
        log = _target(links, 2)
        for link in links:
            file = read_open_file(self._proc, pid, link)
            if file is None or not file.writes:
                continue
            to_stdout = link.target == _target(links, 1)
            if (named and link.fd > 2 and link.target != log) or (not named and to_stdout):
                found.add(_output_file(file, program.kind))
        if pid == program.pid:
            self._follow_output(program, links, named, found)

    def _follow_output(
        self, program: RunningProgram, links: list[DescriptorLink], named: bool, found: DataFlow
    ) -> None:
        """Follow the pipe it writes to: a FIFO given by name, else its standard output."""
        for link in links:
            key = pipe_key(self._proc, program.pid, link) if named or link.fd == 1 else None
            if key is not None and (not named or (key.startswith("fifo:") and link.fd > 2)):
                self._follow_downstream(key, program.pid, found, MAX_DEPTH)
            elif link.fd == 1 and not named and link.socket is not None:
                found.unknown.append(f"{program.kind} writes to a socket: its destination is unknown")

    def _follow_downstream(self, key: str, owner: int, found: DataFlow, deepest: int) -> None:
        found.pipes.add(key)
        holders = self._ends.find_holders(key, writing=False, owner=owner)
        if holders == ():
            found.unknown.append("the process that reads its output pipe is visible only to its user and root")
        for pid in holders or ():
            if self._read_reader(pid, found, deepest):
                return

    def _read_reader(self, pid: int, found: DataFlow, deepest: int) -> bool:
        stat = read_stat(self._proc, pid)
        if stat is None:
            return False
        found.through.append(clean(process_text(self._proc, pid)))
        if stat.command in KINDS:
            found.sink_pid = pid
            return True
        links = self._links(pid, stat.command, found, "its output goes over the network via {}: destination unknown")
        if links is None:
            return True
        log = _target(links, 2)
        files = [read_open_file(self._proc, pid, link) for link in links if link.fd == 1 or link.target != log]
        written = [one for one in files if one is not None and one.writes]
        for one in written:
            found.add(_output_file(one, stat.command))
        stdout = next((link for link in links if link.fd == 1), None)
        key = None if stdout is None else pipe_key(self._proc, pid, stdout)
        if not written and key is not None and deepest and key not in found.pipes:
            self._follow_downstream(key, pid, found, deepest - 1)
        elif not written:
            found.unknown.append(f"its output goes to {found.through[-1]}, whose own output is unknown")
        return True


def _reads_input(program: RunningProgram) -> bool:
    return program.kind in ("pg_restore", "psql")


def _is_input(file: OpenFile) -> bool:
    return file.reads and not file.writes


def _target(links: list[DescriptorLink], fd: int) -> str | None:
    return next((link.target for link in links if link.fd == fd), None)


def _input_file(file: OpenFile, program: str) -> InputFile:
    return InputFile(
        clean(file.path), file.pid, program, file.fd, file.pos, file.size, total=file.size, deleted=file.deleted
    )


def _fully_read(reading: InputFile) -> InputFile:
    return replace(reading, pos=reading.size)


def _output_file(file: OpenFile, program: str) -> OutputFile:
    return OutputFile(clean(file.path), file.pid, program, file.fd, file.size, file.allocated, file.deleted)


def _operand_sizes(proc: str, pid: int) -> list[tuple[int, int, int]]:
    """Return device, inode and size of the files among a program's arguments, in order."""
    try:
        words = read_once(f"{proc}/{pid}/cmdline", 131_072).split(b"\0")[1:]
    except OSError:
        return []
    found = []
    for word in words[:MAX_OPERANDS]:
        if not word or word.startswith(b"-"):
            continue
        try:
            # Through its working directory or root: it may be in another mount namespace.
            base = b"%s/%d/" % (proc.encode(), pid)
            at = os.stat(base + b"root" + word if word.startswith(b"/") else base + b"cwd/" + word)
        except (OSError, ValueError):
            continue
        found.append((at.st_dev, at.st_ino, at.st_size))
    return found
