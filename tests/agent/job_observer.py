"""What the agent sees of dumps and restores, in this process: its collector and its jobs' side, ticked by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dba_console.agent.collector import Collector
from dba_console.agent.job_service import JobService
from dba_console.core.clock import SYSTEM
from dba_console.core.config import Config
from dba_console.core.target import make_target
from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.chart_history import ChartHistory
from dba_console.watch.frames.derive import derive
from dba_console.watch.frames.picture import Picture
from dba_console.watch.progress.panel import ProgressPanel
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.jobs import JobNow, Jobs, JobsNow
from tests.background import wait_until
from tests.host.held_jobs import LIMIT_S, TABLES, JobServer

KEY = "job-observer"
"""Target key: the job history is in the state directory of the test."""
SCHEMA_SQL = """
create schema shop;
create function shop.held(i integer) returns integer immutable language plpgsql as $$
begin
  if i = 500 then perform pg_advisory_lock_shared(771); perform pg_advisory_unlock_shared(771); end if;
  return i;
end $$;
create table shop.orders (id integer primary key, note text);
create table shop.lines (id integer primary key, orders_id integer references shop.orders (id), note text);
insert into shop.orders select i, repeat(md5(i::text), 3) from generate_series(1, 20000) i;
insert into shop.lines select i, i, repeat(md5(i::text), 3) from generate_series(1, 20000) i;
create index lines_held on shop.lines (shop.held(id));
"""
"""A database whose restore is held up in the middle of its indexes."""


class JobObserver:
    """The collector and the job service in this process; each tick takes as long as its reads."""

    def __init__(self, dsn: str) -> None:
        self._collector = Collector(make_target(dsn), Config(), clock=SYSTEM)
        self._collector.sources.append(JobService(KEY, self._collector.server, SYSTEM))
        self.picture = Picture()
        self.events: list[Event] = []
        self.observations: list[JobsNow] = []

    def tick(self) -> None:
        sample = self._collector.tick()
        self.picture = self.picture.with_sample(sample)
        self.events += self._collector.events()
        self.observations += [
            part.decode() for part in sample.parts if part.name == "jobs.now" and part.reading is not None
        ]

    def until(self, wanted: Callable[[JobNow], object], what: str) -> JobNow:
        """Return the first job of an observation that `wanted` accepts."""

        def seen() -> JobNow | None:
            self.tick()
            return next((job for job in self.jobs if wanted(job)), None)

        return wait_until(seen, LIMIT_S, what=what)

    def until_idle(self) -> None:
        """Tick until no job is running and each end was reported."""

        def idle() -> bool:
            self.tick()
            return not self.jobs and self.past is not None and not self.past.running

        wait_until(idle, LIMIT_S, what="the end of all jobs")

    def ended(self, kind: str) -> Event:
        """The event of the end of a job of that kind."""

        def seen() -> Event | None:
            self.tick()
            ends = (one for one in self.events if one.kind == "job.ended" and one.details["kind"] == kind)
            return next(ends, None)

        return wait_until(seen, LIMIT_S, what=f"the end of {kind}")

    @property
    def jobs(self) -> tuple[JobNow, ...]:
        """The jobs of the newest observation."""
        return self.observations[-1].jobs if self.observations else ()

    @property
    def past(self) -> Jobs | None:
        return self.picture.now("jobs", Jobs)

    @property
    def rows(self) -> list[ProgressRow]:
        """As the panel has them."""
        return derive(self.picture, ChartHistory()).of(ProgressPanel).operations

    def close(self) -> None:
        self._collector.close()


@contextmanager
def job_observer(cluster: Cluster) -> Iterator[JobObserver]:
    """A job observer for a server, closed at the end."""
    made = JobObserver(cluster.dsn())
    try:
        yield made
    finally:
        made.close()


def prepare(job_server: JobServer) -> None:
    """Tables that were analyzed, and an archive of a whole database in three formats, held up in its indexes."""
    job_server.cluster.psql("".join(f"analyze {table};" for table in TABLES), dbname="full_one")
    job_server.cluster.psql("create database shop")
    job_server.cluster.psql(SCHEMA_SQL, dbname="shop")
    for name, options in (("shop.d", ("-Fd",)), ("shop.c", ("-Fc",)), ("shop.sql", ())):
        job_server.run_program("pg_dump", *options, "-f", name, job_server.dsn("shop"))
    job_server.run_program("gzip", "shop.sql")
