"""Starting a keeper.

It is told what to run through a memory file on its standard input: arguments are seen by everyone, and what lies on a
disk stays there.
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

# What a keeper is told.


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """One execution of one command."""

    argv: tuple[str, ...]
    directory: str
    """Absolute, exists, 0700, of this execution alone: what the keeper writes goes here."""
    tag: str
    host: str
    env: dict[str, str] = field(default_factory=dict, repr=False)
    """Added to a small inherited environment (`launch.INHERITED`). May hold secrets."""
    cwd: str | None = None
    """None: the root directory."""
    timeout_s: float | None = None
    """From the start; then the command is ended as by `stop`. None: no limit."""
    grace_s: float = 10.0
    """From SIGTERM to SIGKILL of the command's process group."""
    head_bytes: int = 4 << 20
    tail_bytes: int = 4 << 20
    """Of the output, stamps included, so much of its beginning and of its end is kept (`rolling`)."""
    masks: tuple[str, ...] = field(default=(), repr=False)
    """Secrets that must not appear in the log in any form `masking` knows."""
    stdin: str | None = field(default=None, repr=False)
    """Text for the command's standard input, never on a disk. None: it reads nothing."""

    def to_json(self, environment: dict[str, str]) -> bytes:
        """What the keeper reads; `environment` is all the command gets."""
        order = asdict(self)
        order["env"] = environment
        return json.dumps(order).encode()


START_TIMEOUT_S = 30.0
"""Until the keeper says that the command runs: it syncs its records first, and disks may be slow just then."""
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
"""What a command gets of its caller's environment, with all of LC_*: where things are, and how to speak. Connection
settings and secrets are given on purpose, in `Spec.env`."""

_BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from dba_console.keeper.__main__ import main; sys.exit(main())"
"""Isolated, without site packages, the standard library first: nothing is imported that was not meant. The tag is
there for whoever looks at `ps`."""


class KeeperError(RunbookFailed):
    """The command was not started."""


class StartUnknown(RunbookFailed):
    """The keeper has not said whether the command was started; its directory will tell (`status`)."""


@dataclass(frozen=True, slots=True)
class KeeperHandle:
    """A keeper that was started; the same can be had from the directory alone, by any process."""

    directory: str
    pid: int

    def status(self) -> CommandStatus:
        return read_status(self.directory)

    def wait(self, timeout_s: float | None = None) -> CommandStatus:
        """How it stands once the keeper has ended, or after `timeout_s`."""
        return wait(self.directory, timeout_s)

    def stop(self, by: str) -> bool:
        return stop(self.directory, by)


def start(spec: CommandSpec) -> KeeperHandle:
    """Start a keeper; returns when the command runs.

    Raises KeeperError where it does not run, with the reason, StartUnknown where that could not be found out in time.
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
        # What hangs before it could even say something is not waited for.
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
            f"the keeper has said nothing for {START_TIMEOUT_S:.0f} s, so whether the command runs is not known",
            hint=f"{directory} will tell, once its disk answers",
        )
    text = os.read(answer, 65536)
    if not text:
        raise KeeperError("the keeper ended before it started the command")
    reply = json.loads(text)
    if not reply["ok"]:
        raise KeeperError(reply["message"])
    return KeeperHandle(directory, reply["pid"])


def _require_unused(directory: str) -> None:
    """Nothing runs twice: a directory in which a command was started is not used again."""
    if not os.path.isabs(directory) or not os.path.isdir(directory):
        raise KeeperError(f"{directory} is not the absolute path of a directory")
    if read_status(directory).state != "absent":
        raise KeeperError(f"a command was started in {directory} before")


def _command_environment(spec: CommandSpec) -> dict[str, str]:
    """All of the command's environment."""
    kept = {name: value for name, value in os.environ.items() if name in INHERITED_VARIABLES or name.startswith("LC_")}
    return {**kept, **spec.env}


def _keeper_environment() -> dict[str, str]:
    """The keeper's: no memory arena for its one thread, and UTF-8 whatever the locale here."""
    return {"MALLOC_ARENA_MAX": "1", "LC_ALL": "C.UTF-8"}


def _package_root() -> str:
    """Where this package lies."""
    return str(Path(dba_console.__file__).resolve().parent.parent)
