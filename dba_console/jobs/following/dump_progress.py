"""How far one dump or restore is: its plan, the ledger of its objects, and everything that is fed into it.

Its messages are heard where they can be read. Else objects are seen at work in its sessions and files, seen to be done
where a file is closed or the catalog has them, and where one thing is done after the other, all before the one at work
is done. No look passes over all objects.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from dba_console.core.clock import SYSTEM, Clock
from dba_console.core.sanitize import clean
from dba_console.jobs.archives.dump_plan import DumpPlan
from dba_console.jobs.archives.object_progress import ObjectKey, ObjectProgress
from dba_console.jobs.archives.objects import DumpObject
from dba_console.jobs.archives.program_messages import final_error, is_english
from dba_console.jobs.following.object_activity import JobActivity, ObjectActivity, find_active_objects
from dba_console.jobs.following.object_list import ObjectList
from dba_console.jobs.following.running_programs import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram
from dba_console.jobs.following.stderr_reader import MessageLine, NewMessages
from dba_console.watch.probes.host.kernel_files import printable

# A job's messages on their way into its ledger: where they are read, or why they cannot be.

HELD_LINES = 5000
"""Lines kept until there is a plan to read them by."""


class MessageFeed:
    """Used by one thread."""

    def __init__(self) -> None:
        self.source: str | None = None
        self.unknown: str | None = None
        self.run: str | None = None
        self._english: bool | None = None
        self._held: deque[MessageLine] = deque(maxlen=HELD_LINES)
        self._dropped = 0
        self._begun = False
        self._from_start = False

    @property
    def is_complete(self) -> bool:
        """Its messages tell which object begins when: it is verbose, and all of them were read."""
        return self._begun and self._from_start

    @property
    def reports_ends(self) -> bool:
        """Then what is not seen at work any more is not called done before they say so."""
        return self.is_complete and not self._dropped

    @property
    def can_be_read(self) -> bool:
        return self.source is not None

    @property
    def is_not_english(self) -> bool:
        """It speaks, and not in English: of its objects and errors its messages tell nothing."""
        return self._english is False

    def feed(self, words: NewMessages, ledger: ObjectProgress, *, wait: bool) -> None:
        """Take in what was said since; `wait` while a plan is still to come."""
        self.source, self.unknown = words.source or self.source, words.unknown
        self.run = words.run or self.run
        self._from_start = words.from_start if not self._begun else self._from_start
        self._dropped += words.dropped
        self._held.extend(words.lines)
        if not wait:
            self.flush(ledger)

    def flush(self, ledger: ObjectProgress) -> None:
        """Nothing more is waited for."""
        before = ledger.counts()
        for said in self._held:
            ledger.add_line(said.wall_us, said.text, said.stream)
            if not self._english:
                known = is_english(said.text)
                self._english = self._english if known is None else known
        if self._held and ledger.counts() != before:
            self._begun = True
        self._held.clear()


# How a dump grows on its disk: of a directory each data file, of a file its size.
#
# A directory of 50,000 files is not looked at whole: its names are listed again only after it changed, and seldom
# where listing is dear; a file is looked at while it grows and once at its end. What was not looked at yet is counted.

STATS = 3000
"""New files looked at in one look; some 15 ms."""
LISTING_TIME_SHARE = 50
"""Listing takes at most so-and-so-manieth part of the time."""
MAX_FILES = 500_000
"""Beyond these, files of a directory are not followed: large objects may be millions."""
COARSE_NS = 1_000_000_000
"""A directory changed so shortly before it was listed may have changed once more within the same tick of its clock."""
FINISHED_AFTER_US = 10_000_000
"""Where nobody tells which files are open: one that has not changed for so long is taken for finished."""
_DATA = re.compile(r"(\d+)\.dat(?:\.(?:gz|lz4|zst))?")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a directory dump."""

    dump_id: int
    name: str
    size: int
    """Bytes so far."""
    found_us: int | None
    """Host wall time of the look that first found it; None where it was there at the first look."""
    changed_us: int
    """Host wall time at which it was last written to: of a finished one its end."""


@dataclass(frozen=True, slots=True)
class OutputGrowth:
    """The output at one look."""

    exists: bool
    size: int = 0
    """Bytes of everything in it that was looked at."""
    allocated: int = 0
    """Bytes it takes on its disk."""
    files: int = 0
    pending: int = 0
    """Files listed and not looked at yet."""
    finished: tuple[DataFile, ...] = ()
    """Since the look before: whole now."""
    running: tuple[DataFile, ...] = ()
    """Being written."""
    open_files_known: bool = True
    """False: which are finished was judged by their quiet, for the files its processes have open cannot be seen."""
    note: str | None = None


@dataclass(slots=True)
class _FollowedFile:
    name: str
    found_us: int | None
    looks: int = 0
    size: int = 0
    allocated: int = 0
    changed_us: int = 0


class DumpOutput:
    """One output, look by look. Used by one thread."""

    def __init__(self, path: str, root: str = "", clock: Clock = SYSTEM) -> None:
        """`root`: prefix under which the paths of its process are found (`Program.root`)."""
        self.path = path
        self._place = root + path
        self._clock = clock
        self._names: set[str] = set()
        self._listed_ns = -1
        self._list_again = True
        self._next_us = 0
        self._first = True
        self._pending: deque[_FollowedFile] = deque()
        self._growing: dict[str, _FollowedFile] = {}
        self._size = self._allocated = 0
        self._too_many = False

    def measure(self, open_names: Collection[str] | None = None, jobs: int = 1) -> OutputGrowth:
        """How far it is. `open_names`: base names of the files its processes have open now (taken before this look),
        None where that cannot be seen; then the `jobs` files last written to count as under way."""
        try:
            at = os.stat(self._place)
        except FileNotFoundError:
            return OutputGrowth(False)
        except OSError as error:
            return OutputGrowth(False, note=f"{printable(self.path)} cannot be seen: {error.strerror}")
        if stat.S_ISREG(at.st_mode):
            return OutputGrowth(True, at.st_size, at.st_blocks * 512, 1)
        if not stat.S_ISDIR(at.st_mode):
            return OutputGrowth(
                True, note=f"{printable(self.path)} is neither a file nor a directory: its size says nothing"
            )
        try:
            self._list_new(at.st_mtime_ns)
        except OSError as error:
            return OutputGrowth(True, note=f"{printable(self.path)} cannot be listed: {error.strerror}")
        self._measure_files()
        finished = self._take_finished(open_names, jobs)
        note = f"of its files only {MAX_FILES:,} are followed" if self._too_many else None
        running = tuple(one for known in self._growing.values() if (one := _data_file(known)) is not None)
        return OutputGrowth(
            True, self._size, self._allocated, len(self._names), len(self._pending), finished, running,
            open_names is not None, note,
        )  # fmt: skip

    def _list_new(self, changed_ns: int) -> None:
        """Take new names in, where there may be some and it is not too soon."""
        now_us = self._clock.mono_us()
        if (changed_ns == self._listed_ns and not self._list_again) or now_us < self._next_us:
            return
        seen_us = None if self._first else self._clock.wall_us()
        new = set(os.listdir(self._place)) - self._names
        room = MAX_FILES - len(self._names)
        self._too_many = len(new) > room
        for name in sorted(new)[:room]:
            self._names.add(name)
            self._pending.append(_FollowedFile(name, seen_us))
        self._list_again = self._clock.wall_us() * 1000 - changed_ns < COARSE_NS
        self._listed_ns, self._first = changed_ns, False
        self._next_us = now_us + (self._clock.mono_us() - now_us) * LISTING_TIME_SHARE

    def _measure_files(self) -> None:
        """Look at the files that may grow, and at new ones as far as this look reaches."""
        for known in list(self._growing.values()):
            self._measure_file(known)
        for _ in range(min(len(self._pending), STATS)):
            self._measure_file(self._pending.popleft())

    def _measure_file(self, known: _FollowedFile) -> None:
        try:
            at = os.lstat(f"{self._place}/{known.name}")
        except OSError:
            # Removed, as a dump that starts anew does.
            self._growing.pop(known.name, None)
            self._names.discard(known.name)
            at = None
        size, allocated = (0, 0) if at is None or stat.S_ISDIR(at.st_mode) else (at.st_size, at.st_blocks * 512)
        self._size += size - known.size
        self._allocated += allocated - known.allocated
        known.size, known.allocated = size, allocated
        if at is not None and stat.S_ISREG(at.st_mode):
            known.looks += 1
            known.changed_us = at.st_mtime_ns // 1000
            self._growing[known.name] = known

    def _take_finished(self, open_names: Collection[str] | None, jobs: int) -> tuple[DataFile, ...]:
        if open_names is None:
            done = self._unchanged_files(jobs)
        else:
            # One found in this very look may have been opened after its processes were looked at.
            old_us = self._clock.wall_us() - FINISHED_AFTER_US
            done = [
                known
                for name, known in self._growing.items()
                if name not in open_names and (known.looks > 1 or known.changed_us < old_us)
            ]
        for known in done:
            del self._growing[known.name]
        return tuple(one for known in done if (one := _data_file(known)) is not None)

    def _unchanged_files(self, jobs: int) -> list[_FollowedFile]:
        newest_first = sorted(self._growing.values(), key=lambda known: known.changed_us, reverse=True)
        old_us = self._clock.wall_us() - FINISHED_AFTER_US
        return [known for at, known in enumerate(newest_first) if at >= max(1, jobs) and known.changed_us < old_us]


def _data_file(known: _FollowedFile) -> DataFile | None:
    number = dump_id_of(known.name)
    return None if number is None else DataFile(number, known.name, known.size, known.found_us, known.changed_us)


def dump_id_of(name: str) -> int | None:
    """The dump id a data file of a directory archive is named after; None for any other file.

    >>> dump_id_of("3358.dat.gz"), dump_id_of("/backup/d/3359.dat"), dump_id_of("toc.dat"), dump_id_of("blobs.toc")
    (3358, 3359, None, None)
    """
    found = _DATA.fullmatch(name.rpartition("/")[2])
    return None if found is None else int(found[1])


DUMPS = frozenset({"pg_dump"})
RESTORES = frozenset({"pg_restore", "psql"})
LAST_DONE = 30
_NOT_ENGLISH = "its messages are not in English: neither its objects nor its errors are told by them"


class DumpProgress:
    """Used by one thread."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self.ledger = self._ledger(None)
        self.object_list = ObjectList(program)
        self.message_feed = MessageFeed()
        self.active_objects: dict[int, ObjectActivity] = {}
        """Of the newest look, by dump id."""
        self.done_last: deque[int] = deque(maxlen=LAST_DONE)
        """Those seen to end last."""
        self.growth: OutputGrowth | None = None
        self._output = _make_output(program)
        self._entries_started = 0
        """Entries of the plan, in its order, that are known to be begun."""
        self._schema_done = False

    def observe(self, seen: ObservedProgram) -> bool:
        """Take a look in; True where there is a plan since now."""
        self._program = seen.program
        if planned := self.object_list.update(seen, heard=self.message_feed.is_complete):
            self._replan()
        self.message_feed.feed(seen.words, self.ledger, wait=self.object_list.pending)
        self._observe_sessions(seen)
        self._observe_output_files(seen)
        self._observe_catalog(seen)
        self.done_last.extend(
            item.entry.dump_id
            for item in self.ledger.take_changed()
            if item.state == "done" and item.entry.phase != "schema"
        )
        return planned

    def end(self, wall_us: int, exit: int | None, words: NewMessages) -> None:
        """Its program is gone, with these last words."""
        self.message_feed.feed(words, self.ledger, wait=False)
        self.ledger.program_ended(wall_us, exit)

    def size_bytes(self, seen: ObservedProgram) -> float | None:
        """Of its data, or of the script that is read: what runs are told apart by."""
        if self.object_list.plan is not None:
            return self.ledger.sums("data").weight or None
        return float(sum(one.total for one in seen.flow.inputs)) or None

    @property
    def errors(self) -> int | None:
        """How many it told; None where its messages cannot be read, or not understood."""
        count = self.ledger.error_count
        return count if self.message_feed.can_be_read and (count or not self.message_feed.is_not_english) else None

    @property
    def last_error(self) -> str | None:
        last = final_error(self.ledger.errors)
        return None if last is None else clean(last.text)

    @property
    def sources(self) -> tuple[str, ...]:
        """What was read for it."""
        found = [self.object_list.source, self.message_feed.source]
        if any(sight.unit is not None and not sight.measured for sight in self.active_objects.values()):
            found.append("pg_stat_progress_copy")
        if self.growth is not None and self.growth.exists:
            found.append("growth of its output")
        return tuple(one for one in found if one is not None)

    @property
    def unknown_reasons(self) -> tuple[str, ...]:
        """What is not known of it and why."""
        told = [*self.object_list.unknown, self.message_feed.unknown]
        if self.message_feed.is_not_english:
            told.append(_NOT_ENGLISH)
        if self.growth is not None:
            told.append(self.growth.note)
            if self.growth.pending:
                told.append(f"{self.growth.pending} files of its output are not counted yet")
        return tuple(one for one in told if one is not None)

    def _replan(self) -> None:
        """The plan is there, or weighs something now: nothing that matters was fed before."""
        self.ledger = self._ledger(self.object_list.plan)
        self.active_objects, self._entries_started, self._schema_done = {}, 0, False

    def _ledger(self, plan: DumpPlan | None) -> ObjectProgress:
        ledger = ObjectProgress(plan, self._program.kind, self._program.arguments.jobs)
        ledger.began_us = self._program.started_us  # and not when it was first seen
        return ledger

    def _observe_sessions(self, seen: ObservedProgram) -> None:
        now_us = seen.question.wall_us
        world = JobActivity(seen.rows, seen.operations, seen.joined.worker, seen.flow.inputs)
        found: dict[int, ObjectActivity] = {}
        for sight in find_active_objects(world, self.object_list.index):
            key = _ledger_key(sight, planned=self.object_list.plan is not None)
            if key is None:
                continue
            since_us = sight.started_us if sight.started_us is not None and sight.started_us <= now_us else None
            item = self.ledger.observe_running(
                key, now_us, sight.done, sight.total, sight.unit, sight.pid, since_us=since_us, measured=sight.measured,
            )  # fmt: skip
            if item is not None and item.state == "running":
                found[item.entry.dump_id] = sight
        if not self.message_feed.reports_ends:
            for dump_id in self.active_objects.keys() - found.keys():
                self._mark_done(dump_id, now_us)
        self.active_objects = found
        if self.object_list.plan is not None:
            self._finish_dependencies(found)
            self._finish_earlier_entries(found)

    def _finish_dependencies(self, found: dict[int, ObjectActivity]) -> None:
        """What an index or key needs is there before it is begun."""
        if self.message_feed.is_complete or self._program.kind not in RESTORES:
            return
        for sight in found.values():
            for need in () if sight.entry is None else sight.entry.needs:
                if need not in found:
                    self._mark_done(need, None)

    def _finish_earlier_entries(self, found: dict[int, ObjectActivity]) -> None:
        """What comes before the data is done once data is at work; with one job, all before the object at work is."""
        index = self.object_list.index
        if index is None or self.message_feed.is_complete or not found:
            return
        entries = index.plan.entries
        self._end_schema()
        if (self._program.arguments.jobs or 1) > 1:
            return
        at = max((index.order[dump_id] for dump_id in found if dump_id in index.order), default=0)
        late = entries[at].phase == "rest"
        while self._entries_started < at:
            entry = entries[self._entries_started]
            if entry.dump_id not in found and (late or entry.phase != "rest"):
                self._mark_done(entry.dump_id, None)
            self._entries_started += 1

    def _end_schema(self) -> None:
        """Whatever comes before the data is there once data is at work."""
        if self._schema_done or self._program.kind not in RESTORES or self.object_list.plan is None:
            return
        self._schema_done = True
        for entry in self.object_list.plan.entries:
            if entry.phase == "schema":
                self.ledger.observe_finished(entry.dump_id)

    def _observe_output_files(self, seen: ObservedProgram) -> None:
        """Files of a directory dump: one that is open is at work, one that was closed is done."""
        if self._output is None:
            return
        told = self._program.unknown or seen.flow.unknown
        names = None if told else {posixpath.basename(one.path) for one in seen.flow.outputs}
        self.growth = grown = self._output.measure(names, self._program.arguments.jobs or 1)
        if self.object_list.plan is None or self._program.kind not in DUMPS:
            return
        now_us = seen.question.wall_us
        # One found in this very look is either done or just begun: the next look tells.
        begun = (file for file in grown.running if names is None or file.name in names)
        for file in (*begun, *grown.finished):
            item = self.ledger.objects().get(file.dump_id)
            if item is not None and item.state == "waiting":
                self.ledger.observe_running(file.dump_id, now_us, since_us=file.found_us or now_us)
        if not self.message_feed.reports_ends:
            for file in grown.finished:
                self._mark_done(file.dump_id, file.changed_us if file.found_us is not None else None)

    def _observe_catalog(self, seen: ObservedProgram) -> None:
        """What a restore has made: tables with rows, indexes and keys that are there."""
        if self._program.kind != "pg_restore" or self.object_list.plan is None or self.message_feed.is_complete:
            return
        for dump_id in self.object_list.created_objects(seen):
            self._end_schema()
            item = self.ledger.objects().get(dump_id)
            for one in (dump_id, *(() if item is None else item.entry.needs)):
                if one not in self.active_objects:
                    self._mark_done(one, None)

    def _mark_done(self, dump_id: int, at_us: int | None) -> None:
        item: DumpObject | None = self.ledger.objects().get(dump_id)
        if item is not None and item.state in ("waiting", "running"):
            self.ledger.observe_finished(dump_id, at_us)


def _ledger_key(sight: ObjectActivity, *, planned: bool) -> ObjectKey | None:
    """How the ledger calls it; None for what is not in the plan: a partition loaded through its root."""
    if sight.entry is not None:
        return sight.entry.dump_id
    named = sight.named
    return None if planned else (named.desc, named.schema, named.tag)


def _make_output(program: RunningProgram) -> DumpOutput | None:
    written = program.arguments.output
    path = None if written is None else program.absolute_path(written)
    return None if path is None or program.kind not in ("pg_dump", "pg_basebackup") else DumpOutput(path, program.root)
