"""Put back what runs have changed for a time: each setting exactly as it was, looked at before it counts as done.

Killed anywhere it is begun again from what is still owed: what is back already is struck out, and nothing is set twice.
What somebody else has changed since is left for a person to decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from msgspec import Struct

from dba_console.actions import crashes
from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.debts import Debt, directory_of, find, of_server, strike, under_way
from dba_console.actions.flushing import flush_host
from dba_console.actions.link import Lost, ServerLink, StatementFailed, server
from dba_console.actions.owing import Standing, row_of, spot_of, standing, told
from dba_console.actions.parameter_apply import Change, apply, ordered, reload
from dba_console.actions.parameter_risk import risky
from dba_console.actions.parameter_sql import statement
from dba_console.errors import ConsoleError

Of = Literal["over", "run"]
_RETURNING = ("changed", "unread", "back")
"""As it was again after this, or already."""
UNTRUSTED = (
    "the server was started anew while {names} was off, and it had not been shut down in order before: what is in this "
    "cluster cannot be trusted, restore it anew"
)
UNKNOWN = (
    "the server was started anew while {names} was off, and whether it had been shut down in order cannot be told: its "
    "log says it; if it had not, what is in this cluster cannot be trusted"
)


class PutBackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    of: Of = "over"
    """`over`: what runs that are over have left changed on this server; `run`: what this run has changed."""
    altered: Literal["leave", "keep"] = "leave"
    """What somebody has set otherwise since: `leave` it, and go on telling of it; `keep` it for good, and forget what
    was there before."""


class Owed(NamedTuple):
    """A debt, and how it stands."""

    debt: Debt
    now: Standing


class PutBack:
    """Implements `Action`."""

    name: ClassVar[str] = "put-back"
    summary: ClassVar[str] = (
        "Puts back what runs have set for a time (`temporary`) and left so: after a failure, an abort, a kill, a "
        "reboot. Shows each parameter with what was there before, restores exactly that, also that nothing was set, "
        "and strikes it out once the server says so. Leaves alone what somebody has changed since, "
        "and what a run under way has set and still needs. Says where the "
        "server went down while fsync or full_page_writes was off."
    )
    Settings: ClassVar[type[Struct]] = PutBackSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False
    may_shrink: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = ("id",)

    def look(self, settings: PutBackSettings, world: World) -> Sight:
        link = server(world)
        try:
            owed, damaged = _owed(settings, world, link)
            used = _used(settings, world, link)
        except OSError as error:
            why = f"what is to be put back cannot be read: {error}"
            return Sight(text=f"{why}.", exact="", refusal=why)
        if used and not owed:
            why, runs = _told_used(used), sorted({debt.run for debt in used})
            hint = f"to have them back now, end it: dba-console runbook resume {runs[0]}, then /abort"
            return Sight(text=f"{why}.", exact="", refusal=why, hint=hint)
        if damaged and not owed:
            return Sight(text="; ".join(damaged), exact="", refusal="; ".join(damaged), hint="read those files")
        changes = _changes(owed)
        texts = [statement(change.spot, change.value).strip() for change in ordered(changes)]
        reload = any(one.debt.scope == "system" and one.now.state in ("changed", "unread") for one in owed)
        return Sight(
            text=" ".join([*_sentences(owed, link, settings, damaged), *([f"{_told_used(used)}."] if used else [])]),
            exact="; ".join([*texts, *(["SELECT pg_reload_conf()"] if reload else [])]) or "nothing is set",
            values={"owed": len(owed), "to_set": len(changes)},
            count=len(owed),
            rows=tuple(row_of(*one) for one in owed),
            done=all(_is_left(one, settings) for one in owed),
        )

    def act(self, settings: PutBackSettings, sight: Sight, world: World, control: Control) -> Done:
        link = server(world)
        shown = {row["id"] for row in sight.rows}
        owed, _ = _owed(settings, world, link)
        owed = [one for one in owed if one.debt.id in shown]
        said = _trouble_of(owed, link)
        texts: list[str] = []
        changes = _changes(owed)
        if changes:
            became = apply(link, changes, world, control)
            texts += [one.text for one in became]
        elif any(one.now.state == "unread" for one in owed):
            try:
                reload(link, world, control)
            except (StatementFailed, Lost) as error:
                return Done(state="failed", text=f"the server was not told to read its files: {error.message}")
        if any(risky(one.debt.parameter, one.debt.new) and one.now.state in _RETURNING for one in owed):
            texts.append(flush_host(link, world, control))
        left = _struck(settings, world, link, [one.debt for one in owed], texts)
        state = "ok" if not left else "failed"
        return Done(state=state, text="; ".join([*texts, *left, *said]), values={"owed": len(left)})

    def settle(self, settings: PutBackSettings, sight: Sight, world: World) -> Done:
        """By what is still owed: whatever was done is done, and the rest can be done again."""
        link = server(world)
        shown = {row["id"] for row in sight.rows}
        debts = [one.debt for one in _owed(settings, world, link)[0] if one.debt.id in shown]
        texts: list[str] = []
        left = _struck(settings, world, link, [one for one in debts if not risky(one.parameter, one.new)], texts)
        # What was written while fsync was off is flushed by a whole act only.
        left += [f"{one.parameter} is to be looked at once more" for one in debts if risky(one.parameter, one.new)]
        text = "; ".join([*texts, *left]) or "everything is put back"
        return Done(state="failed" if left else "ok", text=text, values={"owed": len(left)}, again=bool(left))

    def undo(self, settings: PutBackSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="what was put back is not taken out again: set it anew where it is meant")


def trouble_of(debts: Sequence[Debt], link: ServerLink) -> str:
    """sound, untrusted or unknown: of what was loaded while durability was off, as far as the server can tell."""
    risks = [debt for debt in debts if risky(debt.parameter, debt.new)]
    if not risks:
        return "sound"
    now, counts = link.identity(), crashes.counted(link)
    found = {crashes.trust(one.counted_since_us, one.server_us, one.server, now, counts) for one in risks}
    return next(word for word in ("untrusted", "unknown", "sound") if word in found)


def _trouble_of(owed: Sequence[Owed], link: ServerLink) -> list[str]:
    names = " and ".join(one.debt.parameter for one in owed if risky(one.debt.parameter, one.debt.new))
    word = trouble_of([one.debt for one in owed], link)
    return [{"untrusted": UNTRUSTED, "unknown": UNKNOWN}[word].format(names=names)] if word != "sound" else []


def _owed(settings: PutBackSettings, world: World, link: ServerLink) -> tuple[list[Owed], tuple[str, ...]]:
    """What is to be put back, the last first; and what cannot be read of it."""
    found = find(directory_of(world))
    debts = of_server(found.debts, link.identity(), world.target_key)
    if settings.of == "run":
        mine = [debt for debt in debts if debt.run == world.run]
    else:
        mine = [debt for debt in debts if debt.run == world.run or not under_way(debt)]
    return [Owed(debt, standing(link, debt)) for debt in reversed(mine)], found.damaged


def _used(settings: PutBackSettings, world: World, link: ServerLink) -> list[Debt]:
    """What other runs that are under way have set on this server: it is left to them. Raises OSError."""
    if settings.of == "run":
        return []
    debts = of_server(find(directory_of(world)).debts, link.identity(), world.target_key)
    return [debt for debt in debts if debt.run != world.run and under_way(debt)]


def _told_used(used: Sequence[Debt]) -> str:
    names, runs = ", ".join(debt.parameter for debt in used), ", ".join(sorted({debt.run for debt in used}))
    return f"{names} set by run {runs}, which is under way and puts it back itself when it ends"


def _changes(owed: Sequence[Owed]) -> list[Change]:
    return [Change(spot_of(one.debt), one.debt.old) for one in owed if one.now.state == "changed"]


def _is_left(one: Owed, settings: PutBackSettings) -> bool:
    """Nothing is done about it."""
    return one.now.state == "pending" or (one.now.state == "altered" and settings.altered == "leave")


def _struck(
    settings: PutBackSettings, world: World, link: ServerLink, debts: Sequence[Debt], texts: list[str]
) -> list[str]:
    """Strike out what is as it was; what is still owed, in sentences. `texts` takes what is to be said of the rest."""
    left = []
    for debt in debts:
        try:
            now = standing(link, debt)
        except ConsoleError as error:
            left.append(f"{debt.parameter} could not be looked at: {error.message}")
            continue
        if now.state == "pending":
            texts.append(f"{debt.parameter} is put back in its file, and owed until a restart of the server")
            continue
        if now.state == "altered" and settings.altered == "keep":
            texts.append(f"{debt.parameter} stays {now.found!r}, as somebody has set it since")
        elif now.state == "altered":
            left.append(f"{debt.parameter} is {now.found!r}, which no run has set: a person decides")
            continue
        elif now.state == "gone":
            texts.append(f"{debt.parameter} has nothing left to be put back in: {spot_of(debt).words()} is gone")
        elif now.state != "back":
            left.append(f"{told(debt)}: still so")
            continue
        if (trouble := strike(directory_of(world), debt)) is not None:
            left.append(trouble)
    return left


def _sentences(owed: Sequence[Owed], link: ServerLink, settings: PutBackSettings, damaged: Sequence[str]) -> list[str]:
    if not owed:
        return ["Nothing is to be put back on this server."]
    runs = sorted({one.debt.run or "?" for one in owed})
    said = [f"{len(owed)} settings of {', '.join(runs)}: {'; '.join(told(one.debt) for one in owed)}."]
    for state, words in (
        ("altered", "somebody has set otherwise since: {0}, which stays so until a person decides"),
        ("pending", "{0} is put back already and counts from the next restart"),
        ("back", "{0} is as it was already"),
        ("gone", "{0} has nothing left to be put back in"),
    ):
        if named := [one.debt.parameter for one in owed if one.now.state == state]:
            said.append(f"{words.format(', '.join(named))}.")
    if settings.altered == "keep" and any(one.now.state == "altered" for one in owed):
        said.append("what somebody has set since is kept.")
    said += [f"{one}." for one in (*_trouble_of(owed, link), *damaged)]
    return [f"{one[0].upper()}{one[1:]}" for one in said]
