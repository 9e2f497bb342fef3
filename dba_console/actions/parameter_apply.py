"""Write parameters in their places, have the server read them, and look whether they count: one of them or several.

Everything that sets a parameter, for good or for a time, and everything that puts one back goes through here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dba_console.actions.action import Control, World
from dba_console.actions.link import Lost, ServerLink, StatementFailed
from dba_console.actions.parameter_sql import LOADED, RELOAD, Spot, file_entry, setting, statement, stored
from dba_console.actions.parameter_values import same

RELOAD_S = 15.0
"""For the postmaster to read the files and for our backend to hear of it; it takes milliseconds on a sound server."""
_LOOK_S = 0.1
STATEMENT_S = 30.0


class Change(NamedTuple):
    """A parameter in a place, and what is to stand there; None: nothing."""

    spot: Spot
    value: str | None


class Became(NamedTuple):
    """What became of one change."""

    change: Change
    state: str
    """ok, failed, unknown, or left: not begun, because one before it failed."""
    text: str
    shown: str | None = None
    """What the server goes by, as it says it."""
    written: bool = False
    """It stands in its place, whether or not it counts."""


def apply(link: ServerLink, changes: Sequence[Change], world: World, control: Control) -> list[Became]:
    """Make the changes, in an order in which the server could start after each of them, with one reload for all.

    Stops at the first that is refused or whose end is unknown; those before it are read and count. An unknown end is
    told by the first of the list that has it. Raises ConnectError, Refused.
    """
    written: list[Change] = []
    trouble: Became | None = None
    for change in ordered(changes):
        try:
            _write(link, change)
        except StatementFailed as error:
            trouble = Became(change, "failed", f"the server refused: {error.message}")
            break
        except Lost as error:
            trouble = Became(change, "unknown", error.message)
            break
        written.append(change)
    read = True
    if any(change.spot.scope == "system" for change in written):
        try:
            read = reload(link, world, control)
        except StatementFailed as error:
            return [
                Became(one, "failed", f"the server refused to reload: {error.message}", None, True) for one in written
            ]
        except Lost as error:
            return [Became(one, "unknown", error.message, None, True) for one in written]
    made = [_became(link, change, read) for change in written]
    if trouble is None:
        return made
    begun = [*written, trouble.change]
    rest = [change for change in ordered(changes) if change not in begun]
    return [*made, trouble, *(Became(change, "left", f"{change.spot.parameter} was left as it is") for change in rest)]


def reload(link: ServerLink, world: World, control: Control) -> bool:
    """Have the server read its files. True as soon as our own backend has read them, which it does after the
    postmaster. Raises StatementFailed, Lost."""
    before = link.rows(LOADED)[0]["at"]
    link.act(RELOAD)
    until_us = world.clock.mono_us() + int(RELOAD_S * 1e6)
    while link.rows(LOADED)[0]["at"] <= before and world.clock.mono_us() < until_us:
        control.tell("waiting for the server to read its configuration")
        if control.wait(_LOOK_S):
            break
    return bool(link.rows(LOADED)[0]["at"] > before)


def ordered(changes: Sequence[Change]) -> list[Change]:
    """So that the server could start after each one, should the host go down right then.

    With wal_level = minimal it starts only where max_wal_senders is 0 and archive_mode off: so it comes to that last,
    and away from it first (PostgreSQL documentation, "Write Ahead Log", wal_level).
    """

    def place(change: Change) -> int:
        if change.spot.parameter != "wal_level":
            return 1
        return 2 if (change.value or "").strip().lower() == "minimal" else 0

    return sorted(changes, key=place)


def counts(link: ServerLink, change: Change, now: Mapping[str, Any]) -> bool:
    """It has the effect it can have now."""
    spot, value = change
    kind = (now.get("vartype", "string"), now.get("unit"))
    if spot.scope != "system":
        return same(spot.parameter, stored(link, spot), value, *kind)
    entry = file_entry(link, spot.parameter)
    if value is None:
        return entry is None
    if entry is None or not same(spot.parameter, entry["setting"], value, *kind):
        return False
    # What our own role or database sets hides the server's value from us; the server says whether the entry is applied.
    return bool(entry["applied"] or now.get("pending_restart"))


def unread(spot: Spot, old: str | None, now: Mapping[str, Any]) -> bool:
    """The server goes by something else than what is written: it was not told to read the files.

    Told where nothing but the files can be what it goes by.
    """
    if spot.scope != "system" or now["source"] != "configuration file" or now["context"] == "postmaster":
        return False
    if old is None:
        return str(now["sourcefile"] or "").endswith("postgresql.auto.conf")
    return not same(spot.parameter, now["shown"], old, now["vartype"], now["unit"])


def tell(spot: Spot, value: str | None) -> str:
    """What stands in a place.

    >>> tell(Spot(parameter="fsync"), None)
    'fsync is not set in postgresql.auto.conf'
    """
    return f"{spot.parameter} is {'not set' if value is None else repr(value)} {spot.words()}"


def _write(link: ServerLink, change: Change) -> None:
    spot, value = change
    if spot.scope != "session":
        link.act(statement(spot, value), transaction=spot.scope != "system", timeout_s=STATEMENT_S)
    elif value is None:
        link.forget(spot.parameter)
    else:
        link.keep(spot.parameter, value)


def _became(link: ServerLink, change: Change, read: bool) -> Became:
    spot, value = change
    now = setting(link, spot.parameter) or {"shown": None}
    if read and counts(link, change, now):
        return Became(change, "ok", _effect(spot, value, now), now["shown"], True)
    text = f"{tell(spot, value)}, but the server goes by {now['shown']} still"
    return Became(change, "failed", text, now["shown"], True)


def _effect(spot: Spot, value: str | None, now: Mapping[str, Any]) -> str:
    text = tell(spot, value)
    if spot.scope in ("database", "role"):
        return f"{text}; sessions that begin from now on have it"
    if now.get("pending_restart"):
        return f"{text}; it counts from the next restart, until then it is {now['shown']}"
    return f"{text}; it is {now['shown']} now"
