"""Sweep: find the best number of jobs for a parallel dump of this database on this host, with few short trial dumps.

Also the connection budget of a dump, eviction of tables from the page cache, and the bottleneck shown by the trials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from dba_console.actions.query_connection import QueryConnection
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import PermissionDenied, Refused, Unsupported, UsageError
from dba_console.core.sanitize import clean
from dba_console.core.target import Target
from dba_console.core.units import human_bytes, human_duration, human_pct
from dba_console.jobs.tools import host_usage
from dba_console.jobs.tools.client_programs import InstalledProgram, find_program
from dba_console.jobs.tools.job_count_results import MAX_JOBS, NOWHERE, WINDOW_S, SweepResult, SweepRow
from dba_console.jobs.tools.jobs_curve import TOLERANCE, JobsCurve, TrialRun
from dba_console.jobs.tools.scratch_directory import MIN_FREE_SHARE, free_space, memory_directory, scratch_directory
from dba_console.jobs.tools.server_connection import (
    DumpTable,
    choose_tables,
    client_environment,
    open_server,
    read_tables,
)
from dba_console.jobs.tools.trial_dump import TrialSettings, run_trial

# The connection budget of a parallel dump: connections free for this role, minus a reserve for other sessions.

RESERVE = 3
"""Connections left free for others: a dump must not be the reason that max_connections is reached."""
_SQL = """
select current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true), '0')::int
         - (select count(*) from pg_stat_activity where backend_type = 'client backend')::int as free,
       case when r.rolconnlimit >= 0 then r.rolconnlimit
         - (select count(*) from pg_stat_activity where usename = current_user)::int end as free_of_role,
       case when d.datconnlimit >= 0 then d.datconnlimit
         - (select count(*) from pg_stat_activity where datname = current_database())::int end as free_of_database
from pg_roles r, pg_database d where r.rolname = current_user and d.datname = current_database()
"""


class ConnectionBudget(NamedTuple):
    """Free connections, and the limit that determines them."""

    free: int
    limit: str

    @property
    def max_jobs(self) -> int:
        """The most jobs for which pg_dump -j gets a connection each plus its own; 0 if there are too few."""
        return max(0, self.free - RESERVE - 1)


def read_connection_budget(server: QueryConnection) -> ConnectionBudget:
    """Return the connections free now. Reserved connections are never counted, also not for a superuser."""
    [row] = server.rows(_SQL)
    limits = {
        "max_connections": row["free"],
        "the role's connection limit": row["free_of_role"],
        "the database's connection limit": row["free_of_database"],
    }
    found = [ConnectionBudget(free, limit) for limit, free in limits.items() if free is not None]
    return min(found, key=lambda slots: slots.free)


def require_connections(server: QueryConnection, jobs: int) -> None:
    """Raise Refused if a dump with `jobs` jobs would use connections of the reserve."""
    slots = read_connection_budget(server)
    if slots.max_jobs < jobs:
        raise Refused(
            f"{max(0, slots.free)} connections are free by {slots.limit}: a dump with {jobs} jobs takes {jobs + 1}, "
            f"and {RESERVE} must stay free for others",
            hint="try fewer jobs, or a time with fewer sessions",
        )


# Evict tables from the page cache, so that a trial reads them like a dump of a database larger than memory.
#
# Drops only clean pages of these files and writes nothing; shared_buffers are not affected. It slows down sessions that
# use these tables, so it is done only on request (--fresh).

_PATHS = """
select pg_relation_filepath(c.oid) as rows, pg_relation_filepath(nullif(c.reltoastrelid, 0)) as toast
from pg_class c where c.oid = any(%s)
"""


def evict_tables(server: QueryConnection, data: str, tables: Sequence[DumpTable]) -> int:
    """Evict tables from the page cache; return their bytes. Raises PermissionDenied if files cannot be opened."""
    done = 0
    for row in server.rows(_PATHS, ([table.oid for table in tables],), limit=None):
        for path in row.values():
            if path:
                done += _evict_segments(os.path.join(data, path))
    return done


def _evict_segments(path: str) -> int:
    done, number = 0, 0
    while (size := _evict_file(f"{path}.{number}" if number else path)) is not None:
        done, number = done + size, number + 1
    return done


def _evict_file(path: str) -> int | None:
    """Evict a file; return its size, None if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise PermissionDenied(
            f"cannot open {path} to evict it from the page cache",
            hint="omit --fresh, or run this as the server's owner or as root",
        ) from error
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


# The bottleneck of a parallel dump, derived from measurements during the trial, or unknown. Pure functions.

BUSY_PCT = 90.0
"""Of all CPUs, or of a disk's time."""
OTHERS_PCT = 25.0
MEMORY_SHARE = 0.2
"""Disk reads per dumped byte; below it the pages were cached in memory."""
BUSY_SHARE = 0.85
"""CPU time per elapsed time from which a process counts as CPU-bound."""


class Bottleneck(NamedTuple):
    kind: str
    sentence: str


class LargestTable(NamedTuple):
    """The largest table."""

    name: str
    size: int


def _other_cpu_pct(run: TrialRun, cpus: int) -> float:
    """Return the share of all CPUs used by others than the trial; 0 if its server side was not measured."""
    if run.host_busy_pct is None or run.server_s is None or run.wall_s <= 0:
        return 0.0
    return run.host_busy_pct - 100 * run.cpu_s / (run.wall_s * cpus)


def find_bottleneck(curve: JobsCurve, largest: LargestTable | None, ceiling: str) -> Bottleneck:
    """Return the bottleneck at the recommended number of jobs. `ceiling`: what limited the number of jobs tried."""
    jobs = curve.recommended_jobs()
    run = curve.runs[jobs]
    return (
        _table_bottleneck(curve, run, largest)
        or _cpu_bottleneck(curve, run)
        or _disk_bottleneck(run.read_util_pct, "read", "the disk of the data directory")
        or _disk_bottleneck(run.write_util_pct, "write", "the disk the dump is written to")
        or (_job_limit(curve, run, ceiling) if jobs == curve.most else None)
        or Bottleneck("unknown", "something not measured: locks, the network or the storage behind the disk")
    )


def _table_bottleneck(curve: JobsCurve, run: TrialRun, largest: LargestTable | None) -> Bottleneck | None:
    total = sum(curve.sizes)
    if largest is None or not total or largest.size / total < 1.2 / max(2, run.jobs):
        return None
    alone = largest.size / max(curve.runs[1].rate if 1 in curve.runs else run.max_job_rate, 1e-9)
    if alone < 0.8 * curve.seconds(run.jobs):
        return None
    share = human_pct(100 * largest.size / total)
    return Bottleneck(
        "table",
        f"one large table: {clean(largest.name)} is {share} of all data and takes about {human_duration(alone)} "
        "alone, with any number of jobs",
    )


def _cpu_bottleneck(curve: JobsCurve, run: TrialRun) -> Bottleneck | None:
    if run.host_busy_pct is None or run.host_busy_pct < BUSY_PCT:
        return None
    spent = run.wall_s * curve.cpus
    own = human_pct(min(100.0, 100 * run.cpu_s / spent)) if spent > 0 else "?"
    return Bottleneck(
        "cpu",
        f"the CPUs of this host: {human_pct(run.host_busy_pct)} busy with -j {run.jobs}, {own} used by the dump",
    )


def _disk_bottleneck(util_pct: float | None, kind: str, what: str) -> Bottleneck | None:
    if util_pct is None or util_pct < BUSY_PCT:
        return None
    return Bottleneck(kind, f"{what}: busy {human_pct(util_pct)} of the time")


def _job_limit(curve: JobsCurve, run: TrialRun, ceiling: str) -> Bottleneck:
    per_job = max(1e-3, run.jobs * (run.wall_s - run.startup_s))
    if run.client_s / per_job >= BUSY_SHARE:
        limit_text = "; each job is limited by its pg_dump process, which compresses"
    elif run.server_s is not None and run.server_s / per_job >= BUSY_SHARE:
        limit_text = "; each job is limited by its backend, which reads and formats"
    else:
        limit_text = ""
    kind = {"connections": "connections", "tables": "tables"}.get(ceiling.split(":")[0], "most")
    return Bottleneck(kind, f"{ceiling.partition(':')[2].strip()}{limit_text}")


def measurement_notes(runs: Sequence[TrialRun], table_bytes: int, cpus: int, memory: int | None) -> tuple[str, ...]:
    """Return notes that qualify the measured values."""
    found = []
    others = max((_other_cpu_pct(run, cpus) for run in runs), default=0.0)
    if others >= OTHERS_PCT:
        found.append(f"other processes used up to {human_pct(others)} of the CPUs: on an idle host more jobs may help")
    known = [run for run in runs if run.read_bytes is not None and run.done > 0]
    cached = [run for run in known if (run.read_bytes or 0) < MEMORY_SHARE * run.done]
    if cached and len(cached) >= len(known) - 1:
        text = (
            "these runs read from memory" if len(cached) == len(known) else "all but one of these runs read from memory"
        )
        if memory is not None and table_bytes > memory:
            text += ", but the database is larger than memory: a real dump reads from disk (--fresh measures that)"
        found.append(text)
    if runs and not known:
        found.append("unknown whether these runs read from memory or from disk")
    if any(run.server_s is None for run in runs):
        found.append("the server runs on another host: its CPUs and disks were not measured")
    return tuple(found)


SINGLE_JOB_S = 5.0
"""A single job runs for this time only: its rate does not change."""
DEFAULT_MAX_JOBS = 8
"""Default maximum of jobs tried, or twice the CPUs if that is more."""

_OTHERS = """
select count(*)::int as n from pg_stat_activity where application_name = 'dba-console:sweep' and pid <> pg_backend_pid()
"""


class SweepOptions(Struct, frozen=True, kw_only=True):
    """Options of a sweep."""

    to: str = NOWHERE
    share: float = 1.0
    max_jobs: int | None = None
    window_s: float = WINDOW_S
    compression: str | None = None
    niceness: int = 10
    evict_cache: bool = False
    bindir: str | None = None


ReportText = Callable[[str, bool], None]
"""Receives a text of the progress, and whether the next text replaces it."""


def sweep(target: Target, options: SweepOptions, report: ReportText, clock: Clock = SYSTEM) -> SweepResult:
    """Run the trial dumps and return the result. Raises ConsoleError with the reason if it is not possible."""
    with open_server(target.conninfo, "dba-console:sweep") as server:
        return _Sweep(target, options, server, report, clock).run()


class _Sweep:
    """A running sweep."""

    def __init__(
        self, target: Target, options: SweepOptions, server: QueryConnection, report: ReportText, clock: Clock
    ) -> None:
        self._target, self._options, self._server, self._report, self._clock = target, options, server, report, clock
        self._program: InstalledProgram = find_program("pg_dump", at_least=server.identity.major, bindir=options.bindir)
        self._is_local = host_usage.is_local_server(server)
        self._data = server.identity.data_directory if self._is_local else None
        if options.evict_cache and self._data is None:
            raise Unsupported(
                "--fresh requires a server on this host and a role that may read data_directory (pg_monitor)"
            )
        self._all_tables, note = read_tables(server)
        self._notes = [note] if note else []
        self._all_tables = [table for table in self._all_tables if table.size > 0]
        if not self._all_tables:
            raise UsageError(f"database {server.identity.database} has no table with rows")
        self._cpus = host_usage.usable_cpus()
        self._max_jobs, self._ceiling = self._find_max_jobs()
        self._tables = choose_tables(self._all_tables, options.share, 2 * self._max_jobs)
        whole = len(self._tables) == len(self._all_tables)
        sizes = [float(table.size) for table in self._all_tables]
        self._curve = JobsCurve(sizes, self._cpus, self._max_jobs, all_tables=whole)
        self._began_us = clock.mono_us()
        self._runs: list[TrialRun] = []

    def run(self) -> SweepResult:
        """Run the sweep."""
        if self._server.rows(_OTHERS)[0]["n"]:
            raise Refused(
                "another sweep is running on this server: their measurements would be wrong",
                hint="wait until it has ended",
            )
        place = memory_directory() if self._options.to == NOWHERE else self._check_scratch(Path(self._options.to))
        self._report(self._plan(place), False)
        discard = self._options.to == NOWHERE
        self._meter = host_usage.HostMeter(
            host_usage.disk_under(self._data), None if discard else host_usage.disk_under(str(place)), self._clock
        )
        with ExitStack() as stack:
            directory = stack.enter_context(scratch_directory(place))
            self._run_trials(directory)
        return self._result()

    def _run_trials(self, directory: Path) -> None:
        while (jobs := self._curve.next_jobs()) is not None:
            try:
                require_connections(self._server, jobs)
            except Refused as error:
                if not self._runs:
                    raise
                # Other sessions connected meanwhile: report the trials done so far, with a note.
                self._notes.append(f"-j {jobs} and more were not tried: {error.message}")
                return
            self._run_trial(directory, jobs)
            self._repeat_if_cached(directory)

    def _run_trial(self, directory: Path, jobs: int) -> None:
        if self._options.evict_cache and self._data is not None:
            evict_tables(self._server, self._data, self._tables)
        limit_s = self._limit_s()

        def report_progress(done: float, total: float) -> None:
            pct = f"{100 * done / total:.0f} %" if total else "?"
            self._report(f"-j {jobs}: {pct} of {human_bytes(total)}", True)

        settings = TrialSettings(
            self._program.path, client_environment(self._target.conninfo), self._arguments(), self._options.niceness,
            self._options.to == NOWHERE, self._is_local,
        )  # fmt: skip
        run = run_trial(
            settings, self._server, self._meter, directory, self._tables, jobs, lambda: limit_s, self._clock,
            report_progress,
        )  # fmt: skip
        self._runs.append(run)
        self._curve.add(run)
        self._report(_run_text(run), False)

    def _repeat_if_cached(self, directory: Path) -> None:
        """Repeat a trial if it read from disk what the next one read from memory: they are not comparable."""
        if len(self._runs) < 2 or self._options.evict_cache:
            return
        first, second = self._runs[-2:]
        if first.read_bytes is None or second.read_bytes is None or first.done <= 0 or second.done <= 0:
            return
        if (
            first.read_bytes > 0.3 * first.done
            and second.read_bytes / second.done < 0.5 * first.read_bytes / first.done
        ):
            self._run_trial(directory, first.jobs)

    def _limit_s(self) -> float:
        """Return the seconds after which a trial is cut: it is not better than the best one so far."""
        if self._server.identity.major < 14:  # without the progress of COPY, the rate of a cut trial is unknown
            return 86400.0
        best_s = self._curve.seconds(self._curve.best_jobs()) if self._curve.runs else 0.0
        return min(self._options.window_s, max(SINGLE_JOB_S, best_s * (1 + TOLERANCE)))

    def _find_max_jobs(self) -> tuple[int, str]:
        """Return the maximum number of jobs to try, and its reason."""
        wanted = self._options.max_jobs or max(DEFAULT_MAX_JOBS, 2 * self._cpus)
        limits = [(min(wanted, MAX_JOBS), f"most: the maximum of {min(wanted, MAX_JOBS)} jobs to try")]
        count = len(self._all_tables)
        limits.append((count, f"tables: only {count} tables have rows, and a table is dumped by one job"))
        slots = read_connection_budget(self._server)
        limits.append(
            (slots.max_jobs, f"connections: {slots.free} are free by {slots.limit}, {RESERVE} stay free for others")
        )
        most, reason = min(limits, key=lambda limit: limit[0])
        if most < 1:
            raise Refused(
                f"{max(0, slots.free)} connections are free by {slots.limit}: a dump takes 2, {RESERVE} must stay free",
                hint="try at a time with fewer sessions",
            )
        return most, reason

    def _check_scratch(self, place: Path) -> Path:
        """Return the scratch directory if it has space for the dump. Raises UsageError or Refused."""
        if not place.is_absolute() or not place.is_dir():
            raise UsageError(f"{place} is not the absolute path of a directory")
        space, need = free_space(place), sum(table.size for table in self._tables)
        if space.free - need < space.size * MIN_FREE_SHARE:
            raise Refused(
                f"{place} has {human_bytes(space.free)} free; a dump of {human_bytes(need)} of tables may need as much",
                hint="dump less (--share), or to nowhere (--to nowhere)",
            )
        return place

    def _arguments(self) -> tuple[str, ...]:
        compression = ("-Z", self._options.compression) if self._options.compression is not None else ()
        if self._curve.whole:
            return compression
        return (*compression, *(word for table in self._tables for word in ("-t", table.pattern)))

    def _plan(self, place: Path) -> str:
        total, taken = (sum(table.size for table in tables) for tables in (self._all_tables, self._tables))
        what = (
            f"all {len(self._all_tables)} tables"
            if self._curve.whole
            else f"{len(self._tables)} of {len(self._all_tables)} tables"
        )
        where = f"nowhere (memory at {place}, discarded while written)" if self._options.to == NOWHERE else str(place)
        return (
            f"{what}, {human_bytes(taken)} of {human_bytes(total)}, by pg_dump {self._program.version} to {where}; "
            f"{self._cpus} CPUs; at most {self._max_jobs} jobs"
        )

    def _result(self) -> SweepResult:
        curve, total = self._curve, sum(table.size for table in self._all_tables)
        biggest = self._all_tables[0]
        limit = find_bottleneck(curve, LargestTable(f"{biggest.schema}.{biggest.name}", biggest.size), self._ceiling)
        complete = [run for run in self._runs if run.complete and run.done > 0]
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if self._is_local else None
        return SweepResult(
            jobs=curve.recommended_jobs(),
            best_jobs=curve.best_jobs(),
            at_us=self._clock.wall_us(),
            target=self._target.name,
            database=self._server.identity.database,
            rows=tuple(_result_row(curve, jobs) for jobs in sorted(curve.runs)),
            limit=limit.kind, sentence=limit.sentence, host=os.uname().nodename, cpus=self._cpus,
            program=self._program.version, compression=self._options.compression, place=self._options.to,
            table_bytes=total, chosen_bytes=sum(table.size for table in self._tables), tables=len(self._all_tables),
            chosen_tables=len(self._tables), ratio=complete[-1].output_bytes / complete[-1].done if complete else None,
            notes=(*self._notes, *measurement_notes(self._runs, total, self._cpus, memory)),
            took_s=(self._clock.mono_us() - self._began_us) / 1e6,
        )  # fmt: skip


def _result_row(curve: JobsCurve, jobs: int) -> SweepRow:
    run = curve.runs[jobs]
    read_pct = None if run.read_bytes is None or run.done <= 0 else min(100.0, 100 * run.read_bytes / run.done)
    return SweepRow(
        jobs=jobs, seconds=curve.seconds(jobs), measured=curve.is_measured(jobs), ran_s=run.wall_s, rate=run.rate,
        host_busy_pct=run.host_busy_pct, read_pct=read_pct,
    )  # fmt: skip


def _run_text(run: TrialRun) -> str:
    how = "complete" if run.complete else "cut"
    return f"-j {run.jobs}: {run.wall_s:.1f} s, {how}, {human_bytes(run.rate, per_s=True)}"
