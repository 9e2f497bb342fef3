"""Where things lie: sessions, sockets, configuration, crash reports.

Directories made here are 0700 and belong to the caller; one found in their place is taken as it is if nobody else can
write into it, else refused, because a socket in a shared directory could be somebody else's. No mode is ever changed:
the directory may be one that others need.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from dba_console.core.errors import ConfigError, PermissionDenied

# Whether what lies at a path can only have been put there by root or by this user: as sudo and ssh ask it.
#
# What others may write is not configuration, no runbook and no recording of ours: it may say what they want to have
# done with our rights.


class TrustProblem(NamedTuple):
    """Why somebody else may have written what lies there."""

    text: str
    fix: str
    """The command after which they cannot."""


def trust_problem(path: str | Path) -> TrustProblem | None:
    """Why others can replace what lies at `path`: by writing it, or a directory above it. None: they cannot, or there
    is nothing.

    A directory above with the sticky bit is good: what is in there, only its owner may rename.
    """
    place, above = os.path.realpath(path), False
    while True:
        try:
            found = os.stat(place)
        except OSError:
            found = None
        if found is not None and (why := _directory_problem(place, found, sticky_will_do=above)) is not None:
            return why
        if place == "/":
            return None
        place, above = os.path.dirname(place), True


def ownership_problem(directory: Path) -> TrustProblem | None:
    """Why what lies in `directory`, which is there, may be somebody else's: it is not this user's own, or
    `trust_problem`.

    Stricter than `trust_problem` for the directory itself: neither root's nor one that any group may write will do.
    """
    found = os.lstat(directory)  # a link in its place is judged itself: whose it is, not where it leads
    if found.st_uid != os.geteuid():
        fix = f"chown {_user_name(os.geteuid())} {directory}"
        return TrustProblem(
            f"{directory} belongs to {_user_name(found.st_uid)}, not to {_user_name(os.geteuid())}", fix
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return TrustProblem(f"others may write into {directory}", f"chmod go-w {directory}")
    return trust_problem(directory)


def _directory_problem(place: str, found: os.stat_result, *, sticky_will_do: bool) -> TrustProblem | None:
    if found.st_uid not in (0, os.geteuid()):
        owner = _user_name(os.geteuid())
        return TrustProblem(f"{place} belongs to {_user_name(found.st_uid)}", f"chown {owner} {place}")
    by_group = bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in (0, os.getegid())
    by_all = bool(found.st_mode & stat.S_IWOTH)
    if not (by_group or by_all) or (sticky_will_do and found.st_mode & stat.S_ISVTX):
        return None
    mode = stat.S_IMODE(found.st_mode)
    return TrustProblem(f"others may write {place} (mode {mode:04o})", f"chmod {'go' if by_all else 'g'}-w {place}")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


SOCKET_PATH_LIMIT = 107
"""Bytes a unix socket path may have (sizeof sun_path - 1, unix(7))."""


def _home() -> Path:
    return Path(os.environ.get("HOME") or os.path.expanduser("~"))


def sessions_dir() -> Path:
    """The default directory of sessions: $DBA_CONSOLE_SESSIONS, else /var/lib for root, else the XDG state home."""
    if explicit := os.environ.get("DBA_CONSOLE_SESSIONS"):
        return Path(explicit).absolute()
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "dba-console" / "sessions"
    if os.geteuid() == 0:
        return Path("/var/lib/dba-console/sessions")
    return _home() / ".local/state/dba-console/sessions"


def state_dir() -> Path:
    """Where crash reports and logs of the console itself go: beside the default sessions directory."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "dba-console"
    return Path("/var/lib/dba-console") if os.geteuid() == 0 else _home() / ".local/state/dba-console"


def config_file() -> Path:
    """The configuration file: $DBA_CONSOLE_CONFIG, else config.toml in the XDG configuration home."""
    if explicit := os.environ.get("DBA_CONSOLE_CONFIG"):
        return Path(explicit)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home() / ".config") / "dba-console" / "config.toml"


def runtime_dir() -> Path:
    """Where sockets and locks of agents live: memory-backed, per user, gone at reboot."""
    if explicit := os.environ.get("DBA_CONSOLE_RUNTIME"):
        return Path(explicit).absolute()
    if os.geteuid() == 0:
        return Path("/run/dba-console")
    if (base := os.environ.get("XDG_RUNTIME_DIR")) and os.path.isdir(base):
        return Path(base) / "dba-console"
    return Path(f"/tmp/dba-console-{os.geteuid()}")


def private_dir(path: Path) -> Path:
    """`path`, made 0700 where it is missing.

    Raises PermissionDenied where it is another user's or others may write into it, ConfigError where it is a link or no
    directory at all.
    """
    try:
        _make_directories(path)
        status = os.lstat(path)
    except OSError as error:
        raise PermissionDenied(
            f"cannot make the directory {path}: {error.strerror}",
            hint="name a directory you may write to, for instance with $DBA_CONSOLE_SESSIONS",
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is not a directory")
    if (why := ownership_problem(path)) is not None:
        raise PermissionDenied(
            f"{why.text}, so what lies there may be theirs", hint=f"`{why.fix}`, or name another directory"
        )
    return path


def _make_directories(path: Path) -> None:
    """Make `path` and what is missing above it, all of it 0700 whatever the umask allows others."""
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        try:
            os.mkdir(missing, 0o700)
        except FileExistsError:
            pass  # made by another process meanwhile, or a link to nowhere, which is refused after this
