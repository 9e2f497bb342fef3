"""Damage: what a reader finds where a recording should be. Always a SessionError, never a traceback."""

from __future__ import annotations

from dba_console.errors import SessionError


class Damaged(SessionError):
    """A piece of a recording that cannot be read: cut short, overwritten, or not what its checksum says."""
