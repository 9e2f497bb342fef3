"""Track one running dump, restore or other long program: its current state in each scan, and its facts at the end."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from msgspec import structs

from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration
from dba_console.jobs.archives.critical_path import CriticalObject, critical_objects
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_durations import RunObject, RunPhase
from dba_console.jobs.archives.object_progress import ObjectProgress
from dba_console.jobs.archives.objects import DumpObject
from dba_console.jobs.archives.program_messages import WORKER_DIED
from dba_console.jobs.archives.progress_forecast import PhaseForecast, ProgressForecast
from dba_console.jobs.archives.toc import DumpEntry, Phase
from dba_console.jobs.following.dump_progress import DumpProgress
from dba_console.jobs.following.job_detection import ObservationRequest
from dba_console.jobs.following.job_estimate import (
    DiskSpace,
    GrowthRate,
    JobEstimator,
    RestoreSpaceEstimate,
    comparable_runs,
    database_directory,
    estimate_dump_bytes,
    read_disk_space,
    written_pct,
)
from dba_console.jobs.following.pipeline import DataFlow
from dba_console.jobs.following.program_scanner import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram, program_key
from dba_console.jobs.following.stderr_reader import NewMessages
from dba_console.jobs.history.run_statistics import (
    MAX_ERROR_LENGTH,
    MAX_OBJECT_NAME,
    JobRun,
    RunFacts,
    comparable_job_runs,
    typical_s,
)
from dba_console.keeper.command_status import wait
from dba_console.watch.job_sessions import ClientProgram, job_phase_of
from dba_console.watch.samples.jobs import OBJECTS_LISTED, JobKey, JobNow, ObjectNow, PhaseNow

# The exit code of an ended program: known if our keeper ran it. Reads a small file: only in a lane.

KEEPER = "keeper in "
RECORD_WAIT_S = 2.0
"""A keeper writes its record after the last line of its log."""


def read_exit_code(source: str | None, pid: int) -> int | None:
    """Return the exit code of process `pid`, negative for a signal; `source` is where its messages were read."""
    if source is None or not source.startswith(KEEPER):
        return None
    try:
        status = wait(source.removeprefix(KEEPER), RECORD_WAIT_S)
    except OSError:
        return None
    if status.exit is None or status.running is None or status.running.child_pid != pid:
        return None  # it was only a part of the command: the exit code says nothing about it
    return -status.exit.signal if status.exit.signal is not None else status.exit.code


# The rows shown of a job: its phases, and its running, failed, largest waiting and last finished objects.
#
# Of 50,000 objects only those shown are processed in each scan.

MAX_FAILED_ROWS = 20
MAX_WAITING_ROWS = 30
MAX_DONE_ROWS = 20
MAX_CHAIN_ROWS = 12
NAME_LENGTH = 200
MIN_SHARE = 0.05
"""Below this share done an object has no ETA."""
MAX_RUNNING_PCT = 99.0
"""A running object is never at 100 %."""


class LargestWaiting:
    """The largest waiting entries. Each is taken from the sorted list once, because a started one never waits again."""

    def __init__(self, plan: DumpPlan) -> None:
        heavy = (entry for entry in plan.entries if entry.weight)
        self._order = iter(sorted(heavy, key=lambda entry: -(entry.weight or 0.0)))
        self._largest: list[DumpEntry] = []

    def largest(self, items: Mapping[int, DumpObject]) -> list[DumpEntry]:
        """Return the largest waiting entries."""
        self._largest = [entry for entry in self._largest if _waits(items, entry)]
        while len(self._largest) < MAX_WAITING_ROWS and (entry := next(self._order, None)) is not None:
            if _waits(items, entry):
                self._largest.append(entry)
        return list(self._largest)


def _waits(items: Mapping[int, DumpObject], entry: DumpEntry) -> bool:
    item = items.get(entry.dump_id)
    return item is not None and item.state == "waiting"


def phases_now(phases: Iterable[PhaseForecast], *, measured: bool, planned: bool) -> tuple[PhaseNow, ...]:
    """Return the phases that have objects. `measured`: data bytes are measured on the files that are read; `planned`:
    all objects are known, not only those observed so far.
    """
    return tuple(_phase(one, measured and one.name == "data", planned) for one in phases if one.objects)


def _phase(one: PhaseForecast, measured: bool, planned: bool) -> PhaseNow:
    weight = one.weight if planned and one.name not in ("schema", "rest") else None
    pct = one.pct if planned else None
    known = "measured" if measured or one.state == "done" else one.grade
    return PhaseNow(
        name=one.name, state=one.state if planned or one.running else "unknown",
        items=one.objects if planned else None, items_done=one.done + one.failed, items_running=one.running,
        done=None if weight is None else one.weight_done, total=weight, unit=None if weight is None else "bytes",
        pct=pct, grade="unknown" if pct is None else known, started_us=one.started_us, wall_s=one.wall_s,
        busy_s=one.busy_s, eta_s=one.eta_s, eta_grade=one.eta_grade,
    )  # fmt: skip


def objects_now(
    ledger: ObjectProgress, waiting: LargestWaiting | None, done: Iterable[int], now_us: int
) -> tuple[ObjectNow, ...]:
    """Return the objects to show, at most OBJECTS_LISTED."""
    return tuple(islice((_object(item, now_us) for item in _shown(ledger, waiting, done)), OBJECTS_LISTED))


def _shown(ledger: ObjectProgress, waiting: LargestWaiting | None, done: Iterable[int]) -> Iterator[DumpObject]:
    items = ledger.objects()
    yield from sorted(ledger.running_objects, key=lambda item: -(item.entry.weight or 0.0))
    yield from ledger.failed_objects[-MAX_FAILED_ROWS:]
    yield from (items[entry.dump_id] for entry in ([] if waiting is None else waiting.largest(items)))
    last = (items.get(dump_id) for dump_id in islice(reversed(tuple(done)), MAX_DONE_ROWS))
    yield from (item for item in last if item is not None and item.state == "done")


def chain_now(links: Iterable[CriticalObject]) -> tuple[str, ...]:
    """Return the critical path as text."""
    return tuple(_link(link) for link in islice(links, MAX_CHAIN_ROWS))


def _link(link: CriticalObject) -> str:
    name = f"{link.entry.desc} {name_of(link.entry)}"
    if link.seconds is None:
        return name
    return f"{name}, {'' if link.measured else 'about '}{human_duration(link.seconds)}"


def name_of(entry: DumpEntry) -> str:
    """Return an object's name with its schema, sanitized."""
    return clean(f"{entry.schema}.{entry.tag}" if entry.schema else entry.tag)[:NAME_LENGTH]


def _object(item: DumpObject, now_us: int) -> ObjectNow:
    entry, running = item.entry, item.state == "running"
    elapsed_s = item.seconds
    if running and item.started_us is not None:
        elapsed_s = max(0.0, (now_us - item.started_us) / 1e6)
    share = item.share if running else None
    pct = 100.0 if item.state == "done" else None if share is None else min(MAX_RUNNING_PCT, 100.0 * share)
    observed_now = running and item.observed_us == now_us
    measured = item.state == "done" or (observed_now and item.measured)
    note = clean(item.error) if item.error is not None else item.note if observed_now else None
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
    """Return the remaining seconds of an object, from its own rate."""
    if share is None or elapsed_s is None or share < MIN_SHARE:
        return None
    return max(0.0, elapsed_s * (1.0 - share) / share)


DUMPS = frozenset({"pg_dump", "pg_dumpall", "pg_basebackup"})
RESTORES = frozenset({"pg_restore", "psql"})
PROGRAMS_WITH_OBJECTS = frozenset({"pg_dump", "pg_restore", "psql"})
"""Programs whose objects are tracked."""
MAX_UNOBSERVED_SHARE = 0.5
"""Longest time since the last scan, as a share of the time before it; in a longer one it may have finished its data."""
MIN_RECORDED_SHARE = 0.02
"""Share of a run from which the time of one object is stored."""
CHAIN_EVERY = 30
"""Scans between two computations of the critical path."""


class TrackedJob:
    """A running job and all that is known about it. Not thread-safe."""

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
        self._scans = 0
        self._phase_now: Phase | None = None
        self._written: int | None = None
        self._read: int | None = None
        self._read_size: int | None = None
        self._observed_us = 0

    @property
    def key(self) -> JobKey:
        """Identity of the job: its runs are compared with each other."""
        return self.owner.kind, self._database, self._user

    def observe(self, observed: ObservedProgram) -> JobNow:
        """Apply one scan; return the job's current state."""
        self.program, self._observed_us = observed.program, observed.request.wall_us
        if observed.rows:
            self._database, self._user = observed.rows[0].database or self._database, observed.rows[0].user
        job = self._common_fields(observed)
        if self._progress is None:
            return _with_backup_space(job, observed) if job.kind == "pg_basebackup" else job
        try:
            return self._with_objects(job, observed, self._progress)
        except Exception as error:  # an unexpected archive or statement costs only this job its details
            why = f"its progress is unknown: {type(error).__name__}: {clean(str(error)[:200])}"
            return structs.replace(job, unknown=(*job.unknown, why))

    def finish(self, wall_us: int, messages: NewMessages) -> RunFacts:
        """Return the facts to store after the program's end; `messages` are its last ones."""
        moved = self._written if self.owner.kind in DUMPS else self._read
        arguments, progress = self.program.arguments, self._progress
        facts = RunFacts(bytes=moved, format=arguments.format, version=self.program.version, jobs=arguments.jobs)
        if progress is None:
            exit = read_exit_code(messages.source, self.program.pid)
            return structs.replace(facts, exit=exit, whole=None if exit is None else exit == 0)
        reached = self._reached(progress, wall_us)
        exit = read_exit_code(progress.message_feed.source, self.program.pid)
        progress.end(wall_us, exit, messages)
        facts = structs.replace(facts, reached=reached, source=self._source(progress))
        if self.owner.kind == "psql":
            facts = structs.replace(facts, size_bytes=self._read_size)
        return structs.replace(facts, **_final_facts(progress, exit, wall_us, facts))

    def _source(self, progress: DumpProgress) -> str | None:
        """Return the dumped database of a restore, if recorded in its archive."""
        plan = progress.object_list.plan
        return plan.database if plan is not None and self.owner.kind == "pg_restore" else None

    def _reached(self, progress: DumpProgress, wall_us: int) -> float | None:
        """Return the share of its data done at the last scan; None if unknown or too long ago."""
        if wall_us - self._observed_us > MAX_UNOBSERVED_SHARE * (self._observed_us - self.program.started_us):
            return None
        if self.owner.kind == "psql":
            return None if not self._read_size or self._read is None else min(1.0, self._read / self._read_size)
        data = next((one for one in progress.ledger.phases(wall_us) if one.name == "data"), None)
        if data is None or not data.weight or not data.weight_done:
            return None
        return round(min(1.0, data.weight_done / data.weight), 4)

    def _common_fields(self, observed: ObservedProgram) -> JobNow:
        """Return the fields common to all programs."""
        program, flow, arguments = observed.program, observed.flow, observed.program.arguments
        reads, read, read_size = _read_progress(program, flow)
        writes = self._output_path(flow)
        space = self._space(writes, observed.request)
        return JobNow(
            kind=program.kind, pid=program.pid, backends=tuple(row.pid for row in observed.rows),
            database=self._database, user=self._user, version=program.version, format=arguments.format,
            compression=arguments.compression, jobs=arguments.jobs, command=program.command,
            started_us=program.started_us, elapsed_s=observed.running_s,
            reads=reads, read_bytes=read, read_size_bytes=read_size,
            writes=None if writes is None else clean(writes),
            mount=None if space is None else clean(space.mount), free_bytes=None if space is None else space.free_bytes,
            sources=tuple(_sources(observed)),
            unknown=tuple(dict.fromkeys((*program.unknown, *flow.unknown, *self._unknown_disk(observed.request)))),
        )  # fmt: skip

    def _with_objects(self, job: JobNow, observed: ObservedProgram, progress: DumpProgress) -> JobNow:
        """Add the state of its objects."""
        if progress.observe(observed):
            plan = progress.object_list.plan
            self._waiting = None if plan is None else LargestWaiting(plan)
        before = comparable_job_runs(observed.request.runs, self.key, source := self._source(progress), job.format)
        runs = comparable_runs(before, progress.size_bytes(observed), job.format)
        estimate = self._estimator.estimate(progress.ledger, observed, runs)
        data = next((one for one in estimate.phases if one.name == "data"), None)
        done, total = (
            (None, None) if data is None or progress.object_list.plan is None else (data.weight_done, data.weight)
        )
        if done is not None and total is not None:
            self._data_growth.add(observed.at_us, int(done))
        read, read_size = job.read_bytes, job.read_size_bytes
        if job.kind == "pg_restore" and total is not None and done is not None:
            read, read_size = int(done), int(total)
        if read is not None:
            self._read, self._read_size = read, read_size
        written = self._written_bytes(observed, progress)
        stored_pct = written_pct(progress.ledger) if total is not None else estimate.pct
        need, guessed = self._needed_bytes(job, observed, written, (done, total), stored_pct, runs)
        plan, planned = progress.object_list.plan, progress.object_list.plan is not None
        feed = progress.message_feed
        shown = _shown_amount(job, estimate, (done, total))
        return structs.replace(
            job,
            version=job.version or (plan.dump_version if plan is not None and job.kind == "pg_dump" else None),
            format=job.format or (plan.format if plan is not None else None),
            compression=job.compression or (plan.compression if plan is not None else None),
            run=feed.run,
            read_bytes=read,
            read_size_bytes=read_size,
            written_bytes=written,
            written_per_s=self._written_growth.per_s,
            need_bytes=need,
            fits=None if need is None or job.free_bytes is None else need <= job.free_bytes,
            phase=self._phase(observed, progress),
            phases=phases_now(estimate.phases, measured=job.kind == "pg_restore", planned=planned),
            objects=objects_now(
                progress.ledger, self._waiting, progress.done_last, observed.request.wall_us
            ),
            counts=progress.ledger.counts(),
            pct=estimate.pct,
            grade=estimate.grade,
            eta_s=estimate.eta_s,
            eta_grade=estimate.eta_grade,
            errors=progress.errors,
            last_error=progress.last_error,
            critical=self._critical(progress, observed),
            sources=tuple(dict.fromkeys((*job.sources, *progress.sources))),
            unknown=tuple(dict.fromkeys((*job.unknown, *progress.unknown_reasons, *estimate.notes, *guessed))),
            done=shown[0],
            total=shown[1],
            unit=shown[2],
            rate_per_s=None if shown[2] == "s" else self._data_growth.per_s,
            source=source,
            usual_s=None if source is None else typical_s(before),
            usual_runs=len(before),
        )  # fmt: skip

    def _critical(self, progress: DumpProgress, observed: ObservedProgram) -> tuple[str, ...]:
        """Return the critical path, by weight first, every CHAIN_EVERY scans by time: it iterates over all objects."""
        plan = progress.object_list.plan
        if plan is None or self.owner.kind != "pg_restore":
            return ()
        if self._scans % CHAIN_EVERY == 0:
            links = critical_objects(plan if self._scans == 0 else progress.ledger, observed.request.wall_us)
            self._chain = chain_now(links) or self._chain
        self._scans += 1
        return self._chain

    def _phase(self, observed: ObservedProgram, progress: DumpProgress) -> str | None:
        """Return the current phase, from its running objects, its statements, or what is left."""
        running, planned = progress.ledger.running_objects, progress.object_list.plan is not None
        now, done, waiting, _ = progress.ledger.counts()
        if planned and done and not now and not waiting:
            return "ending" if observed.rows else "writing to disk"
        if planned and self.owner.kind == "pg_restore":
            self._phase_now = _restore_phase(progress.ledger, self._phase_now)
            return self._phase_now
        if running:
            return min((item.entry.phase for item in running), key=_ORDER.index)
        return job_phase_of(observed.rows)

    def _written_bytes(self, observed: ObservedProgram, progress: DumpProgress) -> int | None:
        """Return the bytes written so far, if known."""
        if self.owner.kind in DUMPS:
            grown = progress.growth
            if grown is not None and grown.exists:
                self._written = grown.size
            elif observed.flow.outputs:
                self._written = sum(one.size for one in observed.flow.outputs)
            if self._written is not None:
                self._written_growth.add(observed.at_us, self._written)
        return self._written

    def _needed_bytes(
        self,
        job: JobNow,
        observed: ObservedProgram,
        written: int | None,
        data: tuple[float | None, float | None],
        pct: float | None,
        runs: Sequence[JobRun],
    ) -> tuple[float | None, tuple[str, ...]]:
        """Return the bytes it will still write, and notes on the estimate."""
        if job.free_bytes is None:
            return None, ()
        if self.owner.kind in RESTORES:
            if self._space_estimate is None:
                self._space_estimate = RestoreSpaceEstimate(observed.request.conninfo)
            return self._space_estimate.estimate(
                self._database, pct, job.free_bytes, running_s=observed.running_s, begun_us=observed.at_us
            )
        ratios = [run.bytes / run.size_bytes for run in runs if run.bytes and run.size_bytes]
        return estimate_dump_bytes(written, *data, ratios[-1] if ratios else None), ()

    def _output_path(self, flow: DataFlow) -> str | None:
        """Return the file or directory it writes, as a path of its process."""
        if self.owner.kind not in DUMPS:
            return None
        output = self.program.arguments.output
        if output is not None:
            return self.program.absolute_path(output)
        return flow.outputs[0].path if flow.outputs else None

    def _space(self, writes: str | None, request: ObservationRequest) -> DiskSpace | None:
        """Return the space of the disk it fills; of a restore the disk of its database."""
        if self.owner.kind in RESTORES:
            directory = self._directory(request)
            return None if directory is None else read_disk_space(directory)
        return None if writes is None or not posixpath.isabs(writes) else read_disk_space(self.program.root + writes)

    def _directory(self, request: ObservationRequest) -> str | None:
        server = request.server if request.here else None
        return None if server is None else database_directory(server, self._database)

    def _unknown_disk(self, request: ObservationRequest) -> tuple[str, ...]:
        """Return why the disk a restore fills is unknown."""
        asked = self.owner.kind in RESTORES and request.here and request.server is not None
        return (_UNKNOWN_DISK,) if asked and self._directory(request) is None else ()


_UNKNOWN_DISK = "the disk it fills is unknown: the server has not reported the location of this database yet"
_ORDER: tuple[Phase, ...] = ("data", "indexes", "constraints", "rest", "schema")
"""Of two running phases the earlier one is shown; the schema exists before them."""
_UNSEEN_SHARE = 0.01
"""Share of a phase's bytes that may be in objects too short to be observed."""


def _restore_phase(ledger: ObjectProgress, last: Phase | None) -> Phase:
    """Return the earliest phase with work left, never one before the last: with -j later ones have begun meanwhile."""
    running = {item.entry.phase for item in ledger.running_objects} - {"schema"}
    if last in (None, "schema") and not running and not ledger.sums("data").done:
        return "schema"
    left = [name for name in _ORDER[:3] if (sums := ledger.sums(name)).weight_waiting > _UNSEEN_SHARE * sums.weight]
    begun: list[Phase] = [*left, *running, "rest"]
    found = min(begun, key=_ORDER.index)
    return found if last in (None, "schema") else max(found, last, key=_ORDER.index)


def _shown_amount(
    job: JobNow, estimate: ProgressForecast, data: tuple[float | None, float | None]
) -> tuple[float | None, float | None, str | None]:
    """Return done, total and unit of what the percentage is of: the data of a dump; the time of a restore, whose
    indexes and keys read the same bytes again."""
    if job.kind == "pg_restore":
        if not estimate.pct or job.elapsed_s is None:
            return None, None, None
        return round(job.elapsed_s, 3), round(100 * job.elapsed_s / estimate.pct, 3), "s"
    return (*data, "bytes") if data[1] is not None else (None, None, None)


def _with_backup_space(job: JobNow, observed: ObservedProgram) -> JobNow:
    """Add the bytes a base backup still has to write: all that is not yet streamed, less if compressed."""
    views = [
        row for row in observed.operations.values() if row.kind == "basebackup" and row.total and row.done is not None
    ]
    if not views or job.free_bytes is None:
        return job
    need = float(sum(max(0, (row.total or 0) - (row.done or 0)) for row in views))
    packed = job.compression not in (None, "none")
    return structs.replace(job, need_bytes=need, fits=True if need <= job.free_bytes else None if packed else False)


def _read_progress(program: RunningProgram, flow: DataFlow) -> tuple[str | None, int | None, int | None]:
    """Return the input, bytes read and size. For a restore from an archive its objects give the progress, because
    several processes read it."""
    if program.kind == "pg_restore" and program.arguments.input is not None:
        path = program.absolute_path(program.arguments.input)
        return None if path is None else clean(path), None, None
    if not flow.inputs:
        return None, None, None
    first = flow.inputs[0]
    return first.path, first.bytes_read, first.total


def _sources(observed: ObservedProgram) -> list[str]:
    """Return the sources of the shown values."""
    found = ["pg_stat_activity"] if observed.rows else []
    if program_key(observed.program) in observed.matched.by_name:
        found.append("its sessions matched by name and time")
    found += [f"fdinfo of pid {one.pid} ({clean(one.program)})" for one in observed.flow.inputs[:4]]
    return found


def _final_facts(progress: DumpProgress, exit: int | None, wall_us: int, facts: RunFacts) -> dict[str, object]:
    ledger, plan = progress.ledger, progress.object_list.plan
    phases = ledger.phases(wall_us)
    data = next((one for one in phases if one.name == "data"), None)
    last = progress.last_error
    seconds = max(0, wall_us - (ledger.began_us or wall_us)) / 1e6
    return {
        "exit": exit,
        "errors": progress.errors,
        "last_error": None if last is None else last[:MAX_ERROR_LENGTH],
        "whole": _succeeded(progress, exit),
        "size_bytes": facts.size_bytes if data is None or plan is None or data.weight is None else int(data.weight),
        "phases": tuple(
            RunPhase(one.name, round(one.wall_s, 3), round(one.busy_s, 3), None if not one.weight else int(one.weight))
            for one in phases
            if one.wall_s is not None and one.objects
        ),
        "longest": tuple(
            RunObject(one.entry.desc, name, one.entry.phase, round(one.seconds or 0.0, 3), int(one.entry.weight or 0))
            for one in ledger.longest
            if one.state == "done"
            and (one.seconds or 0.0) >= MIN_RECORDED_SHARE * seconds
            and len(name := one.entry.qualified_name) <= MAX_OBJECT_NAME
        ),
        "format": facts.format or (None if plan is None else plan.format),
    }


def _succeeded(progress: DumpProgress, exit: int | None) -> bool | None:
    """Return whether it did everything it was asked to; None if unknown."""
    ledger = progress.ledger
    if exit is not None:
        return exit == 0 or (ledger.program == "pg_restore" and exit == 1 and ledger.ignored is not None)
    if ledger.program == "pg_restore" and ledger.ignored is not None:
        return True
    died = any(one.text.startswith(WORKER_DIED) for one in ledger.errors)
    return False if died or (ledger.program == "pg_dump" and ledger.error_count) else None
