"""The action shrink-file: delete a big file in small steps, so that a database on the same disk does not slow down."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import psutil
from msgspec import Struct

from dba_console.actions.action import Action, ActionContext, ActionResult, Control
from dba_console.actions.action_preview import ActionPreview
from dba_console.actions.shrink.candidate import (
    SUFFIX,
    ShrinkCandidate,
    drop_lease,
    examine,
    lease_break_requested,
    open_file,
    refuse_others,
)
from dba_console.actions.shrink.stepwise_truncate import MIB, DiskProbe, StepwiseTruncation, TruncationProgress
from dba_console.core.declarations import Duration, Size
from dba_console.core.errors import ConsoleError, Refused
from dba_console.core.units import human_bytes, human_duration, parse_duration, parse_size
from dba_console.watch.probes.deadline_lane import Lane, LaneTimeout
from dba_console.watch.probes.host.kernel_files import printable

# Whether blocks of a file are shared with another file (reflink, snapshot), from FIEMAP (Documentation/filesystems/
# fiemap.rst).

FS_IOC_FIEMAP = 0xC020660B
"""_IOWR('f', 11, struct fiemap): 32 bytes without extents, on all common architectures for PostgreSQL."""
MAX_EXTENTS = 256
"""Extents checked, from the beginning of the file: a copy shares all or nearly all of them."""
SHARED_FLAG = 0x2000
_HEADER = struct.Struct("=QQLLLL")
_EXTENT = struct.Struct("=QQQQQLLLL")


def shares_blocks(path: str) -> bool | None:
    """Return whether any of the first extents is shared; None: the file system does not report it."""
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
    """Return the flags of each extent in the kernel's answer."""
    mapped = min(_HEADER.unpack_from(answer)[3], MAX_EXTENTS)
    return [_EXTENT.unpack_from(answer, _HEADER.size + number * _EXTENT.size)[5] for number in range(mapped)]


# Texts about the file, its disk, and the result.


def preview_text(candidate: ShrinkCandidate, context: ActionContext) -> str:
    """Describe the file, its mount, and what the server keeps on the same mount."""
    age = human_duration((context.clock.wall_us() - candidate.changed_ns // 1000) / 1e6)
    text = f"{printable(candidate.current_path)}: {human_bytes(candidate.size)}, last changed {age} ago"
    if candidate.allocated < candidate.size * 0.95:
        text += f", of which {human_bytes(candidate.allocated)} are allocated (sparse file)"
    if candidate.renamed:
        text += "; continues an earlier deletion"
    mount = candidate.mount
    if mount is None:
        return text
    text += (
        f"; on {printable(mount.path)} ({mount.fstype}{', discard' if 'discard' in mount.options.split(',') else ''})"
    )
    if shared := _server_uses(candidate, context):
        text += f", which also contains {', '.join(shared)}"
    return text


def _server_uses(candidate: ShrinkCandidate, context: ActionContext) -> list[str]:
    """Return what the server keeps on the same mount, from the newest frame."""
    if context.frame is None or candidate.mount is None:
        return []
    rows = context.frame.disks.mounts
    return [what for row in rows if row.path == candidate.mount.path for what in (row.holds or [])]


def advice(candidate: ShrinkCandidate) -> str | None:
    """Return a note to read before the confirmation; None: nothing special."""
    mount = candidate.mount
    if mount is not None and mount.fstype in ("xfs", "btrfs", "bcachefs") and shares_blocks(candidate.current_path):
        return (
            "it shares blocks with a copy (reflink) or a snapshot: the copy stays complete, and less space is freed "
            "than the size of the file"
        )
    return None


def remaining_text(candidate: ShrinkCandidate) -> str:
    """Return how much of the file remains, and what to do next."""
    try:
        left = os.stat(candidate.trash_path, follow_symlinks=False).st_size
    except OSError:
        return f"whether {printable(candidate.trash_path)} still exists is unknown"
    if left == candidate.size and not candidate.renamed:
        return f"{printable(candidate.trash_path)} is complete: it can be renamed back"
    return f"{human_bytes(left)} of {printable(candidate.trash_path)} are left: start the action again to continue"


def result_text(candidate: ShrinkCandidate, progress: TruncationProgress) -> str:
    """Describe the result."""
    text = (
        f"{printable(candidate.path)} was removed: {human_bytes(progress.freed)} freed in "
        f"{human_duration(progress.duration_s)} by {progress.cuts} cuts"
    )
    if progress.quiet_s is not None:
        text += (
            f"; a commit took at most {progress.worst_s * 1000:.1f} ms during a cut, "
            f"{progress.quiet_s * 1000:.1f} ms without"
        )
    return text


# Renaming the file: the suffix marks an unfinished deletion; it is renamed back as long as it is not truncated.


def rename_to_trash(candidate: ShrinkCandidate, fd: int) -> None:
    """Add the suffix, and sync the directory. Raises Refused if another file has its name now, OSError."""
    directory, name = os.path.split(candidate.path)
    _rename(directory, name, name + SUFFIX, os.fstat(fd))


def rename_back(path: str, identity: tuple[int, int], size: int) -> str | None:
    """Remove the suffix. Return why that is refused; None: done. Raises OSError."""
    trash = path + SUFFIX
    try:
        status = os.lstat(trash)
    except FileNotFoundError:
        return f"{printable(trash)} no longer exists"
    if (status.st_dev, status.st_ino) != identity:
        return f"{printable(trash)} is another file now"
    if status.st_size != size:
        return f"{printable(trash)} has been truncated: {status.st_size} of its {size} bytes are left"
    if os.path.lexists(path):
        return f"a new {printable(path)} exists"
    directory, name = os.path.split(path)
    _rename(directory, name + SUFFIX, name, status)
    return None


def unlink_trash(candidate: ShrinkCandidate, fd: int) -> None:
    """Remove the file, which is empty now. Raises Refused if another file has its name now, OSError."""
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
            raise Refused(f"{printable(f'{directory}/{new}')} already exists")
        os.rename(old, new, src_dir_fd=opened, dst_dir_fd=opened)
        os.fsync(opened)
    finally:
        os.close(opened)


def _open_directory(directory: str) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _require_same_file(directory: int, name: str, expected: os.stat_result) -> None:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (status.st_dev, status.st_ino) != (expected.st_dev, expected.st_ino):
        raise Refused(f"another file has the name {printable(name)} now: it is not touched")


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


PREVIEW_TIMEOUT_S = 30.0
"""Time for the file system to answer, and to read all of /proc."""


class ShrinkFileSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `shrink-file`."""

    path: str
    """Absolute path of the file, also if an earlier deletion of it was interrupted."""
    stage: Literal["all", "aside"] = "all"
    """aside: only rename it, which can be undone; all: rename it if not done yet, truncate it, remove it."""
    step: Size = "10MB"
    """Size of one cut."""
    commit_limit: Duration = "100ms"
    """A slower commit doubles the pauses between cuts, unless commits without a cut are slow too."""
    stopped_cluster: bool = False
    """The file may be in the data directory of a stopped server that was removed from service."""


class ShrinkFile(Action):
    name: ClassVar[str] = "shrink-file"
    summary: ClassVar[str] = (
        "Removes a big file without slowing down the database: renames it, truncates it from its end in small "
        "steps, slower while commits on that disk are slow, then removes it. If it was interrupted, it continues where "
        "it stopped."
    )
    Settings: ClassVar[type[Struct]] = ShrinkFileSettings
    needs_server: ClassVar[bool] = False
    undoable: ClassVar[bool] = True

    def preview(self, settings: ShrinkFileSettings, context: ActionContext) -> ActionPreview:
        """Returns what candidate.examine refuses as ActionPreview.refusal."""
        _parse_limits(settings)
        lane = Lane("shrink-file", context.clock)
        try:
            return lane.call(lambda: _preview(settings, context), PREVIEW_TIMEOUT_S)
        except LaneTimeout:
            text = f"the file system of {printable(settings.path)} does not answer"
            return ActionPreview(text=text, exact="", refusal=text, hint="the disks panel shows what is stalled")
        finally:
            lane.close()

    def act(
        self, settings: ShrinkFileSettings, preview: ActionPreview, context: ActionContext, control: Control
    ) -> ActionResult:
        """Raises Refused if it is not the file of the preview; errors of the file system give `failed`."""
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
        """Uses the files in the directory now."""
        row = preview.rows[0] if preview.rows else {}
        path = str(row.get("path", settings.path))
        identity, size = (row.get("device"), row.get("inode")), row.get("size_bytes")
        try:
            found = {name: status for name in (path, path + SUFFIX) if (status := _stat(name)) is not None}
        except OSError as error:
            return ActionResult(state="unknown", text=f"{printable(path)} cannot be read: {error.strerror}")
        ours = {name: status for name, status in found.items() if (status.st_dev, status.st_ino) == identity}
        if not ours:
            return ActionResult(state="ok", text=f"{printable(path)} was removed")
        name, status = next(iter(ours.items()))
        if name == path:
            return ActionResult(state="failed", text=f"{printable(path)} is unchanged: nothing was done", again=True)
        if status.st_size == size and settings.stage == "aside":
            return ActionResult(state="ok", text=f"renamed to {printable(name)}", undo=dict(row))
        if status.st_size == size:
            text = f"renamed to {printable(name)}, not truncated yet"
            return ActionResult(state="stopped", text=text, undo=dict(row), again=True)
        text = f"{status.st_size} of {size} bytes of {printable(name)} are left"
        return ActionResult(state="stopped", text=text, values={"left_bytes": status.st_size}, again=True)

    def undo(
        self, settings: ShrinkFileSettings, data: Mapping[str, Any], context: ActionContext, control: Control
    ) -> ActionResult:
        """Renames the file back, as long as it is not truncated."""
        path = str(data["path"])
        try:
            why = rename_back(path, (int(data["device"]), int(data["inode"])), int(data["size_bytes"]))
        except OSError as error:
            why = f"{printable(path + SUFFIX)} cannot be renamed: {error.strerror}"
        if why is not None:
            return ActionResult(state="failed", text=why)
        return ActionResult(state="ok", text=f"renamed back to {printable(path)}")


def _preview(settings: ShrinkFileSettings, context: ActionContext) -> ActionPreview:
    try:
        candidate = examine(settings.path, stopped_cluster=settings.stopped_cluster, proc=context.proc)
    except Refused as refused:
        return ActionPreview(text=refused.message, exact="", refusal=refused.message, hint=refused.hint)
    renaming = "" if candidate.renamed else f"rename {printable(candidate.path)} to {printable(candidate.trash_path)}"
    cutting = f"truncate {printable(candidate.trash_path)} from its end to 0, step by step, and unlink it"
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
    """Return what identifies the file under any name: shown, recorded with the intent, and used by the undo."""
    return {
        "path": candidate.path,
        "device": candidate.device,
        "inode": candidate.inode,
        "size_bytes": candidate.size,
        "changed_ns": candidate.changed_ns,
    }


def _require_unchanged(settings: ShrinkFileSettings, preview: ActionPreview, context: ActionContext) -> ShrinkCandidate:
    """Examine the file of `preview` again. Raises Refused if it is another one or has changed."""
    candidate = examine(settings.path, stopped_cluster=settings.stopped_cluster, proc=context.proc)
    if not preview.rows or dict(preview.rows[0]) != _file_identity(candidate):
        raise Refused(
            f"{printable(candidate.current_path)} has changed since the preview",
            hint="preview again: another file may have its name, or a process still writes to it",
        )
    return candidate


def _parse_limits(settings: ShrinkFileSettings) -> tuple[int, float]:
    """Return step and commit limit. Raises UsageError if a setting is not a size or a duration."""
    return max(MIB, parse_size(settings.step)), parse_duration(settings.commit_limit)


def _truncate(
    settings: ShrinkFileSettings, candidate: ShrinkCandidate, fd: int, context: ActionContext, control: Control
) -> ActionResult:
    directory = os.path.dirname(candidate.trash_path)
    probe = DiskProbe(directory, context.connection)
    step, commit_limit_s = _parse_limits(settings)
    try:
        truncation = StepwiseTruncation(
            fd, probe, control, step=step, commit_limit_s=commit_limit_s,
            flags=lambda: _find_flag_file(candidate.trash_path),
        )  # fmt: skip
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
    """Check before the first cut whether a process is opening the file; then drop the lease, so that none waits."""
    wanted = lease_break_requested(fd)
    drop_lease(fd)
    return "a process is opening the file" if wanted else ""


def _find_flag_file(trash: str) -> str:
    """Return `stop PATH` or `pause PATH` if such a flag file exists beside the file being truncated."""
    for word in ("stop", "pause"):
        if os.path.lexists(f"{trash}.{word}"):
            return f"{word} {printable(trash)}.{word}"
    return ""


def _result_values(progress: TruncationProgress, candidate: ShrinkCandidate, probe: DiskProbe) -> dict[str, Any]:
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
        return int(psutil.disk_usage(os.path.dirname(candidate.path)).free)
    except OSError:
        return None


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
