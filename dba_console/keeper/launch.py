"""Start a keeper, the process that supervises one long command.

Its input is a memory file on its standard input: arguments are visible to every user, and a file would stay on the
disk.
"""

from __future__ import annotations

import json
import os
import select
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import dba_console
from dba_console.core.errors import RunbookFailed
from dba_console.keeper.command_status import CommandStatus, read_status, stop, wait

# The keeper's input.

HEAD_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One execution of one command."""

    argv: tuple[str, ...]
    directory: str
    """Absolute, exists, mode 0700, used by this execution only: the keeper writes its files here."""
    tag: str
    host: str
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """Added to a small inherited environment (`INHERITED_VARIABLES`). May contain secrets."""
    cwd: str | None = None
    """None: the root directory."""
    timeout_s: float | None = None
    """From the start; then the command is stopped as by `stop`. None: no limit."""
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL of the command's process group."""
    head_bytes: int = HEAD_BYTES
    tail_bytes: int = 4 << 20
    """How much of the output, including stamps, is kept: its start and its end (`output_log`)."""
    masks: tuple[str, ...] = field(default=(), repr=False)
    """Secrets that must not appear in the log in any form that `stream_masking` recognizes."""
    stdin: str | None = field(default=None, repr=False)
    """Text for the command's standard input, never written to disk. None: /dev/null."""

    def to_json(self, environment: dict[str, str]) -> bytes:
        """Return the keeper's input; `environment` is the complete environment of the command."""
        order = asdict(self)
        order["env"] = environment
        return json.dumps(order).encode()


START_TIMEOUT_S = 30.0
"""Timeout for the keeper's answer that the command runs: it syncs its records first, and disks may be slow."""
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
)
"""What a command inherits of its caller's environment, with all of LC_*: paths and locale. Connection settings and
secrets are passed explicitly, in `CommandSpec.env`."""

_BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from dba_console.keeper.__main__ import main; sys.exit(main())"
"""Isolated, no site packages, standard library first: nothing unexpected is imported. The tag is there for `ps`."""


class KeeperError(RunbookFailed):
    """The command was not started."""


class StartUnknown(RunbookFailed):
    """The keeper did not report whether the command was started; its directory shows it later (`status`)."""


@dataclass(frozen=True, slots=True)
class KeeperHandle:
    """A keeper that was started; any process can create the same from the directory."""

    directory: str
    pid: int

    def status(self) -> CommandStatus:
        return read_status(self.directory)

    def wait(self, timeout_s: float | None = None) -> CommandStatus:
        """Return the status once the keeper has ended, or after `timeout_s`."""
        return wait(self.directory, timeout_s)

    def stop(self, by: str) -> bool:
        return stop(self.directory, by)


def start(spec: CommandSpec) -> KeeperHandle:
    """Start a keeper; returns when the command runs.

    Raises KeeperError with the reason if it does not run, StartUnknown if that is unknown after the timeout.
    """
    _require_unused(spec.directory)
    request = os.memfd_create("keeper")
    answer = os.pipe()
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        with open(request, "wb", closefd=False) as file:
            file.write(spec.to_json(_command_environment(spec)))
        os.lseek(request, 0, os.SEEK_SET)
        actions = [(os.POSIX_SPAWN_DUP2, source, to) for to, source in enumerate((request, answer[1], nothing))]
        command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, _package_root(), spec.tag]
        pid = os.posix_spawn(command[0], command, _keeper_environment(), setsid=True, file_actions=actions)
    finally:
        for descriptor in (request, answer[1], nothing):
            os.close(descriptor)
    try:
        handle = _read_answer(spec.directory, answer[0])
    except StartUnknown:
        # A keeper that hangs before its answer is not waited for.
        os.waitpid(pid, os.WNOHANG)
        raise
    except KeeperError:
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(answer[0])
    os.waitpid(pid, 0)
    return handle


def _read_answer(directory: str, answer: int) -> KeeperHandle:
    if not select.select([answer], [], [], START_TIMEOUT_S)[0]:
        raise StartUnknown(
            f"the keeper did not answer within {START_TIMEOUT_S:.0f} s; whether the command runs is unknown",
            hint=f"check {directory} once its disk responds",
        )
    text = os.read(answer, 65536)
    if not text:
        raise KeeperError("the keeper ended before it started the command")
    reply = json.loads(text)
    if not reply["ok"]:
        raise KeeperError(reply["message"])
    return KeeperHandle(directory, reply["pid"])


def _require_unused(directory: str) -> None:
    """A command never runs twice: a directory in which one was started is not used again."""
    if not os.path.isabs(directory) or not os.path.isdir(directory):
        raise KeeperError(f"{directory} is not the absolute path of a directory")
    if read_status(directory).state != "absent":
        raise KeeperError(f"a command was already started in {directory}")


def _command_environment(spec: CommandSpec) -> dict[str, str]:
    """Return the complete environment of the command."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED_VARIABLES or name.startswith("LC_")}
    return {**kept, **spec.env}


def _keeper_environment() -> dict[str, str]:
    """Return the keeper's environment: no memory arena for its one thread, and UTF-8 whatever the locale."""
    return {"MALLOC_ARENA_MAX": "1", "LC_ALL": "C.UTF-8"}


def _package_root() -> str:
    """Return the directory of this package."""
    return str(Path(dba_console.__file__).resolve().parent.parent)
