"""What became of each object of a dump or restore: fed by its messages, by what is seen from outside, or by both.

Messages win over sight. A line may be lost, come twice or be of an object nobody knows; a job may be met in its
middle. Nothing here passes over all objects when a line comes or a tick passes: 50,000 of them cost no more than ten.
"""

from __future__ import annotations

from dba_console.archives.echo import Echo
from dba_console.archives.entries import PHASES, Entry, Phase, Plan
from dba_console.archives.items import Item, Items, Sums
from dba_console.archives.messages import Message, read_lines
from dba_console.archives.mistakes import LONGEST_TEXT, ErrorSeen, Mistakes
from dba_console.archives.phases import PhaseSum, phase_sum
from dba_console.archives.plan import phase_of
from dba_console.archives.statements import Statement

Key = int | tuple[str | None, str] | tuple[str, str | None, str]
"""A dump id; schema and tag; or desc, schema and tag, which is never mistaken."""
_MOST_UNPLANNED = 100_000
_AFTER_DATA = 4
_MORE = ("DETAIL:", "Command was:", "This usually means ")
"""What begins a line that goes on with the error before it; the last one is why a worker did not get a lock."""
_DUMPED = frozenset({"TABLE DATA", "BLOBS"})
"""What a dump spends its time with; the rest of its plan was read before."""
_LOOKED_FOR = ("TABLE DATA", "INDEX", "CONSTRAINT", "FK CONSTRAINT", "MATERIALIZED VIEW DATA", "CHECK CONSTRAINT")
_OF_STATEMENT = {"COPY": ("TABLE DATA",), "CREATE INDEX": ("INDEX",), "CREATE UNIQUE INDEX": ("INDEX",),
                 "ALTER TABLE": ("CONSTRAINT", "FK CONSTRAINT", "CHECK CONSTRAINT"), "ANALYZE": ("ANALYZE",),
                 "REFRESH MATERIALIZED VIEW": ("MATERIALIZED VIEW DATA",)}  # fmt: skip


class Ledger:
    """The objects of one job. `program` is pg_dump, pg_restore or psql; `jobs` its -j, None where it is not known."""

    def __init__(self, plan: Plan | None, program: str, jobs: int | None = None) -> None:
        self.plan = plan
        self.program = program
        self.jobs = jobs
        self.ignored: int | None = None
        """Errors ignored, as pg_restore told at its end."""
        self.unlisted = 0
        """Objects beyond all measure that were not kept."""
        self.began_us: int | None = None
        """When the first message or sight came."""
        self.ended_us: int | None = None
        self.exit: int | None = None
        self._mistakes = Mistakes()
        self._items = Items(self._wanted(plan))
        self._parallel = self.dumps and jobs is not None and jobs > 1
        self._serial: Item | None = None
        self._context: int | None = None
        self._unnamed = 0
        self._last_us: int | None = None
        self._echo = Echo()
        self._data_seen = False

    @property
    def dumps(self) -> bool:
        return self.program.startswith("pg_dump")

    @property
    def errors(self) -> tuple[ErrorSeen, ...]:
        """The first thousand; `error_count` counts them all."""
        return tuple(self._mistakes.kept)

    @property
    def error_count(self) -> int:
        return self._mistakes.count

    def items(self) -> dict[int, Item]:
        """By dump id, in the plan's order; not to be changed. Unplanned objects without one have numbers below 0."""
        return self._items.by_id

    def item(self, key: Key) -> Item | None:
        """One object; None where there is none of that name."""
        return self._find(key)

    def changed(self) -> tuple[Item, ...]:
        """The objects whose state is another than when this was last asked."""
        changed = tuple(self._items.changed.values())
        self._items.changed.clear()
        return changed

    @property
    def running_items(self) -> tuple[Item, ...]:
        return tuple(self._items.running.values())

    @property
    def failed_items(self) -> tuple[Item, ...]:
        return tuple(self._items.failed.values())

    @property
    def longest(self) -> list[Item]:
        """The twenty that took longest, as far as their times are known."""
        return self._items.longest()

    def sums(self, phase: Phase) -> Sums:
        return self._items.sums[phase]

    @property
    def classes(self) -> dict[str, Sums]:
        """Of the objects that ended, by desc: how many, what they weighed and took."""
        return self._items.classes

    def counts(self) -> tuple[int, int, int, int]:
        """Objects running, done, waiting, failed."""
        sums = self._items.sums.values()
        return (
            sum(one.running for one in sums),
            sum(one.done for one in sums),
            sum(one.waiting for one in sums),
            sum(one.failed for one in sums),
        )

    def see(self, wall_us: int, text: str, stream: str = "stderr") -> None:
        """A line the program wrote, when it arrived."""
        self._note(wall_us)
        for message in read_lines(text):
            self._hear(wall_us, message)

    def running(
        self,
        key: Key,
        wall_us: int,
        done: float | None = None,
        total: float | None = None,
        unit: str | None = None,
        pid: int | None = None,
        rate: float | None = None,
        *,
        since_us: int | None = None,
        measured: bool = False,
        note: str | None = None,
    ) -> Item | None:
        """An object seen at work from outside; `since_us` is when it began, where that can be told."""
        self._note(wall_us)
        item = self._item_of(key)
        if item is None or item.state not in ("waiting", "running"):
            return item
        if item.state == "waiting":
            self._items.begin(item, since_us if since_us is not None else wall_us)
        item.done = done if done is not None else item.done
        item.total = total if total is not None else item.total
        item.unit, item.pid = unit or item.unit, pid if pid is not None else item.pid
        item.rate, item.seen_us, item.measured, item.note = rate, wall_us, measured, note
        return item

    def finished(self, key: Key, wall_us: int | None = None, *, failed: str | None = None) -> Item | None:
        """An object seen to be there, or gone from sight; without a time where it was not seen to end. What was at work
        at the last look and is gone at this one ended between the two: half way, but no later than as long after the
        look as it had begun before it, so that short ones are not made long: a look falls anywhere into an object."""
        item = self._item_of(key)
        if item is None or item.state not in ("waiting", "running"):
            return item
        if wall_us is not None and item.seen_us is not None and wall_us > item.seen_us:
            half_way = (item.seen_us + wall_us) // 2
            began_us = item.started_us if item.started_us is not None else item.seen_us
            as_long_again = 2 * item.seen_us - began_us
            wall_us = min(half_way, as_long_again) if as_long_again > item.seen_us else half_way
        self._end(item, wall_us, exact=False, error=failed)
        return item

    def ended(self, wall_us: int, exit: int | None) -> None:
        """The program has gone; `exit` None: nobody knows how. What waits then was left out or never came to it."""
        self._note(wall_us)
        self.ended_us, self.exit = wall_us, exit
        good = exit == 0 or self.ignored is not None
        for item in list(self._items.running.values()):
            if good or exit is None:
                self._items.end(item, wall_us, "done" if good else "unknown")
            else:
                self._end(item, wall_us, exact=False, error=f"the program ended with {exit} while it was under way")
        self._serial = None

    def phases(self, now_us: int) -> tuple[PhaseSum, ...]:
        """All phases in order, those without objects too."""
        running: dict[Phase, list[Item]] = {}
        for item in self._items.running.values():
            running.setdefault(item.entry.phase, []).append(item)
        now = self.ended_us if self.ended_us is not None else now_us
        over = self.ended_us is not None
        sums = self._items.sums
        return tuple(phase_sum(name, sums[name], running.get(name, []), now, over=over) for name in PHASES)

    def _wanted(self, plan: Plan | None) -> tuple[Entry, ...]:
        if plan is None:
            return ()
        return tuple(one for one in plan.entries if one.desc in _DUMPED) if self.dumps else plan.entries

    def _note(self, wall_us: int) -> None:
        if self.began_us is None:
            self.began_us = wall_us

    def _hear(self, wall_us: int, said: Message) -> None:
        if said.program == "psql":
            self._hear_psql(wall_us, said)
        elif said.kind == "launch":
            self._launched(wall_us, said)
        elif said.kind == "start":
            self._started(wall_us, said)
        elif said.kind == "done":
            self._done(wall_us, said)
        elif said.kind == "skip":
            item = self._items.by_id.get(said.dump_id or 0)
            if item is not None:
                self._items.drop(item)
        elif said.kind == "error":
            self._failed(wall_us, said.text)
        elif said.kind == "errors_ignored":
            self.ignored = said.count
        elif said.kind == "phase":
            self._passed(wall_us, said)
        else:
            self._other(wall_us, said)

    def _launched(self, wall_us: int, said: Message) -> None:
        item = self._items.by_id.get(said.dump_id or 0) or self._unplanned(said.dump_id, said)
        if item is None:
            return
        if said.text.startswith("launching"):
            self._parallel = True
            self._end_serial(wall_us, None)
            self._begin(item, wall_us, exact=True)
        else:
            self._begin_serial(item, wall_us)

    def _started(self, wall_us: int, said: Message) -> None:
        if self.dumps and said.desc not in _DUMPED:
            self._end_serial(wall_us, None)  # a plain dump writes statements too, at once
            return
        item = self._items.named(said.desc or "", said.name)
        if item is None and said.desc == "BLOBS":
            item = self._items.named("BLOBS", "")
        if item is None:
            item = self._under_way(said) or self._unplanned(None, said)
        if item is None:
            return
        if self._parallel:
            self._begin(item, wall_us, exact=True)
        else:
            self._begin_serial(item, wall_us)

    def _under_way(self, said: Message) -> Item | None:
        """An unplanned object that was launched by its number, and now is called by its name."""
        for item in self._items.running.values():
            tag = item.entry.tag
            if item.entry.desc == said.desc and (said.name == tag or said.name.endswith(f".{tag}")):
                return item
        return None

    def _unplanned(self, dump_id: int | None, said: Message) -> Item | None:
        if len(self._items.by_id) - (len(self.plan.entries) if self.plan else 0) >= _MOST_UNPLANNED:
            self.unlisted += 1
            return None
        if dump_id is None:
            self._unnamed += 1
        desc = said.desc or said.name
        self._data_seen = self._data_seen or desc in _DUMPED
        phase = phase_of(desc, _AFTER_DATA if self._data_seen or self._parallel else 2)
        number = dump_id if dump_id is not None else -self._unnamed
        schema = said.schema if dump_id is None else None
        return self._items.add(Entry(dump_id=number, desc=desc, phase=phase, schema=schema, tag=said.tag or said.name))

    def _begin(self, item: Item, wall_us: int, *, exact: bool) -> None:
        if item.state == "waiting":
            self._items.begin(item, wall_us)
            item.exact = exact

    def _begin_serial(self, item: Item, wall_us: int) -> None:
        if item is self._serial or item.state not in ("waiting", "running"):
            return
        self._end_serial(wall_us, item)
        self._items.begin(item, wall_us)
        self._serial = item

    def _end_serial(self, wall_us: int, following: Item | None) -> None:
        """With no end of its own, an object ends where the next begins."""
        last, self._serial = self._serial, None
        if last is not None and last is not following:
            self._end(last, wall_us, exact=False)

    def _done(self, wall_us: int, said: Message) -> None:
        if self.dumps and not self._parallel:
            self._turn_parallel()
        item = self._items.by_id.get(said.dump_id or 0)
        if item is None:
            item = self._under_way(said)
        if item is None:
            item = self._unplanned(said.dump_id, said)
        if item is None:
            return
        if item is self._serial:
            self._serial = None
        if item.state in ("waiting", "running"):
            self._end(item, wall_us, exact=item.exact)
        elif item.state == "done" and not item.exact and item.ended_us is None:
            self._items.retime(item, wall_us)

    def _turn_parallel(self) -> None:
        """Only a parallel dump tells that an item is finished: ends that were inferred before were none."""
        self._parallel, self._serial = True, None
        for item in list(self._items):
            if item.state == "done" and not item.exact and item.ended_us is not None:
                self._items.reopen(item)

    def _end(self, item: Item, wall_us: int | None, *, exact: bool, error: str | None = None) -> None:
        at = None if wall_us is None else max(wall_us, item.started_us or wall_us)
        item.exact = exact
        item.error = item.error or error
        self._items.end(item, at, "failed" if item.error else "done")

    def _failed(self, wall_us: int, text: str) -> None:
        item = self._guilty()
        if item is not None and item.error is None:
            item.error = text[:LONGEST_TEXT]
        self._mistakes.add(wall_us, text, item.entry if item is not None else None)

    def _guilty(self) -> Item | None:
        """The object of an error: the one the program named before, if it is still under way; else the only one."""
        named = self._items.by_id.get(self._context) if self._context is not None else None
        if named is not None and named.ended_us is None:
            return named
        if self._serial is not None:
            return self._serial
        running = self._items.running
        return next(iter(running.values())) if len(running) == 1 else None

    def _passed(self, wall_us: int, said: Message) -> None:
        if said.text.startswith("entering main parallel loop"):
            self._end_serial(wall_us, None)
            self._parallel = True
        elif said.text.startswith("finished main parallel loop"):
            self._parallel = False
            for item in self.running_items:  # their own last lines were lost, or torn by another process's
                self._end(item, wall_us, exact=False)
        elif self.dumps:
            sums = self._items.sums["schema"]
            sums.started_us = wall_us if sums.started_us is None else sums.started_us
            sums.ended_us = wall_us

    def _other(self, wall_us: int, said: Message) -> None:
        if said.dump_id is not None and said.dump_id in self._items.by_id:
            self._context = said.dump_id
        elif said.program is None and said.text.startswith(_MORE):
            self._mistakes.more(said.text)
        elif said.program is None and self.program == "psql":
            self._echo.add(wall_us, said.text)

    def _hear_psql(self, wall_us: int, said: Message) -> None:
        if said.kind == "error":
            self._failed(wall_us, said.text)
            self._echo.take()
        elif said.kind == "start":
            self._started(wall_us, said)
        elif said.kind == "done":
            self._statement_ended(wall_us, said, self._echo.take())
        self._last_us = wall_us

    def _statement_ended(self, wall_us: int, said: Message, echoed: Statement | None) -> None:
        """A command tag: of the one object of its kind seen at work, of the statement echoed before, or of neither."""
        kinds = _OF_STATEMENT.get(said.name)
        if kinds is None:
            return
        self._data_seen = self._data_seen or said.name == "COPY"
        seen = [item for item in self._items.running.values() if item.entry.desc in kinds]
        if len(seen) == 1:
            self._end(seen[0], wall_us, exact=False)
            return
        item = self._item_of((echoed.desc, echoed.schema, echoed.tag)) if echoed is not None else None
        if item is None and (said.name != "ALTER TABLE" or self._data_seen):
            item = self._unplanned(None, said)
        if item is not None and item.state in ("waiting", "running"):
            begun = self._echo.since_us if echoed is not None else self._last_us
            self._items.begin(item, begun if begun is not None else wall_us)
            self._end(item, wall_us, exact=echoed is not None)

    def _find(self, key: Key) -> Item | None:
        if isinstance(key, int):
            return self._items.by_id.get(key)
        *desc, schema, tag = key
        name = (f"{schema}.{tag}" if schema else tag or "").partition("\n")[0]
        for one in desc or _LOOKED_FOR:
            item = self._items.named(one or "", name)
            if item is not None:
                return item
        return None

    def _item_of(self, key: Key) -> Item | None:
        """One object, made where nobody planned it."""
        item = self._find(key)
        if item is not None or isinstance(key, int):
            return item
        *desc, schema, tag = key
        wanted = (desc[0] if desc else None) or "TABLE DATA"
        said = Message(kind="start", program=self.program, desc=wanted, schema=schema, tag=tag or "")
        return self._unplanned(None, said)
