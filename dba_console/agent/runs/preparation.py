"""Check that a run may start: its plan, compiled here and not taken from a console, its inputs, host and role.

All functions raise a ConsoleError with the reason, and change nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dba_console.actions.registry import ACTIONS
from dba_console.agent.protocol import RunBegin
from dba_console.core.decoding import from_json
from dba_console.core.errors import PermissionDenied, Refused, RunbookError, SessionError, Unsupported, UsageError
from dba_console.recording.plan import ACTING_KINDS, Block, Plan
from dba_console.recording.run_reader import StoredRun
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.single_action import signal_plan
from dba_console.runbooks.values import typed, value_of

if TYPE_CHECKING:
    from dba_console.actions.query_connection import QueryConnection

SINGLE_ACTION = "signal-backend"
"""The only action that a screen may request without a document."""
PUT_BACK = "put-back"
SERVER_NEEDS = ("server", "superuser")
_PREDEFINED = re.compile(
    r"pg_(monitor|read_|write_|signal_|stat_|execute_|use_|create_|checkpoint$|maintain$|database_owner$).*"
)
"""Roles of every server (PostgreSQL, "Predefined Roles"); any other name that starts with pg_ is a program."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The request for a run, validated."""

    plan: Plan
    text: str
    source: str
    values: dict[str, Any]
    secret: frozenset[str]
    """Names of the secret inputs."""
    mode: Literal["run", "rehearse"]

    def __repr__(self) -> str:
        return f"Order({self.plan.id!r}, {self.mode!r})"  # values may be secrets


def read_run_request(request: RunBegin) -> RunOrder:
    """Return the validated request of a console. Raises RunbookError, UsageError."""
    plan = single_action_plan(request.adhoc) if request.adhoc is not None else None
    plan = plan or compile_text(request.text, request.source, ACTIONS)
    return RunOrder(plan, request.text, request.source, typed(plan, request.inputs), _secret(plan), request.mode)


def restore_run_request(stored_run: StoredRun, given: dict[str, str], *, ending: bool = False) -> RunOrder:
    """Return the request of an interrupted run, with its secrets given again; an abort needs none. Raises SessionError,
    UsageError.
    """
    plan, planned = stored_run.plan, next((one for one in stored_run.records if one.kind == "run.planned"), None)
    stored_run.require_resumable()
    if plan is None or planned is None:
        raise SessionError(
            f"the run {stored_run.directory.name} cannot be resumed: its agent ended before its inputs were recorded",
            hint="nothing was changed; start a new run",
        )
    known = dict(planned.fields.get("inputs") or {})
    for one in plan.inputs:
        if one.secret and one.name in given:
            known[one.name] = value_of(one, given[one.name])
        elif one.secret and one.required and one.name not in known and not ending:
            raise UsageError(
                f"{one.name} is secret and was not stored: give it again",
                hint=f"--input {one.name}=…",
            )
    mode: Literal["run", "rehearse"] = "rehearse" if stored_run.about.mode == "rehearse" else "run"
    return RunOrder(plan, stored_run.text, stored_run.about.source, known, _secret(plan), mode)


def refuse_second_run(plan: Plan, active_run: str) -> None:
    """Raise Refused if another run is active, unless this one only reverts settings, which is never delayed."""
    acts = [block for _, block in plan.blocks() if block.kind in ACTING_KINDS]
    if active_run and not (acts and all(block.action == PUT_BACK for block in acts)):
        raise Refused(f"a run is active: {active_run}", hint="only one can run: attach to it, or wait for its end")


def single_action_plan(data: bytes) -> Plan:
    """Return the plan of one step requested by a screen; only the signal's target is taken from the request."""
    try:
        request = from_json(data, Plan)
        [step] = request.steps
        [block] = step.blocks
        verb, rows = block.settings["verb"], block.settings["rows"]
    except (msgspec.MsgspecError, ValueError, KeyError):
        raise RunbookError("the screen requested a step that is not possible without a runbook") from None
    if block.kind != "action" or block.action != SINGLE_ACTION:
        raise Refused(f"without a runbook only {SINGLE_ACTION} is possible")
    return signal_plan(verb, rows)


def uses_server(plan: Plan) -> bool:
    """Return whether the plan needs a server."""
    return any(_needs_server(need) for need in plan.needs) or any(
        _block_uses_server(block) for _, block in plan.blocks()
    )


def require_needs(plan: Plan, connection: QueryConnection | None) -> None:
    """Raise PermissionDenied or Unsupported if one of the plan's needs is missing."""
    for need in plan.needs:
        if need == "root":
            if os.geteuid() != 0:
                raise PermissionDenied(
                    f"runbook {plan.id} needs root, and the agent runs as uid {os.geteuid()}",
                    hint="end this agent and start the console as root",
                )
        elif _needs_server(need):
            _require_role(plan, need, connection)
        elif shutil.which(need) is None and not _is_role(need, connection):
            raise Unsupported(f"runbook {plan.id} needs the program {need}, which is not in the agent's PATH")
    lowest, highest = plan.versions
    if connection is None or (lowest is None and highest is None):
        return
    major = connection.read_identity().version_num // 10000
    if (lowest is not None and major < lowest) or (highest is not None and major > highest):
        raise Unsupported(f"runbook {plan.id} is for PostgreSQL {lowest or ''}–{highest or ''}, this server is {major}")


def _is_role(need: str, connection: QueryConnection | None) -> bool:
    """Return whether it is a role of the server that ours is a member of."""
    if connection is None:
        return False
    sql = "SELECT 1 FROM pg_roles WHERE rolname = %(need)s AND pg_has_role(current_user, oid, 'USAGE')"
    return bool(connection.rows(sql, {"need": need}))


def _require_role(plan: Plan, need: str, connection: QueryConnection | None) -> None:
    if connection is None:
        raise Unsupported(f"runbook {plan.id} needs a server, and this agent has none")
    if need == "server":
        return
    if need == "superuser":
        [row] = connection.rows("SELECT current_setting('is_superuser') = 'on' AS has, current_user AS who")
    else:
        [row] = connection.rows(
            "SELECT pg_has_role(current_user, %(need)s, 'USAGE') AS has, current_user AS who", {"need": need}
        )
    if not row["has"]:
        hint = f'GRANT {need} TO "{row["who"]}"' if need != "superuser" else "connect as a superuser"
        raise PermissionDenied(f"runbook {plan.id} needs {need}, and {row['who']} is not a member", hint=hint)


def _needs_server(need: str) -> bool:
    return need in SERVER_NEEDS or _PREDEFINED.match(need) is not None


def _block_uses_server(block: Block) -> bool:
    if block.language == "sql" or any(test.language == "sql" for test in block.conditions()):
        return True
    if block.kind == "run":
        return not block.host
    name = block.action or ""
    return block.kind == "action" and name in ACTIONS and ACTIONS[name].needs_server


def _secret(plan: Plan) -> frozenset[str]:
    return frozenset(one.name for one in plan.inputs if one.secret)
