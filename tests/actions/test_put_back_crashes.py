"""Durability given up for a time: whose cluster that may be, and what is said where the server went down meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dba_console.demo.cluster import Cluster
from tests.actions.connections import acting
from tests.actions.temporary_runs import Books
from tests.clusters import binaries_of
from tests.sql import query

UNSAFE: dict[str, Any] = {"settings": {"fsync": False, "full_page_writes": False}, "temporary": True}
RESTART: dict[str, Any] = {
    "settings": {"wal_level": "minimal", "max_wal_senders": 0}, "restart": True, "temporary": True,
}  # fmt: skip


@pytest.fixture(scope="module", params=[14, 16, 18])
def durable(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A server that cares for its data until it is told otherwise."""
    with Cluster(binaries_of(request.param)) as made:
        yield made


def unsafe(cluster: Cluster, directory: Path) -> None:
    with acting(cluster) as link:
        done = Books(link, directory).perform("set-parameters", **UNSAFE)
        assert done.state == "ok", done.text
    assert query(cluster, "show fsync") == "off"


@pytest.mark.parametrize(
    ("end", "said"),
    [("fast", ""), ("kill", "cannot be trusted, restore it from a backup")],
)
def test_it_reports_how_the_server_shut_down_while_fsync_was_off(
    durable: Cluster, tmp_path: Path, end: str, said: str
) -> None:
    unsafe(durable, tmp_path / "reverts")
    if end == "kill":
        durable.kill()
        durable.start()
    else:
        durable.restart(mode=end)
    with acting(durable) as link:
        later = Books(link, tmp_path / "reverts").later
        shown = later.look("put-back").text
        assert ("trusted" in shown) == bool(said) and said in shown
        done = later.perform("put-back")
        assert done.state == "ok" and "checkpoint" in done.text
        assert ("trusted" in done.text) == bool(said) and said in done.text
        assert later.reverts == []
    assert query(durable, "show fsync") + query(durable, "show full_page_writes") == "onon"


def test_a_value_active_after_a_restart_stays_pending_until_a_restart_without_it(
    durable: Cluster, tmp_path: Path
) -> None:
    with acting(durable) as link:
        assert Books(link, tmp_path / "reverts").perform("set-parameters", **RESTART).state == "ok"
    durable.restart()
    assert query(durable, "show wal_level") == "minimal"
    with acting(durable) as link:
        later = Books(link, tmp_path / "reverts").later
        done = later.perform("put-back")
        assert done.state == "ok" and "pending until a restart" in done.text
        assert set(later.owed) == {"wal_level", "max_wal_senders"}
        action_preview = later.look("put-back")
        assert action_preview.done and "takes effect at the next restart" in action_preview.text
    durable.restart()
    with acting(durable) as link:
        later = Books(link, tmp_path / "reverts").later
        assert later.perform("put-back").state == "ok" and later.reverts == []
