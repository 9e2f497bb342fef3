"""A console that is started where a run has left settings: what it shows first, and what a key does about it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dba_console.demo.temporary_server import Cluster
from tests.actions.connections import acting_connection
from tests.actions.run_actions import RUN, RunActions, reset_settings
from tests.terminal.consoles import OVERVIEW, Workspace, workspace

pytestmark = pytest.mark.terminal
__all__ = ["workspace"]


@pytest.fixture
def pending_cluster(cluster: Cluster, workspace: Workspace) -> Iterator[Cluster]:
    """A server on which a run that is over has set a parameter for a time."""
    with acting_connection(cluster) as link:
        books = RunActions(link, workspace.state / "dba-console" / "reverts")
        books.perform("set-parameters", settings={"maintenance_work_mem": "77MB"}, temporary=True)
    yield cluster
    reset_settings(cluster)


def test_pending_reverts_of_a_run_are_shown_first_and_reverted_from_there(
    pending_cluster: Cluster, workspace: Workspace
) -> None:
    with workspace.terminal(pending_cluster.dsn()) as terminal:
        shown = terminal.wait_for(r"(?s)Settings of a run were not reverted.*by ann.*P revert now +esc later")
        assert RUN in shown and "maintenance_work_mem = 77MB in postgresql.auto.conf, was not set" in shown
        terminal.keys("P")
        terminal.wait_for(r"put-back on \S+ ·")
        terminal.wait_for(r"(?i)type[\s│]+`yes`")
        terminal.keys("Enter")
        terminal.type("yes")
        terminal.keys("Enter")
        terminal.wait_for("RESET")
        terminal.wait_for("y or n:")
        terminal.keys("y", "Enter")
        terminal.wait_for(r"put-back on \S+ · done")
        terminal.keys("Escape")
        terminal.wait_for(OVERVIEW)
    assert pending_cluster.psql("show maintenance_work_mem") == "64MB"
    assert list((workspace.state / "dba-console" / "reverts").glob("*.json")) == []
