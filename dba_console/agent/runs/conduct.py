"""One run in a thread of its own: the walk asks, and here it is answered by looking, acting, asking people and writing.

The thread may be held up by a server or a disk for as long as their deadlines say; the agent's tick and its consoles
never wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dba_console.actions.gate import Planned
from dba_console.actions.identity import Identity
from dba_console.actions.link import Mark
from dba_console.agent.runs.acts import Acts
from dba_console.agent.runs.desk import Left
from dba_console.agent.runs.environment import secrets_of
from dba_console.agent.runs.looks import Looks
from dba_console.agent.runs.output import Lines, Output
from dba_console.agent.runs.pen import Pen
from dba_console.agent.runs.preparing import Order
from dba_console.agent.runs.servers import Servers
from dba_console.plans.plan import Block, tag_of
from dba_console.plans.record import Record
from dba_console.plans.view import OutputLine
from dba_console.records import convert
from dba_console.runbook.fold import fold
from dba_console.runbook.requests import (
    Answer,
    Ask,
    Do,
    Interrupt,
    Look,
    Outcome,
    Pause,
    PutBack,
    Reject,
    Reply,
    Request,
    Settle,
    Write,
)
from dba_console.runbook.values import bound
from dba_console.runbook.walk import Ending, walk
from dba_console.runbook.walk_people import declared
from dba_console.runbook.walk_records import interrupted
from dba_console.session.appender import Appender
from dba_console.session.runjournal import JournalTrouble, RunJournal
from dba_console.session.runmask import TextMask
from dba_console.session.runplaces import execution_directory
from dba_console.session.runrecords import masked_value

if TYPE_CHECKING:
    from dba_console.agent.runs.under_way import UnderWay

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
MET = "run.met"
"""Record of who another server of the run is."""


class Conduct:
    """A run that is walked. `beginning.begin` or `resume` makes one; `walk` goes through it, in the same thread."""

    def __init__(
        self, order: Order, journal: RunJournal, records: Sequence[Record], about: Planned, under_way: UnderWay
    ) -> None:
        self.run = journal.run
        self.order, self.around, self._under_way = order, under_way.around, under_way
        around, self.desk, self.controls = self.around, under_way.desk, under_way.controls
        self.plan = bound(order.plan, order.values)
        self.directory = journal.directory
        self.lines = Lines()
        self.ending: Ending | None = None
        self._journal = journal
        self._secrets = secrets_of(around.target.conninfo, around.config, order.values, order.secret)
        self._mask = TextMask(self._secrets)
        self._shown_mask = _mask_shown(self._secrets, around.target.name)
        self._pen = Pen(journal, self.desk, tag_of(self.plan), around.emit)
        self._errands: list[Record] = []
        self._marks = _marks(records)
        self.state = fold(self.plan, records)
        self.servers = Servers(
            around.target,
            about.server,
            self.run,
            around.config,
            around.clock,
            on_mark=self._keep_mark,
            meant=self._restart_meant,
            met=self._keep_met,
            known=_met_before(records),
        )
        looks = Looks(self.state, order.values, order.secret, self.servers, around)
        self._looks = looks
        self._acts = Acts(
            self.directory, self._tag, about, self.servers, looks, self.controls, around,
            secrets=self._secrets, output=self._output, marks=self._marks,
        )  # fmt: skip
        for record in records:
            self._acts.remember(record)

    @property
    def trouble(self) -> str:
        """What is wrong with the journal."""
        return self._pen.trouble

    def masked(self, shown: T) -> T:
        """What leaves the run for a screen or a file, without the secrets that are known."""
        if not self._shown_mask.finds(msgspec.msgpack.encode(shown, enc_hook=str)):
            return shown
        return convert(masked_value(msgspec.to_builtins(shown), self._shown_mask, NAMES_SHOWN), type(shown))

    def errand(self, record: Record) -> None:
        """Have a record written by the run's thread when it next comes by. Any thread."""
        self._errands.append(record)

    def walk(self) -> None:
        """Go on to the end of the run, or until the agent ends. Raises what is a defect."""
        course = walk(self.plan, self.state, inputs=self.order.values, now=self.around.clock.wall_us)
        try:
            request = next(course)
            while True:
                reply = self._serve(request)
                self._run_errands()
                request = course.send(reply)
        except StopIteration as end:
            self.ending = end.value
        except Left:
            self.interrupt("the agent ends; what runs goes on")
        finally:
            course.close()

    def interrupt(self, why: str) -> None:
        """Leave the run as it is, and say so where that can be written."""
        try:
            self._pen.try_once(interrupted(f"interrupted: {why}"))
        except JournalTrouble:
            pass  # a journal without an end says the same
        self.state.interrupted = True

    def close(self) -> None:
        self.servers.close()
        self._journal.close()

    # -- the walk's requests -------------------------------------------------------------------------------------

    def _serve(self, request: Request) -> Reply:
        match request:
            case Write(record):
                self._write(record)
                return None
            case Reject(text):
                self._under_way.rejected(self, text)
                return None
            case Ask():
                return self._ask(request)
            case Pause(seconds=seconds, until_us=until_us):
                if seconds or until_us is not None:
                    self._show()
                return self.desk.wait(seconds, until_us)
            case Look():
                return self._look(request)
            case Do():
                # Its intent may have waited for the disk, and people change their minds meanwhile.
                wish = self.desk.wish()
                if wish is not None:
                    what = "other rows" if wish.verb == "choose" else wish.verb
                    return Outcome(state="refused", text=f"it was not begun: {wish.who} asked for {what}")
                return self._acts.do(request)
            case Settle():
                # Asked for before the run was resumed: it stops a command as it would while the run goes on.
                wish = self.desk.wish()
                return self._acts.settle(request, wish.who if wish is not None and wish.verb == "abort" else "")
            case PutBack():
                return self._put_back(request)

    def _put_back(self, wanted: PutBack) -> Outcome:
        from dba_console.agent.runs.settings_back import put_back  # of a run that was given up only

        return put_back(wanted.block, self.directory, self.plan, self.servers, self.controls, self.around)

    def _write(self, record: Record) -> None:
        if record.kind == INPUT_GIVEN:
            self._keep_secret(record)
        self._acts.remember(self._pen.write(record))
        self._under_way.changed(self, False)

    def _keep_secret(self, record: Record) -> None:
        """A secret that was given on the way is one from now on."""
        _, block = self.plan.block(record.block)
        one = declared(block)
        if not one.secret:
            return
        order = self.order = replace(self.order, secret=self.order.secret | {one.name})
        self._looks.secrets = order.secret
        secrets = secrets_of(self.around.target.conninfo, self.around.config, order.values, order.secret)
        self._secrets = self._acts.secrets = secrets
        self._mask = TextMask(self._secrets)
        self._shown_mask = _mask_shown(self._secrets, self.around.target.name)
        self._journal.keep_secret(self._secrets)

    def _ask(self, question: Ask) -> Answer | Interrupt:
        self._acts.asked(question)
        return self.desk.ask(question)

    def _look(self, wanted: Look) -> Reply:
        wish = self.desk.interrupted()
        if wish is not None:
            return wish
        self._show()
        if wanted.block.kind == "action" and wanted.purpose == "preview":
            return self._acts.sight(wanted)
        return self._looks.look(wanted)

    def _show(self) -> None:
        if self._journal.in_memory:
            self._journal.tend()
        self._under_way.changed(self, True)

    def _run_errands(self) -> None:
        while self._errands:
            self._pen.write(self._errands.pop(0))

    # -- what the acts need --------------------------------------------------------------------------------------

    def _keep_mark(self, mark: Mark) -> None:
        """Write down how the act is found again. Raises JournalTrouble, which stops the act before it takes effect."""
        block, execution = self._acts.under_way
        what = f"transaction {mark.xid}" if mark.xid is not None else f"in process {mark.pid}, outside a transaction"
        step = block.partition("/")[0]
        fields = {"mark": msgspec.to_builtins(mark)}
        self._pen.try_once(
            Record(kind=MARK, text=f"{block}: {what}", block=block, execution=execution, step=step, fields=fields)
        )
        self._marks[block, execution] = mark

    def _restart_meant(self, told: str, now: Identity, name: str) -> bool:
        """Whether the operator says that a server started anew is the one that is meant."""
        told = f"{name}: {told}" if name else told
        text = f"{told}. Is that restart meant, and the run to go on? Type `yes` or `no`"
        answer = self.desk.ask(Ask(kind="yes", text=text, expects="yes", block=self.state.current))
        if isinstance(answer, Interrupt):
            self.desk.interrupt(answer)
            return False
        meant = answer.text.strip() == "yes"
        said = f"{answer.who}: the restart {'was meant' if meant else 'was not meant'}"
        fields = ({"name": name} if name else {}) | ({"server": msgspec.to_builtins(now)} if meant else {})
        self._pen.write(Record(kind=RESTART, text=said, who=answer.who, fields=fields))
        return meant

    def _keep_met(self, name: str, now: Identity) -> None:
        """Raises JournalTrouble, and then nothing is done there yet."""
        fields = {"name": name, "server": msgspec.to_builtins(now)}
        self._pen.try_once(Record(kind=MET, text=f"{name} is {now.words()}", fields=fields))

    def _tag(self, block: Block) -> str:
        return block.tag or tag_of(self.plan)

    def _output(self, block: Block, execution: int) -> Output:
        where = str(execution_directory(self.directory, block.id, execution) / "out.log")
        tag = self._tag(block)
        appender = Appender(
            self.around.put_lines, tag, run=self.run, block=block.id, execution=execution, where=where, mask=self._mask
        )
        return Output(block.id, tag, appender, self._mask, self._print)

    def _print(self, block: str, lines: list[OutputLine], dropped: int) -> None:
        self.lines.add(block, lines)
        self._under_way.side.lines(self.run, block, lines, dropped)


def _mask_shown(secrets: Sequence[str], target: str) -> TextMask:
    """A password that is a part of the target's name is no secret on a screen."""
    return TextMask([secret for secret in secrets if secret not in target])


def _met_before(records: Sequence[Record]) -> dict[str, Identity]:
    """Who the other servers of the run are, by name."""
    return {
        record.fields["name"]: convert(record.fields["server"], Identity)
        for record in records
        if record.kind in (MET, RESTART) and "name" in record.fields and "server" in record.fields
    }


def _marks(records: Sequence[Record]) -> dict[tuple[str, int], Mark]:
    return {
        (record.block, record.execution): convert(record.fields["mark"], Mark)
        for record in records
        if record.kind == MARK
    }
