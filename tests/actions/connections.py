"""An acting connection on a test's cluster, and what an action needs around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionResult, PlainControl
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.registry import parse_settings
from dba_console.actions.statement_results import StatementMark
from dba_console.demo.temporary_server import Cluster


@contextmanager
def acting_connection(
    cluster: Cluster, *, user: str = "postgres", dbname: str = "postgres", marks: list[StatementMark] | None = None
) -> Iterator[ActingConnection]:
    """A connection that knows the server it must act on."""
    connection = ActingConnection(
        cluster.dsn(user=user, dbname=dbname), application="dba-console:test:step", connect_timeout_s=60
    )
    if marks is not None:
        connection.on_mark = marks.append
    try:
        connection.planned = connection.read_identity()
        yield connection
    finally:
        connection.close()


def preview_action(action: Action, connection: ActingConnection, **settings: Any) -> ActionPreview:
    return action.preview(parse_settings(action.name, settings), ActionContext(connection=connection))


def perform(
    action: Action, connection: ActingConnection, control: PlainControl | None = None, **settings: Any
) -> tuple[ActionPreview, ActionResult]:
    """Preview and execute the action; it must not be refused."""
    context, asked = ActionContext(connection=connection), parse_settings(action.name, settings)
    action_preview = action.preview(asked, context)
    assert action_preview.refusal is None, action_preview.refusal
    return action_preview, action.act(asked, action_preview, context, control or PlainControl())


def settle_action(
    action: Action, connection: ActingConnection, action_preview: ActionPreview, **settings: Any
) -> ActionResult:
    return action.settle(parse_settings(action.name, settings), action_preview, ActionContext(connection=connection))


def undo_action(action: Action, connection: ActingConnection, done: ActionResult, **settings: Any) -> ActionResult:
    assert done.undo is not None
    return action.undo(
        parse_settings(action.name, settings), done.undo, ActionContext(connection=connection), PlainControl()
    )
