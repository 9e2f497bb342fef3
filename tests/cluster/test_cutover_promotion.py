"""The runbook `cutover` when the new primary has trouble: names that hang every commit, a promotion that takes too
long, a full disk. Clients are held meanwhile, and the run is resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from dba_console.core.errors import ConsoleError
from dba_console.demo.practice_cluster import APPLICATION_ROLE, DATABASE, Node, PracticeCluster
from tests.background import wait_until
from tests.cli.console import CompletedCommand, Console
from tests.disks import mounted
from tests.faults.test_cutover_faults import CutoverTrial, setting, unwrapped
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("cutover")
NAMES = "synchronous_standby_names"
STREAMING = "select count(*) from pg_stat_replication where state = 'streaming'"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CutoverTrial]:
    require_tool("pgbouncer")
    with PracticeCluster() as ground:
        yield CutoverTrial(ground, tmp_path_factory.mktemp("cutovers"))


def resume(console: Console, trial: CutoverTrial, answers: str) -> CompletedCommand:
    return console.run("runbook", "resume", "last", "--plain", stdin=answers, timeout=120, **trial.ground.environment)


def set_names(node: Node, names: str | None) -> None:
    """Set the names, and wait until the server has read them."""
    setting(node, NAMES, names)
    wait_until(lambda: node.psql(f"show {NAMES}") == (names or ""), what=NAMES)


def assert_complete(trial: CutoverTrial, to: str) -> None:
    """`to` is the only primary, all others stream from it, clients write, nothing is lost."""
    nodes = trial.ground.nodes
    assert [one for one, node in nodes.items() if node.is_primary()] == [to]
    wait_until(lambda: nodes[to].psql(STREAMING) == "2", what="two standbys that follow")
    assert nodes[to].psql("select datname from pg_database where datconnlimit <> -1") == ""
    before = trial.ground.verdict().acknowledged
    wait_until(lambda: trial.ground.verdict().acknowledged > before, what="a commit of the load")
    assert trial.ground.verdict().all_kept, trial.ground.verdict().sentence()


def test_standby_names_that_hang_every_commit_are_refused_before_it_starts(trial: CutoverTrial) -> None:
    set_names(trial.db2, "nobody")
    done = trial.run_cutover("hooks", lambda: None)
    set_names(trial.db2, None)
    assert done.code == 8 and "db2 has synchronous_standby_names = nobody" in unwrapped(done.out), done
    assert "set synchronous_standby_names of db2 to its standbys" in unwrapped(done.out), done
    trial.assert_as_before()


def test_clients_are_admitted_when_enough_standbys_follow_for_a_commit(trial: CutoverTrial) -> None:
    set_names(trial.db2, "ANY 2 (db1, db3)")
    done = trial.run_cutover("hooks", lambda: None)
    assert done.code == 0 and "db1 returns as a standby: commits wait for it" in done.out, done
    assert done.out.index("db1 returns") < done.out.index("clients could not write for")
    assert_complete(trial, "db2")
    assert trial.db1.psql("select 1 from pg_replication_slots") == "", "a slot there would keep WAL for ever"
    set_names(trial.db2, None)


def test_standby_names_set_since_the_check_block_clients_until_they_are_changed(trial: CutoverTrial) -> None:
    with trial.run_with_fault("fence", partial(set_names, trial.db1, "nobody"), to="db1") as (console, done):
        text = unwrapped(done.out)
        assert done.code == 7 and "every commit would hang, so clients are still held" in text, done
        assert "of db1 is 'nobody', needs 1 such standbys and has 0" in text, done
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            psycopg.connect(trial.db1.dsn(user=APPLICATION_ROLE, dbname=DATABASE))
        set_names(trial.db1, None)
        resumed = console.run(
            "runbook", "resume", "last", "--plain", "--failed", "retry", "--confirm", "promote=db1", "--yes",
            timeout=120, **trial.ground.environment,
        )  # fmt: skip
    assert resumed.code == 0, f"without a terminal: {resumed}"
    assert_complete(trial, "db1")


def pooler_setting(trial: CutoverTrial, name: str) -> str:
    assert trial.ground.pooler is not None
    with closing(psycopg.connect(trial.ground.pooler.dsn(), autocommit=True)) as admin:
        result = admin.pgconn.exec_(b"SHOW CONFIG")
        rows = {result.get_value(row, 0): result.get_value(row, 1) for row in range(result.ntuples)}
    return (rows[name.encode()] or b"").decode()


def startup_process(node: Node) -> int:
    """The process that replays, and ends with the promotion."""

    def found() -> int | None:
        children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
        titles = {one: Path(f"/proc/{one}/cmdline") for one in children}
        return next((int(one) for one, title in titles.items() if b": startup " in title.read_bytes()), None)

    return wait_until(found, what="the startup process")


def test_a_slow_promotion_is_awaited_and_the_run_continues_from_there(trial: CutoverTrial) -> None:
    process = startup_process(trial.db2)
    try:
        with trial.run_with_fault("promote", partial(os.kill, process, signal.SIGSTOP), promote="1s") as (
            console,
            done,
        ):
            text = unwrapped(done.out)
            assert done.code == 7 and "db2 is still in recovery 1s after pg_promote()" in text, done
            assert "retry checks again and waits" in text and "past its point of no return" in text, done
            again = resume(console, trial, "retry\ndb2\n")
            assert again.code == 130 and again.out.count("1s after pg_promote()") == 2, again
            os.kill(process, signal.SIGCONT)
            wait_until(trial.db2.is_primary)
            resumed = resume(console, trial, "retry\ndb2\ny\n")
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)
    assert resumed.code == 0, resumed
    assert_complete(trial, "db2")


def test_clients_that_wait_are_not_disconnected_by_the_pooler_and_a_delayed_third_node_is_a_warning(
    trial: CutoverTrial,
) -> None:
    limit, seen = "query_wait_timeout", []
    pooler, db3 = trial.ground.pooler, trial.ground.nodes["db3"]
    assert pooler is not None
    text = pooler.config.read_text()
    pooler.config.write_text(text.replace("[pgbouncer]\n", f"[pgbouncer]\n{limit} = 3\n", 1))
    with closing(psycopg.connect(pooler.dsn(), autocommit=True)) as admin:
        admin.pgconn.exec_(b"RELOAD")
    setting(db3, "recovery_min_apply_delay", "1h")
    errors = trial.ground.ledger / "errors.log"
    before = errors.read_text()

    def wait_longer_than_that() -> None:
        seen.append(pooler_setting(trial, limit))
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 5, what="more than the limit")

    [to, old] = [("db2", "db1"), ("db1", "db2")][trial.db2.is_primary()]
    try:
        with trial.run_with_fault("release", wait_longer_than_that, to=to, follow="2s") as (_, done):
            assert done.code == 0, done
    finally:
        setting(db3, "recovery_min_apply_delay", None)
        pooler.config.write_text(pooler.config.read_text().replace(f"{limit} = 3\n", "", 1))
    assert seen == ["0"] and pooler_setting(trial, limit) == "3", "lifted while clients are held, then restored"
    assert limit not in errors.read_text()[len(before) :]
    shown = unwrapped(done.out)
    assert "warning: after 2s not streaming from" in shown and "db3: " in shown, done
    assert f"{old} streams from {to}" in shown, done
    assert_complete(trial, to)


@contextmanager
def own_disk(node: Node) -> Iterator[Callable[[bool], None]]:
    """The data directory is on its own file system until the block ends; the callable fills it or frees space."""
    data = node.data_directory
    node.stop()
    aside = data.rename(data.with_name("aside"))
    with mounted("tmpfs", data, "-o", "size=2g,mode=700"):

        def resize(full: bool) -> None:
            now = os.statvfs(data)
            size = (now.f_blocks - now.f_bfree) * now.f_frsize if full else 2 << 30
            subprocess.run([require_tool("mount"), "-o", f"remount,size={size}", str(data)], check=True)

        subprocess.run(["cp", "-a", f"{aside}/.", str(data)], check=True)
        node.start()
        try:
            yield resize
        finally:
            node.stop("immediate")


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CutoverTrial, dict[str, Callable[[bool], None]]]]:
    """A cluster whose first two nodes have a disk each."""
    require_tool("pgbouncer")
    with PracticeCluster() as ground, ExitStack() as opened:
        db1, db2 = ground.nodes["db1"], ground.nodes["db2"]
        resize = {node.name: opened.enter_context(own_disk(node)) for node in (db2, db1)}
        opened.callback(ground.stop_load)  # while there is a server that it writes to
        wait_until(lambda: db1.psql(STREAMING) == "2", what="two standbys that follow")
        yield CutoverTrial(ground, tmp_path_factory.mktemp("cutovers")), resize


def write_wal_until_error(node: Node) -> None:
    """One segment of WAL after the other."""
    with pytest.raises(ConsoleError, match="PANIC"):
        for _ in range(100):
            node.psql("select pg_logical_emit_message(true, 'a', 'b'); select pg_switch_wal()")
    wait_until(lambda: not node.running, what="the end of the server")


@pytest.mark.root
@pytest.mark.parametrize(("to", "before"), [("db2", "promote"), ("db1", "repoint")])
def test_a_full_disk_of_the_new_primary_is_named_and_with_space_the_run_continues(
    disks: tuple[CutoverTrial, dict[str, Callable[[bool], None]]], to: str, before: str
) -> None:
    """Full when it is promoted: it ends in its promotion. Full after it: it ends with the next segment of WAL."""
    trial, resize = disks
    node = trial.ground.nodes[to]

    def fill_up() -> None:
        resize[to](True)
        if before != "promote":
            write_wal_until_error(node)

    with trial.run_with_fault(before, fill_up, to=to) as (console, done):
        text = unwrapped(done.out)
        full = f"it is not running; {node.data_directory} is full"
        assert done.code == 7 and full in text and "past its point of no return" in text, done
        assert re.search(f"start it with `[^`]*pg_ctl start -D {node.data_directory} ", text), done
        again = resume(console, trial, f"retry\n{to}\n")
        assert again.code == 130 and unwrapped(again.out).count(full) >= 2, again
        resize[to](False)
        node.start()
        resumed = resume(console, trial, f"retry\n{to}\ny\n")
    assert resumed.code == 0, resumed
    assert_complete(trial, to)
