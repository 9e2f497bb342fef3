"""Whether a session is being written: a lock held by its writer, never a column that a crash leaves behind."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from dba_console.errors import SessionError
from dba_console.session.layout import LOCK


class SessionLock:
    """An exclusive flock(2) on `session.lock`; the kernel lets go of it when its holder dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        """Raises SessionError where another process holds it or it cannot be made."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(directory / LOCK, flags, 0o600)
        except OSError as error:
            raise SessionError(f"cannot lock the session {directory.name}: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise SessionError(f"another process writes the session {directory.name}") from error

    def release(self) -> None:
        """Let go. Calling it again does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_live(directory: Path) -> bool:
    """True while a process holds the session's lock."""
    return is_held(directory / LOCK)


def is_held(lock: Path) -> bool:
    """True while a process holds this lock exclusively; False where there is no such file."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
