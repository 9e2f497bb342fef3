"""One run in a thread of its own: the walk asks, and here it is answered by looking, acting, asking people and writing.

The thread may be held up by a server or a disk for as long as their deadlines say; the agent's tick and its consoles
never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dba_console.actions.connection_api import StatementMark
from dba_console.actions.identity import ServerIdentity
from dba_console.actions.permission_gate import PlannedTarget
from dba_console.agent.runs.checks import ReadOnlyChecks
from dba_console.agent.runs.commands import Appender, CommandOutput, NewestLines
from dba_console.agent.runs.executor import Executor
from dba_console.agent.runs.preparation import RunOrder
from dba_console.agent.runs.questions import OperatorQuestions, RunAbandoned
from dba_console.agent.runs.server_connections import RunServers
from dba_console.core.decoding import convert
from dba_console.recording.plan import Block, JournalRecord, log_tag
from dba_console.recording.run_journal import JournalError, RunJournal
from dba_console.recording.run_paths import execution_directory
from dba_console.recording.run_records import TextMask, masked_value
from dba_console.runbooks.apply_records import replay_records
from dba_console.runbooks.command_environment import find_secrets
from dba_console.runbooks.requests import (
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
from dba_console.runbooks.run_view import Option, OutputLine, quote_for_typing
from dba_console.runbooks.values import bind_inputs
from dba_console.runbooks.walk import RunEnding, walk
from dba_console.runbooks.walk_context import interrupted
from dba_console.runbooks.walk_manual import declared_input
from dba_console.watch.samples.event import Event

if TYPE_CHECKING:
    from dba_console.agent.runs.active_run import ActiveRun

# A run's records on their way to the disk: nothing goes on that was not written, unless a person says how.
#
# Rule 9: where the disk takes no record, the operator is asked whether the journal goes on in memory. Nobody else
# decides it, and while they think about it the disk is tried again. An abort needs no such answer: the journal keeps a
# reserve for the end of a run and for what is reverted.

IN_MEMORY, AGAIN = "in memory", "retry"
OPTIONS = (
    Option(key=IN_MEMORY, text="the journal goes on in memory-backed storage, which a reboot empties"),
    Option(key=AGAIN, text="try the disk again now"),
)


class JournalWriter:
    """Writes the journal of one run; used by its thread alone."""

    def __init__(self, journal: RunJournal, desk: OperatorQuestions, tag: str, emit: Callable[[Event], None]) -> None:
        self._journal, self._questions, self._tag, self._emit = journal, desk, tag, emit

    @property
    def error(self) -> str:
        """What is wrong with the journal, for the view; empty where nothing is."""
        return self._journal.trouble

    def write(self, record: JournalRecord) -> JournalRecord:
        """The record as it was written: durably. Raises Left where the agent ends before that was possible."""
        while True:
            try:
                return self.try_once(record)
            except JournalError as trouble:
                written = self._ask(record, trouble)
                if written is not None:
                    return written

    def try_once(self, record: JournalRecord) -> JournalRecord:
        """The record as it was written. Raises JournalTrouble where it was not."""
        # After the intent an abort keeps the act from being begun; an intent with an item reverts something.
        ends = self._questions.abort_asked() or bool(record.fields.get("item"))
        written = self._journal.append(record, ends=ends)
        self._emit(self._journal.event(self._tag))
        return written

    def _ask(self, record: JournalRecord, trouble: JournalError) -> JournalRecord | None:
        """What was written meanwhile; None to try again."""
        written: list[JournalRecord] = []

        def try_again() -> bool:
            try:
                written.append(self.try_once(record))
            except JournalError:
                return False
            return True

        text = f"{trouble.message}. Nothing is done that is not written. Type {quote_for_typing(IN_MEMORY)} to go on"
        answer = self._questions.ask_until(
            AskRequest(
                kind="journal", text=text, step=record.step, block=record.block, expects=IN_MEMORY, options=OPTIONS
            ),
            try_again,
        )
        if answer is not None and answer.text.strip() == IN_MEMORY:
            said = f"{answer.who} lets the journal go on in memory"
            try:
                self._journal.fall_back()
                self.try_once(JournalRecord(kind="journal.allowed", text=said, who=answer.who))
            except JournalError:
                return None  # memory does not take it either: the question is put again, with what is wrong now
        return written[0] if written else None


T = TypeVar("T")

MARK = "block.mark"
"""Record of how an act is found again on the server, written before it can take effect."""
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
"""What consoles go by in a view, all of it from the document and the configuration."""
RESTART = "run.restart"
"""Record of what the operator said of a server that was started anew."""
SERVER_IDENTIFIED = "run.met"
"""Record of who another server of the run is."""


class RunExecution:
    """A run that is walked. `beginning.begin` or `resume` makes one; `walk` goes through it, in the same thread."""

    def __init__(
        self,
        order: RunOrder,
        journal: RunJournal,
        records: Sequence[JournalRecord],
        about: PlannedTarget,
        under_way: ActiveRun,
    ) -> None:
        self.run = journal.run
        self.order, self.context, self._active_run = order, under_way.around, under_way
        around, self.questions, self.controls = self.context, under_way.questions, under_way.controls
        self.plan = bind_inputs(order.plan, order.values)
        self.directory = journal.directory
        self.lines = NewestLines()
        self.ending: RunEnding | None = None
        self._journal = journal
        self._secrets = find_secrets(around.target.conninfo, around.config, order.values, order.secret)
        self._mask = TextMask(self._secrets)
        self._shown_mask = _mask_shown(self._secrets, around.target.name)
        self._journal_writer = JournalWriter(journal, self.questions, log_tag(self.plan), around.emit)
        self._queued_records: list[JournalRecord] = []
        self._marks = _marks(records)
        self.state = replay_records(self.plan, records)
        self.servers = RunServers(
            around.target,
            about.server,
            self.run,
            around.config,
            around.clock,
            on_mark=self._record_mark,
            meant=self._confirm_restart,
            met=self._record_server,
            known=_identified_servers(records),
        )
        looks = ReadOnlyChecks(self.state, order.values, order.secret, self.servers, around)
        self._checks = looks
        self._executor = Executor(
            self.directory, self._tag, about, self.servers, looks, self.controls, around,
            secrets=self._secrets, output=self._output, marks=self._marks,
        )  # fmt: skip
        for record in records:
            self._executor.remember_answer(record)

    @property
    def journal_error(self) -> str:
        """What is wrong with the journal."""
        return self._journal_writer.error

    def masked(self, shown: T) -> T:
        """What leaves the run for a screen or a file, without the secrets that are known."""
        if not self._shown_mask.finds(msgspec.msgpack.encode(shown, enc_hook=str)):
            return shown
        return convert(masked_value(msgspec.to_builtins(shown), self._shown_mask, NAMES_SHOWN), type(shown))

    def queue_record(self, record: JournalRecord) -> None:
        """Have a record written by the run's thread when it next comes by. Any thread."""
        self._queued_records.append(record)

    def walk(self) -> None:
        """Go on to the end of the run, or until the agent ends. Raises what is a defect."""
        course = walk(self.plan, self.state, inputs=self.order.values, now=self.context.clock.wall_us)
        try:
            request = next(course)
            while True:
                reply = self._serve(request)
                self._write_queued_records()
                request = course.send(reply)
        except StopIteration as end:
            self.ending = end.value
        except RunAbandoned:
            self.interrupt("the agent ends; what runs goes on")
        finally:
            course.close()

    def interrupt(self, why: str) -> None:
        """Leave the run as it is, and say so where that can be written."""
        try:
            self._journal_writer.try_once(interrupted(f"interrupted: {why}"))
        except JournalError:
            pass  # a journal without an end says the same
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
                # Its intent may have waited for the disk, and people change their minds meanwhile.
                wish = self.questions.peek_interrupt()
                if wish is not None:
                    what = "other rows" if wish.verb == "choose" else wish.verb
                    return Outcome(state="refused", text=f"it was not begun: {wish.who} asked for {what}")
                return self._executor.execute(request)
            case SettleRequest():
                # Asked for before the run was resumed: it stops a command as it would while the run goes on.
                wish = self.questions.peek_interrupt()
                return self._executor.settle(request, wish.who if wish is not None and wish.verb == "abort" else "")
            case RevertSettingsRequest():
                return self._revert_settings(request)

    def _revert_settings(self, wanted: RevertSettingsRequest) -> Outcome:
        from dba_console.agent.runs.revert_settings import revert_settings  # of a run that was given up only

        return revert_settings(wanted.block, self.directory, self.plan, self.servers, self.controls, self.context)

    def _write(self, record: JournalRecord) -> None:
        if record.kind == INPUT_GIVEN:
            self._keep_secret(record)
        self._executor.remember_answer(self._journal_writer.write(record))
        self._active_run.changed(self, False)

    def _keep_secret(self, record: JournalRecord) -> None:
        """A secret that was given on the way is one from now on."""
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
        wish = self.questions.take_interrupt()
        if wish is not None:
            return wish
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

    # -- what the acts need --------------------------------------------------------------------------------------

    def _record_mark(self, mark: StatementMark) -> None:
        """Write down how the act is found again. Raises JournalTrouble, which stops the act before it takes effect."""
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

    def _confirm_restart(self, told: str, now: ServerIdentity, name: str) -> bool:
        """Whether the operator says that a server started anew is the one that is meant."""
        told = f"{name}: {told}" if name else told
        text = f"{told}. Is that restart meant, and the run to go on? Type `yes` or `no`"
        answer = self.questions.ask(AskRequest(kind="yes", text=text, expects="yes", block=self.state.current))
        if isinstance(answer, OperatorInterrupt):
            self.questions.add_interrupt(answer)
            return False
        meant = answer.text.strip() == "yes"
        said = f"{answer.who}: the restart {'was meant' if meant else 'was not meant'}"
        fields = ({"name": name} if name else {}) | ({"server": msgspec.to_builtins(now)} if meant else {})
        self._journal_writer.write(JournalRecord(kind=RESTART, text=said, who=answer.who, fields=fields))
        return meant

    def _record_server(self, name: str, now: ServerIdentity) -> None:
        """Raises JournalTrouble, and then nothing is done there yet."""
        fields = {"name": name, "server": msgspec.to_builtins(now)}
        self._journal_writer.try_once(
            JournalRecord(kind=SERVER_IDENTIFIED, text=f"{name} is {now.describe()}", fields=fields)
        )

    def _tag(self, block: Block) -> str:
        return block.tag or log_tag(self.plan)

    def _output(self, block: Block, execution: int) -> CommandOutput:
        where = str(execution_directory(self.directory, block.id, execution) / "out.log")
        tag = self._tag(block)
        appender = Appender(
            self.context.put_lines, tag, run=self.run, block=block.id, execution=execution, where=where, mask=self._mask
        )
        return CommandOutput(block.id, tag, appender, self._mask, self._print)

    def _print(self, block: str, lines: list[OutputLine], dropped: int) -> None:
        self.lines.add(block, lines)
        self._active_run.side.push_lines(self.run, block, lines, dropped)


def _mask_shown(secrets: Sequence[str], target: str) -> TextMask:
    """A password that is a part of the target's name is no secret on a screen."""
    return TextMask([secret for secret in secrets if secret not in target])


def _identified_servers(records: Sequence[JournalRecord]) -> dict[str, ServerIdentity]:
    """Who the other servers of the run are, by name."""
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
