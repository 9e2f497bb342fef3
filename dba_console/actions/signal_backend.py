"""The action signal-backend: cancel queries or terminate sessions, by pid and start time, so that a reused pid is safe.

Never a walsender, an autovacuum to prevent wraparound, or the console itself. Which sessions may be signalled is
decided in the statement that signals them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.deadline_connection import to_wall_us
from dba_console.actions.query_connection import QueryConnection
from dba_console.actions.statement_results import StatementFailed, StatementLost
from dba_console.core.declarations import Duration
from dba_console.core.errors import UsageError
from dba_console.core.redact import redact_statement
from dba_console.core.sanitize import clean
from dba_console.core.units import human_duration, parse_duration

# The statements: the sessions, the signal, the sessions that remain.
#
# SESSIONS and SIGNAL contain the same verdict expression: the server decides by what the operator was shown.


def _to_us_sql(time: str) -> str:
    """Return SQL for a time in microseconds since 1970."""
    return f"(EXTRACT(epoch FROM {time}) * 1000000)::int8"


_SELECTED = """
  SELECT w.*, timestamptz 'epoch' + w.start_us * interval '1 microsecond' AS backend_start
    FROM ROWS FROM (pg_catalog.unnest(%(pids)s::int4[]), pg_catalog.unnest(%(starts)s::int8[]),
                    pg_catalog.unnest(%(queries)s::int8[]), pg_catalog.unnest(%(transactions)s::int8[]),
                    pg_catalog.unnest(%(states)s::int8[])) AS w (pid, start_us, query_us, xact_us, state_us)
"""
# backend_start is NULL for a session this role may not see: its verdict is hidden, not gone.
_VERDICTS = f"""
  SELECT a.pid, w.start_us, a.usename, a.datname, a.application_name, a.state, a.query_start, a.xact_start, a.query,
         CASE
           WHEN a.pid = pg_catalog.pg_backend_pid()
             OR (a.usename = current_user AND a.application_name ~ '^dba-console($|:)') THEN 'own'
           WHEN a.backend_start IS NULL OR a.backend_type IS NULL OR a.query = '<insufficient privilege>' THEN 'hidden'
           WHEN a.backend_type = 'walsender' THEN 'walsender'
           WHEN a.backend_type = 'autovacuum worker' AND a.query LIKE '%%(to prevent wraparound)%%' THEN 'wraparound'
           WHEN a.backend_type NOT IN ('client backend', 'autovacuum worker') THEN 'background'
           WHEN coalesce(r.rolsuper, true) AND a.backend_type = 'client backend'
                AND a.usename <> current_user AND NOT %(superusers)s::bool THEN 'superuser'
           WHEN NOT me.rolsuper AND coalesce(r.rolsuper, true) THEN 'role'
           WHEN NOT me.rolsuper AND NOT pg_catalog.pg_has_role(a.usesysid, 'USAGE')
                AND NOT pg_catalog.pg_has_role('pg_signal_backend', 'USAGE') THEN 'role'
           WHEN w.query_us <> {_to_us_sql("a.query_start")} OR w.xact_us <> coalesce({_to_us_sql("a.xact_start")}, 0)
             OR w.state_us <> {_to_us_sql("a.state_change")} THEN 'moved'
           WHEN %(cancel)s::bool AND a.state <> 'active' THEN 'idle'
           ELSE 'may'
         END AS verdict
    FROM ({_SELECTED}) w
    JOIN pg_catalog.pg_stat_activity a
      ON a.pid = w.pid AND (a.backend_start = w.backend_start OR a.backend_start IS NULL)
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.usesysid
    JOIN pg_catalog.pg_roles me ON me.rolname = current_user
"""
_QUERY_TEXT = (
    "pg_catalog.left(j.query, CASE WHEN pg_catalog.cardinality(%(pids)s::int4[]) <= 20 THEN 8000 ELSE 200 END)"
)
_SERVER_CUTS_AT = "pg_catalog.pg_size_bytes(pg_catalog.current_setting('track_activity_query_size')) - 4"
"""Bytes of a statement that the server has cut: an incomplete character at its end is left out."""
SESSIONS = f"""
SELECT j.pid, j.verdict, j.usename::text AS "user", j.datname::text AS database, j.application_name AS application,
       j.state, {_to_us_sql("j.query_start")} AS query_us, j.start_us,
       {_QUERY_TEXT} AS query, pg_catalog.octet_length(j.query) > pg_catalog.octet_length({_QUERY_TEXT})
         OR pg_catalog.octet_length(j.query) >= {_SERVER_CUTS_AT} AS cut,
       EXTRACT(epoch FROM pg_catalog.clock_timestamp() - j.xact_start)::float8 AS xact_age_s
  FROM ({_VERDICTS}) j
"""
REMAINING = f"""
SELECT a.pid, a.state, {_to_us_sql("a.query_start")} AS query_us
  FROM ({_SELECTED}) w
  JOIN pg_catalog.pg_stat_activity a ON a.pid = w.pid AND a.backend_start = w.backend_start
"""


def _signal_statement(function: str) -> str:
    # Materialized: all verdicts are made before the first signal is sent.
    return f"""
WITH verdicts AS MATERIALIZED ({_VERDICTS})
SELECT v.pid, pg_catalog.{function}(v.pid) AS sent FROM verdicts v WHERE v.verdict = 'may'
"""


SIGNAL = {"cancel": _signal_statement("pg_cancel_backend"), "terminate": _signal_statement("pg_terminate_backend")}


_POLL_S = 0.2
_KEY_COLUMNS = ("pid", "backend_start", "query_start", "xact_start", "state_change")
_VERDICT_TEXTS = {
    "own": "a session of this console",
    "walsender": "a walsender: its standby or backup would break",
    "wraparound": "an autovacuum to prevent wraparound: it would only start again",
    "hidden": "hidden from this role: GRANT pg_read_all_stats shows it",
    "background": "not a client session",
    "superuser": "a session of a superuser: set superusers = true to include it",
    "role": "a session of another role: GRANT pg_signal_backend allows it",
    "idle": "not running a query: terminate the session instead",
}
"""By verdict of SESSIONS."""


Time = int | str
"""As in pg_stat_activity, with time zone; or microseconds since 1970."""


class SignalledSession(Struct, frozen=True):
    """A session, identified so that a later session with the same pid is not meant; other columns are ignored."""

    pid: int
    backend_start: Time
    query_start: Time | None = None
    """If given: only while it still runs that query."""
    xact_start: Time | None = None
    """If given: only while it is still in that transaction."""
    state_change: Time | None = None
    """If given: only while its state has not changed since."""


def _to_us(time: Time | None) -> int | None:
    """Return microseconds since 1970. Raises UsageError if it is not a time."""
    if time is None or isinstance(time, int):
        return time
    try:
        return to_wall_us(datetime.fromisoformat(time))
    except (ValueError, TypeError):
        raise UsageError(f"not a time of pg_stat_activity: {time!r}", hint="use date, time and time zone") from None


class SignalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verb: Literal["cancel", "terminate"]
    """`cancel` ends the query of the session, `terminate` the session. Both roll its whole transaction back."""
    rows: list[SignalledSession]
    """Sessions: rows of a preview with `pid` and `backend_start`, as in `rows = "%(blockers)s"`. If they also have
    `query_start`, `xact_start` or `state_change`, a session where that has changed since is not signalled."""
    superusers: bool = False
    """Include sessions of other superusers."""
    wait: Duration = "10s"
    """How long to wait until the queries or sessions have ended."""


class SignalBackend(Action):
    name: ClassVar[str] = "signal-backend"
    summary: ClassVar[str] = (
        "Cancels queries, or terminates sessions, by pid and start time; then checks that they ended. Refuses "
        "walsenders, autovacuum to prevent wraparound, background processes, and the console itself."
    )
    Settings: ClassVar[type[Struct]] = SignalSettings
    no_undo: ClassVar[str] = "an ended session or query cannot be restored"
    may_shrink: ClassVar[bool] = True
    """A session that ended meanwhile needs no signal."""
    row_key: ClassVar[tuple[str, ...]] = _KEY_COLUMNS
    """Columns that identify a session; the others only inform the operator."""

    def preview(self, settings: SignalSettings, context: ActionContext) -> ActionPreview:
        found = {
            (row["pid"], row["start_us"]): row
            for row in context.require_connection().rows(SESSIONS, _params(settings.rows, settings))
        }
        verdicts = [(one, found.get((one.pid, _to_us(one.backend_start)))) for one in _distinct(settings.rows)]
        targets = [(one, row) for one, row in verdicts if row is not None and row["verdict"] == "may"]
        refused = [
            (one.pid, row["verdict"]) for one, row in verdicts if row is not None and row["verdict"] in _VERDICT_TEXTS
        ]
        gone = len(verdicts) - len(targets) - len(refused)
        rows = tuple(_session_row(settings, one, row) for one, row in targets)
        values = {"sessions": len(targets), "active": sum(row["state"] == "active" for _, row in targets)}
        # The operator named the set, so a session that is not signalled is never left out silently.
        refusal = "; ".join(f"process {pid} is {_VERDICT_TEXTS[why]}" for pid, why in refused[:5]) or None
        return ActionPreview(
            text=_preview_text(settings, [row for _, row in targets], gone),
            exact=_exact_text(settings, rows),
            values=values,
            refusal=refusal,
            hint="remove these sessions from the selection" if refusal else None,
            count=len(rows),
            rows=rows,
            done=not targets and not refused,
        )

    def act(
        self, settings: SignalSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        connection, params = context.require_connection(), _params(_sessions(preview), settings)
        try:
            signalled = connection.execute_change(SIGNAL[settings.verb], params, timeout_s=10.0).rows
        except StatementLost as error:
            return ActionResult(state="unknown", text=f"unknown whether they were signalled: {error.message}")
        except StatementFailed as error:
            return ActionResult(state="failed", text=f"the server refused: {error.message}")
        sent = {row["pid"] for row in signalled if row["sent"]}
        return _result(settings, preview, sent, self._wait_until_gone(settings, preview, sent, context, control))

    def settle(self, settings: SignalSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        left = _still_running(settings, preview, context.require_connection())
        if not left:
            gone = "all of them have ended" if settings.verb == "terminate" else "all of these queries have ended"
            return ActionResult(state="ok", text=gone)
        return ActionResult(
            state="failed",
            text=f"still {'connected' if settings.verb == 'terminate' else 'running'}: {_pids_text(left)}",
        )

    def _wait_until_gone(
        self, settings: SignalSettings, preview: ActionPreview, sent: set[int], context: ActionContext, control: Control
    ) -> list[int]:
        """Wait for the signalled sessions; return the pids that did not end in time."""
        connection = context.require_connection()
        deadline_us = context.clock.mono_us() + int(parse_duration(settings.wait) * 1e6)
        while True:
            left = [pid for pid in _still_running(settings, preview, connection) if pid in sent]
            if not left or context.clock.mono_us() >= deadline_us:
                return left
            control.report_progress(f"waiting for {_pids_text(left)}", len(sent) - len(left), len(sent), "sessions")
            if control.wait(_POLL_S):
                return left


def _still_running(settings: SignalSettings, preview: ActionPreview, connection: QueryConnection) -> list[int]:
    """Return the pids of the preview that are still connected, or still run the query to cancel."""
    at = {row["pid"]: row["query_start"] for row in preview.rows if "query_start" in row}
    rows = connection.rows(REMAINING, _params(_sessions(preview), settings))
    if settings.verb == "terminate":
        return [row["pid"] for row in rows]
    return [row["pid"] for row in rows if row["state"] == "active" and row["query_us"] == at.get(row["pid"])]


def _session_row(settings: SignalSettings, one: SignalledSession, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that identifies a session from here on; for a cancel with the start of its current query."""
    stamps = {"query_start": _to_us(one.query_start), "xact_start": _to_us(one.xact_start)}
    stamps["state_change"] = _to_us(one.state_change)
    if settings.verb == "cancel":
        stamps["query_start"] = row["query_us"]
    given = {name: time for name, time in stamps.items() if time is not None}
    message = {name: row[name] for name in ("user", "database", "application", "state")}
    query = "\n".join(clean(one) for one in redact_statement(row["query"] or "", cut=bool(row["cut"])).split("\n"))
    return {"pid": row["pid"], "backend_start": row["start_us"], **given, **message, "query": query}


def _result(settings: SignalSettings, preview: ActionPreview, sent: set[int], left: list[int]) -> ActionResult:
    verb = "cancelled" if settings.verb == "cancel" else "terminated"
    unsent = len(preview.rows) - len(sent)
    values = {"sessions": len(left) if settings.verb == "terminate" else len(preview.rows), "signalled": len(sent)}
    if left:
        text = f"{_pids_text(left)} did not end within {settings.wait}"
        return ActionResult(state="failed", text=f"{text}: it may hang in the kernel, or roll back", values=values)
    text = f"{len(sent)} of {len(preview.rows)} {verb}"
    if unsent:
        text += f"; {unsent} had ended, or may no longer be signalled"
    return ActionResult(state="ok", text=text, values=values)


def _sessions(preview: ActionPreview) -> list[SignalledSession]:
    return [SignalledSession(**{name: row[name] for name in _KEY_COLUMNS if name in row}) for row in preview.rows]


def _distinct(rows: Sequence[SignalledSession]) -> list[SignalledSession]:
    return list({(one.pid, _to_us(one.backend_start)): one for one in rows}.values())


def _params(rows: Sequence[SignalledSession], settings: SignalSettings) -> dict[str, Any]:
    return {
        "pids": [one.pid for one in rows],
        "starts": [_to_us(one.backend_start) for one in rows],
        "queries": [_to_us(one.query_start) for one in rows],
        "transactions": [_to_us(one.xact_start) for one in rows],
        "states": [_to_us(one.state_change) for one in rows],
        "superusers": settings.superusers,
        "cancel": settings.verb == "cancel",
    }


def _preview_text(settings: SignalSettings, chosen: Sequence[Mapping[str, Any]], gone: int) -> str:
    verb = "Cancel the query of" if settings.verb == "cancel" else "Terminate"
    who = "; ".join(_session_text(row) for row in chosen[:5]) or "no session"
    more = f"; and {len(chosen) - 5} more" if len(chosen) > 5 else ""
    ended = f". {gone} of the named sessions have ended, or their state has changed" if gone else ""
    lost = "" if not chosen else ". Its transaction is rolled back" if len(chosen) == 1 else ". Each is rolled back"
    return f"{verb} {len(chosen)} session{'' if len(chosen) == 1 else 's'}: {who}{more}{ended}{lost}"


def _session_text(row: Mapping[str, Any]) -> str:
    age = "" if row["xact_age_s"] is None else f", in transaction for {human_duration(row['xact_age_s'])}"
    named = f" {row['application']}" if row["application"] else ""
    return f"{row['pid']} {row['user']}@{row['database']}{named} {row['state'] or ''}{age}"


def _exact_text(settings: SignalSettings, rows: Sequence[Mapping[str, Any]]) -> str:
    function = "pg_cancel_backend" if settings.verb == "cancel" else "pg_terminate_backend"
    which = ", ".join(str(row["pid"]) for row in rows)
    those = f"process {which}, only" if len(rows) == 1 else f"the processes {which}, each only"
    return f"SELECT {function}(pid) for {those} if its start time is unchanged"


def _pids_text(pids: Sequence[int]) -> str:
    shown = ", ".join(str(pid) for pid in sorted(pids)[:10])
    return f"{'process' if len(pids) == 1 else 'processes'} {shown}{' …' if len(pids) > 10 else ''}"
