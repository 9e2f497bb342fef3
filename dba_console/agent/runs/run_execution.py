"""Executes one run in its own thread: serves the walk's requests by checks, actions, questions and journal records.

The thread may wait for a server or a disk up to their timeouts; the agent's tick and its consoles never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dba_console.actions.identity import ServerIdentity
from dba_console.actions.permission_gate import PlannedTarget
from dba_console.actions.statement_results import StatementMark
from dba_console.agent.runs.checks import ReadOnlyChecks
from dba_console.agent.runs.commands import Appender, CommandOutput, NewestLines
from dba_console.agent.runs.executor import Executor
from dba_console.agent.runs.operator_answers import OperatorQuestions, RunAbandoned
from dba_console.agent.runs.preparation import RunOrder
from dba_console.agent.runs.server_connections import RunServers
from dba_console.core.decoding import convert
from dba_console.recording.plan import Block, JournalRecord, log_tag
from dba_console.recording.run_journal import JournalError, RunJournal
from dba_console.recording.run_paths import execution_directory
from dba_console.recording.run_records import TextMask, masked_value
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.asking_kinds import declared_input
from dba_console.runbooks.block_kind_registry import bind_inputs
from dba_console.runbooks.libpq_environment import find_secrets
from dba_console.runbooks.run_view import Option, OutputLine, quote_for_typing
from dba_console.runbooks.walk import RunEnding, walk
from dba_console.runbooks.walk_context import interrupted
from dba_console.runbooks.walk_requests import (
    Answer,
    AskRequest,
    ExecuteRequest,
    OperatorInterrupt,
    Outcome,
    PauseRequest,
    ReadRequest,
    RejectRequest,
    Reply,
    Request,
    RevertSettingsRequest,
    SettleRequest,
    WriteRequest,
)
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.active_run import ActiveRun

# Writing a run's records to disk: nothing continues without its record unless an operator decides so.
#
# Rule 9: if the disk accepts no record, the operator is asked whether the journal continues in memory. Meanwhile the
# disk is retried. An abort needs no such answer: the journal reserves space for the end of a run and for its reverts.

IN_MEMORY, AGAIN = "in memory", "retry"
OPTIONS = (
    Option(key=IN_MEMORY, text="continue the journal in memory-backed storage, which is lost at a reboot"),
    Option(key=AGAIN, text="retry the disk now"),
)


class JournalWriter:
    """Writes the journal of one run; used only by the run's thread."""

    def __init__(
        self, journal: RunJournal, questions: OperatorQuestions, tag: str, emit: Callable[[Event], None]
    ) -> None:
        self._journal, self._questions, self._tag, self._emit = journal, questions, tag, emit

    @property
    def error(self) -> str:
        """The journal's error for the view; empty if there is none."""
        return self._journal.trouble

    def write(self, record: JournalRecord) -> JournalRecord:
        """Write a record durably and return it as written. Raises RunAbandoned if the agent ends before."""
        while True:
            try:
                return self.try_once(record)
            except JournalError as trouble:
                written = self._ask(record, trouble)
                if written is not None:
                    return written

    def try_once(self, record: JournalRecord) -> JournalRecord:
        """Write a record once and return it as written. Raises JournalError if that fails."""
        # After the intent an abort keeps the action from starting; an intent with an item reverts something.
        ends = self._questions.abort_asked() or bool(record.fields.get("item"))
        written = self._journal.append(record, ends=ends)
        self._emit(self._journal.event(self._tag))
        return written

    def _ask(self, record: JournalRecord, error: JournalError) -> JournalRecord | None:
        """Return the record if it was written meanwhile; None to retry."""
        written: list[JournalRecord] = []

        def try_again() -> bool:
            try:
                written.append(self.try_once(record))
            except JournalError:
                return False
            return True

        text = f"{error.message}. Nothing is done without a record. Type {quote_for_typing(IN_MEMORY)} to continue"
        answer = self._questions.ask_until(
            AskRequest(
                kind="journal", text=text, step=record.step, block=record.block, expects=IN_MEMORY, options=OPTIONS
            ),
            try_again,
        )
        if answer is not None and answer.text.strip() == IN_MEMORY:
            record_text = f"{answer.who} allowed the journal to continue in memory"
            try:
                self._journal.fall_back()
                self.try_once(JournalRecord(kind="journal.allowed", text=record_text, who=answer.who))
            except JournalError:
                return None  # memory fails too: the question is asked again, with the new error
        return written[0] if written else None


T = TypeVar("T")

MARK = "block.mark"
"""Record of how a statement is found again on the server, written before it can take effect."""
INPUT_GIVEN = "input.given"
NAMES_SHOWN = frozenset(
    (
        "run",
        "runbook",
        "mode",
        "state",
        "kind",
        "id",
        "key",
        "step",
        "block",
        "current",
        "target",
        "place",
        "directory",
        "expects",
    )
)
"""Fields of a view that consoles use as identifiers, all of them from the document and the configuration."""
RESTART = "run.restart"
"""Record of the operator's answer about a restarted server."""
SERVER_IDENTIFIED = "run.met"
"""Record of the identity of another server of the run."""


class RunExecution:
    """A run being executed. `start_run` or `resume_run` creates it; `walk` executes it in the same thread."""

    def __init__(
        self,
        order: RunOrder,
        journal: RunJournal,
        records: Sequence[JournalRecord],
        about: PlannedTarget,
        active_run: ActiveRun,
    ) -> None:
        self.run = journal.run
        self.order = order
        self.context = active_run.context
        self._active_run = active_run
        context, self.questions, self.controls = self.context, active_run.questions, active_run.controls
        self.plan = bind_inputs(order.plan, order.values)
        self.directory = journal.directory
        self.lines = NewestLines()
        self.ending: RunEnding | None = None
        self._journal = journal
        self._secrets = find_secrets(context.target.conninfo, context.config, order.values, order.secret)
        self._mask = TextMask(self._secrets)
        self._shown_mask = _mask_shown(self._secrets, context.target.name)
        self._journal_writer = JournalWriter(journal, self.questions, log_tag(self.plan), context.emit)
        self._queued_records: list[JournalRecord] = []
        self._marks = _marks(records)
        self.state = replay_records(self.plan, records)
        self.servers = RunServers(
            context.target,
            about.server,
            self.run,
            context.config,
            context.clock,
            on_mark=self._record_mark,
            confirm_restart=self._confirm_restart,
            record_server=self._record_server,
            known=_identified_servers(records),
        )
        checks = ReadOnlyChecks(self.state, order.values, order.secret, self.servers, context)
        self._checks = checks
        self._executor = Executor(
            self.directory, self._tag, about, self.servers, checks, self.controls, context,
            secrets=self._secrets, output=self._output, marks=self._marks,
        )  # fmt: skip
        for record in records:
            self._executor.remember_answer(record)

    @property
    def journal_error(self) -> str:
        """The journal's error; empty if there is none."""
        return self._journal_writer.error

    def masked(self, shown: T) -> T:
        """Return an object for a screen or a file, with the known secrets masked."""
        if not self._shown_mask.finds(msgspec.msgpack.encode(shown, enc_hook=str)):
            return shown
        return convert(masked_value(msgspec.to_builtins(shown), self._shown_mask, NAMES_SHOWN), type(shown))

    def queue_record(self, record: JournalRecord) -> None:
        """Queue a record; the run's thread writes it after its current request. Thread-safe."""
        self._queued_records.append(record)

    def walk(self) -> None:
        """Execute the run to its end, or until the agent ends. Raises on an internal error."""
        requests = walk(self.plan, self.state, inputs=self.order.values, now=self.context.clock.wall_us)
        try:
            request = next(requests)
            while True:
                reply = self._serve(request)
                self._write_queued_records()
                request = requests.send(reply)
        except StopIteration as end:
            self.ending = end.value
        except RunAbandoned:
            self.interrupt("the agent ends; running commands continue")
        finally:
            requests.close()

    def interrupt(self, why: str) -> None:
        """Leave the run as it is, and record that if possible."""
        try:
            self._journal_writer.try_once(interrupted(f"interrupted: {why}"))
        except JournalError:
            pass  # a journal without an end means the same
        self.state.interrupted = True

    def close(self) -> None:
        self.servers.close()
        self._journal.close()

    # -- the walk's requests -------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> Reply:
        match request:
            case WriteRequest(record):
                self._write(record)
                return None
            case RejectRequest(text):
                self._active_run.rejected(self, text)
                return None
            case AskRequest():
                return self._ask(request)
            case PauseRequest(seconds=seconds, until_us=until_us):
                if seconds or until_us is not None:
                    self._show()
                return self.questions.wait(seconds, until_us)
            case ReadRequest():
                return self._check(request)
            case ExecuteRequest():
                # Writing its intent may have waited for the disk; an operator may have interrupted meanwhile.
                interrupt = self.questions.peek_interrupt()
                if interrupt is not None:
                    what = "other rows" if interrupt.verb == "choose" else interrupt.verb
                    return Outcome(state="refused", text=f"it was not started: {interrupt.who} requested {what}")
                return self._executor.execute(request)
            case SettleRequest():
                # Requested before the run was resumed: it stops a command as in an active run.
                interrupt = self.questions.peek_interrupt()
                return self._executor.settle(
                    request, interrupt.who if interrupt is not None and interrupt.verb == "abort" else ""
                )
            case RevertSettingsRequest():
                return self._revert_settings(request)

    def _revert_settings(self, wanted: RevertSettingsRequest) -> Outcome:
        from dba_console.agent.runs.revert_settings import revert_settings  # needed only after an abort

        return revert_settings(wanted.block, self.directory, self.plan, self.servers, self.controls, self.context)

    def _write(self, record: JournalRecord) -> None:
        if record.kind == INPUT_GIVEN:
            self._keep_secret(record)
        self._executor.remember_answer(self._journal_writer.write(record))
        self._active_run.changed(self, False)

    def _keep_secret(self, record: JournalRecord) -> None:
        """Treat a secret that was given during the run as one from now on."""
        _, block = self.plan.block(record.block)
        one = declared_input(block)
        if not one.secret:
            return
        order = self.order = replace(self.order, secret=self.order.secret | {one.name})
        self._checks.secrets = order.secret
        secrets = find_secrets(self.context.target.conninfo, self.context.config, order.values, order.secret)
        self._secrets = self._executor.secrets = secrets
        self._mask = TextMask(self._secrets)
        self._shown_mask = _mask_shown(self._secrets, self.context.target.name)
        self._journal.keep_secret(self._secrets)

    def _ask(self, question: AskRequest) -> Answer | OperatorInterrupt:
        self._executor.remember_question(question)
        return self.questions.ask(question)

    def _check(self, wanted: ReadRequest) -> Reply:
        interrupt = self.questions.take_interrupt()
        if interrupt is not None:
            return interrupt
        self._show()
        if wanted.block.kind == "action" and wanted.purpose == "preview":
            return self._executor.preview_action(wanted)
        return self._checks.check(wanted)

    def _show(self) -> None:
        if self._journal.in_memory:
            self._journal.try_return_to_disk()
        self._active_run.changed(self, True)

    def _write_queued_records(self) -> None:
        while self._queued_records:
            self._journal_writer.write(self._queued_records.pop(0))

    # -- callbacks of actions and connections --------------------------------------------------------------------

    def _record_mark(self, mark: StatementMark) -> None:
        """Record how the statement is found again. Raises JournalError, which stops it before it takes effect."""
        block, execution = self._executor.current
        what = f"transaction {mark.xid}" if mark.xid is not None else f"in process {mark.pid}, outside a transaction"
        step = block.partition("/")[0]
        fields = {"mark": msgspec.to_builtins(mark)}
        self._journal_writer.try_once(
            JournalRecord(
                kind=MARK, text=f"{block}: {what}", block=block, execution=execution, step=step, fields=fields
            )
        )
        self._marks[block, execution] = mark

    def _confirm_restart(self, message: str, now: ServerIdentity, name: str) -> bool:
        """Return whether the operator confirms that a restarted server is the intended one."""
        message = f"{name}: {message}" if name else message
        text = f"{message}. Was this restart intentional? Continue the run? Type `yes` or `no`"
        answer = self.questions.ask(AskRequest(kind="yes", text=text, expects="yes", block=self.state.current))
        if isinstance(answer, OperatorInterrupt):
            self.questions.add_interrupt(answer)
            return False
        confirmed = answer.text.strip() == "yes"
        answer_text = f"{answer.who}: the restart was {'intentional' if confirmed else 'not intentional'}"
        fields = ({"name": name} if name else {}) | ({"server": msgspec.to_builtins(now)} if confirmed else {})
        self._journal_writer.write(JournalRecord(kind=RESTART, text=answer_text, who=answer.who, fields=fields))
        return confirmed

    def _record_server(self, name: str, now: ServerIdentity) -> None:
        """Record the identity of a server. Raises JournalError; nothing has been done there yet."""
        fields = {"name": name, "server": msgspec.to_builtins(now)}
        self._journal_writer.try_once(
            JournalRecord(kind=SERVER_IDENTIFIED, text=f"{name} is {now.describe()}", fields=fields)
        )

    def _tag(self, block: Block) -> str:
        return block.tag or log_tag(self.plan)

    def _output(self, block: Block, execution: int) -> CommandOutput:
        where = str(execution_directory(self.directory, block.id, execution) / "out.log")
        tag = self._tag(block)
        appender = Appender(self.context.put_lines, tag, run=self.run, block=block.id, execution=execution, where=where)
        return CommandOutput(block.id, tag, appender, self._mask, self._print)

    def _print(self, block: str, lines: list[OutputLine], dropped: int) -> None:
        self.lines.add(block, lines)
        self._active_run.service.push_lines(self.run, block, lines, dropped)


def _mask_shown(secrets: Sequence[str], target: str) -> TextMask:
    """Return the mask for screens: a password that is part of the target's name is not masked there."""
    return TextMask([secret for secret in secrets if secret not in target])


def _identified_servers(records: Sequence[JournalRecord]) -> dict[str, ServerIdentity]:
    """Return the identities of the run's other servers, by name."""
    return {
        record.fields["name"]: convert(record.fields["server"], ServerIdentity)
        for record in records
        if record.kind in (SERVER_IDENTIFIED, RESTART) and "name" in record.fields and "server" in record.fields
    }


def _marks(records: Sequence[JournalRecord]) -> dict[tuple[str, int], StatementMark]:
    return {
        (record.block, record.execution): convert(record.fields["mark"], StatementMark)
        for record in records
        if record.kind == MARK
    }
