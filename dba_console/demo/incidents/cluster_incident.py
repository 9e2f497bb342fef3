"""Incidents of the practice cluster: each is a real condition that must block a cutover."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dba_console.demo.practice_cluster import PracticeCluster


class ClusterIncident:
    """One incident, for one run of the demo. At its start the primary is db1 and the target of the cutover db2."""

    name: ClassVar[str]
    title: ClassVar[str]
    """One clause for a list and for the message that it begins."""
    check: ClassVar[str]
    """The check of `cluster check` that it fails."""
    needs_pooler: ClassVar[bool] = False
    within_s: ClassVar[float] = 5.0
    """The check fails at most this many seconds after `cause` returned."""

    def cause(self, ground: PracticeCluster) -> None:
        """Cause the incident; returns when the cause is present. Called from the main thread."""
        raise NotImplementedError

    def end(self, ground: PracticeCluster) -> None:
        """Undo it as far as it was caused."""
        raise NotImplementedError
