"""What goes wrong in the middle of a cutover, caused on real servers: it stops where it must, says why, and everything
is as before; nothing acknowledged is lost.

Each fault happens at the beginning of an act, by a block that is put in front of it.
"""

from __future__ import annotations

import getpass
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from dba_console.demo.practice_cluster import Node, PracticeCluster
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console, own_console
from tests.cluster.test_node_host import processes
from tests.disks import fill, mounted
from tests.faults.cutover_kills import HOLD, PROMOTE, RUN_S, RUNBOOK
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("cutover-faults")
Fault = Callable[[], object]
SLEEPS = 617
"""Seconds that an archive_command takes which never ends; nothing else here sleeps so long."""


class CutoverTrial:
    """A cluster that is as before after each test, and cutovers of it to db2.

    They are run by the agent of `console`; without one, and where the size of their directories matters, each by an
    agent of its own."""

    def __init__(self, ground: PracticeCluster, directory: Path, console: Console | None = None) -> None:
        self.ground, self.directory, self._console = ground, directory, console
        self.db1, self.db2 = ground.nodes["db1"], ground.nodes["db2"]
        self.runs = directory

    def run_cutover(self, before: str, fault: Fault, *, runs: str = "", **timeouts: str) -> CompletedCommand:
        """As `run_with_fault`, with the console closed."""
        with self.run_with_fault(before, fault, runs=runs, **timeouts) as (_, done):
            return done

    @contextmanager
    def run_with_fault(
        self, before: str, fault: Fault, *, to: str = "db2", runs: str = "", **timeouts: str
    ) -> Iterator[tuple[Console, CompletedCommand]]:
        """Run until it ends; the act `before` does not begin until `fault` has returned. `runs` is the size
        of a file system for the directories of runs, which is `self.runs`. The console is there to resume it.
        """
        text, marker = RUNBOOK.read_text(), self.directory / "now"
        for act, timeout in timeouts.items():
            text = re.sub(rf'(action cutover-{act} .*?timeout = )"\w+"', rf'\1"{timeout}"', text, count=1, flags=re.S)
        script = f"set -euo pipefail\ncd {self.directory}\ntouch now\nwhile [ -e now ]; do sleep 0.02; done"
        block = f'```sh {{run host role=monitor #fault title="fault"}}\n{script}\n```\n\n'
        act = f"```toml {{action cutover-{before} "
        document = self.directory / "cutover.md"
        document.write_text(text.replace(act, block + act, 1))
        over = threading.Event()
        causing = threading.Thread(target=self._cause_fault, args=(marker, fault, over))
        causing.start()
        ground = self.ground
        given = ["--yes", "--confirm", f"{HOLD}=yes", "--confirm", f"{PROMOTE}={to}", "--plain"]
        inputs = ["--input", "cluster=demo", "--input", f"to={to}"]
        with ExitStack() as opened:
            if (console := self._console) is None or runs:
                console = opened.enter_context(watching_console(ground))
            if runs:
                [session] = wait_until(partial(_directories, console.sessions), what="the session")
                self.runs = opened.enter_context(mounted("tmpfs", session / "runs", "-o", f"size={runs},mode=700"))
            try:
                done = console.run(
                    "runbook", "run", str(document), "--dsn", ground.dsn, *inputs, *given, timeout=RUN_S,
                    **ground.environment,
                )  # fmt: skip
            finally:
                over.set()
                causing.join()
            yield console, done

    def _cause_fault(self, marker: Path, fault: Fault, over: threading.Event) -> None:
        while not over.wait(0.01):
            if marker.exists():
                try:
                    fault()
                finally:
                    marker.unlink()

    def assert_as_before(self) -> None:
        """db1 is the only primary, its limits are as before, clients write, nothing is lost."""
        assert self.db1.is_primary() and not self.db2.is_primary()
        assert self.db1.psql("select datname from pg_database where datconnlimit <> -1") == ""
        before = self.ground.verdict().acknowledged
        wait_until(lambda: self.ground.verdict().acknowledged > before, what="a commit of the load")
        assert self.ground.verdict().all_kept, self.ground.verdict().sentence()


@contextmanager
def watching_console(ground: PracticeCluster) -> Iterator[Console]:
    """A console and its agent on the first node."""
    with own_console() as console, console.watching(ground.dsn, **ground.environment):
        yield console


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _directories(directory: Path) -> list[Path]:
    return [one for one in directory.glob("*") if one.is_dir()]


def setting(node: Node, name: str, value: str | None) -> None:
    change = f"reset {name}" if value is None else f"set {name} = '{value}'"
    for statement in (f"alter system {change}", "select pg_reload_conf()"):
        node.psql(statement)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutoverTrial]:
    require_tool("pgbouncer")
    with PracticeCluster() as ground, watching_console(ground) as console:
        yield CutoverTrial(ground, tmp_path_factory.mktemp("cutovers"), console)


@pytest.fixture(autouse=True)
def standbys_stream(trial: CutoverTrial) -> None:
    """Each begins with two standbys that stream, and with all WAL archived: an archiver that was killed comes later."""
    count = "select count(*) from pg_stat_replication where state = 'streaming'"
    wait_until(lambda: trial.db1.psql(count) == "2", what="two standbys")
    ready = "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'"
    wait_until(lambda: trial.db1.psql(ready) == "0", what="the archive")


def _set_archive_command(trial: CutoverTrial, command: str) -> None:
    """From now on archive_command is this, and there is a file for it."""
    setting(trial.db1, "archive_command", command)
    wait_until(lambda: trial.db1.psql("show archive_command") == command)
    trial.db1.psql("select pg_switch_wal()")


def test_wal_the_stop_left_unarchived_is_named_and_the_old_primary_starts_again(trial: CutoverTrial) -> None:
    try:
        done = trial.run_cutover("stop", partial(_set_archive_command, trial, "false"))
    finally:
        setting(trial.db1, "archive_command", None)
    assert done.code == 7 and re.search("is shut down, but . WAL files are not archived", done.out), done
    trial.assert_as_before()


def test_aborting_a_stop_that_waits_for_the_archive_ends_the_command_and_starts_the_old_primary(
    trial: CutoverTrial,
) -> None:
    try:
        done = trial.run_cutover("stop", partial(_set_archive_command, trial, f"sleep {SLEEPS}"), stop="5s")
    finally:
        setting(trial.db1, "archive_command", None)
        for process in processes(f"sleep\0{SLEEPS}"):  # else the next stop waits for it
            os.kill(process, signal.SIGTERM)
    assert done.code == 7 and "it waits for archive_command" in done.out, done
    trial.assert_as_before()


def test_a_standby_with_replay_delayed_since_the_check_prevents_the_stop_of_the_primary(trial: CutoverTrial) -> None:
    try:
        done = trial.run_cutover("hooks", partial(setting, trial.db2, "recovery_min_apply_delay", "1h"))
    finally:
        setting(trial.db2, "recovery_min_apply_delay", None)
    assert done.code == 7 and "recovery_min_apply_delay is 1h" in done.out, done
    assert "stopping db1" not in done.out
    trial.assert_as_before()


def test_a_dump_that_began_after_the_first_step_prevents_that_clients_are_held(trial: CutoverTrial) -> None:
    with ExitStack() as opened:

        def begin_a_dump() -> None:
            opened.enter_context(closing(psycopg.connect(trial.db1.dsn(application_name="pg_dump"))))

        done = trial.run_cutover("recheck", begin_a_dump)
    assert done.code == 7 and "no longer ready: on db1: 1 session of a dump" in unwrapped(done.out), done
    assert "PAUSE shop" not in done.out, done
    trial.assert_as_before()


def test_a_standby_lost_before_the_stop_prevents_the_stop_of_the_primary(trial: CutoverTrial) -> None:
    try:
        done = trial.run_cutover("drain", trial.db2.stop)
    finally:
        trial.db2.start()
    assert done.code == 7 and "stopping db1" not in done.out, done
    trial.assert_as_before()


@pytest.mark.root
def test_a_run_disk_that_fills_up_while_clients_wait_ends_the_run_and_everything_is_reverted(
    trial: CutoverTrial,
) -> None:
    def fill_up() -> None:
        """Once the block of the fault has ended, for that writes there too."""
        [journal] = trial.runs.glob("*/journal.jsonl")
        wait_until(lambda: "/fault: ok" in journal.read_text(), what="the end of the fault")
        fill(trial.runs)

    filling = threading.Thread(target=fill_up)
    done = trial.run_cutover("drain", filling.start, runs="1m")
    filling.join()
    assert done.code in (7, 8) and re.search("is full|No space left", done.out), done
    assert "reverted: hold-the-clients" in done.out, done
    trial.assert_as_before()


def test_clients_that_another_session_resumed_are_terminated_again_and_lose_nothing(trial: CutoverTrial) -> None:
    pooler = trial.ground.pooler
    assert pooler is not None

    def resume() -> None:
        with closing(psycopg.connect(pooler.dsn(), autocommit=True)) as admin:
            for command in (b"RESUME", b"RESUME shop"):
                admin.pgconn.exec_(command)

    def superuser() -> None:
        """Some that come back whenever they are ended: one of them is there at any time."""
        resume()
        for one in returning:
            one.start()

    def come_back() -> None:
        while not over.is_set():
            try:
                with psycopg.connect(trial.db1.dsn(dbname="shop"), autocommit=True) as connection:
                    while not over.is_set():
                        connection.execute("create or replace view back as select 1")
            except psycopg.Error:
                over.wait(0.01)

    over, returning = threading.Event(), [threading.Thread(target=come_back) for _ in range(6)]
    try:
        done = trial.run_cutover("keep-out", superuser, drain="3s")
    finally:
        over.set()
        for one in returning:
            one.join()
    assert done.code == 7 and re.search("reconnect: [0-9]+ sessions were terminated", done.out), done
    trial.assert_as_before()


def test_a_lost_pooler_prevents_the_promotion_of_the_new_primary(trial: CutoverTrial) -> None:
    pooler = trial.ground.pooler
    assert pooler is not None
    done = trial.run_cutover("fence", pooler.stop)
    pooler.launch()
    assert done.code in (7, 8) and re.search(r"clients\s+could\s+not\s+be\s+connected\s+to\s+db2", done.out), done
    assert "db2 is primary" not in done.out, done
    trial.assert_as_before()


def test_of_two_concurrent_cutovers_one_runs(trial: CutoverTrial) -> None:
    seen: list[CompletedCommand] = []
    environment = trial.ground.environment

    def second() -> None:
        with own_console() as console, console.watching(trial.db2.dsn(), **environment):
            seen.append(
                console.run(
                    "runbook",
                    "run",
                    "cutover",
                    "--dsn",
                    trial.db2.dsn(),
                    "--input",
                    "cluster=demo",
                    "--input",
                    "to=db3",
                    "--yes",
                    "--plain",
                    timeout=60,
                    **environment,
                )
            )
            for command in (("show", "demo"), ("check", "demo", "--to", "db3")):
                seen.append(console.run("cluster", *command, timeout=60, **environment))
        setting(trial.db2, "recovery_min_apply_delay", "1h")  # the end of the first one too

    try:
        done = trial.run_cutover("drain", second)
    finally:
        setting(trial.db2, "recovery_min_apply_delay", None)
    begun, shown, checked = seen
    progress = f"a cutover of demo from db1 to db2 by {getpass.getuser()} is in progress since "
    assert progress in begun.out and "runbook resume" in begun.out, begun
    assert progress in shown.out and "clients are held for" in shown.out, shown
    assert re.search(
        r'runbook resume \S+` finishes .*: RESUME "shop"; ALTER DATABASE "\S+" CONNECTION LIMIT -1', shown.out
    )
    assert checked.code == 7 and "two cutovers at the same time" in checked.out, checked
    assert not list(trial.db1.data_directory.glob("dba_console_*")), "the mark in the data directory is removed"
    assert trial.db2.psql("select count(*) from pg_db_role_setting") == "0"
    assert done.code == 7 and "recovery_min_apply_delay is 1h" in done.out, done
    assert trial.db1.psql("select slot_name from pg_replication_slots order by 1") == "db2\ndb3", "none was left"
    trial.assert_as_before()


def test_a_target_promoted_outside_the_run_is_never_followed(trial: CutoverTrial) -> None:
    """The last one: db2 has left the history of db1."""
    done = trial.run_cutover("drain", lambda: trial.db2.psql("select pg_promote()"))
    assert done.code == 7 and "two nodes accept writes" in done.out, done
    assert "stopping db1" not in done.out
    assert trial.db1.is_primary() and trial.db1.psql("select datname from pg_database where datconnlimit = 0") != ""
    assert "clients are not admitted to db1: db2 is a primary, on timeline 2" in unwrapped(done.out), done
    assert re.search('RESUME "shop"; ALTER DATABASE "\\S+" CONNECTION LIMIT -1', unwrapped(done.out)), done
