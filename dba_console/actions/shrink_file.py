"""shrink-file: a big file removed while the database on its disk does not notice."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from msgspec import Struct

from dba_console.actions.action import ActionContext, ActionPreview, ActionResult, Control
from dba_console.actions.shrink.candidate import (
    SUFFIX,
    ShrinkCandidate,
    drop_lease,
    examine,
    lease_break_requested,
    open_file,
    refuse_others,
)
from dba_console.actions.shrink.pace import PaceLimits
from dba_console.actions.shrink.stepwise_truncate import HostDiskProbe, StepwiseTruncation, TruncationProgress
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.units import human_bytes, human_duration, parse_duration, parse_size
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.kernel_files import printable

# Whether blocks of a file are shared with another one (reflink, snapshot), as FIEMAP tells (Documentation/filesystems/
# fiemap.rst).

FS_IOC_FIEMAP = 0xC020660B
"""_IOWR('f', 11, struct fiemap): 32 bytes without extents, on every architecture PostgreSQL is run on by many."""
MAX_EXTENTS = 256
"""Looked at, from the beginning: a copy shares all or nearly all of them, and the rest would have to be read."""
SHARED_FLAG = 0x2000
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")


def shares_blocks(path: str) -> bool | None:
    """True where any of the first extents is shared; None where the file system does not say."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        request = bytearray(
            _HEADER.pack(0, 0xFFFFFFFFFFFFFFFF, 0, 0, MAX_EXTENTS, 0) + bytes(MAX_EXTENTS * _EXTENT.size)
        )
        fcntl.ioctl(fd, FS_IOC_FIEMAP, request)
    except OSError:
        return None
    finally:
        os.close(fd)
    return any(flags & SHARED_FLAG for flags in extent_flags(bytes(request)))


def extent_flags(answer: bytes) -> list[int]:
    """The flags of each extent in the kernel's answer."""
    mapped = min(_HEADER.unpack_from(answer)[3], MAX_EXTENTS)
    return [_EXTENT.unpack_from(answer, _HEADER.size + number * _EXTENT.size)[5] for number in range(mapped)]


# What is said of a file that is to go, of its disk, and of how it went.

DAY_S = 86400


def preview_text(candidate: ShrinkCandidate, context: ActionContext) -> str:
    """What it is, where it lies, and who else is there."""
    age = human_duration((context.clock.wall_us() - candidate.changed_ns // 1000) / 1e6)
    text = f"{printable(candidate.current_path)}: {human_bytes(candidate.size)}, last changed {age} ago"
    if candidate.allocated < candidate.size * 0.95:
        text += f", of which {human_bytes(candidate.allocated)} are on the disk (it has holes)"
    if candidate.renamed:
        text += "; an earlier deletion was begun and is gone on with"
    mount = candidate.mount
    if mount is None:
        return text
    text += (
        f"; on {printable(mount.path)} ({mount.fstype}{', discard' if 'discard' in mount.options.split(',') else ''})"
    )
    if shared := _server_uses(candidate, context):
        text += f", which also holds {', '.join(shared)}"
    return text


def _server_uses(candidate: ShrinkCandidate, context: ActionContext) -> list[str]:
    """What the server keeps on the same mount, as the newest frame has it."""
    if context.frame is None or candidate.mount is None:
        return []
    rows = context.frame.disks.mounts
    return [what for row in rows if row.path == candidate.mount.path for what in (row.holds or [])]


def advice(candidate: ShrinkCandidate) -> str | None:
    """What one should know before saying yes; None where there is nothing special."""
    mount = candidate.mount
    if mount is not None and mount.fstype in ("xfs", "btrfs", "bcachefs") and shares_blocks(candidate.current_path):
        return (
            "blocks of it are shared with a copy (reflink) or a snapshot: these stay whole, and less space is freed "
            "than its size says"
        )
    return None


def remaining_text(candidate: ShrinkCandidate) -> str:
    """How much of it is still there, and what to do with that."""
    try:
        left = os.stat(candidate.trash_path, follow_symlinks=False).st_size
    except OSError:
        return f"whether {printable(candidate.trash_path)} is still there cannot be told"
    if left == candidate.size and not candidate.renamed:
        return f"{printable(candidate.trash_path)} is whole: it can have its name back"
    return f"{human_bytes(left)} of {printable(candidate.trash_path)} are left: begin again to go on"


def result_text(candidate: ShrinkCandidate, progress: TruncationProgress) -> str:
    """How it went."""
    text = (
        f"{printable(candidate.path)} is gone: {human_bytes(progress.freed)} freed in "
        f"{human_duration(progress.duration_s)} by {progress.cuts} cuts"
    )
    if progress.quiet_s is not None:
        text += (
            f"; a commit took {progress.worst_s * 1000:.1f} ms at worst beside one, "
            f"{progress.quiet_s * 1000:.1f} ms without"
        )
    return text


# A file set aside under a name that says what becomes of it, and put back while nothing of it is cut.


def rename_to_trash(candidate: ShrinkCandidate, fd: int) -> None:
    """Give it the suffix, for good on disk. Raises Refused where another file turns out to bear its name, OSError."""
    directory, name = os.path.split(candidate.path)
    _rename(directory, name, name + SUFFIX, os.fstat(fd))


def rename_back(path: str, identity: tuple[int, int], size: int) -> str | None:
    """Take the suffix away again. Returns why that may not be, None when it is done. Raises OSError."""
    trash = path + SUFFIX
    try:
        status = os.lstat(trash)
    except FileNotFoundError:
        return f"{printable(trash)} is not there any more"
    if (status.st_dev, status.st_ino) != identity:
        return f"{printable(trash)} is another file now"
    if status.st_size != size:
        return f"{printable(trash)} has been cut: {status.st_size} of its {size} bytes are left"
    if os.path.lexists(path):
        return f"there is a new {printable(path)}"
    directory, name = os.path.split(path)
    _rename(directory, name + SUFFIX, name, status)
    return None


def unlink_trash(candidate: ShrinkCandidate, fd: int) -> None:
    """Remove what is left, which is empty. Raises Refused where another file bears its name now, OSError."""
    directory, name = os.path.split(candidate.trash_path)
    opened = _open_directory(directory)
    try:
        _require_same_file(opened, name, os.fstat(fd))
        os.unlink(name, dir_fd=opened)
        os.fsync(opened)
    finally:
        os.close(opened)


def _rename(directory: str, old: str, new: str, expected: os.stat_result) -> None:
    opened = _open_directory(directory)
    try:
        _require_same_file(opened, old, expected)
        if _exists(opened, new):
            raise Refused(f"{printable(f'{directory}/{new}')} is there already")
        os.rename(old, new, src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)
    finally:
        os.close(opened)


def _open_directory(directory: str) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _require_same_file(directory: int, name: str, expected: os.stat_result) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (status.st_dev, status.st_ino) != (expected.st_dev, expected.st_ino):
        raise Refused(f"another file bears the name {printable(name)} now: nothing is done to it")


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


PREVIEW_TIMEOUT_S = 30.0
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

    def preview(self, settings: ShrinkFileSettings, context: ActionContext) -> ActionPreview:
        """Refuses, as Sight.refusal, whatever candidate.examine refuses."""
        _pace_limits(settings)
        lane = Lane("shrink-file", context.clock)
        try:
            return lane.call(lambda: _preview(settings, context), PREVIEW_TIMEOUT_S)
        except LaneTimeout:
            text = f"the file system of {printable(settings.path)} does not answer"
            return ActionPreview(text=text, exact="", refusal=text, hint="look at the disks panel for what is stalled")
        finally:
            lane.close()

    def act(
        self, settings: ShrinkFileSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        """Raises Refused where the file is not the one that was seen; a file system's errors end as `failed`."""
        candidate = _require_unchanged(settings, preview, context)
        try:
            fd = open_file(candidate)
        except OSError as error:
            return ActionResult(
                state="failed", text=f"{printable(candidate.current_path)} cannot be opened: {error.strerror}"
            )
        try:
            refuse_others(fd, candidate, context.proc)
            if not candidate.renamed:
                rename_to_trash(candidate, fd)
            if settings.stage == "aside":
                return ActionResult(
                    state="ok", text=f"renamed to {printable(candidate.trash_path)}", undo=_file_identity(candidate)
                )
            return _truncate(settings, candidate, fd, context, control)
        except OSError as error:
            return ActionResult(
                state="failed", text=f"{printable(candidate.trash_path)}: {error.strerror}; {remaining_text(candidate)}"
            )
        finally:
            drop_lease(fd)
            os.close(fd)

    def settle(self, settings: ShrinkFileSettings, preview: ActionPreview, context: ActionContext) -> ActionResult:
        """By what lies in the directory now."""
        row = preview.rows[0] if preview.rows else {}
        path = str(row.get("path", settings.path))
        identity, size = (row.get("device"), row.get("inode")), row.get("size_bytes")
        try:
            found = {name: status for name in (path, path + SUFFIX) if (status := _stat(name)) is not None}
        except OSError as error:
            return ActionResult(state="unknown", text=f"{printable(path)} cannot be looked at: {error.strerror}")
        ours = {name: status for name, status in found.items() if (status.st_dev, status.st_ino) == identity}
        if not ours:
            return ActionResult(state="ok", text=f"{printable(path)} is gone")
        name, status = next(iter(ours.items()))
        if name == path:
            return ActionResult(
                state="failed", text=f"{printable(path)} is there as it was: nothing was done", again=True
            )
        if status.st_size == size and settings.stage == "aside":
            return ActionResult(state="ok", text=f"renamed to {printable(name)}", undo=dict(row))
        if status.st_size == size:
            text = f"renamed to {printable(name)}, nothing was cut yet"
            return ActionResult(state="stopped", text=text, undo=dict(row), again=True)
        text = f"{status.st_size} of {size} bytes of {printable(name)} are left"
        return ActionResult(state="stopped", text=text, values={"left_bytes": status.st_size}, again=True)

    def undo(
        self, settings: ShrinkFileSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        """Gives the file its name back, while nothing of it is cut."""
        path = str(data["path"])
        try:
            why = rename_back(path, (int(data["device"]), int(data["inode"])), int(data["size_bytes"]))
        except OSError as error:
            why = f"{printable(path + SUFFIX)} cannot be renamed: {error.strerror}"
        if why is not None:
            return ActionResult(state="failed", text=why)
        return ActionResult(state="ok", text=f"{printable(path)} has its name back")


def _preview(settings: ShrinkFileSettings, context: ActionContext) -> ActionPreview:
    try:
        candidate = examine(settings.path, stopped_cluster=settings.stopped_cluster, proc=context.proc)
    except Refused as refused:
        return ActionPreview(text=refused.message, exact="", refusal=refused.message, hint=refused.hint)
    renaming = "" if candidate.renamed else f"rename {printable(candidate.path)} to {printable(candidate.trash_path)}"
    cutting = f"cut {printable(candidate.trash_path)} to nothing from its end, step by step, and unlink it"
    done = settings.stage == "aside" and candidate.renamed
    exact = renaming if settings.stage == "aside" else "; ".join(part for part in (renaming, cutting) if part)
    return ActionPreview(
        text=preview_text(candidate, context),
        exact=exact,
        values={"size_bytes": candidate.size, "allocated_bytes": candidate.allocated, "free_bytes": _free(candidate)},
        hint=advice(candidate),
        count=1,
        rows=(_file_identity(candidate),),
        done=done,
    )


def _file_identity(candidate: ShrinkCandidate) -> dict[str, Any]:
    """What names the file whatever it is called: shown, kept with the intent, and what an undo goes by."""
    return {
        "path": candidate.path,
        "device": candidate.device,
        "inode": candidate.inode,
        "size_bytes": candidate.size,
        "changed_ns": candidate.changed_ns,
    }


def _require_unchanged(settings: ShrinkFileSettings, preview: ActionPreview, context: ActionContext) -> ShrinkCandidate:
    """The file of `preview`, examined again. Raises Refused where it has become another."""
    candidate = examine(settings.path, stopped_cluster=settings.stopped_cluster, proc=context.proc)
    if not preview.rows or dict(preview.rows[0]) != _file_identity(candidate):
        raise Refused(
            f"{printable(candidate.current_path)} has changed since it was looked at",
            hint="look again: another file may have taken its name, or somebody still writes it",
        )
    return candidate


def _pace_limits(settings: ShrinkFileSettings) -> PaceLimits:
    """Raises UsageError where a setting is not a size or a duration."""
    return PaceLimits(
        largest_step=max(1 << 20, parse_size(settings.largest_step)),
        commit_limit_s=parse_duration(settings.commit_limit),
    )


def _truncate(
    settings: ShrinkFileSettings, candidate: ShrinkCandidate, fd: int, context: ActionContext, control: Control
) -> ActionResult:
    directory = os.path.dirname(candidate.trash_path)
    probe = HostDiskProbe(directory, candidate.device, context.connection, proc=context.proc, sys=context.sys)
    try:
        truncation = StepwiseTruncation(
            fd, probe, control, _pace_limits(settings), flags=lambda: _find_flag_file(candidate.trash_path)
        )
        progress = truncation.run(truncation.measure_baseline(), before_first=lambda: _check_openers(fd))
        values = _result_values(progress, candidate, probe)
        if progress.stopped:
            undo = _file_identity(candidate) if progress.cuts == 0 else None
            text = f"{progress.stopped}; {remaining_text(candidate)}"
            return ActionResult(state="stopped", text=text, values=values, undo=undo)
        unlink_trash(candidate, fd)
        return ActionResult(
            state="ok", text=result_text(candidate, progress), values=values | {"free_bytes": _free(candidate)}
        )
    except ConsoleError as error:
        return ActionResult(state="failed", text=error.message)
    finally:
        probe.close()


def _check_openers(fd: int) -> str:
    """Before the point of no return: does anybody want to open the file? From then on nobody is kept waiting."""
    wanted = lease_break_requested(fd)
    drop_lease(fd)
    return "somebody is opening the file" if wanted else ""


def _find_flag_file(trash: str) -> str:
    """`stop PATH` or `pause PATH` where such a file was put beside what is cut."""
    for word in ("stop", "pause"):
        if os.path.lexists(f"{trash}.{word}"):
            return f"{word} {printable(trash)}.{word}"
    return ""


def _result_values(progress: TruncationProgress, candidate: ShrinkCandidate, probe: HostDiskProbe) -> dict[str, Any]:
    return {
        "freed_bytes": progress.freed,
        "cuts": progress.cuts,
        "largest_step_bytes": progress.largest_step,
        "worst_commit_s": round(progress.worst_s, 6),
        "quiet_commit_s": None if progress.quiet_s is None else round(progress.quiet_s, 6),
        "held_s": round(progress.paused_s, 3),
        "cutting_s": round(progress.duration_s, 3),
        "database": probe.database_note,
    }


def _free(candidate: ShrinkCandidate) -> int | None:
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
