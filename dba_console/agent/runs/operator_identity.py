"""The operator at a console: the audit login of its process (proc_pid_loginuid(5)), which sudo and su do not change.

Without an audit login the console's own statement is used, and marked as such.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from dba_console.core.users import user_name

UNSET = 4294967295
"""A process without a login, as in a container or started by a service manager."""
TOLD = "according to the console"


@dataclass(frozen=True, slots=True)
class ConsoleOperator:
    """The operator of one console."""

    told: str
    """What the console states: `anna on pts/3 from 10.0.0.1`."""
    pid: int
    """Of the console's process."""
    login_uid: int | None = None
    """Audit login of its process; None if the kernel has none."""

    @property
    def name(self) -> str:
        """The name to record: the console's statement, and the audit login's name if it differs."""
        if self.login_uid is None:
            return self.told
        proven = user_name(self.login_uid)
        return self.told if self.told.split(" ")[0] == proven else f"{proven} ({self.told})"

    @property
    def login(self) -> str:
        """The login name only, without its origin."""
        return self.told.split(" ")[0] if self.login_uid is None else user_name(self.login_uid)

    @property
    def console(self) -> str:
        """The login with its terminal and address: `anna on pts/3 from 10.0.0.1`."""
        return " ".join((self.login, *self.told.split(" ")[1:]))


def person_of(pid: int, told: str, *, proc: str = "/proc") -> ConsoleOperator:
    """Return the operator of the process `pid`, which states the name `told`."""
    return ConsoleOperator(told, pid, login_uid(pid, proc=proc))


def login_uid(pid: int, *, proc: str = "/proc") -> int | None:
    """Return the audit login of a process; None if there is none, or if the process changed meanwhile."""
    try:
        process = psutil.Process(pid)
        with open(f"{proc}/{pid}/loginuid", "rb") as file:
            uid = int(file.read(32))
    except (psutil.Error, OSError, ValueError):
        return None
    return uid if uid != UNSET and process.is_running() else None


@dataclass(frozen=True, slots=True)
class Difference:
    """Whether two operators are different people, and the evidence."""

    two: bool
    why: str


def difference(first: ConsoleOperator, second: ConsoleOperator) -> Difference:
    """Compare by audit login if the kernel has both; else by what the consoles state, if they are two consoles."""
    if first.login_uid is not None and second.login_uid is not None:
        if first.login_uid == second.login_uid:
            return Difference(False, f"both consoles run under the login {first.login}")
        return Difference(True, f"logins {first.login} and {second.login}")
    if first.pid == second.pid:
        return Difference(False, "it is the same console")
    if first.login == second.login:
        return Difference(False, f"both consoles state the login {first.login}")
    return Difference(True, f"logins {first.login} and {second.login}, {TOLD}")
