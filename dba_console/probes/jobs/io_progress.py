"""What is told of the bytes that go into a job and out of it."""

from __future__ import annotations

from dataclasses import dataclass


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
