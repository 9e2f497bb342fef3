"""The history's file: the tick never waits for it, and no other hand or crash makes it a trap."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dba_console.core.clock import SYSTEM
from dba_console.core.errors import ConsoleError
from dba_console.core.target import address_of
from dba_console.jobs.archives.object_durations import RunPhase
from dba_console.jobs.history.history_files import (
    IO_TIMEOUT_US,
    MAX_SERVERS,
    RETRY_US,
    WRITE_INTERVAL_US,
    DamagedHistory,
    HistoryFile,
    HistoryServer,
    history_path,
    load_or_set_aside,
    save_history,
    server_history_path,
)
from dba_console.jobs.history.kept_history import MAX_JOBS, KeptHistory, KeptJob
from dba_console.jobs.history.run_statistics import MAX_ERROR_LENGTH, MAX_PHASES, MAX_RUNS, JobRun, RunFacts, make_run
from tests.background import wait_until
from tests.build import NOW_US
from tests.clocks import HeldClock
from tests.jobs import DAY_US

HISTORY = KeptHistory(7, [KeptJob("pg_dump", "appdb", "backup", 5, [JobRun(1, 60.0, True)])], [("pg_dump", None, None)])


class ShiftedClock(HeldClock):
    """The time of this host, from where it can be moved on."""

    def __init__(self) -> None:
        super().__init__(SYSTEM.wall_us(), SYSTEM.mono_us())


SERVER = HistoryServer("app", "socket", "7001", "/data")


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = server_history_path(SERVER)
    assert path.parent == tmp_path / "dba-console" / "jobs"
    return path


def read(writer: HistoryFile) -> KeptHistory | None:
    """What the file has, as ticks get it."""
    found: list[KeptHistory | None] = []

    def tick() -> bool:
        found.append(writer.read())
        return writer.loaded

    wait_until(tick, what="the file read")
    return found[-1]


def test_a_saved_file_is_loaded_and_only_its_owner_may_read_it(path: Path) -> None:
    save_history(path, HISTORY)
    assert load_or_set_aside(path) == HISTORY
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(one.name for one in path.parent.iterdir()) == [".lock", path.name]


def test_all_targets_of_a_server_have_one_file(path: Path) -> None:
    save_history(path, HISTORY, "app", "socket")
    assert history_path("app") == path
    assert history_path("never watched", address_of("host=db1", {})) is None
    others = {
        "another database": HistoryServer("shop", "socket", "7001"),
        "not allowed to read the identifier": HistoryServer("app", "socket"),
        "same directory": HistoryServer("app by tcp", "localhost", "7001", "/data"),
        "behind the pooler": HistoryServer("app", "socket", "7002"),
        "standby": HistoryServer("standby", "db2", "7001", "/standby"),
        "made anew": HistoryServer("new", "db2", "7003", "/data"),
        "elsewhere": HistoryServer("far", "db3", "7001"),
    }
    same = [name for name, server in others.items() if server_history_path(server) == path]
    assert same == ["another database", "not allowed to read the identifier", "same directory"]
    assert len({server_history_path(server) for server in others.values()}) == 5


def test_a_server_whose_identifier_becomes_known_keeps_its_file(path: Path) -> None:
    unknown = HistoryServer("app", "socket")
    first = server_history_path(unknown)
    save_history(first, HISTORY, unknown.target_key, unknown.address)
    assert server_history_path(SERVER) == first != path


def test_a_target_never_watched_uses_the_server_last_seen_at_its_address(path: Path) -> None:
    shop = address_of("host=db1 dbname=shop user=ann", {})
    old, new = HistoryServer("a", shop.server, "1"), HistoryServer("b", shop.server, "2")
    for server in (old, new):
        save_history(server_history_path(server), HISTORY, server.target_key, server.address)
    assert history_path("never watched", shop) == history_path("b") != history_path("a")


def test_two_agents_of_a_server_keep_the_runs_of_each_other(path: Path) -> None:
    def kept(*runs: JobRun) -> KeptHistory:
        return KeptHistory(NOW_US, [KeptJob("pg_dump", "appdb", "backup", 5, list(runs))])

    first, second = JobRun(NOW_US, 60.0, False), JobRun(NOW_US + DAY_US, 60.0, True)
    save_history(path, kept(first))
    save_history(path, kept(second))
    save_history(path, KeptHistory(NOW_US + 1, [KeptJob("psql", None, None, 5, [first])], [("psql", None, None)]))
    history = load_or_set_aside(path)
    assert history is not None and (history.until_us, history.running) == (NOW_US + 1, [("psql", None, None)])
    assert {job.kind: len(job.runs) for job in history.jobs} == {"pg_dump": 2, "psql": 1}


def test_agents_that_write_at_the_same_time_lose_nothing(path: Path) -> None:
    def write(number: int) -> None:
        runs = [JobRun(NOW_US + number * DAY_US, 60.0, True)]
        save_history(path, KeptHistory(NOW_US, [KeptJob("pg_dump", "appdb", "backup", 5, runs)]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(MAX_RUNS)))
    history = load_or_set_aside(path)
    assert history is not None and len(history.jobs[0].runs) == MAX_RUNS


def of_run(run: bytes) -> bytes:
    job = b'{"kind": "pg_dump", "database": "d", "user": "u", "watched_since_us": 5, "runs": [%s]}'
    return b'{"until_us": 1, "jobs": [' + job % run + b"]}"


DAMAGE = [
    *(b"", b"\xff\xfe", b'{"until_us": 1, "jobs": [', b"[]", b'{"until_us": 1, "jobs": 5}'),
    *(b'{"x":' + b"[" * 100_000, of_run(b"[1, 1e999, true]"), of_run(b"[1, -3, true]"), of_run(b"[-1, 5, true]")),
]


def test_an_undamaged_file_is_read(path: Path) -> None:
    save_history(path, HISTORY)
    path.write_bytes(of_run(b"[1, 5, true]"))
    assert (kept := load_or_set_aside(path)) is not None and kept.jobs[0].runs == [JobRun(1, 5.0, True)]


def test_the_details_of_a_run_are_stored_with_a_limit(path: Path) -> None:
    reported = RunFacts(
        size_bytes=1 << 40, bytes=1 << 38, format="directory", version="15.18", jobs=4, exit=1, errors=2,
        phases=tuple(RunPhase(f"phase {number}", 60.0, 240.0, 1 << 40) for number in range(MAX_PHASES + 1)),
        last_error="could not execute query: " + "x" * 1000, whole=True,
    )  # fmt: skip
    run = make_run(NOW_US, 3600.0, True, reported)
    full = KeptHistory(7, [KeptJob("pg_dump", f"db{job}", "backup", 5, [run] * MAX_RUNS) for job in range(MAX_JOBS)])
    save_history(path, full)
    assert load_or_set_aside(path) == full, "the largest history there can be is read again"
    assert len(run.phases) == MAX_PHASES and len(run.last_error or "") == MAX_ERROR_LENGTH


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_renamed(path: Path, damage: bytes) -> None:
    save_history(path, HISTORY)
    path.write_bytes(damage)
    with pytest.raises(DamagedHistory, match="not a valid job history"):
        load_or_set_aside(path)
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == damage


def test_changing_servers_leave_a_limited_number_of_files(path: Path) -> None:
    for number in range(MAX_SERVERS + 3):
        one = path.with_name(f"{number:04}.json")
        save_history(one, HISTORY, *(["link to the first"] if number == 0 else []))
        os.utime(one, (number, number))
    assert len(list(path.parent.glob("*.json"))) == MAX_SERVERS
    assert history_path("link to the first") is None and not (path.parent / "link to the first").is_symlink()
    assert not path.with_name("0000.json").exists()
    assert path.with_name(f"{MAX_SERVERS + 2:04}.json").exists()


def test_a_link_in_its_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    save_history(path, HISTORY)
    (tmp_path / "elsewhere").write_bytes(b"precious")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        load_or_set_aside(path)
    with pytest.raises(OSError):
        save_history(path, HISTORY)
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


def test_a_directory_writable_by_others_is_refused(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    with pytest.raises(ConsoleError, match="others may write"):
        save_history(path, HISTORY)


def test_nothing_is_written_before_the_file_was_read(path: Path) -> None:
    writer = HistoryFile(SERVER, SYSTEM)
    writer.close(HISTORY)
    assert not path.exists()


def test_a_change_is_written_at_once_and_an_unchanged_state_after_a_while(path: Path) -> None:
    clock = ShiftedClock()
    writer = HistoryFile(SERVER, clock)
    assert read(writer) is None
    assert not writer.write(lambda: HISTORY, now=False)
    assert writer.write(lambda: HISTORY, now=True)
    wait_until(path.exists, what="the file")
    wait_until(lambda: not writer.write(lambda: HISTORY, now=False), what="the write taken back")
    path.unlink()
    clock.advance(WRITE_INTERVAL_US / 1e6 + 1)
    assert writer.write(lambda: HISTORY, now=False)
    wait_until(path.exists, what="the file again")
    writer.close(None)


def test_the_last_state_is_written_at_the_end(path: Path) -> None:
    writer = HistoryFile(SERVER, SYSTEM)
    read(writer)
    writer.close(HISTORY)
    assert load_or_set_aside(path) == HISTORY


def test_an_unresponsive_disk_is_not_waited_for_and_loses_no_history(path: Path) -> None:
    path.parent.mkdir(parents=True, mode=0o700)
    path.parent.parent.chmod(0o700)
    path.parent.chmod(0o700)
    os.mkfifo(path)  # opening it waits for a writer, as a stalled file system does
    clock = ShiftedClock()
    writer = HistoryFile(SERVER, clock)
    assert writer.read() is None
    clock.advance(IO_TIMEOUT_US / 1e6 + 1)
    assert writer.read() is None
    assert "does not answer" in (writer.error or "")
    assert not writer.loaded
    assert writer.read() is None
    _release(path)
    wait_until(path.with_suffix(".damaged").exists, what="the late reader's end")
    save_history(path, HISTORY)
    clock.advance(RETRY_US / 1e6 + 1)
    assert read(writer) == HISTORY
    assert not writer.error
    writer.close(None)


def test_a_write_failure_is_reported_and_retried(path: Path) -> None:
    clock = ShiftedClock()
    writer = HistoryFile(SERVER, clock)
    read(writer)
    path.parent.parent.mkdir(mode=0o700)
    path.parent.write_bytes(b"a file where the directory should be")
    assert writer.write(lambda: HISTORY, now=True)
    wait_until(lambda: _trouble(writer), what="the trouble")
    assert "cannot be written" in (writer.error or "")
    path.parent.unlink()
    assert not writer.write(lambda: HISTORY, now=True), "not each second"
    clock.advance(RETRY_US / 1e6 + 1)
    assert writer.write(lambda: HISTORY, now=False)
    wait_until(path.exists, what="the file")
    wait_until(lambda: not _trouble(writer), what="the trouble over")
    writer.close(None)


def _trouble(writer: HistoryFile) -> bool:
    writer.write(lambda: HISTORY, now=False)
    return writer.error is not None


def _release(fifo: Path) -> None:
    """End the wait of the process that opened it."""
    os.close(os.open(fifo, os.O_WRONLY))
