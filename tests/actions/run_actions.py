"""A run that sets parameters temporarily, and a later one that reverts them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import ActionContext, ActionResult, PlainControl
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.registry import ACTIONS, parse_settings
from dba_console.actions.temporary_settings import PendingRevert, read_all
from dba_console.demo.temporary_server import Cluster
from tests.sql import query, wait_for

RUN = "20261122T090000Z-restore-1a2b"
LATER_RUN = "20261122T110000Z-put-back-3c4d"


@dataclass(frozen=True)
class RunActions:
    """Actions on a server, with a directory of reverts of the test's own."""

    connection: ActingConnection
    directory: Path
    run: str = RUN

    @property
    def context(self) -> ActionContext:
        return ActionContext(
            connection=self.connection,
            run=self.run,
            runbook="restore",
            confirmed_by="ann",
            target="app",
            target_key="k",
            server_is_local=False,
            reverts_directory=str(self.directory),
            run_directory=str(self.directory / self.run),
        )

    @property
    def as_later_run(self) -> RunActions:
        """Another run, after this one."""
        return replace(self, run=LATER_RUN)

    @property
    def reverts(self) -> list[PendingRevert]:
        return list(read_all(self.directory).reverts)

    @property
    def pending(self) -> dict[str, str | None]:
        """Parameters with a pending revert, and their old values."""
        return {revert.parameter: revert.old for revert in self.reverts}

    def preview(self, name: str, **settings: Any) -> ActionPreview:
        return ACTIONS[name].preview(parse_settings(name, settings), self.context)

    def perform(self, name: str, **settings: Any) -> ActionResult:
        """Preview and execute the action; it must not be refused."""
        asked, acting = parse_settings(name, settings), ACTIONS[name]
        action_preview = acting.preview(asked, self.context)
        assert action_preview.refusal is None, action_preview.refusal
        return acting.act(asked, action_preview, self.context, PlainControl())

    def settle(self, name: str, action_preview: ActionPreview, **settings: Any) -> ActionResult:
        return ACTIONS[name].settle(parse_settings(name, settings), action_preview, self.context)

    def undo(self, name: str, done: ActionResult, **settings: Any) -> ActionResult:
        assert done.undo is not None
        return ACTIONS[name].undo(parse_settings(name, settings), done.undo, self.context, PlainControl())


def reset_settings(cluster: Cluster) -> None:
    """Take out whatever was set for the whole server; every session that begins from now on is without it."""
    before = query(cluster, "select pg_conf_load_time()")
    query(cluster, "alter system reset all")
    query(cluster, "select pg_reload_conf()")
    wait_for(cluster, f"select 1 where pg_conf_load_time() > '{before}'", what="the server to read its files")
