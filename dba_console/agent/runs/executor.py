"""Executes SQL changes, commands and actions of a run, each through the permission gate.

An outcome that cannot be verified is `unknown` until evidence or the operator settles it.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dba_console.actions.acting_connection import ServerRestarted
from dba_console.actions.action import Action, ActionContext, ActionResult
from dba_console.actions.action_preview import ActionPreview, recorded_preview
from dba_console.actions.lost_answer import settle_mark
from dba_console.actions.permission_gate import ActRequest, CurrentTarget, Permit, PlannedTarget, authorize
from dba_console.actions.policy import find_read_only_target
from dba_console.actions.registry import find_action, parse_settings
from dba_console.actions.statement_results import StatementFailed, StatementLost, StatementMark, StatementStopped
from dba_console.agent.runs.action_control import ActionControl
from dba_console.agent.runs.checks import ReadOnlyChecks, to_json_value
from dba_console.agent.runs.commands import (
    AttachedCommand,
    CommandOutput,
    command_argv,
    command_environment,
    script_argv,
)
from dba_console.agent.runs.run_context import RunContext
from dba_console.agent.runs.server_connections import RunServers
from dba_console.core.decoding import convert
from dba_console.core.errors import ConsoleError, Refused, UsageError
from dba_console.core.redact import MASK, redact
from dba_console.keeper.launch import HEAD_BYTES, CommandSpec
from dba_console.recording.plan import Block, JournalRecord
from dba_console.recording.run_paths import execution_directory
from dba_console.runbooks.libpq_environment import server_environment
from dba_console.runbooks.preview_rows import act_values, covering_confirm
from dba_console.runbooks.result_tables import counted
from dba_console.runbooks.values import arguments, fill_references, for_sql, statement
from dba_console.runbooks.values import environment as values_environment
from dba_console.runbooks.walk_requests import (
    AskRequest,
    ExecuteRequest,
    Outcome,
    ReadRequest,
    ReadResult,
    SettleRequest,
)


class Executor:
    """Executes the blocks of one run. Used only by the run's thread."""

    def __init__(
        self,
        directory: Path,
        tag: Callable[[Block], str],
        planned: PlannedTarget,
        servers: RunServers,
        checks: ReadOnlyChecks,
        controls: ActionControl,
        context: RunContext,
        *,
        secrets: tuple[str, ...],
        output: Callable[[Block, int], CommandOutput],
        marks: Mapping[tuple[str, int], StatementMark],
    ) -> None:
        self._directory, self._tag, self._planned = directory, tag, planned
        self._servers, self._checks, self._controls, self._context = servers, checks, controls, context
        self._output, self._marks = output, marks
        self.secrets = secrets
        """Secrets masked in the output of commands."""
        self._answers: dict[str, JournalRecord] = {}
        self._expected: dict[str, str] = {}
        self.current: tuple[str, int] = ("", 0)
        """Block and execution of the current act, to which a mark belongs."""

    def remember_question(self, question: AskRequest) -> None:
        """Remember the text to type: the number of rows when they were shown."""
        self._expected[question.block] = question.expects

    def remember_answer(self, record: JournalRecord) -> None:
        """Remember the confirmation of a block: the gate checks it again."""
        if record.kind == "block.answered" and record.fields.get("question") in ("ack", "yes", "type"):
            self._answers[record.block] = record

    def preview_action(self, wanted: ReadRequest) -> ReadResult:
        """Return what an action would do. Never raises."""
        begun_us = self._context.clock.mono_us()
        try:
            acting, settings = self._action(wanted.block)
            preview = acting.preview(settings, self._action_context(wanted.block, acting, None))
        except (ConsoleError, KeyError, OSError) as error:
            why = _message(error)
            return ReadResult(error=why, text=why, machine_s=self._elapsed_s(begun_us))
        encoded = convert(to_json_value(msgspec.to_builtins(preview)), ActionPreview)
        return ReadResult(
            text=preview.text, action_preview=encoded, rows=preview.rows, machine_s=self._elapsed_s(begun_us)
        )

    def execute(self, wanted: ExecuteRequest) -> Outcome:
        """Execute a block. Never raises."""
        self.current = (wanted.block.id, wanted.execution)
        self._controls.begin()
        begun_us = self._context.clock.mono_us()
        try:
            outcome = self._execute(wanted)
        except Refused as error:
            outcome = Outcome(state="refused", text=_message(error), evidence=error.hint or "")
        except StatementStopped as error:
            outcome = Outcome(state="stopped", text=f"{_message(error)}: nothing remains of it")
        except StatementFailed as error:
            outcome = Outcome(state="failed", text=_message(error), values={"sqlstate": error.sqlstate})
        except StatementLost as error:
            outcome = Outcome(state="failed" if error.mark is None else "unknown", text=_message(error))
        except (ConsoleError, KeyError, OSError) as error:
            outcome = Outcome(state="failed", text=_message(error))
        finally:
            self._controls.end()
        self._checks.acted_us = self._context.clock.mono_us()
        return outcome if outcome.machine_s else msgspec.structs.replace(outcome, machine_s=self._elapsed_s(begun_us))

    def settle(self, wanted: SettleRequest, stop_by: str = "") -> Outcome:
        """Return the outcome of an execution whose end was not observed; `stop_by` stops it. Never raises."""
        begun_us = self._context.clock.mono_us()
        self._controls.begin(stop_by)
        try:
            outcome = self._settle(wanted)
        except (ConsoleError, KeyError, OSError) as error:
            outcome = Outcome(state="unknown", text=_message(error))
        finally:
            self._controls.end()
        self._checks.acted_us = self._context.clock.mono_us()
        return outcome if outcome.machine_s else msgspec.structs.replace(outcome, machine_s=self._elapsed_s(begun_us))

    # -- executing -----------------------------------------------------------------------------------------------

    def _execute(self, wanted: ExecuteRequest) -> Outcome:
        block = wanted.block
        if block.kind == "action":
            return self._execute_action(wanted)
        if block.language == "sql":
            return self._execute_sql(wanted)
        return self._execute_command(wanted)

    def _execute_sql(self, wanted: ExecuteRequest) -> Outcome:
        block = wanted.block
        server = self._servers.for_block(block)
        self._request_permit(
            wanted, ActRequest(kind="change", target=self._context.target.name, **self._confirmation_fields(wanted))
        )
        query, params = statement(block.body, for_sql(self._values(wanted)))
        _refuse_masked(block, wanted.intent.fields)
        self._checks.require_shown(block, wanted.intent, wanted.undo_of)
        lock_s = block.settings.get("lock_timeout_s")
        result = server.connection.execute_change(
            query,
            params,
            timeout_s=block.timeout_s,
            lock_timeout_s=None if lock_s is None else float(lock_s),
            transaction=block.transaction,
            watch=self._report_backend,
        )
        rows = [to_json_value(row) for row in result.rows[:1]]
        values = {"rows": result.count, **(rows[0] if rows and isinstance(rows[0], dict) else {})}
        warned = f"; server warnings: {'; '.join(result.warnings)}" if result.warnings else ""
        # The tag of a utility command, like ALTER ROLE, has no number; "0 rows" would be misleading.
        summary = result.tag if result.tag and not result.tag[-1].isdigit() else counted(result.count)
        return Outcome(state="ok", text=f"{summary}{warned}", values=values)

    def _execute_command(self, wanted: ExecuteRequest) -> Outcome:
        block = wanted.block
        request = ActRequest(
            kind="run", target=self._context.target.name, server=not block.host and self._servers.own is not None,
            host=block.host, **self._confirmation_fields(wanted),
        )  # fmt: skip
        self._request_permit(wanted, request)
        with self._attached_command(block, wanted.execution) as command:
            return command.start(self._spec(wanted, command.directory)) or command.follow()

    def _execute_action(self, wanted: ExecuteRequest) -> Outcome:
        acting, settings = self._action(wanted.block)
        context = self._action_context(wanted.block, acting, wanted.execution)
        cluster = str(getattr(settings, "cluster", "") or "")
        if wanted.undo_of is not None:
            self._request_permit(wanted, self._act_request(acting, wanted, undo=True), cluster=cluster)
            return _outcome(acting.undo(settings, wanted.undo_of, context, self._controls))
        shown = recorded_preview(wanted.intent.fields)
        request = self._act_request(acting, wanted, shown=shown)
        gate_preview = {"look": lambda: acting.preview(settings, context), "shown": shown}
        preview = self._request_permit(wanted, request, cluster=cluster, **gate_preview).preview
        if preview is None or preview.done:
            return Outcome(state="ok", text=f"already done: {preview.text if preview else ''}")
        return _outcome(acting.act(settings, preview, context, self._controls))

    def _request_permit(
        self, wanted: ExecuteRequest, request: ActRequest, *, cluster: str = "", **preview: Any
    ) -> Permit:
        """Return the permit; `preview` has the action's preview and the one that was shown. Raises Refused."""
        server = self._servers.own if not request.server else self._servers.for_block(wanted.block)
        current = CurrentTarget(
            connection=None if server is None else server.connection,
            server_is_local=not request.host
            or self._servers.own is None
            or self._context.wait_until_server_here(self._controls),
            config=self._context.config.actions,
            read_only=find_read_only_target(self._context.config, self._context.target, cluster),
        )
        try:
            return authorize(request, self._planned_for(server), current, **preview)
        except ServerRestarted:
            if server is None:
                raise
            server.require_same()
            return authorize(request, self._planned_for(server), current, **preview)

    def _planned_for(self, server: Any) -> PlannedTarget:
        return PlannedTarget(server=None if server is None else server.planned, host=self._planned.host)

    def _act_request(
        self, acting: Action, wanted: ExecuteRequest, *, shown: ActionPreview | None = None, undo: bool = False
    ) -> ActRequest:
        return ActRequest(
            kind="action",
            action=acting.name,
            target=self._context.target.name,
            server=acting.needs_server,
            host=acting.needs_root or not (acting.needs_server or acting.acts_on_cluster),
            cluster=acting.acts_on_cluster,
            undo=undo,
            **(
                self._confirmation_fields(wanted)
                | ({"count": shown.count, "object_name": shown.name} if shown is not None else {})
            ),
        )

    def _confirmation_fields(self, wanted: ExecuteRequest) -> dict[str, Any]:
        """Return the confirmation for the gate: of the block, or of the `confirm` block before it in its step. The
        question about an undo is its confirmation.
        """
        confirming = covering_confirm(self._checks.plan, wanted.block) or wanted.block
        given: dict[str, Any] = {"confirm": confirming.confirm}
        if wanted.block.kind == "undo":
            given["undo"] = True
        if (record := self._answers.get(confirming.id)) is not None:
            answer, second = str(record.fields.get("answer", "")), record.fields.get("second")
            given |= {"answer": answer, "confirmed_by": tuple(who for who in (record.who, second) if who)}
        rows, expected = wanted.intent.fields.get("rows"), self._expected.get(confirming.id, "")
        if rows is not None:
            given["count"] = len(rows)
        elif expected.isdigit():
            given["count"] = int(expected)
        return given

    def _confirmed_by(self, block: Block) -> str:
        record = self._answers.get((covering_confirm(self._checks.plan, block) or block).id)
        return "" if record is None else record.who or ""

    # -- settling ------------------------------------------------------------------------------------------------

    def _settle(self, wanted: SettleRequest) -> Outcome:
        block = wanted.block
        if block.kind == "action":
            acting, settings = self._action(block)
            if wanted.intent.fields.get("item"):
                again = acting.acts_on_cluster
                text = "the outcome of the revert is not recorded"
                return Outcome(state="failed" if again else "unknown", text=text, again=again)
            context = self._action_context(block, acting, wanted.execution)
            shown = recorded_preview(wanted.intent.fields) or ActionPreview(text="", exact="")
            return _outcome(acting.settle(settings, shown, context))
        if block.language == "sql":
            return self._settle_sql(wanted)
        with self._attached_command(block, wanted.execution) as command:
            return command.settle()

    def _settle_sql(self, wanted: SettleRequest) -> Outcome:
        mark = self._marks.get((wanted.block.id, wanted.execution))
        if mark is None:
            return _outcome_without_mark(wanted.block)
        done = settle_mark(self._servers.for_block(wanted.block).connection, mark)
        return _outcome(done)

    # -- values and contexts -------------------------------------------------------------------------------------

    def _values(self, wanted: ExecuteRequest) -> dict[str, Any]:
        """Return the values for the block's code: as in the intent, with the secrets, which are not stored."""
        return act_values(self._checks.values(), wanted.intent.fields, wanted.undo_of)

    def _action(self, block: Block) -> tuple[Action, Any]:
        name = block.action or ""
        acting = find_action(name)
        try:
            given = fill_references(block.settings, self._checks.values())
        except KeyError as error:
            raise UsageError(f"{block.id}: {error.args[0]} has no value") from None
        return acting, parse_settings(name, given)

    def _action_context(self, block: Block, acting: Action, execution: int | None) -> ActionContext:
        own = self._servers.for_block(block) if acting.needs_server else self._servers.own
        directory = None
        if execution is not None:
            path = execution_directory(self._directory, block.id, execution)
            os.makedirs(path, mode=0o700, exist_ok=True)
            directory = str(path)
        return ActionContext(
            connection=None if own is None else own.connection,
            server_is_local=self._servers.own is None or self._context.is_server_here(),
            frame=self._context.frame(0),
            clock=self._context.clock,
            directory=directory,
            run=self._directory.name,
            runbook=self._checks.plan.id,
            run_directory=str(self._directory),
            confirmed_by=self._confirmed_by(block),
            target=self._context.target.name,
            target_key=self._context.target.key,
            config=self._context.config,
        )

    @contextmanager
    def _attached_command(self, block: Block, execution: int) -> Iterator[AttachedCommand]:
        directory = execution_directory(self._directory, block.id, execution)
        output = self._output(block, execution)
        exits = tuple(block.settings.get("exit", (0,)))
        messages = None
        if "reads" in block.settings:
            # Loaded only when needed: most runs read no messages.
            from dba_console.agent.runs.dump_messages import make_dump_messages, observed_progress

            messages = make_dump_messages(
                directory, block, self._checks.values(), self._context.clock,
                lambda: observed_progress(self._context.frame(0), self._directory.name),
            )  # fmt: skip
        command = AttachedCommand(directory, self._context.clock, self._controls, output.feed, exits, messages)
        try:
            yield command
        finally:
            command.close()
            output.close()

    def _spec(self, wanted: ExecuteRequest, directory: Path) -> CommandSpec:
        block, values = wanted.block, self._values(wanted)
        argv = (
            script_argv(block.body)
            if block.language == "sh"
            else command_argv(arguments(block.settings["argv"], values))
        )
        env = command_environment(values_environment(block.uses, values))
        if self._servers.own is not None:
            env |= server_environment(self._context.target.conninfo, direct=self._servers.own.direct)
        return CommandSpec(
            argv=tuple(argv),
            directory=str(directory),
            tag=self._tag(block),
            host=socket.gethostname(),
            env=env,
            timeout_s=block.timeout_s,
            head_bytes=DUMP_HEAD_BYTES if "reads" in block.settings else HEAD_BYTES,
            masks=self.secrets,
        )

    def _report_backend(self, backend: int) -> bool:
        self._controls.report_progress(f"executed by backend {backend}")
        return self._controls.stop_requested()

    def _elapsed_s(self, begun_us: int) -> float:
        return (self._context.clock.mono_us() - begun_us) / 1e6


DUMP_HEAD_BYTES = 64 << 20
"""Messages of a dump or restore kept from its start, enough for 200,000 objects: its outcome is read from them."""
_WRITE_STATEMENT = re.compile(
    r"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(?:insert|update|delete|merge|create|alter|drop|truncate|grant|revoke|comment|refresh)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements without effect until they are committed; a selected function may have had one."""


def _outcome_without_mark(block: Block) -> Outcome:
    """Return the outcome without a recorded transaction id, which is recorded before COMMIT is sent."""
    if not block.transaction:
        return Outcome(state="failed", text="it was never sent", evidence="no mark of it is recorded", again=True)
    if _WRITE_STATEMENT.match(block.body):
        evidence = "no transaction id is recorded, and one is recorded before COMMIT"
        return Outcome(state="failed", text="nothing was committed", evidence=evidence, again=True)
    text = "it committed nothing; effects of its functions outside the transaction are unknown"
    return Outcome(state="unknown", text=text)


def _refuse_masked(block: Block, fields: Mapping[str, Any]) -> None:
    """Raise Refused if a value it takes from a row was masked as a secret."""
    rows = [fields.get("row") or {}, *(fields.get("rows") or ())]
    names = {name for row in rows for name, value in row.items() if isinstance(value, str) and MASK in value}
    names = {name for name in names if re.search(rf"\b{re.escape(name)}\b", block.body)}
    if names:
        raise Refused(
            f"{', '.join(sorted(names))} of a row looks like a secret, so its value was not stored",
            hint="use another column in the preview, such as an oid",
        )


def _outcome(done: ActionResult) -> Outcome:
    state = done.state if done.state in ("ok", "failed", "stopped", "unknown", "refused") else "unknown"
    # The line above limits the state to the five of an Outcome, which a type checker does not see.
    return Outcome(state=state, text=done.text, values=to_json_value(done.values), undo=done.undo, again=done.again)  # type: ignore[arg-type]


def _message(error: BaseException) -> str:
    text = error.message if isinstance(error, ConsoleError) else f"{type(error).__name__}: {error}"
    return redact(text)
