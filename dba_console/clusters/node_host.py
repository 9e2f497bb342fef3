"""Run commands and access files on a node's host, local or over ssh; and the operator's commands of a cutover.

Uses the operator's ssh configuration. One connection per host is kept for a minute and shared (ControlMaster), so that
a command needs no login. Data goes over standard input, never into arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import pwd
import re
import shlex
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dba_console.clusters import host_scripts
from dba_console.core.clock import Clock
from dba_console.core.config import COMMAND_PLACEHOLDERS, CommandConfig
from dba_console.core.errors import ConfigError, ConnectError, ConsoleError, ExitCode, PermissionDenied, Unsupported
from dba_console.core.paths import SOCKET_PATH_LIMIT, private_dir, runtime_dir
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.core.short_command import OUTPUT_LIMIT, CommandResult, run_short
from dba_console.core.users import default_user

# Local files, read and replaced without a process, because clients wait for it during a cutover.
#
# Root acts for another account only on files of that account: so a link placed by the account gives it no access that
# it does not have itself.

LONGEST_FILE = 4 * 1024 * 1024


class NotOwnedByUser(Exception):
    """The file or its directory is a link or belongs to another account: a process of the account itself must try."""


def read_file(path: str, user: str | None) -> bytes | None:
    """Return the content; None: no such file. `user` None: our own account. Raises ConsoleError, NotOwnedByUser."""
    try:
        # O_PATH does not open it yet: opening a device can have effects, as with /dev/watchdog, and a pipe would block.
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
    """Replace the content, synced; keep owner and mode of an existing file. Raises as `read_file`."""
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


CONNECT_S = 5
LOGIN_S = 30.0
_MAX_CONNECT_OUTPUT = 1 << 20
"""Maximum bytes that a host may print while the connection is opened; written to a file."""
KEEP_OPEN = "60s"
"""How long an unused connection stays open, so that the next step of a cutover needs no login."""
_INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "KRB5CCNAME",
)  # fmt: skip
_MESSAGE_LOCALE = {"LC_MESSAGES": "C"}
"""Not LC_ALL: a started server keeps its environment."""
_SBIN = ":/usr/sbin:/sbin"
"""Directories of runuser and pg_ctlcluster's helpers; PATH of a command over ssh often lacks them."""
_NOT_CONNECTED = "dba-console: the shared connection is gone"
_OPTIONS = (
    "-T", "-a", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=2", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "LogLevel=ERROR",
)  # fmt: skip
_CONNECT = ("-o", "ControlMaster=auto", "-o", f"ControlPersist={KEEP_OPEN}")
_SHARE = ("-o", "ControlMaster=no", "-o", f"ProxyCommand=sh -c 'echo {_NOT_CONNECTED} >&2; exit 1'")
"""Only through the shared connection: so a lost connection is known to have interrupted a running command."""
_NAME = re.compile(r"(?:[\w.+-]+@)?[\w.:%\[\]][\w.:%\[\]-]*")
_KILLED = 137
_CONNECTION_CUT = re.compile("reset by|closed by|Broken pipe")
"""ssh's messages for a connection cut after it was opened: retried, as the network may have lost only that one."""
_RETRY_S = 0.2
_SSH_GRACE_S = 3.0
"""Time of ssh beyond the command's own timeout, to report that it was killed."""


class HostConnectionLost(ConsoleError):
    """The connection broke, or the timeout expired, while a command ran: its outcome is unknown."""

    code = ExitCode.CONNECT


class Host:
    """A host and our account there. Its connection is shared with other processes, and closes when unused. Not
    thread-safe."""

    def __init__(self, ssh: str | None, clock: Clock) -> None:
        if ssh is not None and not _NAME.fullmatch(ssh):
            raise ConfigError(f"ssh = {ssh!r} is not a host name", hint="use a name of the ssh configuration")
        self.ssh, self.name, self._clock = ssh, ssh or "this host", clock
        self._account: str | None = None
        self._is_connected = False

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str | None = None,
        data: bytes = b"",
        timeout_s: float = 10.0,
        repeatable: bool = False,
        limit: int = OUTPUT_LIMIT,
    ) -> CommandResult:
        """Run a command to its end, in / and as `user` (None: our account). `code` None: it did not end in time, and
        was killed if possible. `limit`: bytes kept of its output.

        Raises ConnectError if the host cannot be reached (nothing ran), HostConnectionLost if the connection broke
        later, PermissionDenied if the account may not become `user`. A `repeatable` command is run up to twice more if
        the connection broke.
        """
        return self._run(argv, user, data, timeout_s, limit, repeatable)

    def command(self, argv: Sequence[str], *, user: str | None = None) -> list[str]:
        """Return what `run` executes on the host: `argv` after a command that changes the user. May connect."""
        if user is None or user == (account := self.account()):
            return list(argv)
        if account == "root":
            return ["runuser", "-u", user, "--", *argv]
        return ["sudo", "-n", "-u", user, "--", *argv]

    def account(self) -> str:
        """Return the name of our account there."""
        if self._account is None:
            if self.ssh is None:
                self._account = default_user()
            else:
                ended = self.run(["id", "-un"], timeout_s=CONNECT_S, repeatable=True)
                if ended.code != 0 or not (name := last_word(ended)):
                    raise ConnectError(f"{self.name} does not run commands for this account: {last_line(ended)}")
                self._account = name
        return self._account

    def read(self, path: str, *, user: str | None = None) -> bytes | None:
        """Return the content of a file; None: no such file. Raises ConsoleError."""
        with suppress(NotOwnedByUser):
            if self._can_open_files(user):
                return read_file(path, None if user == self.account() else user)
        ended = self._run(["sh", "-c", host_scripts.READ, "sh", path], user, b"", 10.0, LONGEST_FILE, True)
        if ended.code is None:
            raise HostConnectionLost(f"reading {path} on {self.name} took longer than 10 s")
        if ended.code != 0:
            if "No such file" in ended.errors:
                return None
            raise ConsoleError(f"cannot read {path} on {self.name}: {last_line(ended)}")
        if len(ended.output) >= LONGEST_FILE:
            raise Unsupported(f"{path} on {self.name} is larger than {LONGEST_FILE // 4 * 3} bytes")
        try:
            return base64.b64decode("".join(ended.output.rpartition(host_scripts.CONTENT)[2].split()), validate=True)
        except binascii.Error as error:
            raise ConsoleError(f"cannot read {path} on {self.name}: {error}") from error

    def write(self, path: str, data: bytes, *, user: str | None = None, mode: int = 0o600) -> None:
        """Replace the content of a file atomically, synced; keep owner and mode of an existing file.

        Raises ConsoleError if the file is unchanged, HostConnectionLost if that is unknown.
        """
        with suppress(NotOwnedByUser):
            if self._can_open_files(user):
                write_file(path, data, None if user == self.account() else user, mode)
                return
        self._change("write", path, [host_scripts.WRITE, "sh", path, str(len(data)), f"{mode:o}"], user, data)

    def remove(self, path: str, *, user: str | None = None) -> None:
        """Remove a file; a missing one is not an error. Raises as `write`."""
        self._change("remove", path, [host_scripts.REMOVE, "sh", path], user, b"")

    # -- internals -----------------------------------------------------------------------------------------------

    def _can_open_files(self, user: str | None) -> bool:
        return self.ssh is None and (user in (None, self.account()) or self.account() == "root")

    def _change(self, verb: str, path: str, script: list[str], user: str | None, data: bytes) -> None:
        ended = self._run(["sh", "-c", *script], user, data, 30.0, 64 * 1024, True)
        if ended.code is None:
            raise HostConnectionLost(
                f"cannot {verb} {path} on {self.name} within 30 s", hint="it may have changed meanwhile"
            )
        if ended.code != 0:
            raise ConsoleError(f"cannot {verb} {path} on {self.name}: {last_line(ended)}")

    def _run(
        self, argv: Sequence[str], user: str | None, data: bytes, timeout_s: float, limit: int, repeatable: bool
    ) -> CommandResult:
        command = self.command(argv, user=user)
        if self.ssh is not None:
            for tries_left in (2, 1, 0) if repeatable else (0,):
                try:
                    ended = self._run_over_ssh(self.ssh, command, data, timeout_s, limit)
                    break
                except HostConnectionLost:
                    if not tries_left:
                        raise
        else:
            env = {**_environment(), **_MESSAGE_LOCALE}
            env["PATH"] += _SBIN
            try:
                ended = run_short(command, env, timeout_s, self._clock, data, limit)
            except OSError as error:
                ended = CommandResult(127, "", f"{command[0]}: {error.strerror}", 0.0)
        if command[0] == "sudo" and argv[0] != "sudo":
            self._check_sudo(ended, argv, user or "")
        return ended

    def _check_sudo(self, ended: CommandResult, argv: Sequence[str], user: str) -> None:
        line = ended.errors.strip().split("\n")[0]
        missing = ended.code == 127 and "sudo" in line
        refused = ended.code == 1 and line.startswith(("sudo:", "Sorry, user")) and "command not found" not in line
        if missing or refused:
            what = argv[0] if user == "root" else "ALL"
            raise PermissionDenied(
                f"{self.account()} may not run commands as {user} on {self.name}: {clean(line)}",
                hint=f"use the account {user} or root, or allow it in /etc/sudoers.d/dba-console: "
                f"{self.account()} ALL=({user}) NOPASSWD: {what}",
            )

    def _run_over_ssh(self, ssh: str, argv: Sequence[str], data: bytes, timeout_s: float, limit: int) -> CommandResult:
        if not self._is_connected:  # afterwards, a lost connection means that a command was running
            self._connect(ssh)
            self._is_connected = True
        remote = shlex.join(["sh", "-c", host_scripts.REMOTE, "sh", f"{timeout_s:g}", *argv])
        command = ["ssh", *_OPTIONS, *_SHARE, *_socket(ssh), "--", ssh, remote]
        for may_retry in (True, False):
            ended = run_short(command, _environment(), timeout_s + _SSH_GRACE_S, self._clock, data, limit)
            if ended.code == 255 and _NOT_CONNECTED in ended.errors:
                if may_retry:
                    self._connect(ssh)
                    continue
                raise ConnectError(f"{self.name} does not open another session on the connection: {last_line(ended)}")
            break
        if ended.code == 255:
            why = f": {last_line(ended)}" if ended.errors.strip() else ""
            raise HostConnectionLost(
                f"the ssh connection to {self.name} was lost while a command ran{why}",
                hint=f"check its outcome on {self.name}",
            )
        if ended.code == _KILLED and ended.seconds >= timeout_s:
            return CommandResult(None, ended.output, ended.errors, ended.seconds)
        return ended

    def _connect(self, ssh: str) -> None:
        """Open the shared connection. Raises ConnectError: nothing ran."""
        for tries_left in (2, 1, 0):
            code, text = self._try_connect(ssh)
            cut = code == 255 and (not text.strip() or _CONNECTION_CUT.search(text))
            if not (cut and tries_left):
                break
            threading.Event().wait(_RETRY_S)
        if code != 0:
            why = (
                "it did not answer, or printed too much"
                if code is None
                else last_line(CommandResult(code, "", text, 0.0))
            )
            raise ConnectError(
                f"cannot connect to {self.name} by ssh: {why}",
                hint=f"`ssh -o BatchMode=yes {shlex.quote(ssh)} true` must work without a prompt",
            )

    def _try_connect(self, ssh: str) -> tuple[int | None, str]:
        """Return exit code and output of the process that opens it; None: see `_wait_for_connection`."""
        with tempfile.TemporaryFile() as output_file:
            # A file, not a pipe: the process that keeps the connection inherits it, and would keep a pipe open.
            try:
                process = subprocess.Popen(
                    ["ssh", *_OPTIONS, *_CONNECT, *_socket(ssh), "--", ssh, "exit 0"],
                    env=_environment(), cwd="/", stdin=subprocess.DEVNULL, stdout=output_file, stderr=output_file,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise ConnectError(f"cannot run ssh: {error.strerror}", hint="install openssh-client") from error
            code = self._wait_for_connection(process, output_file.fileno())
            output_file.seek(0)
            return code, output_file.read(65536).decode("utf-8", "replace")

    def _wait_for_connection(self, process: subprocess.Popen[bytes], output_descriptor: int) -> int | None:
        """Return its exit code; None: it took too long, or the host printed too much."""
        until_us = self._clock.mono_us() + int(LOGIN_S * 1e6)
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(0.1)
            if self._clock.mono_us() > until_us or os.fstat(output_descriptor).st_size > _MAX_CONNECT_OUTPUT:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return None


def last_line(ended: CommandResult) -> str:
    """Return the last line of a command's output, sanitized and without secrets."""
    lines = [line for line in (ended.errors.strip() or ended.output.strip()).split("\n") if line.strip()]
    if lines:
        return clean(redact(lines[-1].strip()))
    return "no answer in time" if ended.code is None else f"exit code {ended.code}"


def last_word(ended: CommandResult) -> str:
    """Return the last word of a command's output, after that of a login shell; empty: no output."""
    return next(reversed(ended.output.split()), "")


def confining_unit(root: str = "") -> str | None:
    """Return the systemd service of this process if it limits memory, as our own unit does: a server started by us
    would be limited too. None: not in a service, or no limit (cgroup v2)."""
    try:
        with open(f"{root}/proc/self/cgroup") as file:
            path = next((line[3:].strip() for line in file if line.startswith("0::")), "")
        if not path.endswith(".service"):
            return None
        with open(f"{root}/sys/fs/cgroup{path}/memory.max") as file:
            return None if file.read().strip() == "max" else path.rpartition("/")[2]
    except OSError:
        return None


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {"PATH": os.defpath, **inherited}


def _socket(ssh: str) -> tuple[str, str]:
    """Return the ssh option for the control socket, in a private directory.

    Not with ssh's %C: newer versions also hash the jump host, which the ProxyCommand of _SHARE replaces
    (ssh_config(5), TOKENS).
    """
    name = hashlib.sha256(ssh.encode()).hexdigest()[:16]
    directory = runtime_dir() / "ssh"
    if len(os.fsencode(directory / name)) + 18 > SOCKET_PATH_LIMIT:  # ssh binds a longer name first
        directory = Path(f"/tmp/dba-console-ssh-{os.geteuid()}")
    return ("-o", f"ControlPath={private_dir(directory) / name}")


# The operator's own commands of a cutover: move an address, hold and release a scheduler.


def run_command(config: CommandConfig, *, cluster: str, from_: str, to: str, undo: bool, clock: Clock) -> CommandResult:
    """Run the command, or its undo, on its host. Raises ConsoleError if the host cannot be reached."""
    names = dict(zip(COMMAND_PLACEHOLDERS, (cluster, from_, to), strict=True))
    argv = fill_names(config.undo if undo else config.run, names)
    return Host(config.ssh, clock).run(argv, timeout_s=config.timeout_s)


def failure_text(what: str, ended: CommandResult) -> str | None:
    """Return why a command failed, with its last line of output; None: it succeeded."""
    if ended.code == 0:
        return None
    outcome = "did not end in time" if ended.code is None else f"failed with exit code {ended.code}"
    return clean(f"{what} {outcome}: {last_line(ended)}")


def fill_names(argv: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return the arguments with the names in braces replaced, each once; other braces stay.

    >>> fill_names(["move-ip", "--to={to}", '{"from": "{from}"}'], {"to": "db2", "from": "{to}"})
    ['move-ip', '--to=db2', '{"from": "{to}"}']
    """
    pattern = re.compile("|".join(rf"\{{{re.escape(name)}\}}" for name in names))
    return [pattern.sub(lambda match: names[match[0][1:-1]], argument) for argument in argv]
