"""One dump, restore or other long program under way: what is known of it, look by look, and what is kept of it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from msgspec import structs

from dba_console.agent.jobs.course import Course
from dba_console.agent.jobs.exits import exit_of
from dba_console.agent.jobs.foretelling import Foretelling, comparable
from dba_console.agent.jobs.joining import key_of
from dba_console.agent.jobs.look import Question
from dba_console.agent.jobs.outline import Waiting, chain_now, objects_now, phases_now
from dba_console.agent.jobs.runs import LONGEST, Run, RunPhase, Told, alike, usual_s
from dba_console.agent.jobs.seen import Seen
from dba_console.agent.jobs.space import Growth, Space, need_bytes, place_of, space_at
from dba_console.agent.jobs.taking import Taking
from dba_console.archives.critical import critical_links
from dba_console.archives.entries import PHASES
from dba_console.archives.mistakes import WORKER_DIED
from dba_console.frames.jobs import Owner, job_phase_of
from dba_console.harmless import clean
from dba_console.probes.jobs.log import Words
from dba_console.probes.jobs.pipeline import Flow
from dba_console.probes.jobs.programs import Program
from dba_console.samples.jobs import JobKey, JobNow

DUMPS = frozenset({"pg_dump", "pg_dumpall", "pg_basebackup"})
RESTORES = frozenset({"pg_restore", "psql"})
FOLLOWED = frozenset({"pg_dump", "pg_restore", "psql"})
"""Programs whose objects are followed one by one."""
LATE = 0.5
"""Of the time until its last look: in so much more of it the rest of the data may have gone through unseen."""
CHAIN_EVERY = 30
"""Looks."""


class Tracked:
    """Used by one thread."""

    def __init__(self, program: Program) -> None:
        self.owner = Owner(program.kind, program.pid)
        self.program = program
        self._database = program.arguments.database
        self._user: str | None = None
        self._course = Course(program) if program.kind in FOLLOWED else None
        self._foretelling = Foretelling(program)
        self._waiting: Waiting | None = None
        self._written_growth, self._data_growth = Growth(), Growth()
        self._taking: Taking | None = None
        self._chain: tuple[str, ...] = ()
        self._looks = 0
        self._written: int | None = None
        self._read: int | None = None
        self._read_size: int | None = None
        self._seen_us = 0

    @property
    def key(self) -> JobKey:
        """Whose runs it is compared with."""
        return self.owner.kind, self._database, self._user

    def see(self, seen: Seen) -> JobNow:
        """Take a look in; what is to be told now."""
        self.program, self._seen_us = seen.program, seen.question.wall_us
        if seen.rows:
            self._database, self._user = seen.rows[0].database or self._database, seen.rows[0].user
        job = self._bare(seen)
        if self._course is None:
            return _backup(job, seen) if job.kind == "pg_basebackup" else job
        try:
            return self._followed(job, seen, self._course)
        except Exception as error:  # an archive or a statement nobody foresaw costs this job its details and no other
            why = f"how far it is cannot be told: {type(error).__name__}: {clean(str(error)[:200])}"
            return structs.replace(job, unknown=(*job.unknown, why))

    def ended(self, wall_us: int, words: Words) -> Told:
        """Its program is gone, these were its last words: what is kept of it."""
        moved = self._written if self.owner.kind in DUMPS else self._read
        arguments, course = self.program.arguments, self._course
        told = Told(bytes=moved, format=arguments.format, version=self.program.version, jobs=arguments.jobs)
        if course is None:
            exit = exit_of(words.source, self.program.pid)
            return structs.replace(told, exit=exit, whole=None if exit is None else exit == 0)
        reached = self._reached(course, wall_us)
        exit = exit_of(course.hearing.source, self.program.pid)
        course.end(wall_us, exit, words)
        told = structs.replace(told, reached=reached, source=self._source(course))
        if self.owner.kind == "psql":
            told = structs.replace(told, size_bytes=self._read_size)
        return structs.replace(told, **_kept(course, exit, wall_us, told))

    def _source(self, course: Course) -> str | None:
        """Of a restore: the database that was dumped, where its archive tells it."""
        plan = course.planned.plan
        return plan.database if plan is not None and self.owner.kind == "pg_restore" else None

    def _reached(self, course: Course, wall_us: int) -> float | None:
        """The part of its data that was through when it was last seen; None where nobody saw any, or too long ago."""
        if wall_us - self._seen_us > LATE * (self._seen_us - self.program.started_us):
            return None
        if self.owner.kind == "psql":
            return None if not self._read_size or self._read is None else min(1.0, self._read / self._read_size)
        data = next((one for one in course.ledger.phases(wall_us) if one.name == "data"), None)
        if data is None or not data.weight or not data.weight_done:
            return None
        return round(min(1.0, data.weight_done / data.weight), 4)

    def _bare(self, seen: Seen) -> JobNow:
        """What there is to say of any program."""
        program, flow, arguments = seen.program, seen.flow, seen.program.arguments
        reads, read, read_size = _reading(program, flow)
        writes = self._writes(flow)
        space = self._space(writes, seen.question)
        return JobNow(
            kind=program.kind, pid=program.pid, backends=tuple(row.pid for row in seen.rows),
            database=self._database, user=self._user, version=program.version, format=arguments.format,
            compression=arguments.compression, jobs=arguments.jobs, command=program.command, run=None,
            started_us=program.started_us, elapsed_s=seen.running_s,
            reads=reads, read_bytes=read, read_size_bytes=read_size,
            writes=None if writes is None else clean(writes), written_bytes=None, written_per_s=None,
            mount=None if space is None else clean(space.mount), free_bytes=None if space is None else space.free_bytes,
            need_bytes=None, fits=None, phase=None, phases=(), objects=(), counts=(0, 0, 0, 0), pct=None,
            grade="unknown", eta_s=None, eta_grade="unknown", errors=None, last_error=None, critical=(),
            sources=tuple(_sources(seen)),
            unknown=tuple(dict.fromkeys((*program.unknown, *flow.unknown, *self._unplaced(seen.question)))),
        )  # fmt: skip

    def _followed(self, job: JobNow, seen: Seen, course: Course) -> JobNow:
        """And what is known of its objects."""
        if course.see(seen):
            plan = course.planned.plan
            self._waiting = None if plan is None else Waiting(plan)
        before = alike(seen.question.runs, self.key, source := self._source(course))
        runs = comparable(before, course.size_bytes(seen))
        told = self._foretelling.look(course.ledger, seen, runs)
        data = next((one.sums for one in told.phases if one.name == "data"), None)
        done, total = (None, None) if data is None or course.planned.plan is None else (data.weight_done, data.weight)
        if done is not None and total is not None:
            self._data_growth.add(seen.at_us, int(done))
        read, read_size = job.read_bytes, job.read_size_bytes
        if job.kind == "pg_restore" and total is not None and done is not None:
            read, read_size = int(done), int(total)
        if read is not None:
            self._read, self._read_size = read, read_size
        written = self._measured(seen, course)
        need, guessed = self._need(job, seen, written, (done, total), told.pct, runs)
        plan, planned = course.planned.plan, course.planned.plan is not None
        heard = course.hearing
        return structs.replace(
            job,
            version=job.version or (plan.dump_version if plan is not None and job.kind == "pg_dump" else None),
            format=job.format or (plan.format if plan is not None else None),
            compression=job.compression or (plan.compression if plan is not None else None),
            run=heard.run,
            read_bytes=read,
            read_size_bytes=read_size,
            written_bytes=written,
            written_per_s=self._written_growth.per_s,
            need_bytes=need,
            fits=None if need is None or job.free_bytes is None else need <= job.free_bytes,
            phase=self._phase(seen, course),
            phases=phases_now(told.phases, measured=job.kind == "pg_restore", planned=planned),
            objects=objects_now(
                course.ledger, course.sights, self._waiting, course.done_last, seen.question.wall_us
            ),
            counts=course.ledger.counts(),
            pct=told.pct,
            grade=told.grade,
            eta_s=told.eta_s,
            eta_grade=told.eta_grade,
            errors=course.errors,
            last_error=course.last_error,
            critical=self._critical(course, seen),
            sources=tuple(dict.fromkeys((*job.sources, *course.sources))),
            unknown=tuple(dict.fromkeys((*job.unknown, *course.unknown, *told.why, *guessed))),
            done=done if total is not None else None,
            total=total,
            unit=None if total is None else "bytes",
            rate_per_s=self._data_growth.per_s,
            source=source,
            usual_s=None if source is None else usual_s(before),
            usual_runs=len(before),
        )  # fmt: skip

    def _critical(self, course: Course, seen: Seen) -> tuple[str, ...]:
        """By what its objects weigh, and once a minute by what they took: it takes a pass over all of them."""
        plan = course.planned.plan
        if plan is None or self.owner.kind != "pg_restore":
            return ()
        if self._looks % CHAIN_EVERY == 0:
            links = critical_links(plan if self._looks == 0 else course.ledger, seen.question.wall_us)
            self._chain = chain_now(links) or self._chain
        self._looks += 1
        return self._chain

    def _phase(self, seen: Seen, course: Course) -> str | None:
        """What it is at: by its objects under way, by its statements, or by what there is left."""
        running = course.ledger.running_items
        if running:
            return min((item.entry.phase for item in running), key=_ORDER.index)
        now, done, waiting, _ = course.ledger.counts()
        if course.planned.plan is not None and done and not now and not waiting:
            return "ending" if seen.rows else "writing to disk"
        if course.planned.plan is not None and self.owner.kind == "pg_restore":
            return next((name for name in PHASES if course.ledger.sums(name).waiting), None)
        return job_phase_of(seen.rows)

    def _measured(self, seen: Seen, course: Course) -> int | None:
        """Bytes written so far, where that can be told."""
        if self.owner.kind in DUMPS:
            grown = course.grown
            if grown is not None and grown.exists:
                self._written = grown.size
            elif seen.flow.writings:
                self._written = sum(one.size for one in seen.flow.writings)
            if self._written is not None:
                self._written_growth.add(seen.at_us, self._written)
        return self._written

    def _need(
        self,
        job: JobNow,
        seen: Seen,
        written: int | None,
        data: tuple[float | None, float | None],
        pct: float | None,
        runs: Sequence[Run],
    ) -> tuple[float | None, tuple[str, ...]]:
        """Bytes it will still write, and what is to be said of how that was found."""
        if job.free_bytes is None:
            return None, ()
        if self.owner.kind in RESTORES:
            if self._taking is None:
                self._taking = Taking(seen.question.conninfo)
            return self._taking.need(self._database, pct, job.free_bytes, running_s=seen.running_s, begun_us=seen.at_us)
        ratios = [run.bytes / run.size_bytes for run in runs if run.bytes and run.size_bytes]
        return need_bytes(written, *data, ratios[-1] if ratios else None), ()

    def _writes(self, flow: Flow) -> str | None:
        """The file or directory it writes, as the process sees it."""
        if self.owner.kind not in DUMPS:
            return None
        told = self.program.arguments.output
        if told is not None:
            return self.program.path(told)
        return flow.writings[0].path if flow.writings else None

    def _space(self, writes: str | None, question: Question) -> Space | None:
        """Of what it fills: of a restore the disk on which its database lies."""
        if self.owner.kind in RESTORES:
            place = self._place(question)
            return None if place is None else space_at(place)
        return None if writes is None or not posixpath.isabs(writes) else space_at(self.program.root + writes)

    def _place(self, question: Question) -> str | None:
        server = question.server if question.here else None
        return None if server is None else place_of(server, self._database)

    def _unplaced(self, question: Question) -> tuple[str, ...]:
        """Why the disk a restore fills is not told."""
        asked = self.owner.kind in RESTORES and question.here and question.server is not None
        return (_UNPLACED,) if asked and self._place(question) is None else ()


_UNPLACED = "the disk it fills is not known: the server has not told where this database lies"
_ORDER = ("data", "indexes", "constraints", "rest", "schema")
"""Of two phases under way the earlier one is told; the schema is there before them."""


def _backup(job: JobNow, seen: Seen) -> JobNow:
    """What a base backup still has to write: all that is still to be streamed, less where it is compressed."""
    views = [row for row in seen.operations.values() if row.kind == "basebackup" and row.total and row.done is not None]
    if not views or job.free_bytes is None:
        return job
    need = float(sum(max(0, (row.total or 0) - (row.done or 0)) for row in views))
    packed = job.compression not in (None, "none")
    return structs.replace(job, need_bytes=need, fits=True if need <= job.free_bytes else None if packed else False)


def _reading(program: Program, flow: Flow) -> tuple[str | None, int | None, int | None]:
    """What is read, how far, of how much. How far a restore is in an archive its objects tell: several read at once."""
    if program.kind == "pg_restore" and program.arguments.input is not None:
        path = program.path(program.arguments.input)
        return None if path is None else clean(path), None, None
    if not flow.readings:
        return None, None, None
    first = flow.readings[0]
    return first.path, first.read, first.total


def _sources(seen: Seen) -> list[str]:
    """Where what is told comes from."""
    found = ["pg_stat_activity"] if seen.rows else []
    if key_of(seen.program) in seen.joined.by_name:
        found.append("its sessions joined by name and moment")
    found += [f"fdinfo of pid {one.pid} ({clean(one.program)})" for one in seen.flow.readings[:4]]
    return found


def _kept(course: Course, exit: int | None, wall_us: int, told: Told) -> dict[str, object]:
    ledger, plan = course.ledger, course.planned.plan
    phases = ledger.phases(wall_us)
    data = next((one for one in phases if one.name == "data"), None)
    last = course.last_error
    return {
        "exit": exit,
        "errors": course.errors,
        "last_error": None if last is None else last[:LONGEST],
        "whole": _whole(course, exit),
        "size_bytes": told.size_bytes if data is None or plan is None or data.weight is None else int(data.weight),
        "phases": tuple(
            RunPhase(one.name, round(one.wall_s, 3), round(one.busy_s, 3), None if not one.weight else int(one.weight))
            for one in phases
            if one.wall_s is not None and one.items
        ),
        "format": told.format or (None if plan is None else plan.format),
    }


def _whole(course: Course, exit: int | None) -> bool | None:
    """Whether it did all it set out to; None where nothing tells."""
    ledger = course.ledger
    if exit is not None:
        return exit == 0 or (ledger.program == "pg_restore" and exit == 1 and ledger.ignored is not None)
    if ledger.program == "pg_restore" and ledger.ignored is not None:
        return True
    died = any(one.text.startswith(WORKER_DIED) for one in ledger.errors)
    return False if died or (ledger.program == "pg_dump" and ledger.error_count) else None
