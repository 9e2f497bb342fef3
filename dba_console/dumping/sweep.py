"""Finds how many jobs a parallel dump of this database on this host is worth: few trials, each as short as will do."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from dba_console.clock import SYSTEM, Clock
from dba_console.dumping import meter
from dba_console.dumping.curve import NEAR, Curve, Run
from dba_console.dumping.fresh import forget
from dba_console.dumping.kept import Kept, Row
from dba_console.dumping.limits import Largest, disturbed, limit_of, notes_of
from dba_console.dumping.programs import Program, find_program
from dba_console.dumping.scratch import KEEP_FREE, nowhere, room_of, scratch
from dba_console.dumping.server import Server, client_environment, connected
from dba_console.dumping.slots import SPARE, require_slots, slots_of
from dba_console.dumping.tables import chosen, tables_of
from dba_console.dumping.trial import Way, trial
from dba_console.errors import Refused, Unsupported, UsageError
from dba_console.target import Target
from dba_console.units import human_bytes

NOWHERE = "nowhere"
WINDOW_S = 30.0
"""A trial is cut after this long: by then every job has had its table for long enough to tell the rate."""
ALONE_SHARE, ALONE_S = 0.35, 3.0
"""A job alone runs for comparison only: this much of the best time, but this many seconds."""
MOST = 8
"""Jobs tried at most where nothing else is asked for, or twice the processors where that is more."""
MOST_EVER = 64


_OTHERS = """
select count(*)::int from pg_stat_activity where application_name = 'dba-console:sweep' and pid <> pg_backend_pid()
"""


class Asked(Struct, frozen=True, kw_only=True):
    """What the sweep is to do."""

    to: str = NOWHERE
    share: float = 1.0
    most: int | None = None
    window_s: float = WINDOW_S
    compression: str | None = None
    niceness: int = 10
    fresh: bool = False
    bindir: str | None = None


class Step(Struct, frozen=True, kw_only=True):
    """What is told while it goes on."""

    kind: str
    """plan, begin, progress, run."""
    text: str
    jobs: int | None = None
    run: Run | None = None


Tell = Callable[[Step], None]


def sweep(target: Target, asked: Asked, tell: Tell, clock: Clock = SYSTEM) -> Kept:
    """Try, and say what was found. Raises ConsoleError saying why it could not be."""
    with connected(target.conninfo, "dba-console:sweep") as server:
        return _Sweep(target, asked, server, tell, clock).go()


class _Sweep:
    """One sweep under way."""

    def __init__(self, target: Target, asked: Asked, server: Server, tell: Tell, clock: Clock) -> None:
        self._target, self._asked, self._server, self._tell, self._clock = target, asked, server, tell, clock
        self._program: Program = find_program("pg_dump", at_least=server.major, bindir=asked.bindir)
        self._local = meter.runs_here(server)
        self._data = meter.data_place(server) if self._local else None
        if asked.fresh and self._data is None:
            raise Unsupported(
                "--fresh needs a server on this host and a role that may read data_directory (pg_monitor)"
            )
        self._all, note = tables_of(server)
        self._notes = [note] if note else []
        self._all = [table for table in self._all if table.size > 0]
        if not self._all:
            raise UsageError(f"there is no table with rows in the database {server.database}")
        self._cpus = meter.cpus()
        self._most, self._ceiling = self._most_jobs()
        self._tables = chosen(self._all, asked.share, 2 * self._most)
        whole = len(self._tables) == len(self._all)
        sizes = [float(table.size) for table in self._all]
        self._curve = Curve(sizes, self._cpus, self._most, whole=whole, shared_cores=meter.shared_cores())
        self._began_us = clock.mono_us()
        self._history: list[Run] = []

    def go(self) -> Kept:
        """All of it."""
        (others,) = self._server.one(_OTHERS)
        if others:
            raise Refused(
                "another sweep runs on this server: two at once would measure each other", hint="let it end first"
            )
        place = nowhere() if self._asked.to == NOWHERE else self._place(Path(self._asked.to))
        self._tell(Step(kind="plan", text=self._plan(place)))
        let_go = self._asked.to == NOWHERE
        self._meter = meter.HostMeter(
            meter.device_of(self._data), None if let_go else meter.device_of(str(place)), self._clock
        )
        with ExitStack() as stack:
            directory = stack.enter_context(scratch(place))
            self._search(directory)
            self._again_if_disturbed(directory)
        return self._kept()

    def _search(self, directory: Path) -> None:
        while (jobs := self._curve.next()) is not None:
            try:
                require_slots(self._server, jobs)
            except Refused as error:
                if not self._history:
                    raise
                # Others have come meanwhile: what is known is told, with what it lacks.
                self._notes.append(f"-j {jobs} and more were not tried: {error.message}")
                return
            self._try(directory, jobs)
            self._again_if_cold(directory)

    def _try(self, directory: Path, jobs: int) -> None:
        if self._asked.fresh and self._data is not None:
            forget(self._server, self._data, self._tables)
        self._tell(Step(kind="begin", text=f"-j {jobs}", jobs=jobs))
        limit_s = self._limit_s(jobs)

        def told(done: float, total: float) -> None:
            pct = f"{100 * done / total:.0f} %" if total else "?"
            self._tell(Step(kind="progress", text=f"-j {jobs}: {pct} of {human_bytes(total)}", jobs=jobs))

        way = Way(
            self._program.path, client_environment(self._target.conninfo), self._arguments(), self._asked.niceness,
            self._asked.to == NOWHERE, self._local,
        )  # fmt: skip
        run = trial(
            way, self._server, self._meter, directory, self._tables, jobs, lambda: limit_s, self._clock, told,
        )  # fmt: skip
        self._history.append(run)
        self._curve.add(run)
        self._tell(Step(kind="run", text=_words(run), jobs=jobs, run=run))

    def _again_if_cold(self, directory: Path) -> None:
        """The first trial may have read from the disk what the second found in memory: then they are not comparable."""
        if len(self._history) != 2 or self._asked.fresh:
            return
        first, second = self._history
        if first.read_bytes is None or second.read_bytes is None or first.done <= 0 or second.jobs < first.jobs:
            return
        if first.read_bytes > 0.3 * first.done and second.read_bytes < 0.5 * first.read_bytes:
            self._try(directory, first.jobs)

    def _again_if_disturbed(self, directory: Path) -> None:
        """Where others kept the host busy, one trial may have had more of it than the next: the two quickest run again,
        and of each the better one counts."""
        if len(self._curve.runs) < 2 or not disturbed(self._history, self._cpus):
            return
        for jobs in sorted(self._curve.runs, key=self._curve.seconds)[:2]:
            if slots_of(self._server).jobs >= jobs:
                self._try(directory, jobs)
        self._notes.append("others worked on this host: the two quickest were tried twice, and the better one counts")

    def _limit_s(self, jobs: int) -> float:
        """Seconds after which a trial with so many jobs has told what it can."""
        if not self._curve.runs or self._server.major < 14:
            return self._asked.window_s if self._server.major >= 14 else 86400.0
        best = self._curve.runs[self._curve.best()]
        took = best.wall_s - best.before_s
        if jobs == 1 and not self._curve.may_do(1):
            return min(self._asked.window_s, max(ALONE_S, ALONE_SHARE * took))
        return min(self._asked.window_s, max(ALONE_S, took * (1 + 2 * NEAR)) if best.complete else self._asked.window_s)

    def _most_jobs(self) -> tuple[int, str]:
        """The most jobs worth trying, and what says so."""
        wanted = self._asked.most or max(MOST, 2 * self._cpus)
        limits = [(min(wanted, MOST_EVER), f"most: no more than {min(wanted, MOST_EVER)} jobs were to be tried")]
        count = len(self._all)
        limits.append((count, f"tables: there are {count} tables with rows, and a table is dumped by one job"))
        slots = slots_of(self._server)
        limits.append(
            (slots.jobs, f"connections: {slots.free} are free by {slots.limit}, and {SPARE} stay free for others")
        )
        most, told = min(limits, key=lambda limit: limit[0])
        if most < 1:
            raise Refused(
                f"{max(0, slots.free)} connections are free by {slots.limit}: a dump takes 2, and {SPARE} stay free",
                hint="try at an hour with fewer sessions",
            )
        return most, told

    def _place(self, place: Path) -> Path:
        """The scratch directory's, where it has room for the dump. Raises UsageError or Refused."""
        if not place.is_absolute() or not place.is_dir():
            raise UsageError(f"{place} is not the absolute path of a directory")
        room, need = room_of(place), sum(table.size for table in self._tables)
        if room.free - need < room.size * KEEP_FREE:
            raise Refused(
                f"{place} has {human_bytes(room.free)} free; a dump of {human_bytes(need)} of tables may take as much",
                hint="dump less (--share), or to nowhere (--to nowhere)",
            )
        return place

    def _arguments(self) -> tuple[str, ...]:
        compression = ("-Z", self._asked.compression) if self._asked.compression is not None else ()
        if self._curve.whole:
            return compression
        return (*compression, *(word for table in self._tables for word in ("-t", table.pattern)))

    def _plan(self, place: Path) -> str:
        total, taken = (sum(table.size for table in tables) for tables in (self._all, self._tables))
        what = (
            f"all {len(self._all)} tables" if self._curve.whole else f"{len(self._tables)} of {len(self._all)} tables"
        )
        where = f"nowhere (memory at {place}, given back as it is written)" if self._asked.to == NOWHERE else str(place)
        return (
            f"{what}, {human_bytes(taken)} of {human_bytes(total)}, by pg_dump {self._program.version} to {where}; "
            f"{self._cpus} processors; at most {self._most} jobs"
        )

    def _kept(self) -> Kept:
        curve, total = self._curve, sum(table.size for table in self._all)
        biggest = self._all[0]
        limit = limit_of(curve, Largest(f"{biggest.schema}.{biggest.name}", biggest.size), self._ceiling)
        complete = [run for run in self._history if run.complete and run.done > 0]
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if self._local else None
        return Kept(
            jobs=curve.knee(), best_jobs=curve.best(), at_us=self._clock.wall_us(), target=self._target.name,
            database=self._server.database, rows=tuple(_row(curve, jobs) for jobs in sorted(curve.runs)),
            limit=limit.kind, sentence=limit.sentence, host=os.uname().nodename, cpus=self._cpus,
            program=self._program.version, compression=self._asked.compression, place=self._asked.to,
            table_bytes=total, chosen_bytes=sum(table.size for table in self._tables), tables=len(self._all),
            chosen_tables=len(self._tables), ratio=complete[-1].output_bytes / complete[-1].done if complete else None,
            notes=(*self._notes, *notes_of(self._history, total, self._cpus, memory)),
            took_s=(self._clock.mono_us() - self._began_us) / 1e6,
        )  # fmt: skip


def _row(curve: Curve, jobs: int) -> Row:
    run = curve.runs[jobs]
    read_pct = None if run.read_bytes is None or run.done <= 0 else min(100.0, 100 * run.read_bytes / run.done)
    return Row(
        jobs=jobs, seconds=curve.seconds(jobs), measured=curve.measured(jobs), ran_s=run.wall_s, rate=run.rate,
        host_busy_pct=run.host_busy_pct, read_pct=read_pct,
    )  # fmt: skip


def _words(run: Run) -> str:
    how = "to its end" if run.complete else "cut"
    return f"-j {run.jobs}: {run.wall_s:.1f} s, {how}, {human_bytes(run.rate, per_s=True)}"
