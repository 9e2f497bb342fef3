"""Set several configuration parameters at once: each old value kept, one reload, each looked at whether it counts."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import ServerLink, server
from dba_console.actions.owing import owe, refuse_owed, strike_returned
from dba_console.actions.parameter_apply import Became, Change, apply, counts, reload, tell, unread
from dba_console.actions.parameter_check import Refusal, refusal_of
from dba_console.actions.parameter_risk import remarks, risk_of, risky
from dba_console.actions.parameter_sql import Scope, Spot, missing, names, setting, statement, stored
from dba_console.actions.parameter_values import same, text_of
from dba_console.actions.set_parameter import named


class ParametersSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    settings: dict[str, str | int | float | bool | None]
    """Name and value of each, as in postgresql.conf. A text that is empty, or none, leaves that one as it is."""
    scope: Scope = "system"
    """As in `set-parameter`, for all of them."""
    database: str | None = None
    """As in `set-parameter`."""
    role: str | None = None
    """As in `set-parameter`."""
    restart: bool = False
    """Set those that only a restart makes count too; they are pending until then, which is said."""
    temporary: bool = False
    """For a time: what was there is on the disk before any is set, and stays a finding until it is put back."""
    for_database: str | None = None
    """With fsync or full_page_writes off: the one database whose loss is accepted; without it the run's own."""

    @property
    def wanted(self) -> dict[str, str]:
        """Those that are to be set."""
        given = {name: value for name, value in self.settings.items() if value is not None and value != ""}
        return {name: text_of(value) for name, value in given.items()}

    def spot(self, name: str) -> Spot:
        return Spot(parameter=name, scope=self.scope, database=self.database, role=self.role)


class SetParameters:
    """Implements `Action`."""

    name: ClassVar[str] = "set-parameters"
    summary: ClassVar[str] = (
        "Sets several configuration parameters as `set-parameter` sets one, with one reload for all of them, in an "
        "order in which the server could start after each. If one is refused none is set; its undo restores each "
        "exactly as it was. What is set for a time (`temporary`) is owed: see `put-back`."
    )
    Settings: ClassVar[type[Struct]] = ParametersSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = True
    row_key: ClassVar[tuple[str, ...]] = (*Spot.__struct_fields__, "set", "to")

    def look(self, settings: ParametersSettings, world: World) -> Sight:
        link = server(world)
        found = {name: setting(link, name) for name in settings.wanted}
        refusal, hint = _refusal(settings, found, link, world)
        if refusal is not None:
            return Sight(text=f"{len(found)} parameters were to be set.", exact="", refusal=refusal, hint=hint)
        rows, left = [], []
        for name, now in found.items():
            assert now is not None  # a name the server does not have was refused
            spot, wanted = named(settings.spot(name), now), settings.wanted[name]
            old = stored(link, spot)
            if same(spot.parameter, old, wanted, now["vartype"], now["unit"]) and not now["pending_restart"]:
                left.append(spot.parameter)
                continue
            rows.append({**asdict(spot), "set": old, "to": wanted, "is": now["shown"], "when": _when(now)})
        return Sight(
            text=_told(settings, rows, left, list(remarks(link, settings.wanted))),
            exact=_exact(settings, rows),
            values={row["parameter"]: row["is"] for row in rows},
            count=len(rows),
            rows=tuple(rows),
            done=not rows,
            grave=settings.scope == "system" and any(risky(row["parameter"], row["to"]) for row in rows),
        )

    def act(self, settings: ParametersSettings, sight: Sight, world: World, control: Control) -> Done:
        link, pairs = server(world), _pairs(sight)
        if settings.temporary:
            owe(world, link, pairs)
        became = apply(link, [change for change, _ in pairs], world, control)
        if settings.temporary and any(not one.written for one in became):
            strike_returned(world, link, [one.change.spot for one in became if not one.written])
        return _done(became, pairs)

    def settle(self, settings: ParametersSettings, sight: Sight, world: World) -> Done:
        link, pairs = server(world), _pairs(sight)
        became = [_found(link, change, old) for change, old in pairs]
        if settings.temporary:
            strike_returned(world, link, [change.spot for change, _ in pairs])
        done = _done(became, pairs)
        left = [one for one in became if one.state == "failed"]
        again = done.state == "failed" and all(not one.written for one in left)
        return replace(done, again=again)

    def undo(self, settings: ParametersSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        link = server(world)
        back, altered, stale = [], [], False
        for row in data["rows"]:
            spot = Spot(**row["spot"])
            now, found = setting(link, spot.parameter), stored(link, spot)
            kind = ("string", None) if now is None else (now["vartype"], now["unit"])
            if same(spot.parameter, found, row["old"], *kind):
                stale = stale or (now is not None and unread(spot, row["old"], now))
                continue
            if now is None or not same(spot.parameter, found, row["new"], *kind):
                altered.append(f"{tell(spot, found)}: somebody has changed it since, so it is left alone")
            else:
                back.append(Change(spot, row["old"]))
        became = apply(link, back, world, control) if back else []
        if stale and not back:
            reload(link, world, control)
        if settings.temporary:
            strike_returned(world, link, [Spot(**row["spot"]) for row in data["rows"]])
        states = {one.state for one in became} | ({"failed"} if altered else set())
        state = next((state for state in ("unknown", "failed") if state in states), "ok")
        return Done(state=state, text="; ".join([*(one.text for one in became), *altered]) or "all are as they were")


def _refusal(settings: ParametersSettings, found: Mapping[str, Any], link: ServerLink, world: World) -> Refusal:
    if settings.temporary and settings.scope == "session":
        return "what is set for the statements of a run ends with it: temporary has no meaning there", None
    for name, now in found.items():
        if now is None:
            near = difflib.get_close_matches(name, names(link), 1)
            return f"the server has no parameter {name}", f"did you mean {near[0]}?" if near else None
        spot = named(settings.spot(name), now)
        refusal, hint = refusal_of(spot, settings.wanted[name], now, link, restart=settings.restart)
        if refusal is None and (gone := missing(link, spot)):
            refusal = f"the server has no {gone}"
        if refusal is not None:
            return refusal, hint
    spots = [named(settings.spot(name), now) for name, now in found.items()]
    told = refuse_owed(world, link, spots) if settings.temporary else (None, None)
    if told[0] is not None or settings.scope != "system":
        return told
    return risk_of(link, settings.wanted, temporary=settings.temporary, for_database=settings.for_database)


def _pairs(sight: Sight) -> list[tuple[Change, str | None]]:
    """Each change with what was there."""
    return [
        (Change(Spot(**{name: row[name] for name in Spot.__struct_fields__}), row["to"]), row["set"])
        for row in sight.rows
    ]


def _found(link: ServerLink, change: Change, old: str | None) -> Became:
    """What is to be found of a change of which nobody saw the end."""
    now = setting(link, change.spot.parameter)
    if now is None:
        return Became(change, "unknown", f"the server has no parameter {change.spot.parameter} any more")
    found, kind = stored(link, change.spot), (now["vartype"], now["unit"])
    told = tell(change.spot, found)
    if same(change.spot.parameter, found, change.value, *kind):
        if counts(link, change, now):
            return Became(change, "ok", f"{told}, and it counts", now["shown"], True)
        return Became(change, "failed", f"{told}, but the server has not read it", now["shown"], True)
    if same(change.spot.parameter, found, old, *kind):
        return Became(change, "failed", f"{told}, as before", now["shown"])
    return Became(change, "unknown", f"{told}: neither as before nor as it was to be", now["shown"], True)


def _done(became: Sequence[Became], pairs: Sequence[tuple[Change, str | None]]) -> Done:
    before = dict(pairs)
    written = [one.change for one in became if one.written or one.state == "unknown"]
    rows = [{"spot": asdict(one.spot), "old": before[one], "new": one.value} for one in written]
    states = [one.state for one in became]
    state = "unknown" if "unknown" in states else "ok" if set(states) <= {"ok"} else "failed"
    return Done(
        state=state,
        text="; ".join(one.text for one in became),
        values={one.change.spot.parameter: one.shown for one in became},
        undo={"rows": rows} if rows else None,
    )


def _when(now: Mapping[str, Any]) -> str:
    return "after a restart" if now["context"] == "postmaster" else "at once"


def _told(
    settings: ParametersSettings, rows: Sequence[Mapping[str, Any]], left: Sequence[str], more: Sequence[str]
) -> str:
    words = [f"{row['parameter']} from {row['is']} to {row['to']}" for row in rows]
    where = settings.spot("").words()
    sentences = [f"{where}: {', '.join(words)}" if words else f"nothing is to be set {where}"]
    if later := [row["parameter"] for row in rows if row["when"] != "at once"]:
        sentences.append(f"{', '.join(later)} counts after a restart only")
    if left:
        sentences.append(f"already as wanted: {', '.join(left)}")
    if rows and settings.scope == "system":
        sentences += more
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in sentences)


def _exact(settings: ParametersSettings, rows: Sequence[Mapping[str, Any]]) -> str:
    spots = [Spot(**{name: row[name] for name in Spot.__struct_fields__}) for row in rows]
    texts = [statement(spot, row["to"]).strip() for spot, row in zip(spots, rows, strict=True)]
    return "; ".join([*texts, *(["SELECT pg_reload_conf()"] if texts and settings.scope == "system" else [])])
