"""Who sits at a console, as far as the kernel knows: the audit login of its process (proc_pid_loginuid(5)), which
neither sudo nor su changes. Where the kernel was told none, what the console says of itself has to do, and it is
said.
"""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from functools import cache

from dba_console.watch.probes.host.kernel_files import read_stat

UNSET = 4294967295
"""A process nobody logged in for, as in a container or started by a service manager."""
TOLD = "as told by the console"


@dataclass(frozen=True, slots=True)
class ConsoleOperator:
    """Somebody at a console."""

    told: str
    """What the console says: `anna from 10.0.0.1`."""
    pid: int
    """Of the console's process."""
    login_uid: int | None = None
    """By whose login its process runs, as the kernel keeps it; None where it keeps none."""

    @property
    def name(self) -> str:
        """As it is recorded: what was told, and the login's own name where that differs."""
        if self.login_uid is None:
            return self.told
        proven = user_name(self.login_uid)
        return self.told if self.told.split(" ")[0] == proven else f"{proven} ({self.told})"

    @property
    def login(self) -> str:
        """The login alone, without where it comes from."""
        return self.told.split(" ")[0] if self.login_uid is None else user_name(self.login_uid)


def person_of(pid: int, told: str, *, proc: str = "/proc") -> ConsoleOperator:
    """Who runs the process `pid`, which says it is `told`."""
    return ConsoleOperator(told, pid, login_uid(pid, proc=proc))


def login_uid(pid: int, *, proc: str = "/proc") -> int | None:
    """The audit login of a process; None where there is none, or where the process changed while it was read."""
    before = read_stat(proc, pid)
    try:
        with open(f"{proc}/{pid}/loginuid", "rb") as file:
            uid = int(file.read(32))
    except (OSError, ValueError):
        return None
    after = read_stat(proc, pid)
    same = before is not None and after is not None and before.start_ticks == after.start_ticks
    return uid if same and uid != UNSET else None


@cache
def user_name(uid: int) -> str:
    """The login name of a user id, or the id where it has none. Asked once: names may come from a directory server,
    and views are made for as long as it is down.
    """
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Whether two people are two, and how that is known."""

    two: bool
    why: str


def difference(first: ConsoleOperator, second: ConsoleOperator) -> Difference:
    """By the kernel's word where it has one for both; else by what the consoles say, if they are two consoles."""
    if first.login_uid is not None and second.login_uid is not None:
        if first.login_uid == second.login_uid:
            return Difference(False, f"both consoles run by the login of {first.login}")
        return Difference(True, f"logins {first.login} and {second.login}")
    if first.pid == second.pid:
        return Difference(False, "it is the same console")
    if first.login == second.login:
        return Difference(False, f"both consoles say they are {first.login}'s")
    return Difference(True, f"logins {first.login} and {second.login}, {TOLD}")
