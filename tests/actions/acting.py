"""An acting connection on a test's cluster, and what an action needs around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dba_console.actions.action import Action, Done, PlainControl, Sight, World
from dba_console.actions.link import Mark
from dba_console.actions.operator import Operator
from dba_console.actions.registry import settings_of
from dba_console.demo.cluster import Cluster


@contextmanager
def acting(
    cluster: Cluster, *, user: str = "postgres", dbname: str = "postgres", marks: list[Mark] | None = None
) -> Iterator[Operator]:
    """An operator that knows whom it is to act on."""
    link = Operator(cluster.dsn(user=user, dbname=dbname), application="dba-console:test:step", connect_timeout_s=60)
    if marks is not None:
        link.on_mark = marks.append
    try:
        link.planned = link.identity()
        yield link
    finally:
        link.close()


def look(action: Action, link: Operator, **settings: Any) -> Sight:
    return action.look(settings_of(action.name, settings), World(link=link))


def perform(action: Action, link: Operator, control: PlainControl | None = None, **settings: Any) -> tuple[Sight, Done]:
    """Looked at, then done; it must not be refused."""
    world, asked = World(link=link), settings_of(action.name, settings)
    sight = action.look(asked, world)
    assert sight.refusal is None, sight.refusal
    return sight, action.act(asked, sight, world, control or PlainControl())


def settled(action: Action, link: Operator, sight: Sight, **settings: Any) -> Done:
    return action.settle(settings_of(action.name, settings), sight, World(link=link))


def undone(action: Action, link: Operator, done: Done, **settings: Any) -> Done:
    assert done.undo is not None
    return action.undo(settings_of(action.name, settings), done.undo, World(link=link), PlainControl())
