"""Whether a start of the old primary, or its clients, could make a second primary: every other node is asked first.

A cutover that is undone starts the old primary again. Meanwhile another operator may have promoted another node.
"""

from __future__ import annotations

import re
import shlex
import threading
from contextlib import suppress
from typing import NamedTuple

from dba_console.clusters.server_control import ServerControl
from dba_console.clusters.steps.step import Cutover
from dba_console.clusters.subject.panel import release_text
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean

TIMEOUT_S = 15.0
_TIMELINE = r"""
SELECT greatest((SELECT max(received_tli) FROM pg_catalog.pg_stat_wal_receiver), c.timeline_id,
                r.min_recovery_end_timeline,
                (SELECT max(('x' || pg_catalog.substr(name, 1, 8))::bit(32)::int4) FROM pg_catalog.pg_ls_waldir()
                  WHERE name ~ '^[0-9A-F]{8}\.history$')) AS newest
  FROM pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r
"""
_HISTORY = re.compile(r"/([0-9A-F]{8})\.history$", re.M)
_PROMOTED_STATES = ("in production", "in crash recovery")


class OtherNodes(NamedTuple):
    """What the nodes other than the old primary answered, as clauses; empty: nothing."""

    newer: str
    """A primary, or a timeline newer than that of the old primary."""
    unknown: str
    """Nodes that could not be asked."""


def ask_other_nodes(at: Cutover, timeout_s: float = TIMEOUT_S) -> OtherNodes:
    """Ask all nodes but the old primary at once. Never raises."""
    answers: dict[str, tuple[str, str]] = {}
    names = [name for name in at.plan.nodes if name != at.plan.old]

    def ask(name: str) -> None:
        try:
            answers[name] = (_newer_timeline(at, name), "")
        except ConsoleError as error:
            answers[name] = ("", error.message)

    # Daemon threads: one that hangs in name resolution must not keep the step waiting.
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    until_us = at.context.clock.mono_us() + int(timeout_s * 1e6)
    for thread in threads:
        thread.join(max(0.0, (until_us - at.context.clock.mono_us()) / 1e6))
    found = {name: answers.get(name, ("", f"no answer within {timeout_s:g} s")) for name in names}
    return OtherNodes(
        newer="; ".join(f"{name} {newer}" for name, (newer, _) in found.items() if newer),
        unknown="; ".join(f"{name}: {why}" for name, (_, why) in found.items() if why),
    )


def refuse_second_primary(at: Cutover) -> None:
    """Raise Refused unless every other node proves that none was promoted: before the old primary may be a primary.

    Called before each start, and each removal of standby.signal, that an undo makes.
    """
    old, nodes = at.plan.old, ask_other_nodes(at)
    newer = nodes.newer or _newer_in_own_files(at)
    if newer:
        raise Refused(
            f"{old} is not started as a primary: {clean(redact(newer))}. That would make two primaries",
            hint=f"leave {old} down, and make it a standby of the new primary: pg_rewind, or a new copy",
        )
    if nodes.unknown:
        raise Refused(
            f"{old} is not started as a primary: whether another node was promoted is unknown ({clean(nodes.unknown)})",
            hint=f"make that node answer, or prove that it is down and stays down; then {by_hand(at)}",
        )


def refuse_clients(at: Cutover) -> None:
    """Raise Refused if another node was promoted: before clients are admitted to the old primary again."""
    if newer := ask_other_nodes(at).newer:
        mark = at.plan.mark
        raise Refused(
            f"clients are not admitted to {at.plan.old}: {clean(redact(newer))}. They would write to two primaries",
            hint="decide which one stays, and stop the other" + (f"; {release_text(mark)}" if mark is not None else ""),
        )


def unfence(at: Cutover) -> None:
    """Let the stopped old primary start as a primary again. Raises Refused; ConsoleError."""
    refuse_second_primary(at)
    at.control(at.plan.old).undo_standby()


def by_hand(at: Cutover) -> str:
    """Return the commands that start the old primary, for an operator who has proven that it may."""
    server = at.control(at.plan.old)
    commands = f"remove {server.data_directory}/standby.signal"
    with suppress(ConsoleError):
        commands += f" and run `{shlex.join(server.start_command())}`"
    return clean(redact(f"on {server.host.name}, {commands}"))


def _newer_timeline(at: Cutover, name: str) -> str:
    """Return how a node shows that it or another one was promoted; empty: it does not. Raises ConsoleError."""
    try:
        with at.connect(name) as (connection, now):
            if now.role == "primary":
                return f"is a primary, on timeline {now.timeline}"
            newest = connection.rows(_TIMELINE)[0]["newest"] or 0
    except Refused:
        raise
    except ConsoleError as error:
        with suppress(ConsoleError):
            return _newer_in_files(at, at.control(name), name)
        raise error
    return f"knows timeline {newest}, {at.plan.old} is on {at.plan.timeline}" if newest > at.plan.timeline else ""


def _newer_in_own_files(at: Cutover) -> str:
    with suppress(ConsoleError):
        if newer := _newer_in_files(at, at.control(at.plan.old), at.plan.old):
            return f"{at.plan.old} {newer}"
    return ""


def _newer_in_files(at: Cutover, server: ServerControl, name: str) -> str:
    """As `_newer_timeline`, from the data directory of a server that does not answer."""
    if name != at.plan.old and server.running():
        raise ConsoleError(f"{name} is running and does not answer")
    found = server.control_file()
    if found.system_identifier != at.plan.system_identifier:
        raise ConsoleError(f"{server.data_directory} belongs to another server")
    find = ["find", f"{server.data_directory}/pg_wal/", "-maxdepth", "1", "-name", "*.history"]
    listed = server.host.run(find, user=server.owner(), repeatable=True)
    if listed.code != 0:
        raise ConsoleError(f"{server.data_directory}/pg_wal cannot be read")
    timelines = [int(number, 16) for number in _HISTORY.findall(listed.output)]
    newest = max([found.timeline or 0, *timelines])
    if newest > at.plan.timeline:
        return f"has timeline {newest} in its data directory, {at.plan.old} was on {at.plan.timeline}"
    if name != at.plan.old and found.state in _PROMOTED_STATES:
        return f"was a primary when it ended: pg_control says {found.state}"
    return ""
