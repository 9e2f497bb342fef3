"""One dump, restore or other long program under way: what is known of it, look by look, and what is kept of it."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import structs

from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.jobs.archives.critical_path import CriticalObject, critical_objects
from dba_console.jobs.archives.dump_plan import PHASES, DumpEntry, DumpPlan
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject
from dba_console.jobs.archives.program_messages import WORKER_DIED
from dba_console.jobs.archives.progress_forecast import PhaseForecast
from dba_console.jobs.following.dump_progress import DumpProgress
from dba_console.jobs.following.job_detection import ObservationRequest
from dba_console.jobs.following.job_estimate import JobEstimator, comparable_runs
from dba_console.jobs.following.object_activity import ObjectActivity
from dba_console.jobs.following.pipeline import DataFlow
from dba_console.jobs.following.running_programs import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram, program_key
from dba_console.jobs.following.stderr_reader import NewMessages
from dba_console.jobs.following.target_disk import (
    DiskSpace,
    GrowthRate,
    RestoreSpaceEstimate,
    database_directory,
    estimate_dump_bytes,
    read_disk_space,
)
from dba_console.jobs.history.past_runs import (
    MAX_ERROR_LENGTH,
    JobRun,
    RunFacts,
    RunPhase,
    comparable_job_runs,
    typical_s,
)
from dba_console.keeper.command_status import wait
from dba_console.watch.frames.job_sessions import ClientProgram, job_phase_of
from dba_console.watch.samples.jobs import OBJECTS_LISTED, JobKey, JobNow, ObjectNow, PhaseNow

# How a program that is gone ended: known where a keeper of ours ran it. Reads a small file; in a lane only.

KEEPER = "keeper in "
RECORD_WAIT_S = 2.0
"""A keeper writes its record once the last line is in its log."""


def read_exit_code(source: str | None, pid: int) -> int | None:
    """The exit code of process `pid`, below 0 the signal that ended it; `source` says where its messages were read."""
    if source is None or not source.startswith(KEEPER):
        return None
    try:
        standing = wait(source.removeprefix(KEEPER), RECORD_WAIT_S)
    except OSError:
        return None
    if standing.exit is None or standing.running is None or standing.running.child_pid != pid:
        return None  # of the command it was part of nothing follows for it
    return -standing.exit.signal if standing.exit.signal is not None else standing.exit.code


# A job's ledger as it is told: its phases, and the objects worth a line: running, failed, largest waiting, last done.
#
# Of 50,000 objects only those told are touched at each look.

MAX_FAILED_ROWS = 20
MAX_WAITING_ROWS = 30
MAX_DONE_ROWS = 20
MAX_CHAIN_ROWS = 12
NAME_LENGTH = 200
MIN_SHARE = 0.05
"""Below this share of an object no time left is told of it."""
MAX_RUNNING_PCT = 99.0
"""What is under way is never all done."""


class LargestWaiting:
    """The entries by weight, largest first. Each is taken from the order once; what has begun never waits again."""

    def __init__(self, plan: DumpPlan) -> None:
        heavy = (entry for entry in plan.entries if entry.weight)
        self._order = iter(sorted(heavy, key=lambda entry: -(entry.weight or 0.0)))
        self._largest: list[DumpEntry] = []

    def largest(self, items: Mapping[int, DumpObject]) -> list[DumpEntry]:
        """The largest that wait."""
        self._largest = [entry for entry in self._largest if _waits(items, entry)]
        while len(self._largest) < MAX_WAITING_ROWS and (entry := next(self._order, None)) is not None:
            if _waits(items, entry):
                self._largest.append(entry)
        return list(self._largest)


def _waits(items: Mapping[int, DumpObject], entry: DumpEntry) -> bool:
    item = items.get(entry.dump_id)
    return item is not None and item.state == "waiting"


def phases_now(phases: Iterable[PhaseForecast], *, measured: bool, planned: bool) -> tuple[PhaseNow, ...]:
    """The phases that have objects. `measured`: bytes of data are those of the files that are read; `planned`: all
    objects are known, not only those seen so far.
    """
    return tuple(_phase(one, measured and one.name == "data", planned) for one in phases if one.sums.objects)


def _phase(one: PhaseForecast, measured: bool, planned: bool) -> PhaseNow:
    sums = one.sums
    weight = sums.weight if planned and one.name not in ("schema", "rest") else None
    pct = one.pct if planned else None
    known = "measured" if measured or one.state == "done" else one.grade
    return PhaseNow(
        name=one.name, state=one.state if planned or sums.running else "unknown",
        items=sums.objects if planned else None, items_done=sums.done + sums.failed, items_running=sums.running,
        done=None if weight is None else sums.weight_done, total=weight, unit=None if weight is None else "bytes",
        pct=pct, grade="unknown" if pct is None else known, started_us=sums.started_us, wall_s=sums.wall_s,
        busy_s=sums.busy_s, eta_s=one.eta_s, eta_grade=one.eta_grade,
    )  # fmt: skip


def objects_now(
    ledger: ObjectProgress,
    sights: Mapping[int, ObjectActivity],
    waiting: LargestWaiting | None,
    done: Iterable[int],
    now_us: int,
) -> tuple[ObjectNow, ...]:
    """The objects worth a line, at most OBJECTS_TOLD."""
    items = ledger.objects()
    return tuple(islice(_object_rows(ledger, items, sights, waiting, done, now_us), OBJECTS_LISTED))


def _object_rows(
    ledger: ObjectProgress,
    items: Mapping[int, DumpObject],
    sights: Mapping[int, ObjectActivity],
    waiting: LargestWaiting | None,
    done: Iterable[int],
    now_us: int,
) -> Iterator[ObjectNow]:
    running = sorted(ledger.running_objects, key=lambda item: -(item.entry.weight or 0.0))
    for item in running:
        yield _object(item, sights.get(item.entry.dump_id), now_us)
    for item in ledger.failed_objects[-MAX_FAILED_ROWS:]:
        yield _object(item, None, now_us)
    for entry in () if waiting is None else waiting.largest(items):
        yield _object(items[entry.dump_id], None, now_us)
    for dump_id in islice(reversed(tuple(done)), MAX_DONE_ROWS):
        if (ended := items.get(dump_id)) is not None and ended.state == "done":
            yield _object(ended, None, now_us)


def chain_now(links: Iterable[CriticalObject]) -> tuple[str, ...]:
    """The chain that decides when it ends, as it is told."""
    return tuple(_link(link) for link in islice(links, MAX_CHAIN_ROWS))


def _link(link: CriticalObject) -> str:
    name = f"{link.entry.desc} {name_of(link.entry)}"
    if link.seconds is None:
        return name
    return f"{name}, {'' if link.measured else 'about '}{human_duration(link.seconds)}"


def name_of(entry: DumpEntry) -> str:
    """An object as it is shown: with its schema, harmless."""
    return clean(f"{entry.schema}.{entry.tag}" if entry.schema else entry.tag)[:NAME_LENGTH]


def _object(item: DumpObject, sight: ObjectActivity | None, now_us: int) -> ObjectNow:
    entry, running = item.entry, item.state == "running"
    elapsed_s = item.seconds
    if running and item.started_us is not None:
        elapsed_s = max(0.0, (now_us - item.started_us) / 1e6)
    share = item.share if running else None
    pct = 100.0 if item.state == "done" else None if share is None else min(MAX_RUNNING_PCT, 100.0 * share)
    measured = item.state == "done" or (sight is not None and sight.measured)
    note = clean(item.error) if item.error is not None else None if sight is None else sight.note
    return ObjectNow(
        name=name_of(entry), what=entry.desc, phase=entry.phase,
        state=item.state if item.state != "unknown" else "failed", weight=entry.weight,
        done=item.done if running else None, total=item.total if running else None, unit=item.unit if running else None,
        pct=pct, grade="unknown" if pct is None else "measured" if measured else "estimated",
        rate_per_s=_rate(item, elapsed_s) if running else None, started_us=item.started_us, elapsed_s=elapsed_s,
        eta_s=_remaining_s(share, elapsed_s), pid=item.pid if running else None, note=note,
    )  # fmt: skip


def _rate(item: DumpObject, elapsed_s: float | None) -> float | None:
    return item.done / elapsed_s if item.done and elapsed_s and elapsed_s >= 1.0 else None


def _remaining_s(share: float | None, elapsed_s: float | None) -> float | None:
    """Of an object by its own course so far."""
    if share is None or elapsed_s is None or share < MIN_SHARE:
        return None
    return max(0.0, elapsed_s * (1.0 - share) / share)


DUMPS = frozenset({"pg_dump", "pg_dumpall", "pg_basebackup"})
RESTORES = frozenset({"pg_restore", "psql"})
PROGRAMS_WITH_OBJECTS = frozenset({"pg_dump", "pg_restore", "psql"})
"""Programs whose objects are followed one by one."""
MAX_UNOBSERVED_SHARE = 0.5
"""Of the time until its last look: in so much more of it the rest of the data may have gone through unseen."""
CHAIN_EVERY = 30
"""Looks."""


class TrackedJob:
    """Used by one thread."""

    def __init__(self, program: RunningProgram) -> None:
        self.owner = ClientProgram(program.kind, program.pid)
        self.program = program
        self._database = program.arguments.database
        self._user: str | None = None
        self._progress = DumpProgress(program) if program.kind in PROGRAMS_WITH_OBJECTS else None
        self._estimator = JobEstimator(program)
        self._waiting: LargestWaiting | None = None
        self._written_growth, self._data_growth = GrowthRate(), GrowthRate()
        self._space_estimate: RestoreSpaceEstimate | None = None
        self._chain: tuple[str, ...] = ()
        self._looks = 0
        self._written: int | None = None
        self._read: int | None = None
        self._read_size: int | None = None
        self._observed_us = 0

    @property
    def key(self) -> JobKey:
        """Whose runs it is compared with."""
        return self.owner.kind, self._database, self._user

    def observe(self, seen: ObservedProgram) -> JobNow:
        """Take a look in; what is to be told now."""
        self.program, self._observed_us = seen.program, seen.question.wall_us
        if seen.rows:
            self._database, self._user = seen.rows[0].database or self._database, seen.rows[0].user
        job = self._common_fields(seen)
        if self._progress is None:
            return _with_backup_space(job, seen) if job.kind == "pg_basebackup" else job
        try:
            return self._with_objects(job, seen, self._progress)
        except Exception as error:  # an archive or a statement nobody foresaw costs this job its details and no other
            why = f"how far it is cannot be told: {type(error).__name__}: {clean(str(error)[:200])}"
            return structs.replace(job, unknown=(*job.unknown, why))

    def finish(self, wall_us: int, words: NewMessages) -> RunFacts:
        """Its program is gone, these were its last words: what is kept of it."""
        moved = self._written if self.owner.kind in DUMPS else self._read
        arguments, course = self.program.arguments, self._progress
        told = RunFacts(bytes=moved, format=arguments.format, version=self.program.version, jobs=arguments.jobs)
        if course is None:
            exit = read_exit_code(words.source, self.program.pid)
            return structs.replace(told, exit=exit, whole=None if exit is None else exit == 0)
        reached = self._reached(course, wall_us)
        exit = read_exit_code(course.message_feed.source, self.program.pid)
        course.end(wall_us, exit, words)
        told = structs.replace(told, reached=reached, source=self._source(course))
        if self.owner.kind == "psql":
            told = structs.replace(told, size_bytes=self._read_size)
        return structs.replace(told, **_final_facts(course, exit, wall_us, told))

    def _source(self, course: DumpProgress) -> str | None:
        """Of a restore: the database that was dumped, where its archive tells it."""
        plan = course.object_list.plan
        return plan.database if plan is not None and self.owner.kind == "pg_restore" else None

    def _reached(self, course: DumpProgress, wall_us: int) -> float | None:
        """The part of its data that was through when it was last seen; None where nobody saw any, or too long ago."""
        if wall_us - self._observed_us > MAX_UNOBSERVED_SHARE * (self._observed_us - self.program.started_us):
            return None
        if self.owner.kind == "psql":
            return None if not self._read_size or self._read is None else min(1.0, self._read / self._read_size)
        data = next((one for one in course.ledger.phases(wall_us) if one.name == "data"), None)
        if data is None or not data.weight or not data.weight_done:
            return None
        return round(min(1.0, data.weight_done / data.weight), 4)

    def _common_fields(self, seen: ObservedProgram) -> JobNow:
        """What there is to say of any program."""
        program, flow, arguments = seen.program, seen.flow, seen.program.arguments
        reads, read, read_size = _read_progress(program, flow)
        writes = self._output_path(flow)
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
            unknown=tuple(dict.fromkeys((*program.unknown, *flow.unknown, *self._unknown_disk(seen.question)))),
        )  # fmt: skip

    def _with_objects(self, job: JobNow, seen: ObservedProgram, course: DumpProgress) -> JobNow:
        """And what is known of its objects."""
        if course.observe(seen):
            plan = course.object_list.plan
            self._waiting = None if plan is None else LargestWaiting(plan)
        before = comparable_job_runs(seen.question.runs, self.key, source := self._source(course))
        runs = comparable_runs(before, course.size_bytes(seen))
        told = self._estimator.estimate(course.ledger, seen, runs)
        data = next((one.sums for one in told.phases if one.name == "data"), None)
        done, total = (
            (None, None) if data is None or course.object_list.plan is None else (data.weight_done, data.weight)
        )
        if done is not None and total is not None:
            self._data_growth.add(seen.at_us, int(done))
        read, read_size = job.read_bytes, job.read_size_bytes
        if job.kind == "pg_restore" and total is not None and done is not None:
            read, read_size = int(done), int(total)
        if read is not None:
            self._read, self._read_size = read, read_size
        written = self._written_bytes(seen, course)
        need, guessed = self._needed_bytes(job, seen, written, (done, total), told.pct, runs)
        plan, planned = course.object_list.plan, course.object_list.plan is not None
        heard = course.message_feed
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
                course.ledger, course.active_objects, self._waiting, course.done_last, seen.question.wall_us
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
            unknown=tuple(dict.fromkeys((*job.unknown, *course.unknown_reasons, *told.notes, *guessed))),
            done=done if total is not None else None,
            total=total,
            unit=None if total is None else "bytes",
            rate_per_s=self._data_growth.per_s,
            source=source,
            usual_s=None if source is None else typical_s(before),
            usual_runs=len(before),
        )  # fmt: skip

    def _critical(self, course: DumpProgress, seen: ObservedProgram) -> tuple[str, ...]:
        """By what its objects weigh, and once a minute by what they took: it takes a pass over all of them."""
        plan = course.object_list.plan
        if plan is None or self.owner.kind != "pg_restore":
            return ()
        if self._looks % CHAIN_EVERY == 0:
            links = critical_objects(plan if self._looks == 0 else course.ledger, seen.question.wall_us)
            self._chain = chain_now(links) or self._chain
        self._looks += 1
        return self._chain

    def _phase(self, seen: ObservedProgram, course: DumpProgress) -> str | None:
        """What it is at: by its objects under way, by its statements, or by what there is left."""
        running = course.ledger.running_objects
        if running:
            return min((item.entry.phase for item in running), key=_ORDER.index)
        now, done, waiting, _ = course.ledger.counts()
        if course.object_list.plan is not None and done and not now and not waiting:
            return "ending" if seen.rows else "writing to disk"
        if course.object_list.plan is not None and self.owner.kind == "pg_restore":
            return next((name for name in PHASES if course.ledger.sums(name).waiting), None)
        return job_phase_of(seen.rows)

    def _written_bytes(self, seen: ObservedProgram, course: DumpProgress) -> int | None:
        """Bytes written so far, where that can be told."""
        if self.owner.kind in DUMPS:
            grown = course.growth
            if grown is not None and grown.exists:
                self._written = grown.size
            elif seen.flow.outputs:
                self._written = sum(one.size for one in seen.flow.outputs)
            if self._written is not None:
                self._written_growth.add(seen.at_us, self._written)
        return self._written

    def _needed_bytes(
        self,
        job: JobNow,
        seen: ObservedProgram,
        written: int | None,
        data: tuple[float | None, float | None],
        pct: float | None,
        runs: Sequence[JobRun],
    ) -> tuple[float | None, tuple[str, ...]]:
        """Bytes it will still write, and what is to be said of how that was found."""
        if job.free_bytes is None:
            return None, ()
        if self.owner.kind in RESTORES:
            if self._space_estimate is None:
                self._space_estimate = RestoreSpaceEstimate(seen.question.conninfo)
            return self._space_estimate.estimate(
                self._database, pct, job.free_bytes, running_s=seen.running_s, begun_us=seen.at_us
            )
        ratios = [run.bytes / run.size_bytes for run in runs if run.bytes and run.size_bytes]
        return estimate_dump_bytes(written, *data, ratios[-1] if ratios else None), ()

    def _output_path(self, flow: DataFlow) -> str | None:
        """The file or directory it writes, as the process sees it."""
        if self.owner.kind not in DUMPS:
            return None
        told = self.program.arguments.output
        if told is not None:
            return self.program.absolute_path(told)
        return flow.outputs[0].path if flow.outputs else None

    def _space(self, writes: str | None, question: ObservationRequest) -> DiskSpace | None:
        """Of what it fills: of a restore the disk on which its database lies."""
        if self.owner.kind in RESTORES:
            place = self._place(question)
            return None if place is None else read_disk_space(place)
        return None if writes is None or not posixpath.isabs(writes) else read_disk_space(self.program.root + writes)

    def _place(self, question: ObservationRequest) -> str | None:
        server = question.server if question.here else None
        return None if server is None else database_directory(server, self._database)

    def _unknown_disk(self, question: ObservationRequest) -> tuple[str, ...]:
        """Why the disk a restore fills is not told."""
        asked = self.owner.kind in RESTORES and question.here and question.server is not None
        return (_UNKNOWN_DISK,) if asked and self._place(question) is None else ()


_UNKNOWN_DISK = "the disk it fills is not known: the server has not told where this database lies"
_ORDER = ("data", "indexes", "constraints", "rest", "schema")
"""Of two phases under way the earlier one is told; the schema is there before them."""


def _with_backup_space(job: JobNow, seen: ObservedProgram) -> JobNow:
    """What a base backup still has to write: all that is still to be streamed, less where it is compressed."""
    views = [row for row in seen.operations.values() if row.kind == "basebackup" and row.total and row.done is not None]
    if not views or job.free_bytes is None:
        return job
    need = float(sum(max(0, (row.total or 0) - (row.done or 0)) for row in views))
    packed = job.compression not in (None, "none")
    return structs.replace(job, need_bytes=need, fits=True if need <= job.free_bytes else None if packed else False)


def _read_progress(program: RunningProgram, flow: DataFlow) -> tuple[str | None, int | None, int | None]:
    """What is read, how far, of how much. How far a restore is in an archive its objects tell: several read at once."""
    if program.kind == "pg_restore" and program.arguments.input is not None:
        path = program.absolute_path(program.arguments.input)
        return None if path is None else clean(path), None, None
    if not flow.inputs:
        return None, None, None
    first = flow.inputs[0]
    return first.path, first.bytes_read, first.total


def _sources(seen: ObservedProgram) -> list[str]:
    """Where what is told comes from."""
    found = ["pg_stat_activity"] if seen.rows else []
    if program_key(seen.program) in seen.joined.by_name:
        found.append("its sessions joined by name and moment")
    found += [f"fdinfo of pid {one.pid} ({clean(one.program)})" for one in seen.flow.inputs[:4]]
    return found


def _final_facts(course: DumpProgress, exit: int | None, wall_us: int, told: RunFacts) -> dict[str, object]:
    ledger, plan = course.ledger, course.object_list.plan
    phases = ledger.phases(wall_us)
    data = next((one for one in phases if one.name == "data"), None)
    last = course.last_error
    return {
        "exit": exit,
        "errors": course.errors,
        "last_error": None if last is None else last[:MAX_ERROR_LENGTH],
        "whole": _succeeded(course, exit),
        "size_bytes": told.size_bytes if data is None or plan is None or data.weight is None else int(data.weight),
        "phases": tuple(
            RunPhase(one.name, round(one.wall_s, 3), round(one.busy_s, 3), None if not one.weight else int(one.weight))
            for one in phases
            if one.wall_s is not None and one.objects
        ),
        "format": told.format or (None if plan is None else plan.format),
    }


def _succeeded(course: DumpProgress, exit: int | None) -> bool | None:
    """Whether it did all it set out to; None where nothing tells."""
    ledger = course.ledger
    if exit is not None:
        return exit == 0 or (ledger.program == "pg_restore" and exit == 1 and ledger.ignored is not None)
    if ledger.program == "pg_restore" and ledger.ignored is not None:
        return True
    died = any(one.text.startswith(WORKER_DIED) for one in ledger.errors)
    return False if died or (ledger.program == "pg_dump" and ledger.error_count) else None
