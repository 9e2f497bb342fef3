"""An installation the server's user can reach.

A virtual environment below /root, or in any directory others may not enter, hides the server's programs from the
unprivileged user that must run them. Root then keeps one copy where everybody may read and only root may write.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from dba_console.errors import PermissionDenied

CACHE = Path("/var/cache/dba-console")


def is_readable_by_all(path: Path) -> bool:
    """True when users other than the owner may enter every directory above `path` and read it."""
    try:
        if not path.stat().st_mode & stat.S_IROTH:
            return False
        return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.resolve().parents)
    except OSError:
        return False


def readable_copy(directory: Path, cache: Path = CACHE) -> Path:
    """`directory` (an installation's bin), or the bin of a copy of that installation when others cannot reach it.

    The copy is made once per installation: named after its path, size and time, renamed into place when whole.
    Raises PermissionDenied when no copy can be made.
    """
    server = directory / "postgres"
    if not server.exists() or is_readable_by_all(server):
        return directory
    root = directory.parent
    copy = cache / _copy_name(server)
    inside = Path(root.parent.name) / root.name / directory.name
    if (copy / inside / "postgres").exists():
        return copy / inside
    try:
        _make_copy(root, copy)
    except OSError as error:
        raise PermissionDenied(
            f"the server's programs in {directory} cannot be read by its user, nor copied to {cache}: {error.strerror}",
            hint="run this as an ordinary user, or install where others may read",
        ) from error
    return copy / inside


def _make_copy(root: Path, copy: Path) -> None:
    copy.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    copy.parent.chmod(0o755)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=copy.parent))
    try:
        shutil.copytree(root, scratch / root.parent.name / root.name, symlinks=True)
        # A repaired wheel keeps the libraries it brings along beside the package: NAME.libs, found by relative path.
        libraries = root.parent.with_name(root.parent.name + ".libs")
        if libraries.is_dir():
            shutil.copytree(libraries, scratch / libraries.name, symlinks=True)
        make_readable(scratch)
        try:
            scratch.rename(copy)
        except OSError:
            if not copy.is_dir():  # else another process was first, and its copy is as good
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_readable(tree: Path) -> None:
    """Let everybody read a tree, and run what its owner may run."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            executable = 0o111 if path.is_dir() or mode & stat.S_IXUSR else 0
            path.chmod(0o644 | executable)


def _copy_name(server: Path) -> str:
    status = os.stat(server)
    identity = f"{server.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
    return "postgresql-" + hashlib.sha256(identity.encode()).hexdigest()[:12]
