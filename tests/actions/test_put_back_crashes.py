"""Durability switched off temporarily: on which clusters, and the message when the server went down meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection
from tests.actions.run_actions import RunActions
from tests.clusters import binaries_of
from tests.sql import query

UNSAFE: dict[str, Any] = {"settings": {"fsync": False, "full_page_writes": False}, "temporary": True}


@pytest.fixture(scope="module", params=[14, 16, 18])
def durable(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A durable server."""
    with Cluster(binaries_of(request.param)) as made:
        yield made


def unsafe_actions(cluster: Cluster, directory: Path) -> None:
    with acting_connection(cluster) as connection:
        done = RunActions(connection, directory).perform("set-parameters", **UNSAFE)
        assert done.state == "ok", done.text
    assert query(cluster, "show fsync") == "off"


@pytest.mark.parametrize(
    ("end", "expected"),
    [("fast", ""), ("kill", "cannot be trusted, restore it from a backup")],
)
def test_it_reports_how_the_server_shut_down_while_fsync_was_off(
    durable: Cluster, tmp_path: Path, end: str, expected: str
) -> None:
    unsafe_actions(durable, tmp_path / "reverts")
    if end == "kill":
        durable.kill()
        durable.start()
    else:
        durable.restart(mode=end)
    with acting_connection(durable) as connection:
        later = RunActions(connection, tmp_path / "reverts").as_later_run
        shown = later.preview("put-back").text
        assert ("trusted" in shown) == bool(expected) and expected in shown
        done = later.perform("put-back")
        assert done.state == "ok" and "checkpoint" in done.text
        assert ("trusted" in done.text) == bool(expected) and expected in done.text
        assert later.reverts == []
    assert query(durable, "show fsync") + query(durable, "show full_page_writes") == "onon"
