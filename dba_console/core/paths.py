"""Directories of the console (sessions, sockets, configuration, crash reports), and whether a path can be trusted.

Directories are created with mode 0700. An existing directory is used as it is if it belongs to the caller and nobody
else can write to it, else refused, because a socket in a shared directory could be another user's. Modes are never
changed: others may need the directory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from dba_console.core.errors import ConfigError, PermissionDenied
from dba_console.core.users import user_name

# Trust checks: whether only root or this user can have written what is at a path, as sudo and ssh check it.
#
# Files that others can write are not used as configuration, runbooks or recordings: they could make the console execute
# commands with this user's rights.


class TrustProblem(NamedTuple):
    """Why another user may have written a path."""

    text: str
    fix: str
    """The command that prevents it."""


def trust_problem(path: str | Path) -> TrustProblem | None:
    """Return why others can replace what is at `path`: by writing it, or a directory above it. None if they cannot, or
    nothing exists.

    A directory above with the sticky bit is accepted: only owners may rename its entries.
    """
    place, above = os.path.realpath(path), False
    while True:
        try:
            found = os.stat(place)
        except OSError:
            found = None
        if found is not None and (why := _directory_problem(place, found, allow_sticky=above)) is not None:
            return why
        if place == "/":
            return None
        place, above = os.path.dirname(place), True


def ownership_problem(directory: Path) -> TrustProblem | None:
    """Return why the contents of the existing `directory` may be another user's: it does not belong to this user, or
    `trust_problem`.

    Stricter than `trust_problem` for the directory itself: it must not be root's, nor group-writable.
    """
    found = os.lstat(directory)  # a link is checked itself, not its target
    if found.st_uid != os.geteuid():
        fix = f"chown {user_name(os.geteuid())} {directory}"
        return TrustProblem(f"{directory} belongs to {user_name(found.st_uid)}, not to {user_name(os.geteuid())}", fix)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return TrustProblem(f"others may write into {directory}", f"chmod go-w {directory}")
    return trust_problem(directory)


def _directory_problem(place: str, found: os.stat_result, *, allow_sticky: bool) -> TrustProblem | None:
    if found.st_uid not in (0, os.geteuid()):
        owner = user_name(os.geteuid())
        return TrustProblem(f"{place} belongs to {user_name(found.st_uid)}", f"chown {owner} {place}")
    by_group = bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in (0, os.getegid())
    by_all = bool(found.st_mode & stat.S_IWOTH)
    if not (by_group or by_all) or (allow_sticky and found.st_mode & stat.S_ISVTX):
        return None
    mode = stat.S_IMODE(found.st_mode)
    return TrustProblem(f"others may write {place} (mode {mode:04o})", f"chmod {'go' if by_all else 'g'}-w {place}")


SOCKET_PATH_LIMIT = 107
"""Maximum bytes of a unix socket path (sizeof sun_path - 1, unix(7))."""


def _home() -> Path:
    return Path(os.environ.get("HOME") or os.path.expanduser("~"))


def sessions_dir() -> Path:
    """Return the sessions directory: $DBA_CONSOLE_SESSIONS, else /var/lib for root, else the XDG state home."""
    if explicit := os.environ.get("DBA_CONSOLE_SESSIONS"):
        return Path(explicit).absolute()
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "dba-console" / "sessions"
    if os.geteuid() == 0:
        return Path("/var/lib/dba-console/sessions")
    return _home() / ".local/state/dba-console/sessions"


def state_dir() -> Path:
    """Return the directory of crash reports and logs of the console: next to the default sessions directory."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "dba-console"
    return Path("/var/lib/dba-console") if os.geteuid() == 0 else _home() / ".local/state/dba-console"


def config_file() -> Path:
    """Return the configuration file: $DBA_CONSOLE_CONFIG, else config.toml in the XDG configuration home."""
    if explicit := os.environ.get("DBA_CONSOLE_CONFIG"):
        return Path(explicit)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home() / ".config") / "dba-console" / "config.toml"


def runtime_dir() -> Path:
    """Return the directory of agents' sockets and locks: memory-backed, per user, removed at reboot."""
    if explicit := os.environ.get("DBA_CONSOLE_RUNTIME"):
        return Path(explicit).absolute()
    if os.geteuid() == 0:
        return Path("/run/dba-console")
    if (base := os.environ.get("XDG_RUNTIME_DIR")) and os.path.isdir(base):
        return Path(base) / "dba-console"
    return Path(f"/tmp/dba-console-{os.geteuid()}")


def private_dir(path: Path) -> Path:
    """Create `path` with mode 0700 if missing, and return it.

    Raises PermissionDenied if it belongs to another user or others may write to it, ConfigError if it is a link or not
    a directory.
    """
    try:
        _make_directories(path)
        status = os.lstat(path)
    except OSError as error:
        raise PermissionDenied(
            f"cannot create the directory {path}: {error.strerror}",
            hint="name a directory you may write to, for instance with $DBA_CONSOLE_SESSIONS",
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is not a directory")
    if (why := ownership_problem(path)) is not None:
        raise PermissionDenied(
            f"{why.text}, so its contents may be theirs", hint=f"`{why.fix}`, or name another directory"
        )
    return path


def _make_directories(path: Path) -> None:
    """Create `path` and its missing parents, all with mode 0700 whatever the umask."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        try:
            os.mkdir(missing, 0o700)
        except FileExistsError:
            pass  # created by another process meanwhile, or a dangling link, which is refused later
