"""Debts: what a run changes for a time and has to put back, on the disk before it is changed.

One file for each, in the state directory, so that nothing that is killed or rebooted can lose more than one, and that
agents of other sessions and other spellings of the target find it too. A debt is struck out (its file removed) only
after the old state was seen on the server; whoever does it twice does no harm.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dba_console import paths
from dba_console.actions.identity import ServerIdentity, host_identity
from dba_console.decoding import from_json
from dba_console.errors import ConsoleError, ExitCode
from dba_console.keeping.atomic_files import sync_directory, write_atomically
from dba_console.probes.deadline_lane import Lane, LaneTimeout
from dba_console.session.run_paths import is_open

if TYPE_CHECKING:
    from dba_console.actions.action import ActionContext

WRITE_TIMEOUT_S = 15.0
"""For a small file to be written and synced. A disk that takes longer is stalled, and nothing is set then."""
SIZE_LIMIT = 1 << 20
"""Bytes of one file: a value is shorter by far."""


class PendingRevert(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting that has to be put back."""

    id: str
    parameter: str
    scope: str = "system"
    database: str | None = None
    role: str | None = None
    old: str | None = None
    """Exactly as it was set in that place; None: it was not set there."""
    new_values: tuple[str | None, ...] = ()
    """What the run has given it, the newest last; None: taken out."""
    run: str = ""
    runbook: str = ""
    directory: str = ""
    """Of the run."""
    who: str = ""
    at_us: int = 0
    """Host wall time before it was first set."""
    target: str = ""
    target_key: str = ""
    server: ServerIdentity
    boot_id: str = ""
    """Of the host the run was on; empty where the server was not proven to run there."""
    stats_reset_us: int | None = None
    """Since when the server counted then (see `crashes`): it begins anew after a crash, and over no orderly end."""
    server_us: int = 0
    """The server's clock at `at_us`."""
    version: int = 1

    @property
    def new(self) -> str | None:
        return self.new_values[-1] if self.new_values else None


class RevertNotSaved(ConsoleError):
    """A debt could not be written, so nothing was set."""

    code = ExitCode.SESSION


class StoredReverts(NamedTuple):
    """What lies in the directory, oldest first, and what of it cannot be read."""

    reverts: tuple[PendingRevert, ...]
    damaged: tuple[str, ...]


def reverts_directory(context: ActionContext) -> Path:
    """Where the debts of this world lie."""
    return default_directory() if context.reverts_directory is None else Path(context.reverts_directory)


def default_directory() -> Path:
    """Where debts lie: what survives a reboot, and belongs to no session that may be pruned."""
    return paths.state_dir() / "debts"


def revert_id(run: str, server: ServerIdentity, place: tuple[str, str, str | None, str | None]) -> str:
    """The same for the same setting in the same place by the same run, so that it is owed once."""
    message = msgspec.json.encode((run, server.system_identifier, server.data_directory, place))
    return hashlib.sha256(message).hexdigest()[:20]


def read_all(directory: Path) -> StoredReverts:
    """Every debt there is. Raises OSError where the directory is there and cannot be read."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return StoredReverts((), ())
    reverts, damaged = [], []
    for name in names:
        try:
            reverts.append(_read(directory / name))
        except FileNotFoundError:
            continue  # struck out meanwhile
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            damaged.append(f"{directory / name} cannot be read: {error}")
    return StoredReverts(tuple(sorted(reverts, key=lambda debt: (debt.at_us, debt.id))), tuple(damaged))


def filter_by_server(
    reverts: Iterable[PendingRevert], now: ServerIdentity | None, target_key: str
) -> list[PendingRevert]:
    """Those of this server; where nobody knows who it is, those of that target.

    A copy of the files has the system identifier of its original; then the data directory tells the two apart.
    """
    return [revert for revert in reverts if _same_server(revert, now, target_key)]


def run_is_active(revert: PendingRevert) -> bool:
    """Whether the run goes on: an agent has its journal open."""
    return bool(revert.directory) and is_open(Path(revert.directory))


def save(directory: Path, reverts: Iterable[PendingRevert], context: ActionContext) -> None:
    """Have them on the disk, synced, each whole or not at all. Raises Unwritten: then nothing may be set."""
    wanted = list(reverts)
    lane = Lane("debts", context.clock)
    try:
        lane.call(lambda: _save(directory, wanted), WRITE_TIMEOUT_S)
    except LaneTimeout:
        raise RevertNotSaved(
            f"what has to be put back could not be written to {directory} within {WRITE_TIMEOUT_S:g} s: nothing "
            f"was set",
            hint="the disk is stalled; nothing is set for a time that nobody would know of afterwards",
        ) from None
    except (OSError, ConsoleError) as error:
        raise RevertNotSaved(
            f"what has to be put back cannot be written to {directory}: {error}; nothing was set",
            hint="make room there, or name another place with $XDG_STATE_HOME",
        ) from None
    finally:
        lane.close()


def remove(directory: Path, revert: PendingRevert) -> str | None:
    """It is put back: nothing is owed any more. None, or why its file is still there, in a sentence.

    A file that stays costs a second look: whoever finds it sees that nothing is left to do.
    """
    try:
        os.unlink(directory / f"{revert.id}.json")
        sync_directory(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{directory / revert.id}.json cannot be removed: {error.strerror}"
    return None


def add_new_value(revert: PendingRevert, value: str | None) -> PendingRevert:
    """The same debt after another value by the same run."""
    return revert if value in revert.new_values else replace(revert, new_values=(*revert.new_values, value))


def server_boot_id(context: ActionContext) -> str:
    """Of the server's host; empty where it is another one than this."""
    return host_identity(context.proc).boot_id if context.server_is_local else ""


def _save(directory: Path, reverts: list[PendingRevert]) -> None:
    paths.private_dir(paths.private_dir(directory.parent) / directory.name)
    sync_directory(directory.parent)
    for revert in reverts:
        write_atomically(str(directory), f"{revert.id}.json", msgspec.json.format(msgspec.json.encode(revert)) + b"\n")


def _read(path: Path) -> PendingRevert:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    return from_json(data, PendingRevert)


def _same_server(revert: PendingRevert, now: ServerIdentity | None, target_key: str) -> bool:
    was = revert.server
    if now is None or now.system_identifier is None or was.system_identifier is None:
        return revert.target_key == target_key
    if was.system_identifier != now.system_identifier:
        return False
    both = was.timeline is not None and was.timeline == now.timeline and was.role != now.role
    if both and revert.target_key != target_key:
        return False  # its standby, or its primary: they share even the data directory's name
    places = (was.data_directory, now.data_directory)
    return None in places or places[0] == places[1]
