"""What a run needs before it is one: its plan, compiled here and not taken from a console; its values; what must hold
of this host and this role. All of it raises a ConsoleError that says what is missing, and changes nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dba_console.actions.connection_api import ServerConnection
from dba_console.actions.registry import ACTIONS
from dba_console.agent.protocol import RunBegin
from dba_console.core.decoding import from_json
from dba_console.core.errors import PermissionDenied, Refused, RunbookError, SessionError, Unsupported, UsageError
from dba_console.recording.plan import ACTING_KINDS, Block, Plan
from dba_console.recording.run_reader import StoredRun
from dba_console.runbooks.compile import compile_text
from dba_console.runbooks.single_action import signal_plan
from dba_console.runbooks.values import typed, value_of

SINGLE_ACTION = "signal-backend"
"""The one action a screen may ask for without a document."""
PUT_BACK = "put-back"
SERVER_NEEDS = ("server", "superuser")
_PREDEFINED = re.compile(
    r"pg_(monitor|read_|write_|signal_|stat_|execute_|use_|create_|checkpoint$|maintain$|database_owner$).*"
)
"""Roles every server has (PostgreSQL, "Predefined Roles"); what else begins with pg_ is a program."""


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run that somebody wants."""

    plan: Plan
    text: str
    source: str
    values: dict[str, Any]
    secret: frozenset[str]
    """Names of the inputs that are secret."""
    mode: Literal["run", "rehearse"]

    def __repr__(self) -> str:
        return f"Order({self.plan.id!r}, {self.mode!r})"  # values may be secrets


def read_run_request(asked: RunBegin) -> RunOrder:
    """What a console asks for. Raises RunbookError, UsageError."""
    plan = single_action_plan(asked.adhoc) if asked.adhoc is not None else None
    plan = plan or compile_text(asked.text, asked.source, ACTIONS)
    return RunOrder(plan, asked.text, asked.source, typed(plan, asked.inputs), _secret(plan), asked.mode)


def restore_run_request(papers: StoredRun, given: dict[str, str], *, ending: bool = False) -> RunOrder:
    """What was ordered before an agent was killed, with the secrets told anew; where it is only to be ended, it needs
    none. Raises SessionError, UsageError.
    """
    plan, planned = papers.plan, next((one for one in papers.records if one.kind == "run.planned"), None)
    if plan is None or papers.damage is not None:
        raise SessionError(f"the run {papers.directory.name} cannot go on: {papers.damage or 'its plan is missing'}")
    if planned is None:
        raise SessionError(
            f"the run {papers.directory.name} cannot be resumed: its agent ended before its inputs were recorded",
            hint="nothing was changed; start a new run",
        )
    known = dict(planned.fields.get("inputs") or {})
    for one in plan.inputs:
        if one.secret and one.name in given:
            known[one.name] = value_of(one, given[one.name])
        elif one.secret and one.required and one.name not in known and not ending:
            raise UsageError(
                f"{one.name} is secret and so was written nowhere: it has to be given again",
                hint=f"--input {one.name}=…",
            )
    mode: Literal["run", "rehearse"] = "rehearse" if papers.about.mode == "rehearse" else "run"
    return RunOrder(plan, papers.text, papers.about.source, known, _secret(plan), mode)


def refuse_second_run(plan: Plan, beside: str) -> None:
    """Raises Refused where a run is under way, and this one does more than put settings back: that is never put off."""
    acts = [block for _, block in plan.blocks() if block.kind in ACTING_KINDS]
    if beside and not (acts and all(block.action == PUT_BACK for block in acts)):
        raise Refused(f"a run is under way: {beside}", hint="one at a time: attach to it, or wait for its end")


def single_action_plan(data: bytes) -> Plan:
    """The plan of one step that a screen asks for, made anew: only what is to be signalled is taken from it."""
    try:
        asked = from_json(data, Plan)
        [step] = asked.steps
        [block] = step.blocks
        verb, rows = block.settings["verb"], block.settings["rows"]
    except (msgspec.MsgspecError, ValueError, KeyError):
        raise RunbookError("what the screen asks for is no step that can be made without a runbook") from None
    if block.kind != "action" or block.action != SINGLE_ACTION:
        raise Refused(f"without a runbook only {SINGLE_ACTION} is done")
    return signal_plan(verb, rows)


def uses_server(plan: Plan) -> bool:
    """Whether anything of it speaks to a server."""
    return any(_needs_server(need) for need in plan.needs) or any(
        _block_uses_server(block) for _, block in plan.blocks()
    )


def require_needs(plan: Plan, link: ServerConnection | None) -> None:
    """Raises PermissionDenied or Unsupported where something it needs is not there."""
    for need in plan.needs:
        if need == "root":
            if os.geteuid() != 0:
                raise PermissionDenied(
                    f"runbook {plan.id} needs root, and the agent runs as uid {os.geteuid()}",
                    hint="end this agent and start the console as root",
                )
        elif _needs_server(need):
            _require_role(plan, need, link)
        elif shutil.which(need) is None and not _is_role(need, link):
            raise Unsupported(f"runbook {plan.id} needs the program {need}, and it is not on the agent's PATH")
    lowest, highest = plan.versions
    if link is None or (lowest is None and highest is None):
        return
    major = link.read_identity().version_num // 10000
    if (lowest is not None and major < lowest) or (highest is not None and major > highest):
        raise Unsupported(f"runbook {plan.id} is for PostgreSQL {lowest or ''}–{highest or ''}, this server is {major}")


def _is_role(need: str, link: ServerConnection | None) -> bool:
    """Whether it is a role of the server that ours has."""
    if link is None:
        return False
    sql = "SELECT 1 FROM pg_roles WHERE rolname = %(need)s AND pg_has_role(current_user, oid, 'USAGE')"
    return bool(link.rows(sql, {"need": need}))


def _require_role(plan: Plan, need: str, link: ServerConnection | None) -> None:
    if link is None:
        raise Unsupported(f"runbook {plan.id} needs a server, and none belongs to this agent")
    if need == "server":
        return
    if need == "superuser":
        [row] = link.rows("SELECT current_setting('is_superuser') = 'on' AS has, current_user AS who")
    else:
        [row] = link.rows(
            "SELECT pg_has_role(current_user, %(need)s, 'USAGE') AS has, current_user AS who", {"need": need}
        )
    if not row["has"]:
        hint = f'GRANT {need} TO "{row["who"]}"' if need != "superuser" else "connect as a superuser"
        raise PermissionDenied(f"runbook {plan.id} needs {need}, and {row['who']} is not in it", hint=hint)


def _needs_server(need: str) -> bool:
    return need in SERVER_NEEDS or _PREDEFINED.match(need) is not None


def _block_uses_server(block: Block) -> bool:
    tests = (block.when, block.done)
    if block.language == "sql" or any(test is not None and test.language == "sql" for test in tests):
        return True
    for key in ("until", "while"):
        test = block.settings.get(key)
        if isinstance(test, dict) and test.get("language") == "sql":
            return True
    if block.kind == "run":
        return not block.host
    name = block.action or ""
    return block.kind == "action" and name in ACTIONS and ACTIONS[name].needs_server


def _secret(plan: Plan) -> frozenset[str]:
    return frozenset(one.name for one in plan.inputs if one.secret)
