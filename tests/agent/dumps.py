"""Real dumps that last as long as a test needs: their output pipe is read only when the test continues."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.temporary_server import Cluster
from dba_console.watch.frames.model import Frame
from dba_console.watch.progress.rows import ProgressRow
from dba_console.watch.samples.event import Event
from dba_console.watch.samples.jobs import Jobs
from tests.agent.agents import ConsoleClient
from tests.background import session, wait_until

TABLE = "public.long_to_dump"
ROWS = 60_000
"""More text than a pipe and a socket hold, so that the dump waits for its reader."""
LIMIT_S = 120.0
_WAITS = "select from pg_stat_activity where application_name = 'pg_dump' and wait_event = 'ClientWrite'"


def create_table_to_dump(cluster: Cluster, database: str = "postgres") -> None:
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


def jobs_part(watch: ConsoleClient) -> Jobs | None:
    return watch.picture.now("jobs", Jobs)


def dump_row(frame: Frame) -> ProgressRow | None:
    return next((dump_row for dump_row in frame.progress.operations if dump_row.kind == "pg_dump"), None)


def ended_jobs(watch: ConsoleClient) -> list[Event]:
    return [event for event in watch.events if event.kind == "job.ended"]


def write_config(base: Path, text: str) -> None:
    """What the test wants configured."""
    directory = base / "config" / "dba-console"
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(text)


def observe_dump(
    watch: ConsoleClient, server: Cluster, seconds: float = 0.6, *, others: Sequence[ConsoleClient] = ()
) -> Event:
    """Run a dump of `seconds`, observed from start (by `others` too) to end; return its end event."""
    before = len(ended_jobs(watch))
    with dump(server) as held:
        for each in (*others, watch):
            each.until(
                lambda frame: (one := dump_row(frame)) and (one.elapsed_s or 0) > seconds, what="a dump that runs"
            )
        held.finish()
        watch.until(lambda _: len(ended_jobs(watch)) > before, what="its end")
    return ended_jobs(watch)[-1]
