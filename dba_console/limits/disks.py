"""Figures of the findings about disks."""

from __future__ import annotations

from msgspec import Struct


class DiskLimits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """`[findings.disks]`."""

    full_warning_pct: float = 80.0
    """Used share of a file system, as df says it."""
    full_critical_pct: float = 90.0
    """The same, where data, WAL, temporary files or a tablespace lie."""
    full_beside_critical_pct: float = 95.0
    """The same, where only archive, log or the like lie."""
    roomy_bytes: float = 50 * 1024.0**3
    """With so much left and no date of its end, a used share weighs one degree less."""
    full_in_warning_s: float = 86_400.0
    """Full within this time at a growth steady for minutes: a warning."""
    full_in_critical_s: float = 3600.0
    """The same, and a sixth of what was free has been used up while it was watched: critical."""
    soon_s: float = 300.0
    """Full within this time at the growth of ten seconds, which may end as fast: a warning."""
    inodes_warning_pct: float = 80.0
    """Used share of the inodes."""
    inodes_critical_pct: float = 95.0
    """The same, where data, WAL, temporary files or a tablespace lie."""
    temp_bytes: float = 1024.0**3
    """Temporary files on a disk that they fill within full_in_warning_s, or of which nothing is known: a warning."""
    temp_free_pct: float = 20.0
    """Temporary files as a share of what would be free without them."""
    temp_bytes_per_s: float = 50 * 1024.0**2
    """Written into temporary files, where the disk takes that for temp_full_in_critical_s at most: a warning."""
    temp_full_in_critical_s: float = 600.0
    """Full within this time at the growth of the temporary files, and temp_free_pct taken: critical."""
