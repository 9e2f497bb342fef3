"""Run one timed trial dump (pg_dump -Fd -j): start it, measure it, stop it after a time limit, remove its output.

It runs with low CPU and I/O priority, and stops when another session waits for a lock it holds. Its processes always
end together with this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import selectors
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dba_console.actions.query_connection import QueryConnection
from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.errors import ConsoleError, RunbookFailed
from dba_console.core.sanitize import clean
from dba_console.core.units import human_bytes
from dba_console.jobs.tools.host_usage import CpuTimes, HostMeter
from dba_console.jobs.tools.jobs_curve import TrialRun
from dba_console.jobs.tools.scratch_directory import MIN_FREE_SHARE, TrialOutput, free_space
from dba_console.jobs.tools.server_connection import DumpTable
from dba_console.watch.job_sessions import TRIAL_APPLICATION
from dba_console.watch.probes.host.postmasters import PostmasterChildren

# Progress of a trial dump: tables started, COPY progress of its sessions, sessions that it blocks.

_TABLE_STARTED = re.compile(r'dumping contents of table "((?:[^\n]|\n(?!pg_dump: ))*?)"\n', re.S)
"""src/bin/pg_dump/pg_dump.c, dumpTableData_copy: schema and name are not quoted and may contain line breaks."""
_SMALL = 4 << 20
"""Bytes; a table below this size may be dumped between two polls."""

_COPIES = """
select a.pid, p.relid::bigint, p.tuples_processed, p.bytes_processed
from pg_stat_activity a left join pg_stat_progress_copy p on p.pid = a.pid where a.application_name = %s
"""
_SESSIONS = (
    "select a.pid, null::bigint as relid, null::bigint as tuples_processed, null::bigint as bytes_processed"
    " from pg_stat_activity a where a.application_name = %s"
)
_WAITING = """
select w.pid from pg_locks w where not w.granted and w.mode = 'AccessExclusiveLock' and w.locktype = 'relation'
  and exists (select 1 from pg_locks h where h.granted and h.pid = any(%s) and h.locktype = 'relation'
              and h.database = w.database and h.relation = w.relation) limit 1
"""


class TableCopy(NamedTuple):
    """A table that is being copied."""

    oid: int
    rows: int
    bytes: int


class CopySessions(NamedTuple):
    """The sessions of the trial dump."""

    backends: tuple[int, ...]
    running: tuple[TableCopy, ...]
    waiting_pid: int | None
    """A session that waits for an exclusive lock on a table the dump has locked; None: no session."""


def read_copies(server: QueryConnection, tag: str) -> CopySessions:
    """Read the sessions with this application name. Raises ConsoleError if the server does not answer."""
    rows = server.rows(_COPIES if server.identity.major >= 14 else _SESSIONS, (tag,))
    backends = tuple(row["pid"] for row in rows)
    waiting = server.rows(_WAITING, (list(backends),)) if backends else []
    running = tuple(
        TableCopy(row["relid"], row["tuples_processed"], row["bytes_processed"]) for row in rows if row["relid"]
    )
    return CopySessions(backends, running, waiting[0]["pid"] if waiting else None)


class TrialProgress:
    """Table bytes done, including tables in progress by their row counts."""

    def __init__(self, tables: Sequence[DumpTable], jobs: int) -> None:
        self._by_name = {f"{table.schema}.{table.name}": table for table in tables}
        self._by_oid = {table.oid: table for table in tables}
        self._jobs = jobs
        self.total = float(sum(table.size for table in tables))
        self.done = 0.0
        self.first_table_us: int | None = None
        """When the first table was started."""
        self.busy_done = self.busy_s = 0.0
        """Bytes done and seconds elapsed while every job had a table."""
        self._started_tables: set[int] = set()
        self._copied_tables: set[int] = set()
        self._running: dict[int, float] = {}
        self._rest = ""

    def add_stderr(self, text: str, now_us: int) -> None:
        """Parse pg_dump's messages."""
        self._rest += text
        end = 0
        for match in _TABLE_STARTED.finditer(self._rest):
            end = match.end()
            table = self._by_name.get(match[1])
            if table is not None:
                self._started_tables.add(table.oid)
            if self.first_table_us is None:
                self.first_table_us = now_us
        self._rest = self._rest[max(end, len(self._rest) - 65536) :]

    def add_copies(self, copies: CopySessions, now_us: int) -> None:
        """Apply the current state of its sessions."""
        running = {copy.oid: self._bytes_done(copy) for copy in copies.running if copy.oid in self._by_oid}
        self._copied_tables |= set(running)
        over = {
            oid
            for oid in self._started_tables - set(running)
            if oid in self._copied_tables or self._by_oid[oid].size < _SMALL
        }
        self.done = max(self.done, float(sum(self._by_oid[oid].size for oid in over)) + sum(running.values()))
        if self.first_table_us is not None and self._all_busy(len(running)):
            self.busy_done, self.busy_s = self.done, (now_us - self.first_table_us) / 1e6

    def finish(self, now_us: int) -> None:
        """Set everything to done, after a successful end."""
        self.done = self.total
        if self.first_table_us is not None and self.busy_s == 0:
            self.busy_done, self.busy_s = self.total, max(1e-3, (now_us - self.first_table_us) / 1e6)

    def _all_busy(self, running: int) -> bool:
        return running >= min(self._jobs, len(self._by_oid)) or len(self._started_tables) < len(self._by_oid)

    def _bytes_done(self, copy: TableCopy) -> float:
        """Return the bytes done of a table: by its rows if their number is known, else by the bytes sent."""
        table = self._by_oid[copy.oid]
        if table.rows:
            return table.size * min(1.0, copy.rows / table.rows)
        return float(min(table.size, copy.bytes))


POLL_S = 0.2
MAX_BLOCKING_S = 2.0
"""How long another session may wait for the trial's locks before the trial is stopped."""
KILL_S = 10.0
"""From SIGTERM to SIGKILL."""
_PR_SET_PDEATHSIG = 1
_LOST_LOCK = re.compile(r"could not obtain lock on relation \"(.+?)\"")
_libc = ctypes.CDLL(None, use_errno=True)


class TrialSettings(NamedTuple):
    """How trials of one sweep are run."""

    program: str
    environment: dict[str, str]
    arguments: tuple[str, ...]
    """Further arguments: compression, tables."""
    niceness: int
    discard_output: bool
    """Output to `nowhere`: data are discarded while written."""
    local_server: bool
    """The server runs on this host: its processes can be measured."""


class TrialBlockedOthers(RunbookFailed):
    """The trial was stopped because it blocked another session."""


def run_trial(
    settings: TrialSettings, server: QueryConnection, meter: HostMeter, parent_directory: Path,
    tables: Sequence[DumpTable], jobs: int,
    limit_s: Callable[[], float], clock: Clock = SYSTEM, report: Callable[[float, float], None] = lambda done, of: None,
) -> TrialRun:  # fmt: skip
    """Dump `tables` into `parent_directory` with `jobs` jobs, for at most `limit_s` after the start of the first table.

    Raises TrialBlockedOthers if it blocked another session; RunbookFailed if pg_dump failed, with its message, or the
    disk was almost full.
    """
    tag = f"{TRIAL_APPLICATION}{os.getpid()}"
    directory = parent_directory / "dump"
    attempt = _Trial(settings, server, meter, directory, tables, jobs, clock)
    with _start(settings, directory, tag, jobs) as process:
        try:
            return attempt.watch(process, tag, limit_s, report)
        finally:
            _stop(process)
            shutil.rmtree(directory, ignore_errors=True)


class _Trial:
    """A running trial dump and its measurements."""

    def __init__(
        self, settings: TrialSettings, server: QueryConnection, meter: HostMeter, directory: Path,
        tables: Sequence[DumpTable], jobs: int,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._settings, self._server, self._meter, self._clock, self._jobs = settings, server, meter, clock, jobs
        self._directory = directory
        self._output = TrialOutput(directory, discard=settings.discard_output)
        self._progress = TrialProgress(tables, jobs)
        self._lines: list[str] = []
        self._errors = b""
        self._client_times, self._backend_times = CpuTimes({}), CpuTimes({})
        self._waited_since: int | None = None
        self._before = meter.read()
        self._started_us = self._before.mono_us

    def watch(
        self, process: subprocess.Popen[bytes], tag: str, limit_s: Callable[[], float],
        report: Callable[[float, float], None],
    ) -> TrialRun:  # fmt: skip
        assert process.stderr is not None
        children = PostmasterChildren("/proc", process.pid)
        with selectors.DefaultSelector() as selector:
            os.set_blocking(process.stderr.fileno(), False)
            selector.register(process.stderr, selectors.EVENT_READ)
            open_ = True
            while open_ or process.poll() is None:
                open_ = self._read_stderr(selector, process, open_)
                self._measure(process, children, tag)
                report(self._progress.done, self._progress.total)
                first = self._progress.first_table_us
                if first is not None and self._clock.mono_us() - first > limit_s() * 1e6 and process.poll() is None:
                    return self._result(complete=False)
        self._output.measure()
        if process.wait() != 0:
            raise pg_dump_error(self._errors, process.returncode, jobs=self._jobs, directory=self._directory)
        self._progress.finish(self._clock.mono_us())
        return self._result(complete=True)

    def _read_stderr(self, selector: selectors.BaseSelector, process: subprocess.Popen[bytes], open_: bool) -> bool:
        """Read stderr for one poll interval; return whether it is still open."""
        until = self._clock.mono_us() + int(POLL_S * 1e6)
        while open_ and (left_us := until - self._clock.mono_us()) > 0:
            for key, _ in selector.select(left_us / 1e6):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    open_ = False
                self._progress.add_stderr(data.decode("utf-8", "replace"), self._clock.mono_us())
                self._errors = (self._errors + data)[-65536:]
        if not open_:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        return open_

    def _measure(self, process: subprocess.Popen[bytes], children: PostmasterChildren, tag: str) -> None:
        with contextlib.suppress(OSError):
            self._client_times.update({process.pid, *children.read()})
        copies = read_copies(self._server, tag)
        self._progress.add_copies(copies, self._clock.mono_us())
        if self._settings.local_server:
            self._backend_times.update(copies.backends)
        self._output.measure()
        self._stop_if_blocking(copies.waiting_pid)
        self._stop_if_disk_full()

    def _stop_if_blocking(self, waiting: int | None) -> None:
        now = self._clock.mono_us()
        if waiting is None:
            self._waited_since = None
        elif self._waited_since is None:
            self._waited_since = now
        elif now - self._waited_since > MAX_BLOCKING_S * 1e6:
            raise TrialBlockedOthers(
                f"trial stopped: the session with PID {waiting} waited {MAX_BLOCKING_S:.0f} s for an exclusive lock "
                f"on a table that the trial dumps, and other sessions queue behind it",
                hint="run the sweep at a time without schema changes",
            )

    def _stop_if_disk_full(self) -> None:
        with contextlib.suppress(OSError):
            space = free_space(self._directory.parent)
            if space.free < space.size * MIN_FREE_SHARE:
                raise RunbookFailed(
                    f"trial stopped: only {human_bytes(space.free)} free on {self._directory.parent}",
                    hint="dump less (--share), to another directory (--to DIR), or to nowhere (--to nowhere)",
                )

    def _result(self, *, complete: bool) -> TrialRun:
        after = self._meter.read()
        shares = self._meter.usage_between(self._before, after)
        progress = self._progress
        return TrialRun(
            jobs=self._jobs, wall_s=(after.mono_us - self._started_us) / 1e6, complete=complete, done=progress.done,
            startup_s=((progress.first_table_us or after.mono_us) - self._started_us) / 1e6, busy_s=progress.busy_s,
            busy_done=progress.busy_done, client_s=self._client_times.total,
            server_s=self._backend_times.total if self._settings.local_server else None, host_busy_pct=shares.busy_pct,
            iowait_pct=shares.iowait_pct, read_bytes=shares.read_bytes, read_util_pct=shares.read_util_pct,
            write_util_pct=None if self._settings.discard_output else shares.write_util_pct,
            output_bytes=self._output.size,
        )  # fmt: skip


def pg_dump_error(errors: bytes, code: int, *, jobs: int, directory: Path) -> ConsoleError:
    """Return why pg_dump failed: from its stderr, else from its exit code."""
    # Workers write in pieces to one pipe: another worker's line may separate "error: " from its message.
    whole = errors.decode("utf-8", "replace")
    error_lines = [line for line in whole.splitlines() if "error: " in line]
    text = clean(error_lines[0].partition("error: ")[2][:500]) if error_lines else ""
    lost = _LOST_LOCK.search(whole)
    if lost is not None:
        return RunbookFailed(
            f"pg_dump -j {jobs} failed: another session waits for an exclusive lock on {clean(lost[1])}, and "
            "pg_dump's workers do not queue behind it",
            hint="a schema change is in progress: find its session in panel locks, wait for its end, repeat the sweep",
        )
    if "lock timeout" in text or "statement timeout" in text:
        return RunbookFailed(
            "pg_dump could not start: a table is locked exclusively, and the trial does not wait for such a lock",
            hint="find the lock holder in panel locks; repeat the sweep when it has ended",
        )
    if "No space left on device" in text:
        return RunbookFailed(
            f"{directory.parent} is full: {text}",
            hint="dump less (--share), or to another directory (--to DIR)",
        )
    how = f"exit code {code}" if code >= 0 else f"terminated by signal {-code}"
    return RunbookFailed(f"pg_dump -j {jobs} failed: {text or how}")


@contextlib.contextmanager
def _start(settings: TrialSettings, directory: Path, tag: str, jobs: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        *_ionice_command(), settings.program, "-Fd", "-j", str(jobs), "-f", str(directory), "--no-sync", "-v", "-w",
        "--lock-wait-timeout=5s", *settings.arguments,
    ]  # fmt: skip

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.nice(settings.niceness)

    with subprocess.Popen(
        command, env={**settings.environment, "PGAPPNAME": tag}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True, preexec_fn=prepare, cwd="/",
    ) as process:  # fmt: skip
        yield process


def _ionice_command() -> Sequence[str]:
    """Return the ionice command for the lowest best-effort I/O priority, if installed."""
    found = shutil.which("ionice")
    return [found, "-c2", "-n7"] if found else []


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate pg_dump and its workers; they have ended when this returns."""
    if process.poll() == 0:
        return  # pg_dump waits for its workers; the process group id may already be reused
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)  # a stopped process handles the signal only after SIGCONT
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
