"""What a program reads and writes, and how far it is: its own files, and those at the far ends of its pipes.

The place of a file that is being read is exact whatever its compression: `zcat dump.sql.gz | psql` is as far as the
dump file has been read, less what the pipe and the programs' buffers hold. What goes to or comes from another host is
not known, and said.
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
    process_text,
    read_links,
    read_open_file,
)
from dba_console.jobs.following.running_programs import KINDS, RunningProgram, writes_files
from dba_console.watch.probes.host.kernel_files import read_once, read_stat

# What is told of the bytes that go into a job and out of it.


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file being read for a job. Workers of a pg_restore have each their own place in one custom archive, which they
    read by its offsets: there `bytes_read` says nothing of the whole."""

    path: str
    """As the process that reads it sees it; harmless."""
    pid: int
    program: str
    """Name of the process that reads it."""
    fd: int
    pos: int
    size: int
    """Of this file, bytes; compressed where it is."""
    before: int = 0
    """Bytes of the files of the same command read before this one (`cat part1 part2`)."""
    total: int = 0
    """Bytes of all of them; the size where there is but one."""
    deleted: bool = False

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, of all of them."""
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


@dataclass(frozen=True, slots=True)
class DataFlow:
    """Where a program's bytes come from and where they go."""

    inputs: tuple[InputFile, ...] = ()
    outputs: tuple[OutputFile, ...] = ()
    through: tuple[str, ...] = ()
    """Programs between, as sentences name them: `gzip (process 812)`."""
    source_pid: int | None = None
    """pid of a dump whose output it reads."""
    sink_pid: int | None = None
    """pid of a restore that reads its output."""
    unknown: tuple[str, ...] = ()
    """What cannot be told and why, in sentences."""


__all__ = ["DataFlow", "InputFile", "OutputFile", "Pipelines", "read_flow"]

MAX_DEPTH = 8
"""Programs between a job and the file at the far end."""
MAX_OPERANDS = 2000
"""Parts of a dump cut up (`cat dump.part* | …`) whose sizes are added."""
_CONCATENATING = frozenset(
    ("cat", "zcat", "gzip", "gunzip", "pigz", "unpigz", "zstd", "zstdcat", "unzstd", "lz4", "lz4cat", "bzip2", "bzcat",
     "lbzip2", "pbzip2", "xz", "xzcat", "pv")
)  # fmt: skip
"""Programs that read all files named among their arguments, one after the other."""
_OVER_THE_NETWORK = frozenset(("ssh", "scp", "sftp", "curl", "wget", "aws", "gsutil", "rclone", "nc", "socat", "mc"))


@dataclass(slots=True)
class _FlowBuilder:
    """A flow in the making."""

    inputs: list[InputFile] = field(default_factory=list)
    outputs: list[OutputFile] = field(default_factory=list)
    through: list[str] = field(default_factory=list)
    source_pid: int | None = None
    sink_pid: int | None = None
    unknown: list[str] = field(default_factory=list)
    pipes: set[str] = field(default_factory=set)

    def add(self, writing: OutputFile) -> None:
        """A file that is written; one descriptor of it is enough (pg_dump copies that of its standard output)."""
        if all((one.path, one.pid) != (writing.path, writing.pid) for one in self.outputs):
            self.outputs.append(writing)


class Pipelines:
    """The flows of programs, look by look. Used by one thread."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._ends = PipeEnds(proc)
        self._last: dict[tuple[int, int], tuple[InputFile, ...]] = {}
        self._pipes_with_writer: set[str] = set()
        """Pipes whose writer was seen once: without one now, it has written everything."""

    def read_flows(self, programs: list[RunningProgram]) -> dict[int, DataFlow]:
        """pid of each program -> its flow now."""
        self._ends.start_scan()
        pipes: set[str] = set()
        flows, last = {}, {}
        for program in programs:
            found = self._flow(program)
            pipes |= found.pipes
            key = (program.pid, program.start_ticks)
            if not found.inputs and not found.unknown:
                # Between two files of a pipe, or all is read and not yet worked up.
                found.inputs = [_fully_read(one) for one in self._last.get(key, ()) if one.pid not in program.pids]
            if found.inputs:
                last[key] = tuple(found.inputs)
            flows[program.pid] = DataFlow(
                tuple(found.inputs), tuple(found.outputs), tuple(dict.fromkeys(found.through)),
                found.source_pid, found.sink_pid, tuple(dict.fromkeys(found.unknown)),
            )  # fmt: skip
        self._ends.keep_only(pipes)
        self._pipes_with_writer &= pipes
        self._last = last
        return flows

    def _flow(self, program: RunningProgram) -> _FlowBuilder:
        found = _FlowBuilder()
        for pid in program.pids:
            try:
                links = read_links(self._proc, pid)
            except PermissionError:
                if not program.unknown:
                    found.unknown.append(
                        f"the files of {process_text(self._proc, pid)} can be seen by its user and root only"
                    )
                break
            except OSError:
                continue  # ended meanwhile
            if _reads_input(program):
                self._inputs(program, pid, links, found)
            if writes_files(program):
                self._outputs(program, pid, links, found)
        return found

    def _inputs(self, program: RunningProgram, pid: int, links: list[DescriptorLink], found: _FlowBuilder) -> None:
        """Files a restore reads itself; where it reads a pipe, those at its far end."""
        named = program.arguments.input is not None
        files = [one for link in links if (one := read_open_file(self._proc, pid, link)) is not None and _is_input(one)]
        own = [one for one in files if (one.fd > 2 if named else one.fd == 0)]
        found.inputs += [_input_file(one, program.kind) for one in own]
        if own or pid != program.pid:
            return
        for link in links:
            key = pipe_key(self._proc, pid, link) if named or link.fd == 0 else None
            # Pipes without a name are also what a program and its workers talk through.
            if key is not None and (not named or key.startswith("fifo:")):
                self._follow_upstream(key, pid, found, MAX_DEPTH)
            elif link.fd == 0 and not named and link.socket is not None:
                found.unknown.append(f"{program.kind} reads from a socket: how much there is to come is not known")

    def _follow_upstream(self, key: str, owner: int, found: _FlowBuilder, deepest: int) -> None:
        found.pipes.add(key)
        holders = self._ends.find_holders(key, writing=True, owner=owner)
        if holders:
            self._pipes_with_writer.add(key)
        for pid in holders or ():
            if self._read_writer(pid, found, deepest):
                return
        if holders == () and key not in self._pipes_with_writer:
            found.unknown.append("who writes into the pipe it reads cannot be seen: its user and root can")
        elif holders and not found.inputs and found.source_pid is None and not found.unknown:
            names = ", ".join(clean(process_text(self._proc, pid)) for pid in holders)
            found.unknown.append(f"what {names} reads is no file: how much there is to come is not known")

    def _read_writer(self, pid: int, found: _FlowBuilder, deepest: int) -> bool:
        """Whether this process tells where the bytes come from."""
        stat = read_stat(self._proc, pid)
        if stat is None:
            return False
        found.through.append(clean(process_text(self._proc, pid)))
        if stat.command in KINDS:
            found.source_pid = pid
            return True
        links = self._links(pid, stat.command, found, "it comes over the network by {}: how much there is is not known")
        if links is None:
            return True
        files = [one for link in links if (one := read_open_file(self._proc, pid, link)) is not None and _is_input(one)]
        if files:
            # The one it was given by name, where there is one beside its standard input.
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

    def _links(self, pid: int, command: str, found: _FlowBuilder, network: str) -> list[DescriptorLink] | None:
        """What the process at the far end of a pipe has open; None where that cannot tell: `found` then says why."""
        name = found.through[-1]
        if command in _OVER_THE_NETWORK:
            found.unknown.append(network.format(name))
            return None
        try:
            return read_links(self._proc, pid)
        except OSError:
            found.unknown.append(f"the files of {name} can be seen by its user and root only")
            return None

    def _among_operands(self, reading: InputFile, file: OpenFile) -> InputFile:
        """The reading as a part of all the files its program was given."""
        if reading.program not in _CONCATENATING:
            return reading
        sizes = _operand_sizes(self._proc, reading.pid)
        at = next((index for index, one in enumerate(sizes) if one[:2] == (file.device, file.inode)), None)
        if at is None:
            return reading
        return replace(reading, before=sum(one[2] for one in sizes[:at]), total=sum(one[2] for one in sizes))

    def _outputs(self, program: RunningProgram, pid: int, links: list[DescriptorLink], found: _FlowBuilder) -> None:
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
        self, program: RunningProgram, links: list[DescriptorLink], named: bool, found: _FlowBuilder
    ) -> None:
        """The pipe it writes into: one with a name where it was given one, else its standard output."""
        for link in links:
            key = pipe_key(self._proc, program.pid, link) if named or link.fd == 1 else None
            if key is not None and (not named or (key.startswith("fifo:") and link.fd > 2)):
                self._follow_downstream(key, program.pid, found, MAX_DEPTH)
            elif link.fd == 1 and not named and link.socket is not None:
                found.unknown.append(f"{program.kind} writes to a socket: where to is not known")

    def _follow_downstream(self, key: str, owner: int, found: _FlowBuilder, deepest: int) -> None:
        found.pipes.add(key)
        holders = self._ends.find_holders(key, writing=False, owner=owner)
        if holders == ():
            found.unknown.append("who reads the pipe it writes into cannot be seen: its user and root can")
        for pid in holders or ():
            if self._read_reader(pid, found, deepest):
                return

    def _read_reader(self, pid: int, found: _FlowBuilder, deepest: int) -> bool:
        stat = read_stat(self._proc, pid)
        if stat is None:
            return False
        found.through.append(clean(process_text(self._proc, pid)))
        if stat.command in KINDS:
            found.sink_pid = pid
            return True
        links = self._links(pid, stat.command, found, "it goes over the network by {}: where to is not known")
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
            found.unknown.append(f"{found.through[-1]} reads what it writes; where that puts it is not known")
        return True


def read_flow(program: RunningProgram, proc: str = "/proc") -> DataFlow:
    """The flow of one program; who looks again and again keeps `Pipelines`."""
    return Pipelines(proc).read_flows([program])[program.pid]


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
    """Device, inode and size of the files among a program's arguments, in their order."""
    try:
        words = read_once(f"{proc}/{pid}/cmdline", 131_072).split(b"\0")[1:]
    except OSError:
        return []
    found = []
    for word in words[:MAX_OPERANDS]:
        if not word or word.startswith(b"-"):
            continue
        try:
            # Through its own directory, or its own root: it may see other file systems than we do.
            base = b"%s/%d/" % (proc.encode(), pid)
            at = os.stat(base + b"root" + word if word.startswith(b"/") else base + b"cwd/" + word)
        except (OSError, ValueError):
            continue
        found.append((at.st_dev, at.st_ino, at.st_size))
    return found
