"""What is said of a file that is to go, of its disk, and of how it went."""

from __future__ import annotations

import os

from dba_console.actions.action import World
from dba_console.actions.shrink.candidate import Candidate
from dba_console.actions.shrink.cutting import Progress
from dba_console.actions.shrink.shared import shares_blocks
from dba_console.probes.host.files import readable
from dba_console.units import human_bytes, human_duration

DAY_S = 86400


def sight_text(candidate: Candidate, world: World) -> str:
    """What it is, where it lies, and who else is there."""
    age = human_duration((world.clock.wall_us() - candidate.changed_ns // 1000) / 1e6)
    text = f"{readable(candidate.now)}: {human_bytes(candidate.size)}, last changed {age} ago"
    if candidate.allocated < candidate.size * 0.95:
        text += f", of which {human_bytes(candidate.allocated)} are on the disk (it has holes)"
    if candidate.aside:
        text += "; an earlier deletion was begun and is gone on with"
    mount = candidate.mount
    if mount is None:
        return text
    text += (
        f"; on {readable(mount.path)} ({mount.fstype}{', discard' if 'discard' in mount.options.split(',') else ''})"
    )
    if shared := _shared_with(candidate, world):
        text += f", which also holds {', '.join(shared)}"
    return text


def _shared_with(candidate: Candidate, world: World) -> list[str]:
    """What the server keeps on the same mount, as the newest frame has it."""
    if world.frame is None or candidate.mount is None:
        return []
    rows = world.frame.disks.mounts
    return [what for row in rows if row.path == candidate.mount.path for what in (row.holds or [])]


def advice(candidate: Candidate) -> str | None:
    """What one should know before saying yes; None where there is nothing special."""
    mount = candidate.mount
    if mount is not None and mount.fstype in ("xfs", "btrfs", "bcachefs") and shares_blocks(candidate.now):
        return (
            "blocks of it are shared with a copy (reflink) or a snapshot: these stay whole, and less space is freed "
            "than its size says"
        )
    return None


def rest_text(candidate: Candidate) -> str:
    """How much of it is still there, and what to do with that."""
    try:
        left = os.stat(candidate.trash, follow_symlinks=False).st_size
    except OSError:
        return f"whether {readable(candidate.trash)} is still there cannot be told"
    if left == candidate.size and not candidate.aside:
        return f"{readable(candidate.trash)} is whole: it can have its name back"
    return f"{human_bytes(left)} of {readable(candidate.trash)} are left: begin again to go on"


def after_text(candidate: Candidate, progress: Progress) -> str:
    """How it went."""
    text = (
        f"{readable(candidate.path)} is gone: {human_bytes(progress.freed)} freed in "
        f"{human_duration(progress.lasted_s)} by {progress.cuts} cuts"
    )
    if progress.quiet_s is not None:
        text += (
            f"; a commit took {progress.worst_s * 1000:.1f} ms at worst beside one, "
            f"{progress.quiet_s * 1000:.1f} ms without"
        )
    return text
