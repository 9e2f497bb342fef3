"""The runbook `put-back`, walked on a server on which a run has left settings, and on one where nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.clusters import binaries_of
from tests.runbooks.runs import WAIT_S, WatchedServer, hostile_server, watched_server

RUNBOOK = "put-back"
TUNED = """# Tuned

```toml {runbook}
id = "tuned"
needs = ["server"]
```

Why.

## Set

```toml {action set-parameters confirm=ack}
temporary = true
restart = true
settings = { work_mem = "9MB", maintenance_work_mem = "77MB", max_prepared_transactions = 7 }
```
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(binaries_of(None), durable=False) as made:
        yield made


@pytest.fixture(scope="module")
def watched(cluster: Cluster) -> Iterator[WatchedServer]:
    with hostile_server(cluster) as made:
        yield made


def pending_files(watched: WatchedServer) -> list[Path]:
    return sorted((watched.console.home / "state" / "dba-console" / "reverts").glob("*.json"))


def test_a_run_that_ended_without_reverting_is_reported_and_reverted(
    watched: WatchedServer, cluster: Cluster, tmp_path: Path
) -> None:
    walk = watched.run_headless(RUNBOOK)
    assert walk.code == 0 and "no pending reverts" in walk.text and walk.done() == [], "nothing is left yet"
    tuned = tmp_path / "tuned.md"
    tuned.write_text(TUNED)
    assert watched.run_headless(str(tuned)).code == 0
    assert len(pending_files(watched)) == 3
    watched.wait_until_raised("settings-left")
    cluster.psql("alter system set work_mem = '11MB'")
    walk = watched.run_interactively(RUNBOOK, {"start": "yes", "ack": "y", "failed": "abort", "undo": "none"})
    assert walk.code == 7 and "work_mem is '11MB', which no run has set: the operator must decide" in walk.text
    assert len(pending_files(watched)) == 1 and cluster.psql("show maintenance_work_mem") == "64MB"
    walk = watched.run_headless(RUNBOOK, altered="keep")
    assert walk.code == 0, walk.text
    assert walk.done() == ["put-them-back"] and pending_files(watched) == []
    watched.wait_until_cleared("settings-left")
    assert cluster.psql("show work_mem") == "11MB"


def test_a_setting_that_needs_a_restart_is_a_question(watched: WatchedServer, cluster: Cluster, tmp_path: Path) -> None:
    tuned = tmp_path / "tuned.md"
    tuned.write_text(TUNED)
    assert watched.run_headless(str(tuned)).code == 0
    cluster.restart()
    assert cluster.psql("show max_prepared_transactions") == "7"
    watched.wait_until_raised("settings-left")
    asked = "is-a-restart-needed"
    walk = watched.run_headless(RUNBOOK, f"{asked}=tonight, by ann")
    assert walk.code == 0, walk.text
    assert len(pending_files(watched)) == 1 and "pending until a restart" in walk.text
    cluster.restart()
    watched.wait_until_cleared("settings-left")
    assert pending_files(watched) == [], "seen to be as it was, and struck out"


def test_a_role_that_may_not_read_the_files_is_shown_what_may_be_pending(cluster: Cluster) -> None:
    cluster.psql('create role "Night\'s" login in role pg_monitor')
    cluster.psql("alter system set max_connections = 77")
    cluster.psql("select pg_reload_conf()")
    wait_until(
        lambda: cluster.psql("select 1 from pg_settings where pending_restart"), WAIT_S, what="a pending restart"
    )
    asked = "is-a-restart-needed"
    with watched_server(cluster.dsn(user="Night's")) as modest:
        walk = modest.run_headless(RUNBOOK, f"{asked}=tonight, by ann")
        assert walk.code == 0, walk.text
        assert [row["name"] for row in walk.rows(f"{asked}/preview-2")] == ["max_connections"] and walk.done() == []
    cluster.psql("alter system reset max_connections")
    cluster.restart()
