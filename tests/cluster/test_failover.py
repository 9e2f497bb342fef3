"""The runbook `failover` on real clusters with a load and its ledger: the primary is killed, frozen, cut off, or comes
back at the worst moment. No second primary accepts writes, and no commit is lost that could be read."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dba_console.demo.temporary_server import child_processes
from tests.background import wait_until
from tests.cluster.failover_trial import (
    CUT_OFF,
    DOWN,
    LATER,
    OVERRIDE,
    PROMOTE,
    FailoverTrial,
    failover_trial,
    unwrapped,
)
from tests.requirements import require_tool

pytestmark = pytest.mark.xdist_group("failover")
STREAMING = "select count(*) from pg_stat_replication where state = 'streaming'"
RECEIVED = "select pg_last_wal_receive_lsn()"
UNREAD = "select string_agg(slot_name, ' ') from pg_replication_slots where not active"


@pytest.fixture
def trial() -> Iterator[FailoverTrial]:
    require_tool("pgbouncer")
    with failover_trial() as made:
        yield made


def segments(directory: Path, timeline: str) -> list[int]:
    return sorted(
        int(one.name[16:], 16) for one in directory.glob(f"{timeline}????????????????") if len(one.name) == 24
    )


def test_a_killed_primary_is_replaced_and_returns_with_pg_rewind(trial: FailoverTrial) -> None:
    refused = trial.run(f"{DOWN}=yes")
    assert refused.code == 8 and "answers as the primary" in refused.out, refused
    trial.db1.kill()
    wait_until(lambda: trial.check()["ready"], what="the evidence")
    word, asked = trial.asked(f"{DOWN}=yes")
    assert word == "0" and "0 bytes of WAL are lost: the WAL of db1 ends at" in unwrapped(asked.out), asked
    assert not (trial.db1.data_directory / "standby.signal").exists(), "reverted"
    done = trial.run(
        f"{DOWN}=yes", f"{PROMOTE}=0", "can-the-old-primary-come-back=rewind", "rewind-the-old-primary=rewind"
    )
    assert done.code == 0, done
    assert trial.primaries() == ["db2"]
    wait_until(lambda: trial.db2.psql(STREAMING) == "2", what="two standbys that follow")
    assert trial.db2.psql(UNREAD) == ""
    trial.assert_clients_write()
    # And again at once, on the new timeline, to a node that lacks its last WAL.
    for node in (trial.db1, trial.db3):
        trial.detach(node)
    trial.db2.psql("create table saved as select generate_series(1, 100000) i")
    trial.db2.kill()
    done = trial.run(f"{DOWN}=yes", f"{PROMOTE}=0", LATER, to="db3")
    assert done.code == 0 and trial.primaries() == ["db3"], done
    assert trial.db3.psql("select count(*) from saved") == "100000"
    assert trial.ground.verdict().all_kept, trial.ground.verdict().sentence()


def test_commits_that_only_the_dead_primary_has_are_fetched_and_the_archive_has_no_hole(trial: FailoverTrial) -> None:
    """Its data directory is not configured: it was recorded by the check. Replay of the standby is delayed."""
    db1, db2 = trial.db1, trial.db2
    trial.configure(f'data_directory = "{db1.data_directory}"\n', "")
    trial.check()
    db1.psql("alter system set archive_command = 'false'")
    db1.psql("select pg_reload_conf()")
    for _ in range(3):
        db1.psql("create table if not exists t (i int); insert into t values (1)")
        db1.psql("select pg_switch_wal()")
    for node in (trial.db3, db2):
        trial.detach(node)
    db2.psql("alter system set recovery_min_apply_delay = '1h'")
    db2.psql("select pg_reload_conf()")
    db1.psql("create table saved as select generate_series(1, 300000) i")
    db1.kill()
    word, asked = trial.asked(f"{DOWN}=yes")
    assert word == "0" and re.search(
        r"db2 has all WAL of db1, up to [^ ]+: \d{7,} bytes were saved", unwrapped(asked.out)
    ), asked
    done = trial.run(f"{DOWN}=yes", f"{PROMOTE}=0", LATER)
    assert done.code == 0, done
    assert db2.psql("select count(*) from saved") == "300000"
    trial.assert_clients_write()
    archived = segments(trial.ground.archive, "00000001")
    assert archived == list(range(1, archived[-1] + 1)) and len(archived) > 3, done
    assert "db2 archives: " in done.out and db2.psql(UNREAD) == "", done


def _is_sender(process: psutil.Process) -> bool:
    try:
        return any("walsender" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # it has just ended, reaped or not
        return False


@contextmanager
def frozen(trial: FailoverTrial) -> Iterator[None]:
    """As a host that has vanished: its sockets stay open, nothing answers."""
    assert trial.db1.pid is not None
    os.kill(trial.db1.pid, signal.SIGSTOP)  # first: it starts no process from now on
    children = child_processes(trial.db1.pid)
    senders = [child for child in children if _is_sender(child)]
    stopped = [child.pid for child in children if child not in senders]
    for pid in stopped:
        with suppress(ProcessLookupError):  # a worker that has just ended
            os.kill(pid, signal.SIGSTOP)
    if len(senders) == 2:  # what was written last reaches both standbys, so that neither has more than the other
        wait_until(lambda: len({node.psql(RECEIVED) for node in (trial.db2, trial.db3)}) == 1, what="equal standbys")
    for sender in senders:
        with suppress(psutil.NoSuchProcess):
            sender.suspend()
    pids = [trial.db1.pid, *stopped, *(sender.pid for sender in senders)]
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_frozen_primary_on_a_reachable_host_is_killed_and_its_wal_is_fetched(trial: FailoverTrial) -> None:
    for node in (trial.db3, trial.db2):
        trial.detach(node)
    trial.db2.psql("select pg_wal_replay_pause()")
    trial.db1.psql("create table saved as select generate_series(1, 100000) i")
    with frozen(trial):
        done = trial.run(
            f"{DOWN}=yes", f"{PROMOTE}=0", "can-the-old-primary-come-back=clone", "clone-the-old-primary=clone"
        )
        assert done.code == 0, done
        assert "db1 does not stop: SIGKILL to its processes" in unwrapped(done.out), done
    assert trial.primaries() == ["db2"] and trial.db2.psql("select count(*) from saved") == "100000"
    wait_until(lambda: trial.db2.psql(STREAMING) == "2", what="two standbys that follow")
    trial.assert_clients_write()


def receiver_timeouts(trial: FailoverTrial, value: str) -> None:
    for node in (trial.db2, trial.db3):
        node.psql(f"alter system set wal_receiver_timeout = '{value}'")
        node.psql("select pg_reload_conf()")


def failing(checks: dict[str, Any]) -> list[str]:
    return [name for name, one in checks.items() if name != "ready" and one["state"] == "failed"]


def test_a_vanished_host_blocks_nothing_and_what_does_not_answer_is_left_to_the_operator(trial: FailoverTrial) -> None:
    receiver_timeouts(trial, "0")
    trial.configure(f'data_directory = "{trial.db1.data_directory}"\n', "")
    trial.configure_more('[clusters.demo.poolers.gone]\ndsn = "host=127.0.0.1 port=1 user=x dbname=pgbouncer"')
    trial.configure_more('[clusters.demo.hooks.cron]\nrun = ["false"]\nundo = ["false"]')
    with frozen(trial):
        wait_until(lambda: "view.db2" not in failing(trial.check()), what="silence")
        silent = trial.run(f"{DOWN}=yes", f"{CUT_OFF}=power cut")
        text = unwrapped(silent.out)
        assert silent.code == 8 and "type `db1`" in text and f"--confirm {OVERRIDE}=db1" in text, silent
        assert "wal_receiver_timeout of db2 is 0: it never closes a silent connection" in text, silent
        receiver_timeouts(trial, "15s")
        done = trial.run(
            f"{DOWN}=yes",
            f"{CUT_OFF}=power cut",
            f"{PROMOTE}=unknown",
            "point-the-rest-to-the-new-primary-by-hand=later",
            "can-the-old-primary-come-back=rewind",
            "what-pg-rewind-reports=leave",
        )
        text = unwrapped(done.out)
        assert done.code == 0, done
        assert "db1 does not answer (time-out)" in text and "is dead" not in text, done
        assert "pgbouncer: its clients were disconnected, new ones wait" in text, done
        assert "The data loss is unknown: this host has no record of db1" in text, done
        assert "point to db2 by hand: pooler gone" in text, done
        assert re.search(r"left to do: 1\. hook cron failed", text), done
        assert trial.primaries() == ["db2"]
        trial.assert_clients_write()
    assert trial.db2.psql(UNREAD) == ""


def test_a_primary_that_only_this_host_cannot_reach_is_never_failed_over(trial: FailoverTrial) -> None:
    trial.configure(f"port={trial.db1.port}", "port=1", count=1)
    trial.configure(f'data_directory = "{trial.db1.data_directory}"\n', "")
    done = trial.run(f"{DOWN}=yes", f"{OVERRIDE}=db1", f"{CUT_OFF}=yes", f"{PROMOTE}=unknown", LATER)
    assert done.code in (7, 8) and trial.primaries() == ["db1"], done
    assert "received a message from the primary after this began: the primary is running" in unwrapped(done.out), done


def start_again(trial: FailoverTrial) -> str:
    """As its supervisor does."""
    return f"rm -f {trial.db1.data_directory}/standby.signal; {trial.start_command(trial.db1)}"


@pytest.mark.parametrize("before", ["failover-fence", "failover-fetch"])
def test_an_old_primary_that_returns_before_the_promotion_prevents_it(trial: FailoverTrial, before: str) -> None:
    trial.db1.kill()
    done = trial.run_with(before, start_again(trial), f"{DOWN}=yes", f"{PROMOTE}=0")
    text = unwrapped(done.out)
    assert done.code in (7, 8) and "db1 answers as the primary" in text, done
    assert trial.primaries() == ["db1"]
    trial.assert_clients_write()


def test_an_old_primary_that_accepts_writes_after_the_promotion_is_reported_by_the_release(
    trial: FailoverTrial,
) -> None:
    """It is not kept down: its data directory is unknown, and the operator was wrong."""
    trial.configure(f'data_directory = "{trial.db1.data_directory}"\n', "")
    trial.configure_clients_of_both()
    trial.db1.kill()
    done = trial.run_with(
        "cutover-release", start_again(trial), f"{DOWN}=yes", f"{CUT_OFF}=wrongly", f"{PROMOTE}=unknown"
    )
    text = unwrapped(done.out)
    assert done.code == 7 and "two nodes accept writes. Stop it or cut it off" in text, done


def test_a_failover_on_top_of_an_interrupted_cutover_lets_its_clients_in_again(trial: FailoverTrial) -> None:
    """Other operators see the cutover, then the failover until it is closed, then nothing."""
    trial.interrupt_cutover()
    limited = "select count(*) from pg_database where datconnlimit = 0"
    assert trial.db3.psql(limited) != "0", "the cutover had blocked connections"
    show = "dba-console cluster show demo"
    done = trial.run_with("failover-archive", show, f"{DOWN}=yes", f"{PROMOTE}=0", LATER, to="db3")
    assert done.code == 0 and trial.primaries() == ["db3"], done
    assert trial.db3.psql(limited) == "0"
    trial.assert_clients_write()
    before, marked, after = unwrapped(done.out).partition("! a failover of demo from db1 to db3 by ")
    assert marked and "clients work on the new primary" in after and "a cutover of" in before, done
    assert "a cutover of" not in after and "clients are held" not in after, done
    shown = trial.console.run("cluster", "show", "demo", timeout=60, **trial.ground.environment)
    assert "in progress" not in shown.out, "no mark is left"
    assert trial.db2.psql(UNREAD) == "" and trial.db3.psql(UNREAD) == ""
