"""Files of a node on this host, read and replaced without a process: clients wait while a cutover does it.

Root acts for another account only on what belongs to that account: a link that the account put there leads root nowhere
it may not go itself.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress

from dba_console.errors import ConsoleError, Unsupported

LONGEST_FILE = 4 * 1024 * 1024


class NotOwnedByUser(Exception):
    """The file or its directory is a link or another account's: a process of the account itself has to try."""


def read_file(path: str, user: str | None) -> bytes | None:
    """The content, None where there is no such file. `user` None: as we are. Raises ConsoleError, NotTheirs."""
    try:
        # O_PATH opens nothing yet: to open a device is to act on it, as on /dev/watchdog, and a pipe keeps us waiting.
        path_descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            status = os.fstat(path_descriptor)
            if user is not None and status.st_uid != _account(user).pw_uid:
                raise NotOwnedByUser
            if not stat.S_ISREG(status.st_mode):
                what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a file"
                raise ConsoleError(f"cannot read {path} on this host: it is {what}")
            with open(
                os.open(f"/proc/self/fd/{path_descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
            ) as file:
                data = file.read(LONGEST_FILE + 1)
        finally:
            os.close(path_descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConsoleError(f"cannot read {path} on this host: {error.strerror}") from error
    if len(data) > LONGEST_FILE:
        raise Unsupported(f"{path} on this host is larger than {LONGEST_FILE} bytes")
    return data


def write_file(path: str, data: bytes, user: str | None, mode: int) -> None:
    """Replace the content, synced; owner and mode of an existing file stay. Raises as `read_file`."""
    directory, name = os.path.split(path)
    try:
        directory_descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _replace(directory_descriptor, name, data, None if user is None else _account(user), mode)
            os.fsync(directory_descriptor)
        finally:
            os.close(directory_descriptor)
    except OSError as error:
        raise ConsoleError(f"cannot write {path} on this host: {error.strerror}") from error


def _replace(directory_descriptor: int, name: str, data: bytes, owner: pwd.struct_passwd | None, mode: int) -> None:
    uid, gid = (os.geteuid(), os.getegid()) if owner is None else (owner.pw_uid, owner.pw_gid)
    with suppress(FileNotFoundError):
        existing = os.stat(name, dir_fd=directory_descriptor, follow_symlinks=False)
        if not stat.S_ISREG(existing.st_mode) or (owner is not None and existing.st_uid != uid):
            raise NotOwnedByUser
        uid, gid, mode = existing.st_uid, existing.st_gid, existing.st_mode & 0o777
    if owner is not None and os.fstat(directory_descriptor).st_uid != owner.pw_uid:
        raise NotOwnedByUser
    new = f"{name}.dba-console-new"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory_descriptor)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(new, flags, 0o600, dir_fd=directory_descriptor), "wb") as file:
            file.write(data)
            file.flush()
            os.fchown(file.fileno(), uid, gid)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(new, name, src_dir_fd=directory_descriptor, dst_dir_fd=directory_descriptor)
    except OSError:
        with suppress(OSError):
            os.unlink(new, dir_fd=directory_descriptor)
        raise


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError as error:
        raise ConsoleError(f"this host has no account {user}") from error
