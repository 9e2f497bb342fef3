"""Which session a word means: a directory, an id or its unique beginning, or `last`."""

from __future__ import annotations

from pathlib import Path

from dba_console.errors import SessionError
from dba_console.session.layout import DATABASE, parse_name, require_readable, session_directories

_LIST_HINT = "`dba-console session list` shows what there is"


def resolve(name: str, sessions: Path) -> Path:
    """The session's directory.

    Raises SessionError where none or several are meant, naming them; PermissionDenied where `sessions` may not be read.
    """
    if not name:
        raise SessionError("no session named", hint=_LIST_HINT)
    named_path = Path(name).expanduser()
    if named_path.name == DATABASE and named_path.is_file():
        return named_path.parent
    if "/" in name or name in (".", ".."):
        if (named_path / DATABASE).exists():
            return named_path
        raise SessionError(f"no recording in {named_path}: session.db is missing", hint=_LIST_HINT)
    require_readable(sessions)
    directories = [path for path in session_directories(sessions) if (path / DATABASE).exists()]
    if name == "last":
        if not directories:
            raise SessionError(f"no session in {sessions}", hint="`dba-console record` makes one")
        return directories[-1]
    return _by_beginning(name, named_path, directories, sessions)


def _by_beginning(name: str, named_path: Path, directories: list[Path], sessions: Path) -> Path:
    found = [path for path in directories if path.name.startswith(name) or _id(path).startswith(name)]
    exact = [path for path in found if name in (path.name, _id(path))]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found and (named_path / DATABASE).exists():
        return named_path
    if not found:
        raise SessionError(f"no session {name!r} in {sessions}", hint=_LIST_HINT)
    listed = ", ".join(path.name for path in found[:8]) + (", …" if len(found) > 8 else "")
    raise SessionError(f"{name!r} means {len(found)} sessions: {listed}", hint="write more of the id")


def _id(path: Path) -> str:
    parsed = parse_name(path.name)
    return "" if parsed is None else parsed.id
