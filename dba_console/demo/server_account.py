"""The user a server runs as: never root.

PostgreSQL refuses to run as root. So root starts its temporary servers as `postgres`, or as `nobody` if that does not
exist; other users start them as themselves. No login, password or shell is involved.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from dba_console.core.errors import PermissionDenied
from dba_console.core.users import default_user

CANDIDATES = ("postgres", "nobody")


class SpawnAs(TypedDict, total=False):
    """Keyword arguments for subprocess: empty if no change of user is needed."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The user a server runs as; `switched` if it is not the caller."""

    name: str
    uid: int
    gid: int
    switched: bool

    @property
    def spawn(self) -> SpawnAs:
        if not self.switched:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def chown(self, path: Path) -> None:
        """Give `path` to this account."""
        if self.switched:
            os.chown(path, self.uid, self.gid)


def server_account() -> Account:
    """Return the caller, or for root the first of CANDIDATES. Raises PermissionDenied if neither exists."""
    uid = os.geteuid()
    if uid != 0:
        return Account(default_user(), uid, os.getegid(), switched=False)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid, switched=True)
    raise PermissionDenied(
        "PostgreSQL does not run as root, and neither user postgres nor user nobody exists",
        hint="run this as an ordinary user",
    )


def clean_environment(home: str = "/", environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of servers and their tools: English messages, none of the caller's PG* settings."""
    kept = {name: environ[name] for name in ("PATH", "TZ", "TMPDIR") if name in environ}
    return {"PATH": "/usr/bin:/bin", **kept, "LC_ALL": "C", "HOME": home}
