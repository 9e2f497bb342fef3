"""shrink-file: a big file removed while the database on its disk does not notice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct

from dba_console.actions.action import Control, Done, Sight, World
from dba_console.actions.shrink import aside, openers
from dba_console.actions.shrink.candidate import SUFFIX, Candidate, examine, open_file, refuse_others
from dba_console.actions.shrink.cutting import Cutting, Progress
from dba_console.actions.shrink.pace import Limits
from dba_console.actions.shrink.senses import HostSenses
from dba_console.actions.shrink.words import advice, after_text, rest_text, sight_text
from dba_console.errors import ConsoleError, Refused
from dba_console.probes.host.files import readable
from dba_console.probes.lane import Lane, LaneTimeout
from dba_console.units import parse_duration, parse_size

LOOK_S = 30.0
"""For the file system to answer, and all of /proc to be read."""


class ShrinkFileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `shrink-file`."""

    path: str
    """The file, from / on; or what is left of it where a deletion was begun before."""
    stage: Literal["all", "aside"] = "all"
    """aside: only rename it, which can be taken back; all: rename it if that was not done yet, cut it, remove it."""
    largest_step: str = "32MB"
    """Never cut off more than this at a time; on ext3 and other block maps never more than 16 MB."""
    commit_limit: str = "100ms"
    """No commit beside a cut may take longer, however slow the disk is by itself."""
    stopped_cluster: bool = False
    """The file may lie in the directory of a server that does not run: it is gone for good."""


class ShrinkFile:
    name: ClassVar[str] = "shrink-file"
    summary: ClassVar[str] = (
        "Removes a big file while the database does not notice: renames it, cuts it from its end in steps adapted to "
        "what commits on that disk take, removes what is left. Goes on where it was when begun again."
    )
    Settings: ClassVar[type[Struct]] = ShrinkFileSettings
    needs_server: ClassVar[bool] = False
    needs_root: ClassVar[bool] = False
    undoable: ClassVar[bool] = True

    def look(self, settings: ShrinkFileSettings, world: World) -> Sight:
        """Refuses, as Sight.refusal, whatever candidate.examine refuses."""
        _limits(settings)
        lane = Lane("shrink-file", world.clock)
        try:
            return lane.call(lambda: _sight(settings, world), LOOK_S)
        except LaneTimeout:
            text = f"the file system of {readable(settings.path)} does not answer"
            return Sight(text=text, exact="", refusal=text, hint="look at the disks panel for what is stalled")
        finally:
            lane.close()

    def act(self, settings: ShrinkFileSettings, sight: Sight, world: World, control: Control) -> Done:
        """Raises Refused where the file is not the one that was seen; a file system's errors end as `failed`."""
        candidate = _as_seen(settings, sight, world)
        try:
            fd = open_file(candidate)
        except OSError as error:
            return Done(state="failed", text=f"{readable(candidate.now)} cannot be opened: {error.strerror}")
        try:
            refuse_others(fd, candidate, world.proc)
            if not candidate.aside:
                aside.set_aside(candidate, fd)
            if settings.stage == "aside":
                return Done(state="ok", text=f"renamed to {readable(candidate.trash)}", undo=_undo(candidate))
            return _cut(settings, candidate, fd, world, control)
        except OSError as error:
            return Done(state="failed", text=f"{readable(candidate.trash)}: {error.strerror}; {rest_text(candidate)}")
        finally:
            openers.drop_lease(fd)
            os.close(fd)

    def settle(self, settings: ShrinkFileSettings, sight: Sight, world: World) -> Done:
        """By what lies in the directory now."""
        row = sight.rows[0] if sight.rows else {}
        path = str(row.get("path", settings.path))
        identity, size = (row.get("device"), row.get("inode")), row.get("size_bytes")
        try:
            found = {name: status for name in (path, path + SUFFIX) if (status := _stat(name)) is not None}
        except OSError as error:
            return Done(state="unknown", text=f"{readable(path)} cannot be looked at: {error.strerror}")
        ours = {name: status for name, status in found.items() if (status.st_dev, status.st_ino) == identity}
        if not ours:
            return Done(state="ok", text=f"{readable(path)} is gone")
        name, status = next(iter(ours.items()))
        if name == path:
            return Done(state="failed", text=f"{readable(path)} is there as it was: nothing was done", again=True)
        if status.st_size == size and settings.stage == "aside":
            return Done(state="ok", text=f"renamed to {readable(name)}", undo=dict(row))
        if status.st_size == size:
            text = f"renamed to {readable(name)}, nothing was cut yet"
            return Done(state="stopped", text=text, undo=dict(row), again=True)
        text = f"{status.st_size} of {size} bytes of {readable(name)} are left"
        return Done(state="stopped", text=text, values={"left_bytes": status.st_size}, again=True)

    def undo(self, settings: ShrinkFileSettings, data: Mapping[str, Any], world: World, control: Control) -> Done:
        """Gives the file its name back, while nothing of it is cut."""
        path = str(data["path"])
        try:
            why = aside.put_back(path, (int(data["device"]), int(data["inode"])), int(data["size_bytes"]))
        except OSError as error:
            why = f"{readable(path + SUFFIX)} cannot be renamed: {error.strerror}"
        if why is not None:
            return Done(state="failed", text=why)
        return Done(state="ok", text=f"{readable(path)} has its name back")


def _sight(settings: ShrinkFileSettings, world: World) -> Sight:
    try:
        candidate = examine(settings.path, stopped_cluster=settings.stopped_cluster, proc=world.proc)
    except Refused as refused:
        return Sight(text=refused.message, exact="", refusal=refused.message, hint=refused.hint)
    renaming = "" if candidate.aside else f"rename {readable(candidate.path)} to {readable(candidate.trash)}"
    cutting = f"cut {readable(candidate.trash)} to nothing from its end, step by step, and unlink it"
    done = settings.stage == "aside" and candidate.aside
    exact = renaming if settings.stage == "aside" else "; ".join(part for part in (renaming, cutting) if part)
    return Sight(
        text=sight_text(candidate, world),
        exact=exact,
        values={"size_bytes": candidate.size, "allocated_bytes": candidate.allocated, "free_bytes": _free(candidate)},
        hint=advice(candidate),
        count=1,
        rows=(_undo(candidate),),
        done=done,
    )


def _undo(candidate: Candidate) -> dict[str, Any]:
    """What names the file whatever it is called: shown, kept with the intent, and what an undo goes by."""
    return {
        "path": candidate.path,
        "device": candidate.device,
        "inode": candidate.inode,
        "size_bytes": candidate.size,
        "changed_ns": candidate.changed_ns,
    }


def _as_seen(settings: ShrinkFileSettings, sight: Sight, world: World) -> Candidate:
    """The file of `sight`, examined again. Raises Refused where it has become another."""
    candidate = examine(settings.path, stopped_cluster=settings.stopped_cluster, proc=world.proc)
    if not sight.rows or dict(sight.rows[0]) != _undo(candidate):
        raise Refused(
            f"{readable(candidate.now)} has changed since it was looked at",
            hint="look again: another file may have taken its name, or somebody still writes it",
        )
    return candidate


def _limits(settings: ShrinkFileSettings) -> Limits:
    """Raises UsageError where a setting is not a size or a duration."""
    return Limits(
        largest=max(1 << 20, parse_size(settings.largest_step)), commit_limit_s=parse_duration(settings.commit_limit)
    )


def _cut(settings: ShrinkFileSettings, candidate: Candidate, fd: int, world: World, control: Control) -> Done:
    directory = os.path.dirname(candidate.trash)
    senses = HostSenses(directory, candidate.device, world.link, proc=world.proc, sys=world.sys)
    try:
        cutting = Cutting(fd, senses, control, _limits(settings), flags=lambda: _flag(candidate.trash))
        progress = cutting.run(cutting.measure(), before_first=lambda: _last_look(fd))
        values = _values(progress, candidate, senses)
        if progress.stopped:
            undo = _undo(candidate) if progress.cuts == 0 else None
            text = f"{progress.stopped}; {rest_text(candidate)}"
            return Done(state="stopped", text=text, values=values, undo=undo)
        aside.unlink(candidate, fd)
        return Done(state="ok", text=after_text(candidate, progress), values=values | {"free_bytes": _free(candidate)})
    except ConsoleError as error:
        return Done(state="failed", text=error.message)
    finally:
        senses.close()


def _last_look(fd: int) -> str:
    """Before the point of no return: does anybody want to open the file? From then on nobody is kept waiting."""
    wanted = openers.lease_wanted(fd)
    openers.drop_lease(fd)
    return "somebody is opening the file" if wanted else ""


def _flag(trash: str) -> str:
    """`stop PATH` or `pause PATH` where such a file was put beside what is cut."""
    for word in ("stop", "pause"):
        if os.path.lexists(f"{trash}.{word}"):
            return f"{word} {readable(trash)}.{word}"
    return ""


def _values(progress: Progress, candidate: Candidate, senses: HostSenses) -> dict[str, Any]:
    return {
        "freed_bytes": progress.freed,
        "cuts": progress.cuts,
        "largest_step_bytes": progress.largest_step,
        "worst_commit_s": round(progress.worst_s, 6),
        "quiet_commit_s": None if progress.quiet_s is None else round(progress.quiet_s, 6),
        "held_s": round(progress.held_s, 3),
        "cutting_s": round(progress.lasted_s, 3),
        "database": senses.database_note,
    }


def _free(candidate: Candidate) -> int | None:
    try:
        status = os.statvfs(os.path.dirname(candidate.path))
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
