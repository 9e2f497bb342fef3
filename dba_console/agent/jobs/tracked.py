"""One dump, restore or other long program under way: what is known of it, look by look."""

from __future__ import annotations

import os
import posixpath
import time
from dataclasses import dataclass

from dba_console.agent.jobs.course import Course
from dba_console.agent.jobs.joining import Joined, key_of
from dba_console.agent.jobs.look import Question
from dba_console.agent.jobs.runs import Told
from dba_console.agent.jobs.space import Growth, space_at
from dba_console.frames.jobs import Owner
from dba_console.harmless import clean
from dba_console.probes.jobs.pipeline import Flow
from dba_console.probes.jobs.programs import Program
from dba_console.samples.jobs import JobNow
from dba_console.samples.postgres import Activity

DUMPS = frozenset({"pg_dump", "pg_dumpall", "pg_basebackup"})
RESTORES = frozenset({"pg_restore", "psql"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found of one program."""

    program: Program
    joined: Joined
    flow: Flow
    question: Question
    at_us: int
    """Monotonic."""

    @property
    def rows(self) -> list[Activity]:
        """Its sessions, the one connected first at first."""
        rows = self.joined.sessions.get(key_of(self.program), [])
        return sorted(rows, key=lambda row: (row.backend_start or 0, row.pid))


class Tracked:
    """Used by one thread."""

    def __init__(self, program: Program, question: Question) -> None:
        self.owner = Owner(program.kind, program.pid)
        self._program = program
        self._started_us = program.started_us
        self._database = program.arguments.database
        self._user: str | None = None
        self._course = Course(program, question)
        self._growth = Growth()
        self._written: int | None = None
        self._read: int | None = None

    def see(self, seen: Seen) -> JobNow:
        """Take a look in; what is to be told now."""
        self._program = program = seen.program
        rows, flow, question = seen.rows, seen.flow, seen.question
        if rows:
            self._database, self._user = rows[0].database or self._database, rows[0].user
        self._course.see(seen)
        course, arguments = self._course, program.arguments
        reads, read, read_size = _reading(flow)
        self._read = read if read is not None else self._read
        writes = self._writes(flow)
        written = self._measure(seen)
        place = self._place(writes, question)
        space = None if place is None else space_at(program.root + place if place == writes else place)
        need = course.need_bytes(written)
        return JobNow(
            kind=program.kind,
            pid=program.pid,
            backends=tuple(row.pid for row in rows),
            database=self._database,
            user=self._user,
            version=program.version or course.version,
            format=arguments.format or course.format,
            compression=arguments.compression or course.compression,
            jobs=arguments.jobs,
            command=program.command,
            run=course.run,
            started_us=self._started_us,
            elapsed_s=running_s(program),
            reads=reads,
            read_bytes=read,
            read_size_bytes=read_size,
            writes=None if writes is None else clean(writes),
            written_bytes=written,
            written_per_s=self._growth.per_s,
            mount=None if space is None else clean(space.mount),
            free_bytes=None if space is None else space.free_bytes,
            need_bytes=need,
            fits=None if space is None or need is None else need <= space.free_bytes,
            phase=course.phase(rows),
            phases=course.phases,
            objects=course.objects,
            counts=course.counts,
            pct=course.pct,
            grade=course.grade,
            eta_s=course.eta_s,
            eta_grade=course.eta_grade,
            errors=course.errors,
            last_error=course.last_error,
            critical=course.critical,
            sources=tuple(dict.fromkeys((*_sources(seen), *course.sources))),
            unknown=tuple(dict.fromkeys((*program.unknown, *flow.unknown, *course.unknown))),
            done=course.done,
            total=course.total,
            unit=course.unit,
            rate_per_s=course.rate_per_s,
        )

    def ended(self, wall_us: int) -> Told:
        """Its program is gone: what is kept of it."""
        moved = self._written if self.owner.kind in DUMPS else self._read
        return self._course.ended(wall_us, self._program, moved)

    def _writes(self, flow: Flow) -> str | None:
        """The file or directory it writes, as the process sees it."""
        if self.owner.kind not in DUMPS:
            return None
        told = self._program.arguments.output
        if told is not None:
            return self._program.path(told)
        return flow.writings[0].path if flow.writings else None

    def _measure(self, seen: Seen) -> int | None:
        """Bytes written so far, where that can be told."""
        written = self._course.written(seen)
        if written is not None and self.owner.kind in DUMPS:
            self._growth.add(seen.at_us, written)
            self._written = written
        return self._written

    def _place(self, writes: str | None, question: Question) -> str | None:
        """What it fills: of a restore the disk of the data."""
        if self.owner.kind in RESTORES:
            return question.server.data_directory if question.here and question.server is not None else None
        return None if writes is None or not posixpath.isabs(writes) else writes


def running_s(program: Program) -> float:
    """How long it runs, by the clock no one sets."""
    ticks = program.start_ticks / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)


def _reading(flow: Flow) -> tuple[str | None, int | None, int | None]:
    """What is read, how far, of how much. A directory is read by many, each at a file of its own: see the course."""
    if not flow.readings:
        return None, None, None
    paths = {one.path for one in flow.readings}
    first = flow.readings[0]
    if len(paths) > 1:
        return posixpath.dirname(first.path), None, None
    return first.path, first.read, first.total


def _sources(seen: Seen) -> list[str]:
    """Where what is told comes from."""
    found = ["pg_stat_activity"] if seen.rows else []
    if key_of(seen.program) in seen.joined.by_name:
        found.append("joined by name and time of start")
    found += [f"fdinfo of pid {one.pid} ({clean(one.program)})" for one in seen.flow.readings[:4]]
    return found
