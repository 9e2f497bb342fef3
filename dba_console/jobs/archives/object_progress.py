"""Track the state of each object of a dump or restore, from its messages, from observation from outside, or both.

Messages take precedence. A line may be lost, duplicated or name an unknown object; a job may be found when it already
runs. No line and no tick iterates over all objects: 50,000 objects cost no more than ten.
"""

from __future__ import annotations

from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.index_build import BuildStage
from dba_console.jobs.archives.objects import DumpObject, DumpObjects, ObjectSums, PhaseSum, phase_sum
from dba_console.jobs.archives.program_messages import MAX_TEXT, Message, ReportedError, ReportedErrors, read_lines
from dba_console.jobs.archives.statement_parser import DumpStatement, PsqlEcho
from dba_console.jobs.archives.toc import PHASES, DumpEntry, Phase, phase_of

ObjectKey = int | tuple[str | None, str] | tuple[str, str | None, str]
"""A dump id; schema and tag; or desc, schema and tag, which is unambiguous."""
_MAX_UNPLANNED = 100_000
_AFTER_DATA = 4
_CONTINUATIONS = ("DETAIL:", "Command was:", "This usually means ")
"""Prefixes of lines that continue the previous error; the last one explains why a worker did not get a lock."""
_DATA_DESCS = frozenset({"TABLE DATA", "BLOBS"})
"""The objects that take a dump's time; it read the others before."""
_SEARCHED_DESCS = ("TABLE DATA", "INDEX", "CONSTRAINT", "FK CONSTRAINT", "MATERIALIZED VIEW DATA", "CHECK CONSTRAINT")
_DESCS_OF_TAG = {"COPY": ("TABLE DATA",), "CREATE INDEX": ("INDEX",), "CREATE UNIQUE INDEX": ("INDEX",),
                 "ALTER TABLE": ("CONSTRAINT", "FK CONSTRAINT", "CHECK CONSTRAINT"), "ANALYZE": ("ANALYZE",),
                 "REFRESH MATERIALIZED VIEW": ("MATERIALIZED VIEW DATA",)}  # fmt: skip


class ObjectProgress:
    """The objects of one job. `program` is pg_dump, pg_restore or psql; `jobs` its -j, None: not known."""

    def __init__(self, plan: DumpPlan | None, program: str, jobs: int | None = None) -> None:
        self.plan = plan
        self.program = program
        self.jobs = jobs
        self.ignored: int | None = None
        """Number of ignored errors, as pg_restore reports at its end."""
        self.began_us: int | None = None
        """Time of the first message or observation."""
        self.ended_us: int | None = None
        self.exit: int | None = None
        self.unseen_us: int | None = None
        """Time of the last look at what exists: what has ended since was not observed."""
        self._errors = ReportedErrors()
        self._objects = DumpObjects(self._planned_entries(plan))
        self._parallel = self.dumps and jobs is not None and jobs > 1
        self._serial: DumpObject | None = None
        self._context: int | None = None
        self._unnamed = 0
        self._last_us: int | None = None
        self._echo = PsqlEcho()
        self._data_seen = False

    @property
    def dumps(self) -> bool:
        return self.program.startswith("pg_dump")

    @property
    def errors(self) -> tuple[ReportedError, ...]:
        """The first thousand errors; `error_count` counts all."""
        return tuple(self._errors.kept)

    @property
    def error_count(self) -> int:
        return self._errors.count

    def objects(self) -> dict[int, DumpObject]:
        """All objects by dump id, in the plan's order; read-only. Unplanned ones without an id have a negative one."""
        return self._objects.by_id

    def take_changed(self) -> tuple[DumpObject, ...]:
        """Return the objects whose state changed since the last call."""
        changed = tuple(self._objects.changed.values())
        self._objects.changed.clear()
        return changed

    @property
    def running_objects(self) -> tuple[DumpObject, ...]:
        return tuple(self._objects.running.values())

    @property
    def failed_objects(self) -> tuple[DumpObject, ...]:
        return tuple(self._objects.failed.values())

    @property
    def longest(self) -> list[DumpObject]:
        """The twenty objects that took longest, of those with known times."""
        return self._objects.longest()

    def sums(self, phase: Phase) -> ObjectSums:
        return self._objects.sums[phase]

    @property
    def classes(self) -> dict[str, ObjectSums]:
        """Sums by kind of object (`DumpEntry.kind`)."""
        return self._objects.classes

    def counts(self) -> tuple[int, int, int, int]:
        """Return the number of objects running, done, waiting, failed."""
        sums = self._objects.sums.values()
        return (
            sum(one.running for one in sums),
            sum(one.done for one in sums),
            sum(one.waiting for one in sums),
            sum(one.failed for one in sums),
        )

    def add_line(self, wall_us: int, text: str) -> None:
        """Add a line the program wrote, with the time it arrived."""
        self._note_start(wall_us)
        for message in read_lines(text):
            self._apply(wall_us, message)

    def observe_running(
        self,
        key: ObjectKey,
        wall_us: int,
        done: float | None = None,
        total: float | None = None,
        unit: str | None = None,
        pid: int | None = None,
        *,
        since_us: int | None = None,
        measured: bool = False,
        note: str | None = None,
        stage: BuildStage | None = None,
    ) -> DumpObject | None:
        """Record that an object was observed running; `since_us` is its start, if known."""
        self._note_start(wall_us)
        item = self._find_or_add(key)
        if item is None or item.state not in ("waiting", "running"):
            return item
        if item.state == "waiting":
            self._objects.begin(item, since_us if since_us is not None else wall_us)
        item.total = total if total is not None else item.total
        if done is not None:
            item.observe_done(done, wall_us)
        item.unit, item.pid = unit or item.unit, pid if pid is not None else item.pid
        item.observe_stage(stage, wall_us)
        item.observed_us, item.measured, item.note = wall_us, measured, note
        return item

    def observe_finished(
        self, key: ObjectKey, wall_us: int | None = None, *, failed: str | None = None
    ) -> DumpObject | None:
        """Record that an object was observed to exist or to have ended; without a time if its end was not observed.

        An object that ran at the last observation and not at this one ended in between: the midpoint is assumed, but at
        most as long after the last observation as it had run before it, so that short objects do not appear long.
        """
        item = self._find_or_add(key)
        if item is None or item.state not in ("waiting", "running"):
            return item
        if wall_us is not None and item.observed_us is not None and wall_us > item.observed_us:
            half_way = (item.observed_us + wall_us) // 2
            began_us = item.started_us if item.started_us is not None else item.observed_us
            as_long_again = 2 * item.observed_us - began_us
            wall_us = min(half_way, as_long_again) if as_long_again > item.observed_us else half_way
        self._end(item, wall_us, exact=False, error=failed)
        return item

    def program_ended(self, wall_us: int, exit: int | None) -> None:
        """Record the program's end; `exit` None: unknown. Objects still waiting were skipped or never started."""
        self._note_start(wall_us)
        self.ended_us, self.exit = wall_us, exit
        good = exit == 0 or self.ignored is not None
        for item in list(self._objects.running.values()):
            if good or exit is None:
                self._objects.end(item, wall_us, "done" if good else "unknown")
            else:
                self._end(item, wall_us, exact=False, error=f"the program exited with {exit} while this was running")
        self._serial = None

    def phases(self, now_us: int) -> tuple[PhaseSum, ...]:
        """Return all phases in order, including those without objects."""
        running: dict[Phase, list[DumpObject]] = {}
        for item in self._objects.running.values():
            running.setdefault(item.entry.phase, []).append(item)
        now = self.ended_us if self.ended_us is not None else now_us
        over = self.ended_us is not None
        sums = self._objects.sums
        return tuple(phase_sum(name, sums[name], running.get(name, []), now, program_ended=over) for name in PHASES)

    def _planned_entries(self, plan: DumpPlan | None) -> tuple[DumpEntry, ...]:
        if plan is None:
            return ()
        return tuple(one for one in plan.entries if one.desc in _DATA_DESCS) if self.dumps else plan.entries

    def _note_start(self, wall_us: int) -> None:
        if self.began_us is None:
            self.began_us = wall_us

    def _apply(self, wall_us: int, message: Message) -> None:
        if message.program == "psql":
            self._apply_psql(wall_us, message)
        elif message.kind == "launch":
            self._apply_launch(wall_us, message)
        elif message.kind == "start":
            self._apply_start(wall_us, message)
        elif message.kind == "done":
            self._apply_done(wall_us, message)
        elif message.kind == "skip":
            item = self._objects.by_id.get(message.dump_id or 0)
            if item is not None:
                self._objects.drop(item)
        elif message.kind == "error":
            self._apply_error(wall_us, message.text)
        elif message.kind == "errors_ignored":
            self.ignored = message.count
        elif message.kind == "phase":
            self._apply_phase(wall_us, message)
        else:
            self._apply_other(wall_us, message)

    def _apply_launch(self, wall_us: int, message: Message) -> None:
        item = self._objects.by_id.get(message.dump_id or 0) or self._add_unplanned(message.dump_id, message)
        if item is None:
            return
        if message.text.startswith("launching"):
            self._parallel = True
            self._end_serial(wall_us, None)
            self._begin(item, wall_us, exact=True)
        else:
            self._begin_serial(item, wall_us)

    def _apply_start(self, wall_us: int, message: Message) -> None:
        if self.dumps and message.desc not in _DATA_DESCS:
            self._end_serial(wall_us, None)  # a plain dump writes statements immediately
            return
        item = self._objects.find_named(message.desc or "", message.name)
        if item is None and message.desc == "BLOBS":
            item = self._objects.find_named("BLOBS", "")
        if item is None:
            item = self._find_running(message) or self._add_unplanned(None, message)
        if item is None:
            return
        if self._parallel:
            self._begin(item, wall_us, exact=True)
        else:
            self._begin_serial(item, wall_us)

    def _find_running(self, message: Message) -> DumpObject | None:
        """Return the unplanned object that was launched by its id and is now named."""
        for item in self._objects.running.values():
            tag = item.entry.tag
            if item.entry.desc == message.desc and (message.name == tag or message.name.endswith(f".{tag}")):
                return item
        return None

    def _add_unplanned(self, dump_id: int | None, message: Message) -> DumpObject | None:
        if len(self._objects.by_id) - (len(self.plan.entries) if self.plan else 0) >= _MAX_UNPLANNED:
            return None
        if dump_id is None:
            self._unnamed += 1
        desc = message.desc or message.name
        self._data_seen = self._data_seen or desc in _DATA_DESCS
        phase = phase_of(desc, _AFTER_DATA if self._data_seen or self._parallel else 2)
        number = dump_id if dump_id is not None else -self._unnamed
        schema = message.schema if dump_id is None else None
        return self._objects.add(
            DumpEntry(dump_id=number, desc=desc, phase=phase, schema=schema, tag=message.tag or message.name)
        )

    def _begin(self, item: DumpObject, wall_us: int, *, exact: bool) -> None:
        if item.state == "waiting":
            self._objects.begin(item, wall_us)
            item.exact = exact

    def _begin_serial(self, item: DumpObject, wall_us: int) -> None:
        if item is self._serial or item.state not in ("waiting", "running"):
            return
        self._end_serial(wall_us, item)
        self._objects.begin(item, wall_us)
        self._serial = item

    def _end_serial(self, wall_us: int, following: DumpObject | None) -> None:
        """End the current object, without an end message of its own, at the start of the next."""
        last, self._serial = self._serial, None
        if last is not None and last is not following:
            self._end(last, wall_us, exact=False)

    def _apply_done(self, wall_us: int, message: Message) -> None:
        if self.dumps and not self._parallel:
            self._switch_to_parallel()
        item = self._objects.by_id.get(message.dump_id or 0)
        if item is None:
            item = self._find_running(message)
        if item is None:
            item = self._add_unplanned(message.dump_id, message)
        if item is None:
            return
        if item is self._serial:
            self._serial = None
        if item.state in ("waiting", "running"):
            self._end(item, wall_us, exact=item.exact)
        elif item.state == "done" and not item.exact and item.ended_us is None:
            self._objects.set_end(item, wall_us)

    def _switch_to_parallel(self) -> None:
        """Undo inferred ends: only a parallel dump reports that an item is finished."""
        self._parallel, self._serial = True, None
        for item in list(self._objects):
            if item.state == "done" and not item.exact and item.ended_us is not None:
                self._objects.reopen(item)

    def _end(self, item: DumpObject, wall_us: int | None, *, exact: bool, error: str | None = None) -> None:
        at = None if wall_us is None else max(wall_us, item.started_us or wall_us)
        item.exact = exact
        item.error = item.error or error
        self._objects.end(item, at, "failed" if item.error else "done")

    def _apply_error(self, wall_us: int, text: str) -> None:
        item = self._object_of_error()
        if item is not None and item.error is None:
            item.error = text[:MAX_TEXT]
        self._errors.add(wall_us, text, item.entry if item is not None else None)

    def _object_of_error(self) -> DumpObject | None:
        """Return the object of an error: the one named before if it still runs, else the only running one."""
        named = self._objects.by_id.get(self._context) if self._context is not None else None
        if named is not None and named.ended_us is None:
            return named
        if self._serial is not None:
            return self._serial
        running = self._objects.running
        return next(iter(running.values())) if len(running) == 1 else None

    def _apply_phase(self, wall_us: int, message: Message) -> None:
        if message.text.startswith("entering main parallel loop"):
            self._end_serial(wall_us, None)
            self._parallel = True
        elif message.text.startswith("finished main parallel loop"):
            self._parallel = False
            for item in self.running_objects:  # their last lines were lost or mixed with another process's
                self._end(item, wall_us, exact=False)
        elif self.dumps:
            sums = self._objects.sums["schema"]
            sums.started_us = wall_us if sums.started_us is None else sums.started_us
            sums.ended_us = wall_us

    def _apply_other(self, wall_us: int, message: Message) -> None:
        if message.dump_id is not None and message.dump_id in self._objects.by_id:
            self._context = message.dump_id
        elif message.program is None and message.text.startswith(_CONTINUATIONS):
            self._errors.add_line(message.text)
        elif message.program is None and self.program == "psql":
            self._echo.add(wall_us, message.text)

    def _apply_psql(self, wall_us: int, message: Message) -> None:
        if message.kind == "error":
            self._apply_error(wall_us, message.text)
            self._echo.take_statement()
        elif message.kind == "start":
            self._apply_start(wall_us, message)
        elif message.kind == "done":
            self._apply_statement_end(wall_us, message, self._echo.take_statement())
        self._last_us = wall_us

    def _apply_statement_end(self, wall_us: int, message: Message, echoed: DumpStatement | None) -> None:
        """Apply a command tag: to the only observed running object of its kind, else to the statement echoed before."""
        kinds = _DESCS_OF_TAG.get(message.name)
        if kinds is None:
            return
        self._data_seen = self._data_seen or message.name == "COPY"
        observed = [item for item in self._objects.running.values() if item.entry.desc in kinds]
        if len(observed) == 1:
            self._end(observed[0], wall_us, exact=False)
            return
        item = self._find_or_add((echoed.desc, echoed.schema, echoed.tag)) if echoed is not None else None
        if item is None and (message.name != "ALTER TABLE" or self._data_seen):
            item = self._add_unplanned(None, message)
        if item is not None and item.state in ("waiting", "running"):
            started = self._echo.since_us if echoed is not None else self._last_us
            self._objects.begin(item, started if started is not None else wall_us)
            self._end(item, wall_us, exact=echoed is not None)

    def _find(self, key: ObjectKey) -> DumpObject | None:
        if isinstance(key, int):
            return self._objects.by_id.get(key)
        *desc, schema, tag = key
        name = (f"{schema}.{tag}" if schema else tag or "").partition("\n")[0]
        for one in desc or _SEARCHED_DESCS:
            item = self._objects.find_named(one or "", name)
            if item is not None:
                return item
        return None

    def _find_or_add(self, key: ObjectKey) -> DumpObject | None:
        """Return the object; add it if it is not planned."""
        item = self._find(key)
        if item is not None or isinstance(key, int):
            return item
        *desc, schema, tag = key
        wanted = (desc[0] if desc else None) or "TABLE DATA"
        message = Message(kind="start", program=self.program, desc=wanted, schema=schema, tag=tag or "")
        return self._add_unplanned(None, message)
