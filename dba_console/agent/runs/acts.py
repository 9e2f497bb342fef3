"""What a run does: changes over the acting connection, commands through keepers, actions; each through the gate.

What cannot be told is `unknown`, and is settled by evidence or not at all.
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

from dba_console.actions.action import Action, Done, Sight, World, acts_on_cluster
from dba_console.actions.gate import Errand, Permit, Place, Planned, admit
from dba_console.actions.link import Lost, Mark, StatementFailed, Stopped
from dba_console.actions.operator import Restarted
from dba_console.actions.policy import read_only
from dba_console.actions.registry import action, settings_of
from dba_console.actions.settling import settle_mark
from dba_console.agent.runs.commands import Attendance
from dba_console.agent.runs.controls import Controls
from dba_console.agent.runs.environment import server_environment
from dba_console.agent.runs.looks import Looks, plain
from dba_console.agent.runs.output import Output
from dba_console.agent.runs.servers import Servers
from dba_console.agent.runs.shell import environment, program, script
from dba_console.agent.runs.surroundings import Surroundings
from dba_console.errors import ConsoleError, Refused, UsageError
from dba_console.keeping.spec import Spec
from dba_console.plans.plan import Block
from dba_console.records import convert
from dba_console.redact import MASK, redact
from dba_console.runbook.bound import act_values
from dba_console.runbook.requests import Ask, Do, Look, Outcome, Record, Seen, Settle
from dba_console.runbook.values import arguments, filled, for_sql, statement
from dba_console.runbook.values import environment as values_environment
from dba_console.runbook.viewing import counted
from dba_console.session.runplaces import execution_directory


class Acts:
    """The hands of one run; used by its thread alone."""

    def __init__(
        self,
        directory: Path,
        tag: Callable[[Block], str],
        planned: Planned,
        servers: Servers,
        looks: Looks,
        controls: Controls,
        around: Surroundings,
        *,
        secrets: tuple[str, ...],
        output: Callable[[Block, int], Output],
        marks: Mapping[tuple[str, int], Mark],
    ) -> None:
        self._directory, self._tag, self._planned = directory, tag, planned
        self._servers, self._looks, self._controls, self._around = servers, looks, controls, around
        self._output, self._marks = output, marks
        self.secrets = secrets
        """What commands print is cleared of these."""
        self._answers: dict[str, Record] = {}
        self._expected: dict[str, str] = {}
        self.under_way: tuple[str, int] = ("", 0)
        """Block and execution of the act under way, which a mark belongs to."""

    def asked(self, question: Ask) -> None:
        """Keep what would have to be typed: how many rows there were when a set was shown."""
        self._expected[question.block] = question.expects

    def remember(self, record: Record) -> None:
        """Keep what was typed to confirm a block: the gate looks at it once more."""
        if record.kind == "block.answered" and record.fields.get("question") in ("ack", "yes", "type"):
            self._answers[record.block] = record

    def sight(self, wanted: Look) -> Seen:
        """What an action would do. Never raises."""
        begun_us = self._around.clock.mono_us()
        try:
            acting, settings = self._action(wanted.block)
            seen = acting.look(settings, self._world(wanted.block, acting, None))
        except (ConsoleError, KeyError, OSError) as error:
            why = _told(error)
            return Seen(error=why, text=why, machine_s=self._since(begun_us))
        told = plain(msgspec.to_builtins(seen))
        return Seen(text=seen.text, values={"sight": told}, rows=seen.rows, machine_s=self._since(begun_us))

    def do(self, wanted: Do) -> Outcome:
        """Do it. Never raises."""
        self.under_way = (wanted.block.id, wanted.execution)
        self._controls.begin()
        begun_us = self._around.clock.mono_us()
        try:
            outcome = self._do(wanted)
        except Refused as error:
            outcome = Outcome(state="refused", text=_told(error), evidence=error.hint or "")
        except Stopped as error:
            outcome = Outcome(state="stopped", text=f"{_told(error)}: nothing of it remains")
        except StatementFailed as error:
            outcome = Outcome(state="failed", text=_told(error), values={"sqlstate": error.sqlstate})
        except Lost as error:
            outcome = Outcome(state="failed" if error.mark is None else "unknown", text=_told(error))
        except (ConsoleError, KeyError, OSError) as error:
            outcome = Outcome(state="failed", text=_told(error))
        finally:
            self._controls.end()
        self._looks.acted_us = self._around.clock.mono_us()
        return outcome if outcome.machine_s else msgspec.structs.replace(outcome, machine_s=self._since(begun_us))

    def settle(self, wanted: Settle, stop_by: str = "") -> Outcome:
        """What became of an execution whose end nobody saw; `stop_by` has it stopped. Never raises."""
        begun_us = self._around.clock.mono_us()
        self._controls.begin(stop_by)
        try:
            outcome = self._settle(wanted)
        except (ConsoleError, KeyError, OSError) as error:
            outcome = Outcome(state="unknown", text=_told(error))
        finally:
            self._controls.end()
        self._looks.acted_us = self._around.clock.mono_us()
        return outcome if outcome.machine_s else msgspec.structs.replace(outcome, machine_s=self._since(begun_us))

    # -- doing ---------------------------------------------------------------------------------------------------

    def _do(self, wanted: Do) -> Outcome:
        block = wanted.block
        if block.kind == "action":
            return self._do_action(wanted)
        if block.language == "sql":
            return self._do_change(wanted)
        return self._do_run(wanted)

    def _do_change(self, wanted: Do) -> Outcome:
        block = wanted.block
        server = self._servers.of(block)
        self._admitted(wanted, Errand(kind="change", target=self._around.target.name, **self._confirmation(wanted)))
        query, params = statement(block.body, for_sql(self._values(wanted)))
        _refuse_masked(block, wanted.intent.fields)
        self._looks.require_shown(block, wanted.intent, wanted.undo_of)
        lock_s = block.settings.get("lock_timeout_s")
        result = server.operator.act(
            query,
            params,
            timeout_s=block.timeout_s,
            lock_timeout_s=None if lock_s is None else float(lock_s),
            transaction=block.transaction,
            watch=self._watching,
        )
        rows = [plain(row) for row in result.rows[:1]]
        values = {"rows": result.count, **(rows[0] if rows and isinstance(rows[0], dict) else {})}
        warned = f"; the server warned: {'; '.join(result.warnings)}" if result.warnings else ""
        # A tag without a number, as ALTER ROLE, is all that the server says; 0 rows would be beside the point.
        told = result.tag if result.tag and not result.tag[-1].isdigit() else counted(result.count)
        return Outcome(state="ok", text=f"{told}{warned}", values=values)

    def _do_run(self, wanted: Do) -> Outcome:
        block = wanted.block
        errand = Errand(
            kind="run", target=self._around.target.name, server=not block.host and self._servers.own is not None,
            host=block.host, **self._confirmation(wanted),
        )  # fmt: skip
        self._admitted(wanted, errand)
        with self._attendance(block, wanted.execution) as attendance:
            return attendance.begin(self._spec(wanted, attendance.directory)) or attendance.attend()

    def _do_action(self, wanted: Do) -> Outcome:
        acting, settings = self._action(wanted.block)
        world = self._world(wanted.block, acting, wanted.execution)
        cluster = str(getattr(settings, "cluster", "") or "")
        if wanted.undo_of is not None:
            self._admitted(wanted, self._errand(acting, wanted, undo=True), cluster=cluster)
            return _outcome(acting.undo(settings, wanted.undo_of, world, self._controls))
        shown = _sight(wanted.intent.fields)
        errand = self._errand(acting, wanted, shown=shown)
        seen = {"look": lambda: acting.look(settings, world), "shown": shown}
        sight = self._admitted(wanted, errand, cluster=cluster, **seen).sight
        if sight is None or sight.done:
            return Outcome(state="ok", text=f"already so: {sight.text if sight else ''}")
        return _outcome(acting.act(settings, sight, world, self._controls))

    def _admitted(self, wanted: Do, errand: Errand, *, cluster: str = "", **sight: Any) -> Permit:
        """The permit of the gate; `sight` is what an action sees and what was shown. Raises Refused."""
        server = self._servers.own if not errand.server else self._servers.of(wanted.block)
        place = Place(
            link=None if server is None else server.operator,
            here=not errand.host or self._servers.own is None or self._around.proven_here(self._controls),
            config=self._around.config.actions,
            read_only=read_only(self._around.config, self._around.target, cluster),
        )
        try:
            return admit(errand, self._planned_for(server), place, **sight)
        except Restarted:
            if server is None:
                raise
            server.require()
            return admit(errand, self._planned_for(server), place, **sight)

    def _planned_for(self, server: Any) -> Planned:
        return Planned(server=None if server is None else server.planned, host=self._planned.host)

    def _errand(self, acting: Action, wanted: Do, *, shown: Sight | None = None, undo: bool = False) -> Errand:
        return Errand(
            kind="action",
            action=acting.name,
            target=self._around.target.name,
            server=acting.needs_server,
            host=acting.needs_root or not (acting.needs_server or acts_on_cluster(acting)),
            cluster=acts_on_cluster(acting),
            undo=undo,
            **(self._confirmation(wanted) | ({"count": shown.count, "named": shown.name} if shown is not None else {})),
        )

    def _confirmation(self, wanted: Do) -> dict[str, Any]:
        """What the gate is told of the confirmation: of the block, or of the `confirm` before it in its step. An undo
        was confirmed by the question about it.
        """
        asked = self._asked(wanted.block)
        given: dict[str, Any] = {"confirm": asked.confirm}
        if wanted.block.kind == "undo":
            given["undo"] = True
        if (record := self._answers.get(asked.id)) is not None:
            answer, second = str(record.fields.get("answer", "")), record.fields.get("second")
            given |= {"answer": answer, "people": tuple(who for who in (record.who, second) if who)}
        rows, expected = wanted.intent.fields.get("rows"), self._expected.get(asked.id, "")
        if rows is not None:
            given["count"] = len(rows)
        elif expected.isdigit():
            given["count"] = int(expected)
        return given

    def _confirmed_by(self, block: Block) -> str:
        record = self._answers.get(self._asked(block).id)
        return "" if record is None else record.who or ""

    def _asked(self, block: Block) -> Block:
        """The block whose question was the confirmation of this one."""
        step, _ = self._looks.plan.block(block.id)
        if block.confirm is not None or block not in step.blocks:
            return block
        before = step.blocks[: step.blocks.index(block)]
        return next((one for one in reversed(before) if one.kind == "confirm"), block)

    # -- settling ------------------------------------------------------------------------------------------------

    def _settle(self, wanted: Settle) -> Outcome:
        block = wanted.block
        if block.kind == "action":
            acting, settings = self._action(block)
            if wanted.intent.fields.get("item"):
                again = acts_on_cluster(acting)
                text = "how taking it back ended is not on record"
                return Outcome(state="failed" if again else "unknown", text=text, again=again)
            world = self._world(block, acting, wanted.execution)
            shown = _sight(wanted.intent.fields) or Sight(text="", exact="")
            return _outcome(acting.settle(settings, shown, world))
        if block.language == "sql":
            return self._settle_change(wanted)
        with self._attendance(block, wanted.execution) as attendance:
            return attendance.found()

    def _settle_change(self, wanted: Settle) -> Outcome:
        mark = self._marks.get((wanted.block.id, wanted.execution))
        if mark is None:
            return _never_marked(wanted.block)
        done = settle_mark(self._servers.of(wanted.block).operator, mark)
        return _outcome(done)

    # -- what is needed for it -----------------------------------------------------------------------------------

    def _values(self, wanted: Do) -> dict[str, Any]:
        """What the names in its code mean: as the intent has them, with the secrets that are written nowhere."""
        return act_values(self._looks.values(wanted.block), wanted.intent.fields, wanted.undo_of)

    def _action(self, block: Block) -> tuple[Action, Any]:
        name = block.action or ""
        acting = action(name)
        try:
            given = filled(block.settings, self._looks.values(block))
        except KeyError as error:
            raise UsageError(f"{block.id}: {error.args[0]} has no value") from None
        return acting, settings_of(name, given)

    def _world(self, block: Block, acting: Action, execution: int | None) -> World:
        own = self._servers.of(block) if acting.needs_server else self._servers.own
        directory = None
        if execution is not None:
            place = execution_directory(self._directory, block.id, execution)
            os.makedirs(place, mode=0o700, exist_ok=True)
            directory = str(place)
        return World(
            link=None if own is None else own.operator,
            here=self._servers.own is None or self._around.here(),
            frame=self._around.frame(0),
            clock=self._around.clock,
            directory=directory,
            run=self._directory.name,
            runbook=self._looks.plan.id,
            run_directory=str(self._directory),
            who=self._confirmed_by(block),
            target=self._around.target.name,
            target_key=self._around.target.key,
            config=self._around.config,
        )

    @contextmanager
    def _attendance(self, block: Block, execution: int) -> Iterator[Attendance]:
        directory = execution_directory(self._directory, block.id, execution)
        output = self._output(block, execution)
        exits = tuple(block.settings.get("exit", (0,)))
        reading = None
        if "reads" in block.settings:
            # Most runs follow nothing: what is needed for it is loaded when it is.
            from dba_console.agent.runs.following import following_of
            from dba_console.agent.runs.reading import share_of

            reading = following_of(
                block, self._looks.values(block), self._around.clock,
                lambda: share_of(self._around.frame(0), self._directory.name),
            )  # fmt: skip
        attendance = Attendance(directory, self._around.clock, self._controls, output.feed, exits, reading)
        try:
            yield attendance
        finally:
            attendance.close()
            output.close()

    def _spec(self, wanted: Do, directory: Path) -> Spec:
        block, values = wanted.block, self._values(wanted)
        argv = script(block.body) if block.language == "sh" else program(arguments(block.settings["argv"], values))
        env = environment(values_environment(block.uses, values))
        if self._servers.own is not None:
            env |= server_environment(self._around.target.conninfo, direct=self._servers.own.direct)
        return Spec(
            argv=tuple(argv),
            directory=str(directory),
            tag=self._tag(block),
            host=socket.gethostname(),
            env=env,
            timeout_s=block.timeout_s,
            masks=self.secrets,
        )

    def _watching(self, backend: int) -> bool:
        self._controls.tell(f"backend {backend} works at it")
        return self._controls.stop_asked()

    def _since(self, begun_us: int) -> float:
        return (self._around.clock.mono_us() - begun_us) / 1e6


_WRITES = re.compile(
    r"(?:\s|--[^\n]*\n|/\*(?:(?!\*/).)*\*/)*(?:insert|update|delete|merge|create|alter|drop|truncate|grant|revoke|comment|refresh)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements that have done nothing as long as they are not committed; a function that is selected may have."""


def _never_marked(block: Block) -> Outcome:
    """No transaction id is on record, and it is recorded before COMMIT is sent."""
    if not block.transaction:
        return Outcome(state="failed", text="it was never sent", evidence="no mark of it is on record", again=True)
    if _WRITES.match(block.body):
        evidence = "no transaction id is on record, and one is recorded before COMMIT"
        return Outcome(state="failed", text="nothing was committed", evidence=evidence, again=True)
    text = "it committed nothing; what the functions it calls did outside of its transaction is not known"
    return Outcome(state="unknown", text=text)


def _refuse_masked(block: Block, fields: Mapping[str, Any]) -> None:
    """Raises Refused where what it takes from a row is not as it was seen, for it was taken for a secret."""
    rows = [fields.get("row") or {}, *(fields.get("rows") or ())]
    names = {name for row in rows for name, value in row.items() if isinstance(value, str) and MASK in value}
    names = {name for name in names if re.search(rf"\b{re.escape(name)}\b", block.body)}
    if names:
        raise Refused(
            f"{', '.join(sorted(names))} of a row looks like a secret and is not kept as it was seen",
            hint="let the preview name its rows by something else, as an oid",
        )


def _sight(fields: Mapping[str, Any]) -> Sight | None:
    given = fields.get("sight")
    return None if not given else convert(given, Sight)


def _outcome(done: Done) -> Outcome:
    state = done.state if done.state in ("ok", "failed", "stopped", "unknown", "refused") else "unknown"
    # The line above holds the state to the five an Outcome knows, which a type checker does not see.
    return Outcome(state=state, text=done.text, values=plain(done.values), undo=done.undo, again=done.again)  # type: ignore[arg-type]


def _told(error: BaseException) -> str:
    text = error.message if isinstance(error, ConsoleError) else f"{type(error).__name__}: {error}"
    return redact(text)
