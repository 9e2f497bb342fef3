"""The practice ground carries the load it promises and is gone when it is left, whichever way.

SIGHUP is the matter of `test_command.py`, where a terminal is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.core.errors import ConnectError
from dba_console.demo.clients import DATABASE, Load, LoadPlan
from dba_console.demo.practice_server import PracticeGround
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.processes import mentioned_by

SMALL = LoadPlan(clients=2, rate_per_s=20, idle=6, scale=1)


@pytest.fixture(scope="module")
def ground() -> Iterator[PracticeGround]:
    with PracticeGround(SMALL) as made:
        yield made


def test_the_load_matches_its_plan(ground: PracticeGround) -> None:
    sessions = "select application_name, count(*) from pg_stat_activity where usename <> 'postgres' group by 1"
    planned = {"monthly-report|1", "shop-jobs|2", "shop-web|2", "shop-web-pool|4"}
    wait_until(lambda: set(ground.cluster.psql(sessions).split()) == planned, what="the sessions of the plan")
    wait_until(lambda: ground.cluster.psql("select 1 from pg_stat_activity where state = 'idle in transaction'"))


def test_the_load_writes_at_a_steady_rate(ground: PracticeGround) -> None:
    written = "select count(*) from pgbench_history"
    before = int(ground.cluster.psql(written, dbname=DATABASE))
    wait_until(lambda: int(ground.cluster.psql(written, dbname=DATABASE)) > before + 5, 90)


def test_leaving_ends_server_clients_and_files() -> None:
    with PracticeGround(SMALL) as ground:
        pid, base = ground.cluster.pid, ground.cluster.base
    assert not os.path.exists(f"/proc/{pid}")
    assert not base.exists()
    assert mentioned_by(base) == []


def test_a_load_that_cannot_connect_says_so_with_the_client_error(fresh_cluster: FreshCluster) -> None:
    cluster = fresh_cluster({"max_connections": 10})
    load = Load(cluster, LoadPlan(clients=0, idle=30, forgotten=False, scale=1))
    load.prepare()
    load.start()
    try:
        with pytest.raises(ConnectError, match=r"too many clients|remaining connection slots"):
            wait_until(load.check)
    finally:
        load.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_demo_ended_by_a_signal_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    environment = {
        **os.environ, "DBA_CONSOLE_RUNTIME": str(tmp_path / "run"), "DBA_CONSOLE_SESSIONS": str(tmp_path / "sessions"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip
    script = "from dba_console.demo.command import run_demo; run_demo(True, 600.0, True)"
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    ) as demo:  # fmt: skip
        assert demo.stderr is not None
        base = next(Path(line.split()[-1]).parent for line in demo.stderr if "kept afterwards" in line)
        next(line for line in demo.stderr if "recording for" in line)
        assert mentioned_by(base)
        demo.send_signal(number)
        demo.stderr.read()
    wait_until(lambda: mentioned_by(base) == [], 90, what=f"the end of everything that mentions {base}")
    subprocess.run(["rm", "-rf", str(base)], check=True)
