"""Whether what lies at a path can only have been put there by root or by this user: as sudo and ssh ask it.

What others may write is not configuration, no runbook and no recording of ours: it may say what they want to have done
with our rights.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple


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
