"""The load with a ledger: what it counts as acknowledged is what the server has, and what is wrong is reported."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dba_console.demo.child_processes import end_child
from dba_console.demo.ledger import LedgerVerdict, ledger_verdict, start_ledger
from dba_console.demo.temporary_server import Cluster
from tests.background import wait_until
from tests.clusters import FreshCluster
from tests.postgres.pgbouncer import running_pgbouncer


@contextmanager
def load(directory: Path, conninfo: str) -> Iterator[subprocess.Popen[bytes]]:
    process = start_ledger(directory, conninfo, clients=3, rate_per_s=200)
    try:
        yield process
    finally:
        end_child(process)


def acknowledged(directory: Path) -> int:
    return sum(path.read_text().count("acked") for path in directory.glob("client-*.ledger"))


def wait_for_commits(directory: Path, more: int = 30) -> None:
    wanted = acknowledged(directory) + more
    wait_until(lambda: acknowledged(directory) >= wanted, what="further commits")


def ended(process: subprocess.Popen[bytes], directory: Path, cluster: Cluster) -> LedgerVerdict:
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, (directory / "errors.log").read_text()
    return ledger_verdict(directory, cluster.dsn())


def test_a_server_killed_under_the_load_loses_no_acknowledged_commit(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = reused_cluster()
    with load(tmp_path, cluster.dsn()) as process:
        wait_for_commits(tmp_path)
        cluster.kill()
        wait_until(lambda: (tmp_path / "errors.log").read_text(), what="an error at a client")
        cluster.start()
        wait_for_commits(tmp_path)
        found = ended(process, tmp_path, cluster)
    assert found.all_kept, found.sentence()
    assert found.acknowledged >= 60
    assert found.sent == found.acknowledged + found.unknown
    assert 1 <= found.unknown <= 20


def test_through_a_pooler_in_transaction_mode_the_load_survives_a_restart(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = reused_cluster()
    with running_pgbouncer(cluster, "transaction", admin=False) as pooler, load(tmp_path, pooler) as process:
        wait_for_commits(tmp_path)
        cluster.stop()
        cluster.start()
        wait_for_commits(tmp_path)
        found = ended(process, tmp_path, cluster)
    assert found.all_kept, found.sentence()


def test_a_row_removed_by_hand_is_lost_and_one_copied_by_hand_is_duplicated(
    reused_cluster: FreshCluster, tmp_path: Path
) -> None:
    cluster = reused_cluster()
    with load(tmp_path, cluster.dsn()) as process:
        wait_for_commits(tmp_path)
        assert ledger_verdict(tmp_path, cluster.dsn()).all_kept  # asked while the load runs
        assert ended(process, tmp_path, cluster).all_kept
    cluster.psql("delete from ledger where (client, number) = (1, 2)")
    cluster.psql("insert into ledger select * from ledger where (client, number) = (2, 3)")
    found = ledger_verdict(tmp_path, cluster.dsn())
    assert (found.lost, found.duplicated, found.all_kept) == (((1, 2),), ((2, 3),), False)
    assert found.sentence().endswith("; lost: 1/2; duplicated: 2/3")


def test_a_restarted_load_continues_with_its_own_numbers(reused_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = reused_cluster()
    with load(tmp_path, cluster.dsn()) as process:
        wait_for_commits(tmp_path)
        process.kill()
    with (tmp_path / "client-1.ledger").open("a") as file:
        file.write("sent 00000")  # as a full disk leaves it
    with load(tmp_path, cluster.dsn()) as process:
        wait_for_commits(tmp_path)
        found = ended(process, tmp_path, cluster)
    assert found.all_kept, found.sentence()
    assert found.acknowledged >= 60


def test_two_loads_do_not_share_a_directory(reused_cluster: FreshCluster, tmp_path: Path) -> None:
    cluster = reused_cluster()
    with load(tmp_path, cluster.dsn()):
        wait_for_commits(tmp_path)
        with load(tmp_path, cluster.dsn()) as second:
            assert second.wait(30) == 2
        wait_for_commits(tmp_path)
    assert "another load is using the ledgers" in (tmp_path / "errors.log").read_text()


def test_without_a_server_the_load_ends_with_an_error_message(tmp_path: Path) -> None:
    with load(tmp_path, f"host={tmp_path} port=1 user=postgres dbname=postgres") as process:
        assert process.wait(30) == 3
    assert (tmp_path / "errors.log").read_text().startswith("cannot prepare the ledger's tables: ")
