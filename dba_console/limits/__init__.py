"""The figures rules conclude by, declared once: `[findings.FAMILY]` in the configuration.

Plain numbers with their unit in the name. Where each default comes from stands at the rule that uses it, and in
docs/findings.md. Nothing here knows of any room.
"""

from __future__ import annotations

from msgspec import Struct, field

from dba_console.limits.cluster import ClusterLimits
from dba_console.limits.connections import ConnectionLimits
from dba_console.limits.console import ConsoleLimits
from dba_console.limits.disks import DiskLimits
from dba_console.limits.io import IoLimits
from dba_console.limits.jobs import JobLimits
from dba_console.limits.locks import LockLimits
from dba_console.limits.memory import MemoryLimits
from dba_console.limits.safety import SafetyLimits
from dba_console.limits.server import ServerLimits
from dba_console.limits.wal import WalLimits


class Limits(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Every figure, by family. `off` names rules that are not asked at all."""

    off: list[str] = []
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    locks: LockLimits = field(default_factory=LockLimits)
    io: IoLimits = field(default_factory=IoLimits)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    safety: SafetyLimits = field(default_factory=SafetyLimits)
    jobs: JobLimits = field(default_factory=JobLimits)
    wal: WalLimits = field(default_factory=WalLimits)
    disks: DiskLimits = field(default_factory=DiskLimits)
    server: ServerLimits = field(default_factory=ServerLimits)
    cluster: ClusterLimits = field(default_factory=ClusterLimits)
    console: ConsoleLimits = field(default_factory=ConsoleLimits)
