"""An acting connection on a test's cluster, and what an action needs around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dba_console.actions.acting_connection import ActingConnection
from dba_console.actions.action import Action, ActionContext, ActionPreview, ActionResult, PlainControl
from dba_console.actions.registry import parse_settings
from dba_console.actions.statement_results import StatementMark
from dba_console.demo.cluster import Cluster


@contextmanager
def acting(
    cluster: Cluster, *, user: str = "postgres", dbname: str = "postgres", marks: list[StatementMark] | None = None
) -> Iterator[ActingConnection]:
    """An operator that knows whom it is to act on."""
    link = ActingConnection(
        cluster.dsn(user=user, dbname=dbname), application="dba-console:test:step", connect_timeout_s=60
    )
    if marks is not None:
        link.on_mark = marks.append
    try:
        link.planned = link.read_identity()
        yield link
    finally:
        link.close()


def look(action: Action, link: ActingConnection, **settings: Any) -> ActionPreview:
    return action.preview(parse_settings(action.name, settings), ActionContext(connection=link))


def perform(
    action: Action, link: ActingConnection, control: PlainControl | None = None, **settings: Any
) -> tuple[ActionPreview, ActionResult]:
    """Looked at, then done; it must not be refused."""
    world, asked = ActionContext(connection=link), parse_settings(action.name, settings)
    action_preview = action.preview(asked, world)
    assert action_preview.refusal is None, action_preview.refusal
    return action_preview, action.act(asked, action_preview, world, control or PlainControl())


def settled(action: Action, link: ActingConnection, action_preview: ActionPreview, **settings: Any) -> ActionResult:
    return action.settle(parse_settings(action.name, settings), action_preview, ActionContext(connection=link))


def undone(action: Action, link: ActingConnection, done: ActionResult, **settings: Any) -> ActionResult:
    assert done.undo is not None
    return action.undo(parse_settings(action.name, settings), done.undo, ActionContext(connection=link), PlainControl())
