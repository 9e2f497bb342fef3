"""Track the progress of one dump or restore: combine its plan, messages, sessions, output files and the catalog.

Its messages are used if they can be read. Otherwise running objects are found in sessions and files, and finished ones
by a closed file or by the catalog; with one job all objects before the running one are done. No scan iterates over all
objects.
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
from dba_console.jobs.archives.large_object_counter import LargeObjectCounter
from dba_console.jobs.archives.object_progress import ObjectKey, ObjectProgress
from dba_console.jobs.archives.objects import DumpObject
from dba_console.jobs.archives.program_messages import final_error, is_english
from dba_console.jobs.following.object_activity import ObjectActivity, find_active_objects
from dba_console.jobs.following.object_list import ObjectList, archive_path
from dba_console.jobs.following.program_scanner import RunningProgram
from dba_console.jobs.following.session_matching import ObservedProgram
from dba_console.jobs.following.stderr_reader import NewMessages
from dba_console.keeper.output_log_reader import StampedLine
from dba_console.watch.probes.host.kernel_files import printable

# The messages of pg_dump and pg_restore for the object progress: their source, or why they cannot be read.

HELD_LINES = 5000
"""Lines buffered until the plan is known."""


class MessageFeed:
    """Feeds a job's messages into its object progress. Not thread-safe."""

    def __init__(self) -> None:
        self.source: str | None = None
        self.unknown: str | None = None
        self.run: str | None = None
        self._english: bool | None = None
        self._held: deque[StampedLine] = deque(maxlen=HELD_LINES)
        self._dropped = 0
        self._begun = False
        self._from_start = False

    @property
    def is_complete(self) -> bool:
        """Its messages show the start of every object: it is verbose, and they were read from the start."""
        return self._begun and self._from_start

    @property
    def reports_ends(self) -> bool:
        """No message was lost: an object is done only when the messages report it."""
        return self.is_complete and not self._dropped

    @property
    def can_be_read(self) -> bool:
        return self.source is not None

    @property
    def is_not_english(self) -> bool:
        """Its messages are not in English: they cannot be parsed."""
        return self._english is False

    def feed(self, messages: NewMessages, ledger: ObjectProgress, *, wait: bool) -> None:
        """Add new messages; `wait`: buffer them because the plan is not known yet."""
        self.source, self.unknown = messages.source or self.source, messages.unknown
        self.run = messages.run or self.run
        self._from_start = messages.from_start if not self._begun else self._from_start
        self._dropped += messages.dropped
        self._held.extend(messages.lines)
        if not wait:
            self.flush(ledger)

    def flush(self, ledger: ObjectProgress) -> None:
        """Apply the buffered messages."""
        before = ledger.counts()
        for line in self._held:
            ledger.add_line(line.wall_us, line.text)
            if not self._english:
                known = is_english(line.text)
                self._english = self._english if known is None else known
        if self._held and ledger.counts() != before:
            self._begun = True
        self._held.clear()


# Growth of a dump's output: each data file of a directory, or the size of a file.
#
# A directory of 50,000 files is not read completely in each scan: its names are listed only after a change, and rarely
# if listing is expensive; a file is checked while it grows and once at its end. Files not checked yet are counted.

STATS = 3000
"""New files checked per scan; about 15 ms."""
LISTING_TIME_SHARE = 50
"""Listing takes at most 1/50 of the time."""
MAX_FILES = 500_000
"""Maximum number of files tracked in a directory: there may be millions of large objects."""
COARSE_NS = 1_000_000_000
"""A directory changed this shortly before its listing may have changed again with the same timestamp."""
FINISHED_AFTER_US = 10_000_000
"""Age after which an unchanged file counts as finished when open files cannot be listed."""
_DATA = re.compile(r"(\d+)\.dat(?:\.(?:gz|lz4|zst))?")


@dataclass(slots=True)
class DataFile:
    """A file of a directory dump, followed while it grows."""

    name: str
    found_us: int | None
    """Host wall time of the scan that first found it; None if it existed at the first scan."""
    scans: int = 0
    size: int = 0
    """Bytes so far."""
    allocated: int = 0
    changed_us: int = 0
    """Host wall time of its last write; for a finished file its end."""

    @property
    def dump_id(self) -> int:
        """The id of its object; -1 if it is no data file."""
        number = dump_id_of(self.name)
        return -1 if number is None else number


@dataclass(frozen=True, slots=True)
class OutputGrowth:
    """The state of the output in one scan."""

    exists: bool
    size: int = 0
    """Bytes of all files checked."""
    allocated: int = 0
    """Bytes allocated on disk."""
    files: int = 0
    pending: int = 0
    """Files listed but not checked yet."""
    finished: tuple[DataFile, ...] = ()
    """Finished since the previous scan."""
    running: tuple[DataFile, ...] = ()
    """Being written."""
    note: str | None = None
    large_objects: int = 0
    """Files of large objects listed."""


class DumpOutput:
    """Measures the output of one dump, scan by scan. Not thread-safe."""

    def __init__(self, path: str, root: str = "", clock: Clock = SYSTEM) -> None:
        """`root`: prefix for paths of its process (`RunningProgram.root`)."""
        self.path = path
        self._local_path = root + path
        self._clock = clock
        self._names: set[str] = set()
        self._listed_ns = -1
        self._list_again = True
        self._next_us = 0
        self._first = True
        self._pending: deque[DataFile] = deque()
        self._growing: dict[str, DataFile] = {}
        self._size = self._allocated = 0
        self._too_many = False
        self._large_objects = 0

    def measure(self, open_names: Collection[str] | None = None, jobs: int = 1) -> OutputGrowth:
        """Measure the output. `open_names`: base names of the files its processes have open (read before this scan),
        None if not visible: then the `jobs` files last written count as open."""
        try:
            at = os.stat(self._local_path)
        except FileNotFoundError:
            return OutputGrowth(False)
        except OSError as error:
            return OutputGrowth(False, note=f"{printable(self.path)} cannot be read: {error.strerror}")
        if stat.S_ISREG(at.st_mode):
            return OutputGrowth(True, at.st_size, at.st_blocks * 512, 1)
        if not stat.S_ISDIR(at.st_mode):
            return OutputGrowth(
                True, note=f"{printable(self.path)} is neither a file nor a directory: its size has no meaning"
            )
        try:
            self._list_new(at.st_mtime_ns)
        except OSError as error:
            return OutputGrowth(True, note=f"{printable(self.path)} cannot be listed: {error.strerror}")
        self._measure_files()
        finished = self._take_finished(open_names, jobs)
        note = f"only {MAX_FILES:,} of its files are tracked" if self._too_many else None
        running = tuple(one for one in self._growing.values() if one.dump_id >= 0)
        return OutputGrowth(
            True, self._size, self._allocated, len(self._names), len(self._pending), finished, running, note,
            self._large_objects,
        )  # fmt: skip

    def _list_new(self, changed_ns: int) -> None:
        """Add new file names, if the directory changed and enough time has passed."""
        now_us = self._clock.mono_us()
        if (changed_ns == self._listed_ns and not self._list_again) or now_us < self._next_us:
            return
        seen_us = None if self._first else self._clock.wall_us()
        new = set(os.listdir(self._local_path)) - self._names
        limit = MAX_FILES - len(self._names)
        self._too_many = len(new) > limit
        for name in sorted(new)[:limit]:
            self._names.add(name)
            self._large_objects += name.startswith("blob_")
            self._pending.append(DataFile(name, seen_us))
        self._list_again = self._clock.wall_us() * 1000 - changed_ns < COARSE_NS
        self._listed_ns, self._first = changed_ns, False
        self._next_us = now_us + (self._clock.mono_us() - now_us) * LISTING_TIME_SHARE

    def _measure_files(self) -> None:
        """Check the growing files, and new ones up to the limit per scan."""
        for known in list(self._growing.values()):
            self._measure_file(known)
        for _ in range(min(len(self._pending), STATS)):
            self._measure_file(self._pending.popleft())

    def _measure_file(self, known: DataFile) -> None:
        try:
            at = os.lstat(f"{self._local_path}/{known.name}")
        except OSError:
            # Removed, for example by a restarted dump.
            self._growing.pop(known.name, None)
            self._names.discard(known.name)
            at = None
        size, allocated = (0, 0) if at is None or stat.S_ISDIR(at.st_mode) else (at.st_size, at.st_blocks * 512)
        self._size += size - known.size
        self._allocated += allocated - known.allocated
        known.size, known.allocated = size, allocated
        if at is not None and stat.S_ISREG(at.st_mode):
            known.scans += 1
            known.changed_us = at.st_mtime_ns // 1000
            self._growing[known.name] = known

    def _take_finished(self, open_names: Collection[str] | None, jobs: int) -> tuple[DataFile, ...]:
        if open_names is None:
            done = self._unchanged_files(jobs)
        else:
            # A file found in this scan may have been opened after the open files were listed.
            old_us = self._clock.wall_us() - FINISHED_AFTER_US
            done = [
                known
                for name, known in self._growing.items()
                if name not in open_names and (known.scans > 1 or known.changed_us < old_us)
            ]
        for known in done:
            del self._growing[known.name]
        return tuple(one for one in done if one.dump_id >= 0)

    def _unchanged_files(self, jobs: int) -> list[DataFile]:
        newest_first = sorted(self._growing.values(), key=lambda known: known.changed_us, reverse=True)
        old_us = self._clock.wall_us() - FINISHED_AFTER_US
        return [known for at, known in enumerate(newest_first) if at >= max(1, jobs) and known.changed_us < old_us]


def dump_id_of(name: str) -> int | None:
    """Return the dump id in the name of a data file of a directory archive; None for other files.

    >>> dump_id_of("3358.dat.gz"), dump_id_of("/backup/d/3359.dat"), dump_id_of("toc.dat"), dump_id_of("blobs.toc")
    (3358, 3359, None, None)
    """
    found = _DATA.fullmatch(name.rpartition("/")[2])
    return None if found is None else int(found[1])


DUMPS = frozenset({"pg_dump"})
RESTORES = frozenset({"pg_restore", "psql"})
LAST_DONE = 30
_NOT_ENGLISH = "its messages are not in English: its objects and errors cannot be read from them"


class DumpProgress:
    """The progress of one dump or restore. Not thread-safe."""

    def __init__(self, program: RunningProgram) -> None:
        self._program = program
        self.ledger = self._ledger(None)
        self.object_list = ObjectList(program)
        self.message_feed = MessageFeed()
        self.active_objects: dict[int, DumpObject] = {}
        """Of the latest scan, by dump id."""
        self.done_last: deque[int] = deque(maxlen=LAST_DONE)
        """The last finished objects."""
        self.growth: OutputGrowth | None = None
        self._output = _make_output(program)
        self._entries_started = 0
        """Number of entries of the plan, in its order, known to be started."""
        self._schema_done = False
        self._large_objects: LargeObjectCounter | None = None

    def observe(self, observed: ObservedProgram) -> bool:
        """Apply one scan; return True if the plan was found now."""
        self._program = observed.program
        if planned := self.object_list.update(observed, messages_complete=self.message_feed.is_complete):
            self._replan()
        self.message_feed.feed(observed.messages, self.ledger, wait=self.object_list.pending)
        self._observe_sessions(observed)
        self._observe_output_files(observed)
        self._observe_large_objects(observed)
        self._observe_catalog(observed)
        self.done_last.extend(
            item.entry.dump_id
            for item in self.ledger.take_changed()
            if item.state == "done" and item.entry.phase != "schema"
        )
        return planned

    def end(self, wall_us: int, exit: int | None, messages: NewMessages) -> None:
        """Apply the program's end and its last messages."""
        self.message_feed.feed(messages, self.ledger, wait=False)
        self.ledger.program_ended(wall_us, exit)

    def size_bytes(self, observed: ObservedProgram) -> float | None:
        """Return the size of its data, or of the script that is read, to select comparable runs."""
        if self.object_list.plan is not None:
            return self.ledger.sums("data").weight or None
        return float(sum(one.total for one in observed.flow.inputs)) or None

    @property
    def errors(self) -> int | None:
        """Number of reported errors; None if its messages cannot be read or parsed."""
        count = self.ledger.error_count
        return count if self.message_feed.can_be_read and (count or not self.message_feed.is_not_english) else None

    @property
    def last_error(self) -> str | None:
        last = final_error(self.ledger.errors)
        return None if last is None else clean(last.text)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources of its progress."""
        found = [self.object_list.source, self.message_feed.source]
        if any(item.unit is not None and not item.measured for item in self.active_objects.values()):
            found.append("pg_stat_progress_copy")
        if self.growth is not None and self.growth.exists:
            found.append("growth of its output")
        return tuple(one for one in found if one is not None)

    @property
    def unknown_reasons(self) -> tuple[str, ...]:
        """What is unknown about it, and why."""
        reasons = [*self.object_list.unknown, self.message_feed.unknown]
        if self.message_feed.is_not_english:
            reasons.append(_NOT_ENGLISH)
        if self.growth is not None:
            reasons.append(self.growth.note)
            if self.growth.pending:
                reasons.append(f"{self.growth.pending} files of its output are not counted yet")
        return tuple(one for one in reasons if one is not None)

    def _replan(self) -> None:
        """Start again with the plan found now; nothing relevant was applied before."""
        self.ledger = self._ledger(self.object_list.plan)
        self.active_objects, self._entries_started, self._schema_done = {}, 0, False

    def _ledger(self, plan: DumpPlan | None) -> ObjectProgress:
        ledger = ObjectProgress(plan, self._program.kind, self._program.arguments.jobs)
        ledger.began_us = self._program.started_us  # not the time of the first scan
        return ledger

    def _observe_sessions(self, observed: ObservedProgram) -> None:
        now_us = observed.request.wall_us
        found: dict[int, DumpObject] = {}
        worker, readings = observed.matched.worker, observed.flow.inputs
        for active in find_active_objects(observed.rows, observed.operations, worker, readings, self.object_list.index):
            key = _ledger_key(active, planned=self.object_list.plan is not None)
            if key is None:
                continue
            since_us = active.started_us if active.started_us is not None and active.started_us <= now_us else None
            item = self.ledger.observe_running(
                key, now_us, active.done, active.total, active.unit, active.pid, since_us=since_us,
                measured=active.measured, note=active.note, stage=active.stage,
            )  # fmt: skip
            if item is not None and item.state == "running":
                found[item.entry.dump_id] = item
        if not self.message_feed.reports_ends:
            elsewhere = {item.pid for item in found.values()}
            idle = {row.pid for row in observed.rows} - elsewhere
            for dump_id in self.active_objects.keys() - found.keys():
                item = self.active_objects[dump_id]
                unnamed = item.pid is None and not found  # known by the number written
                if item.entry.desc == "BLOBS" and item.state == "running" and (item.pid in idle or unnamed):
                    found[dump_id] = item  # between two large objects its session is idle
                else:
                    self._mark_done(dump_id, now_us)
        self.active_objects = found
        if self.object_list.plan is not None:
            self._finish_dependencies(found)
            self._finish_earlier_entries(found)

    def _finish_dependencies(self, found: dict[int, DumpObject]) -> None:
        """Mark the dependencies of a running index or key as done."""
        if self.message_feed.is_complete or self._program.kind not in RESTORES:
            return
        for item in found.values():
            for need in item.entry.needs:
                if need not in found:
                    self._mark_needed(need)

    def _finish_earlier_entries(self, found: dict[int, DumpObject]) -> None:
        """Mark the schema as done once data is running; with one job also all entries before the running object."""
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
        """Mark the schema as done."""
        if self._schema_done or self._program.kind not in RESTORES or self.object_list.plan is None:
            return
        self._schema_done = True
        for entry in self.object_list.plan.entries:
            if entry.phase == "schema":
                self.ledger.observe_finished(entry.dump_id)

    def _observe_output_files(self, observed: ObservedProgram) -> None:
        """Apply the files of a directory dump: an open file is a running object, a closed one is done."""
        if self._output is None:
            return
        hidden = self._program.unknown or observed.flow.unknown
        names = None if hidden else {posixpath.basename(one.path) for one in observed.flow.outputs}
        self.growth = grown = self._output.measure(names, self._program.arguments.jobs or 1)
        if self.object_list.plan is None or self._program.kind not in DUMPS:
            return
        now_us = observed.request.wall_us
        # A file found in this scan is either finished or just started: the next scan decides.
        started = (file for file in grown.running if names is None or file.name in names)
        for file in (*started, *grown.finished):
            item = self.ledger.objects().get(file.dump_id)
            if item is not None and item.state == "waiting":
                self.ledger.observe_running(file.dump_id, now_us, since_us=file.found_us or now_us)
        if not self.message_feed.reports_ends:
            for file in grown.finished:
                self._mark_done(file.dump_id, file.changed_us if file.found_us is not None else None)

    def _observe_large_objects(self, observed: ObservedProgram) -> None:
        """Apply how many large objects a dump has written: its statements do not show it."""
        total = self.object_list.large_objects if self._program.kind in DUMPS else None
        running = [item.entry.desc for item in self.active_objects.values()]
        if not total or (running and "BLOBS" not in running) or not (count := self._large_objects_written(observed)):
            return
        item = self.ledger.observe_running(
            ("BLOBS", None, ""), observed.request.wall_us, float(count), max(total, float(count)), "objects"
        )
        if item is not None and item.state == "running":
            self.active_objects[item.entry.dump_id] = item

    def _large_objects_written(self, observed: ObservedProgram) -> int | None:
        if self._program.arguments.format == "directory":
            return None if self.growth is None else self.growth.large_objects
        path = archive_path(self._program, observed.flow)
        if self._large_objects is None and path is not None:
            self._large_objects = LargeObjectCounter(self._program.root + path)
        return None if self._large_objects is None else self._large_objects.count()

    def _observe_catalog(self, observed: ObservedProgram) -> None:
        """Apply the objects a restore has created: tables with rows, existing indexes and keys."""
        if self._program.kind != "pg_restore" or self.object_list.plan is None or self.message_feed.is_complete:
            return
        for dump_id in self.object_list.created_objects(observed):
            self._end_schema()
            self.ledger.unseen_us = observed.request.wall_us
            item = self.ledger.objects().get(dump_id)
            if dump_id not in self.active_objects:
                self._mark_done(dump_id, None)
            for one in () if item is None else item.entry.needs:
                if one not in self.active_objects:
                    self._mark_needed(one)

    def _mark_needed(self, dump_id: int) -> None:
        """Mark what an existing object depends on as done. An index of a materialized view is created before the view
        is filled, which is the last thing a restore does."""
        item = self.ledger.objects().get(dump_id)
        if item is not None and item.entry.phase != "rest":
            self._mark_done(dump_id, None)

    def _mark_done(self, dump_id: int, at_us: int | None) -> None:
        item: DumpObject | None = self.ledger.objects().get(dump_id)
        if item is not None and item.state in ("waiting", "running"):
            self.ledger.observe_finished(dump_id, at_us)


def _ledger_key(active: ObjectActivity, *, planned: bool) -> ObjectKey | None:
    """Return the object's key; None if it is not in the plan: a partition loaded through its root."""
    if active.entry is not None:
        return active.entry.dump_id
    named = active.named
    return None if planned else (named.desc, named.schema, named.tag)


def _make_output(program: RunningProgram) -> DumpOutput | None:
    written = program.arguments.output
    path = None if written is None else program.absolute_path(written)
    return None if path is None or program.kind not in ("pg_dump", "pg_basebackup") else DumpOutput(path, program.root)
