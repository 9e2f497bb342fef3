"""Runs while the server, the disk or the line to the operator is in trouble."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from dba_console.agent.find_or_start import list_agents
from dba_console.core.clock import SYSTEM
from dba_console.demo.temporary_server import Cluster
from dba_console.recording.run_reader import read_run
from tests.agent.agents import ConsoleClient, agent, environment
from tests.agent.runs.scripted_console import Operator, answers
from tests.agent.runs.small_runbooks import ONE_CHANGE
from tests.background import session, wait_until
from tests.clusters import FreshCluster
from tests.disks import loop_mounted
from tests.requirements import require_tool

YES = answers({"*": "yes"})
OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, '-m', 'dba_console', *sys.argv[1:]])"
)
"""Its terminal is the controlling one, so that losing it is a hangup."""
OWN_ENVIRONMENT = (
    "select pid from pg_stat_activity where application_name like 'dba-console:%' and wait_event_type = 'Lock'"
)


def assert_ticks(watch: ConsoleClient) -> None:
    """The agent ticks: samples come that are of now."""
    for _ in range(3):
        now_us = SYSTEM.mono_us()
        watch.until(lambda frame: frame.mono_us > now_us, 60, what="a sample of now")  # noqa: B023


def test_a_restarted_server_is_continued_with_only_after_confirmation(
    fresh_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = fresh_cluster()
    cluster.psql("create table changed(i int)")
    with agent(cluster.dsn(), tmp_path) as running:
        operator = Operator.of(running)
        operator.begin(ONE_CHANGE)
        operator.answer(operator.question("start"), "yes")
        asked = operator.question("yes")
        cluster.stop()
        cluster.start()
        operator.answer(asked, "yes")
        asked = operator.question("yes")
        assert "Was this restart intentional" in asked.text
        operator.answer(asked, "no")
        asked = operator.question("failed")
        assert "after this run was planned" in asked.text
        operator.answer(asked, "retry")
        assert operator.walk(YES).state == "done"
    assert cluster.psql("select count(*) from public.changed").strip() == "1"


def test_a_hanging_backend_blocks_only_the_run(fresh_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = fresh_cluster()
    cluster.psql("create table changed(i int)")
    book = ONE_CHANGE.replace("timeout=20s", "timeout=10s lock_timeout=60s")
    with agent(cluster.dsn(), tmp_path) as running, psycopg.connect(cluster.dsn()) as holder:
        holder.execute("lock table public.changed in access exclusive mode")
        operator, watch = Operator.of(running), running.watch()
        operator.begin(book)
        operator.answer(operator.question("start"), "yes")
        with session(cluster) as observing:
            operator.answer(operator.question("yes"), "yes")
            [[found]] = wait_until(
                lambda: observing.execute(OWN_ENVIRONMENT).fetchall(), 60, what="the change waiting for its lock"
            )
        pid = int(str(found))
        os.kill(pid, signal.SIGSTOP)
        try:
            assert_ticks(watch)
            asked = operator.question("failed")
            assert "did not answer" in asked.text
        finally:
            os.kill(pid, signal.SIGCONT)
        holder.rollback()
        operator.answer(asked, "abort")
        operator.until(lambda: operator.view is not None and operator.view.state == "failed", "the end")
    assert cluster.psql("select count(*) from public.changed").strip() == "0"


@pytest.mark.root
def test_nothing_is_done_while_the_disk_takes_no_intent_unless_the_operator_allows_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    freeze = require_tool("fsfreeze")
    cluster.psql("create table changed(i int)")
    try:
        with loop_mounted(tmp_path / "image", tmp_path / "sessions") as place:
            place.chmod(0o700)
            with agent(cluster.dsn(), tmp_path) as running:
                operator, watch = Operator.of(running), running.watch()
                directory = operator.begin(ONE_CHANGE).directory
                operator.answer(operator.question("start"), "yes")
                asked = operator.question("yes")
                subprocess.run([freeze, "-f", str(place)], check=True)
                try:
                    operator.answer(asked, "yes")
                    asked = operator.question("journal")
                    assert cluster.psql("select count(*) from public.changed").strip() == "0"
                    assert_ticks(watch)
                    operator.answer(asked, "in memory")
                    view = operator.until(
                        lambda: operator.view is not None and operator.view.state == "done", "the end"
                    )
                    assert view.journal.startswith("in memory")
                    assert cluster.psql("select count(*) from public.changed").strip() == "1"
                finally:
                    subprocess.run([freeze, "-u", str(place)], check=True)
                wait_until(lambda: not read_run(Path(directory)).live, 60, what="the journal let go of")
            stored = read_run(Path(directory))
            assert stored.damage is None and stored.ended is not None
    finally:
        cluster.psql("drop table public.changed")


def test_a_dropped_connection_ends_the_console_and_not_the_run(cluster: Cluster, tmp_path: Path) -> None:
    cluster.psql("create table changed(i int)")
    book = tmp_path / "one-change.md"
    book.write_text(ONE_CHANGE)
    here, there = pty.openpty()
    env = {**os.environ, **environment(tmp_path), "TERM": "xterm"}
    command = [sys.executable, "-c", OWN_TERMINAL, "runbook", "run", str(book), "--plain", "--dsn", cluster.dsn()]
    console = subprocess.Popen(command, stdin=there, stdout=there, stderr=there, env=env, start_new_session=True)
    os.close(there)
    agents: list[int] = []
    try:
        message = b""
        while b"Start" not in message:
            message += os.read(here, 4096)
        os.close(here)
        console.wait(60)
        [found] = list_agents()
        agents = [found.pid]
        operator = Operator.attach(found.path)
        try:
            [left] = operator.runs
            operator.watch(left.run)
            assert operator.walk(YES).state == "done"
        finally:
            operator.close()
        assert cluster.psql("select count(*) from public.changed").strip() == "1"
    finally:
        console.kill()
        console.wait()
        for pid in agents or [one.pid for one in list_agents()]:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not list_agents(), 60, what="the agent's end")
        cluster.psql("drop table public.changed")
