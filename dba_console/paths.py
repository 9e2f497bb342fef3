"""Where things lie: sessions, sockets, configuration, crash reports.

Directories made here are 0700 and belong to the caller; one found in their place is taken as it is if nobody else can
write into it, else refused, because a socket in a shared directory could be somebody else's. No mode is ever changed:
the directory may be one that others need.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dba_console.errors import ConfigError, PermissionDenied
from dba_console.path_trust import ownership_problem

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
