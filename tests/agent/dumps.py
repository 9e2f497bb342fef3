"""Real dumps that last as long as a test wants: nobody reads what they write until it does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.cluster import Cluster
from dba_console.watch.frames.model import Frame
from dba_console.watch.frames.rows import ProgressRow
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.jobs import Jobs
from tests.agent.agents import Watch
from tests.background import session, wait_until

TABLE = "public.long_to_dump"
ROWS = 60_000
"""More text than a pipe and a socket hold, so that the dump waits for its reader."""
LIMIT_S = 120.0
_WAITS = "select from pg_stat_activity where application_name = 'pg_dump' and wait_event = 'ClientWrite'"


def something_to_dump(cluster: Cluster, database: str = "postgres") -> None:
    """The table whose rows no pipe can hold."""
    cluster.psql(
        f"create table {TABLE} as select i, repeat(md5(i::text), 2) as filler from generate_series(1, {ROWS}) i",
        dbname=database,
    )


class Dump:
    """A pg_dump under way."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def finish(self) -> None:
        """Let it write everything; it ends in order."""
        self._process.communicate(timeout=LIMIT_S)
        assert self._process.returncode == 0

    def cancel(self) -> None:
        """As an operator does it; its session is gone when this returns."""
        self._process.terminate()
        self._process.communicate(timeout=LIMIT_S)

    def running(self) -> bool:
        return self._process.returncode is None


@contextmanager
def dump(cluster: Cluster, database: str = "postgres") -> Iterator[Dump]:
    """A pg_dump that has come to the table's rows and waits there until it may finish."""
    command = [str(cluster.binaries.program("pg_dump")), "-d", cluster.dsn(dbname=database), "-t", TABLE]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    held = Dump(process)
    try:
        with session(cluster) as other:
            wait_until(lambda: other.execute(_WAITS).rowcount, LIMIT_S, what="pg_dump waiting for its reader")
        yield held
    finally:
        if held.running():
            held.cancel()


def jobs(watch: Watch) -> Jobs | None:
    return watch.picture.now("jobs", Jobs)


def row(frame: Frame) -> ProgressRow | None:
    return next((row for row in frame.progress.operations if row.kind == "pg_dump"), None)


def ended(watch: Watch) -> list[Event]:
    return [event for event in watch.events if event.kind == "job.ended"]


def configure(place: Path, text: str) -> None:
    """What the test wants configured."""
    directory = place / "config" / "dba-console"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(text)


def dumped(watch: Watch, server: Cluster, seconds: float = 0.6, *, others: Sequence[Watch] = ()) -> Event:
    """One dump of so many seconds, seen to begin (by `others`, too) and to end; the event of its end."""
    before = len(ended(watch))
    with dump(server) as held:
        for each in (*others, watch):
            each.until(lambda frame: (one := row(frame)) and (one.elapsed_s or 0) > seconds, what="a dump that runs")
        held.finish()
        watch.until(lambda _: len(ended(watch)) > before, what="its end")
    return ended(watch)[-1]
