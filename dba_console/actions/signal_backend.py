"""Cancel what sessions run, or end them: by process id and start, so that a number given out again hits nobody else.

Never a walsender, never an autovacuum that prevents wraparound, never the console itself. Which of the sessions may be
signalled is decided in the very statement that signals them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct

from dba_console.actions import sql
from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.link import Lost, StatementFailed, server
from dba_console.actions.signal_sql import LEFT, SEEN, SIGNAL
from dba_console.errors import UsageError
from dba_console.units import human_duration, parse_duration

_LOOK_S = 0.2
_WHY = {
    "gone": "ended already",
    "own": "this console's own",
    "walsender": "a walsender: its standby or backup would break",
    "wraparound": "an autovacuum to prevent wraparound: it would only start again",
    "hidden": "hidden from this role: GRANT pg_read_all_stats would show what it is",
    "background": "no session of a client",
    "superuser": "a superuser's: superusers = true if it is meant",
    "role": "another role's: GRANT pg_signal_backend would let this role do it",
    "idle": "runs no query that could be cancelled: end the session instead",
}
"""By what SEEN calls it."""


class Session(Struct, frozen=True):
    """A session, named so that it cannot be taken for a later one. A row may say more of it."""

    pid: int
    backend_start: int | str
    """As pg_stat_activity has it: a time with its zone, or microseconds since 1970."""

    def start_us(self) -> int:
        """Raises UsageError for what is no time."""
        if isinstance(self.backend_start, int):
            return self.backend_start
        try:
            return sql.wall_us(datetime.fromisoformat(self.backend_start))
        except (ValueError, TypeError):
            raise UsageError(
                f"not the start of a session: {self.backend_start!r}", hint="as in pg_stat_activity"
            ) from None


class SignalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verb: Literal["cancel", "terminate"]
    """`cancel` ends what the session runs, `terminate` the session."""
    rows: list[Session]
    """Which sessions: rows of a preview with `pid` and `backend_start`, as in `rows = "%(blockers)s"`."""
    superusers: bool = False
    """Sessions of other superusers too."""
    wait: str = "10s"
    """How long to look whether they have obeyed."""


class SignalBackend:
    """Implements `Action`."""

    name: ClassVar[str] = "signal-backend"
    summary: ClassVar[str] = (
        "Cancels what sessions run, or ends sessions, by process id and start; then looks whether they obeyed. Refuses "
        "walsenders, autovacuum to prevent wraparound, background processes, and the console itself."
    )
    Settings: ClassVar[type[Struct]] = SignalSettings
    needs_server: ClassVar[bool] = True
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = False
    may_shrink: ClassVar[bool] = True
    """Who has gone meanwhile need not be asked to."""

    def look(self, settings: SignalSettings, world: World) -> Sight:
        found = {(row["pid"], row["start_us"]): row for row in server(world).rows(SEEN, _params(settings))}
        verdicts = [(one, found.get((one.pid, one.start_us()))) for one in _distinct(settings.rows)]
        meant = [row for _, row in verdicts if row is not None and row["verdict"] == "may"]
        refused = [(one.pid, row["verdict"]) for one, row in verdicts if row is not None and row["verdict"] != "may"]
        gone = sum(row is None for _, row in verdicts)
        rows = tuple({"pid": row["pid"], "backend_start": row["start_us"]} for row in meant)
        values = {"sessions": len(meant), "active": sum(row["state"] == "active" for row in meant)}
        # None may be left out silently: the operator named the set.
        refusal = "; ".join(f"process {pid} is {_WHY[why]}" for pid, why in refused[:5]) or None
        return Sight(
            text=_told(settings, meant, gone),
            exact=_exact(settings, rows),
            values=values,
            refusal=refusal,
            hint="take what may not be signalled out of the selection" if refusal else None,
            count=len(rows),
            rows=rows,
            done=not meant and not refused,
        )

    def act(self, settings: SignalSettings, sight: Sight, world: World, control: Control) -> Done:
        link = server(world)
        narrowed = _of_sight(settings, sight)
        before = {row["pid"]: row for row in link.rows(SEEN, _params(narrowed))}
        try:
            signalled = link.act(SIGNAL[settings.verb], _params(narrowed), timeout_s=10.0).rows
        except Lost as error:
            return Done(state="unknown", text=f"it is not known whether they were signalled: {error.message}")
        except StatementFailed as error:
            return Done(state="failed", text=f"the server refused: {error.message}")
        sent = {row["pid"] for row in signalled if row["sent"]}
        left = self._left(settings, narrowed, before, world, control)
        return _came_to(settings, sight, sent, left)

    def settle(self, settings: SignalSettings, sight: Sight, world: World) -> Done:
        rows = server(world).rows(LEFT, _params(_of_sight(settings, sight)))
        still = [row["pid"] for row in rows if settings.verb == "terminate" or row["state"] == "active"]
        if not still:
            return Done(state="ok", text="none of the sessions is there any more" if not rows else "none runs a query")
        if settings.verb == "terminate":
            return Done(state="failed", text=f"still there: {_pids(still)}; ending them again is harmless")
        return Done(state="unknown", text=f"active, with the same query or another: {_pids(still)}")

    def undo(self, settings: SignalSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        return Done(state="failed", text="a session that was ended cannot be brought back")

    def _left(
        self,
        settings: SignalSettings,
        narrowed: SignalSettings,
        before: Mapping[int, Mapping[str, Any]],
        world: World,
        control: Control,
    ) -> list[int]:
        """Who has not obeyed by the time that is waited for."""
        link = server(world)
        until_us = world.clock.mono_us() + int(parse_duration(settings.wait) * 1e6)
        while True:
            rows = link.rows(LEFT, _params(narrowed))
            left = [row["pid"] for row in rows if settings.verb == "terminate" or _same(row, before.get(row["pid"]))]
            if not left or world.clock.mono_us() >= until_us:
                return left
            control.tell(f"waiting for {_pids(left)}", len(narrowed.rows) - len(left), len(narrowed.rows), "sessions")
            if control.wait(_LOOK_S):
                return left


def _same(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    """It still runs the query that was to be cancelled."""
    return before is not None and now["state"] == "active" and now["query_start"] == before["query_start"]


def _came_to(settings: SignalSettings, sight: Sight, sent: set[int], left: list[int]) -> Done:
    verb = "cancelled" if settings.verb == "cancel" else "ended"
    unsent = len(sight.rows) - len(sent)
    values = {"sessions": len(left) if settings.verb == "terminate" else len(sight.rows), "signalled": len(sent)}
    if left:
        text = f"{_pids(left)} did not obey within {settings.wait}"
        return Done(state="failed", text=f"{text}: it may hang in the kernel, or in a rollback", values=values)
    text = f"{len(sent)} of {len(sight.rows)} {verb}"
    if unsent:
        text += f"; {unsent} had gone, or had become something that is not signalled"
    return Done(state="ok", text=text, values=values)


def _of_sight(settings: SignalSettings, sight: Sight) -> SignalSettings:
    """The settings for the sessions of the sight, and for no other."""
    rows = [Session(row["pid"], row["backend_start"]) for row in sight.rows]
    return SignalSettings(verb=settings.verb, rows=rows, superusers=settings.superusers, wait=settings.wait)


def _distinct(rows: Sequence[Session]) -> list[Session]:
    return list({(one.pid, one.start_us()): one for one in rows}.values())


def _params(settings: SignalSettings) -> dict[str, Any]:
    return {
        "pids": [one.pid for one in settings.rows],
        "starts": [one.start_us() for one in settings.rows],
        "superusers": settings.superusers,
        "cancel": settings.verb == "cancel",
    }


def _told(settings: SignalSettings, meant: Sequence[Mapping[str, Any]], gone: int) -> str:
    verb = "Cancel the query of" if settings.verb == "cancel" else "End"
    who = "; ".join(_who(row) for row in meant[:5]) or "no session"
    more = f"; and {len(meant) - 5} more" if len(meant) > 5 else ""
    ended = f". {gone} of those named have ended already" if gone else ""
    return f"{verb} {len(meant)} session{'' if len(meant) == 1 else 's'}: {who}{more}{ended}"


def _who(row: Mapping[str, Any]) -> str:
    age = "" if row["xact_age_s"] is None else f", in transaction for {human_duration(row['xact_age_s'])}"
    named = f" {row['application']}" if row["application"] else ""
    return f"{row['pid']} {row['user']}@{row['database']}{named} {row['state'] or ''}{age}"


def _exact(settings: SignalSettings, rows: Sequence[Mapping[str, Any]]) -> str:
    function = "pg_cancel_backend" if settings.verb == "cancel" else "pg_terminate_backend"
    which = ", ".join(str(row["pid"]) for row in rows)
    return f"SELECT {function}(pid) for the processes {which}, each only if it still has the start shown"


def _pids(pids: Sequence[int]) -> str:
    shown = ", ".join(str(pid) for pid in sorted(pids)[:10])
    return f"{'process' if len(pids) == 1 else 'processes'} {shown}{' …' if len(pids) > 10 else ''}"
