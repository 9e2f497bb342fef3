"""Where things lie: sessions, sockets, configuration, crash reports.

Directories made here are 0700 and belong to the caller; anything else found in their place is refused, because a
session holds query text and a socket in a shared directory could be somebody else's.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dba_console.errors import ConfigError, PermissionDenied

SOCKET_PATH_LIMIT = 107
"""Bytes a unix socket path may have (sizeof sun_path - 1, unix(7))."""


def _home() -> Path:
    return Path(os.environ.get("HOME") or os.path.expanduser("~"))


def sessions_dir() -> Path:
    """The default directory of sessions: $DBA_CONSOLE_SESSIONS, else /var/lib for root, else the XDG state home."""
    if explicit := os.environ.get("DBA_CONSOLE_SESSIONS"):
        return Path(explicit)
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
        return Path(explicit)
    if os.geteuid() == 0:
        return Path("/run/dba-console")
    if (base := os.environ.get("XDG_RUNTIME_DIR")) and os.path.isdir(base):
        return Path(base) / "dba-console"
    return Path(f"/tmp/dba-console-{os.geteuid()}")


def private_dir(path: Path) -> Path:
    """Make `path` as a 0700 directory of this user, or raise PermissionDenied saying why it cannot be trusted."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(path)
    except OSError as error:
        raise PermissionDenied(
            f"cannot make the directory {path}: {error.strerror}",
            hint="name a directory you may write to, for instance with $DBA_CONSOLE_SESSIONS",
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path} is not a directory")
    if status.st_uid != os.geteuid():
        raise PermissionDenied(
            f"{path} belongs to uid {status.st_uid}, not to you (uid {os.geteuid()})",
            hint="remove it, or name another directory",
        )
    if status.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path
