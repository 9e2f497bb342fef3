"""What is said of a file that is to go, of its disk, and of how it went."""

from __future__ import annotations

import os

from dba_console.actions.action import ActionContext
from dba_console.actions.shrink.candidate import ShrinkCandidate
from dba_console.actions.shrink.reflinks import shares_blocks
from dba_console.actions.shrink.stepwise_truncate import TruncationProgress
from dba_console.probes.host.kernel_files import printable
from dba_console.units import human_bytes, human_duration

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
