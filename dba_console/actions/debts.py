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
from dba_console.actions.identity import Identity, host_identity
from dba_console.errors import ConsoleError, ExitCode
from dba_console.keeping.files import sync_directory, write_whole
from dba_console.probes.lane import Lane, LaneTimeout
from dba_console.records import from_json
from dba_console.session.runplaces import is_open

if TYPE_CHECKING:
    from dba_console.actions.action import World

DISK_S = 15.0
"""For a small file to be written and synced. A disk that takes longer is stalled, and nothing is set then."""
SIZE_LIMIT = 1 << 20
"""Bytes of one file: a value is shorter by far."""


class Debt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting that has to be put back."""

    id: str
    parameter: str
    scope: str = "system"
    database: str | None = None
    role: str | None = None
    old: str | None = None
    """Exactly as it was set in that place; None: it was not set there."""
    news: tuple[str | None, ...] = ()
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
    server: Identity
    boot_id: str = ""
    """Of the host the run was on; empty where the server was not proven to run there."""
    counted_since_us: int | None = None
    """Since when the server counted then (see `crashes`): it begins anew after a crash, and over no orderly end."""
    server_us: int = 0
    """The server's clock at `at_us`."""
    version: int = 1

    @property
    def new(self) -> str | None:
        return self.news[-1] if self.news else None


class Unwritten(ConsoleError):
    """A debt could not be written, so nothing was set."""

    code = ExitCode.SESSION


class Found(NamedTuple):
    """What lies in the directory, oldest first, and what of it cannot be read."""

    debts: tuple[Debt, ...]
    damaged: tuple[str, ...]


def directory_of(world: World) -> Path:
    """Where the debts of this world lie."""
    return default_directory() if world.debts is None else Path(world.debts)


def default_directory() -> Path:
    """Where debts lie: what survives a reboot, and belongs to no session that may be pruned."""
    return paths.state_dir() / "debts"


def debt_id(run: str, server: Identity, place: tuple[str, str, str | None, str | None]) -> str:
    """The same for the same setting in the same place by the same run, so that it is owed once."""
    told = msgspec.json.encode((run, server.system_identifier, server.data_directory, place))
    return hashlib.sha256(told).hexdigest()[:20]


def find(directory: Path) -> Found:
    """Every debt there is. Raises OSError where the directory is there and cannot be read."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json") and not name.startswith("."))
    except FileNotFoundError:
        return Found((), ())
    debts, damaged = [], []
    for name in names:
        try:
            debts.append(_read(directory / name))
        except FileNotFoundError:
            continue  # struck out meanwhile
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            damaged.append(f"{directory / name} cannot be read: {error}")
    return Found(tuple(sorted(debts, key=lambda debt: (debt.at_us, debt.id))), tuple(damaged))


def of_server(debts: Iterable[Debt], now: Identity | None, target_key: str) -> list[Debt]:
    """Those of this server; where nobody knows who it is, those of that target.

    A copy of the files has the system identifier of its original; then the data directory tells the two apart.
    """
    return [debt for debt in debts if _same_server(debt, now, target_key)]


def under_way(debt: Debt) -> bool:
    """Whether the run goes on: an agent has its journal open."""
    return bool(debt.directory) and is_open(Path(debt.directory))


def write(directory: Path, debts: Iterable[Debt], world: World) -> None:
    """Have them on the disk, synced, each whole or not at all. Raises Unwritten: then nothing may be set."""
    wanted = list(debts)
    lane = Lane("debts", world.clock)
    try:
        lane.call(lambda: _write(directory, wanted), DISK_S)
    except LaneTimeout:
        raise Unwritten(
            f"what has to be put back could not be written to {directory} within {DISK_S:g} s: nothing was set",
            hint="the disk is stalled; nothing is set for a time that nobody would know of afterwards",
        ) from None
    except (OSError, ConsoleError) as error:
        raise Unwritten(
            f"what has to be put back cannot be written to {directory}: {error}; nothing was set",
            hint="make room there, or name another place with $XDG_STATE_HOME",
        ) from None
    finally:
        lane.close()


def strike(directory: Path, debt: Debt) -> str | None:
    """It is put back: nothing is owed any more. None, or why its file is still there, in a sentence.

    A file that stays costs a second look: whoever finds it sees that nothing is left to do.
    """
    try:
        os.unlink(directory / f"{debt.id}.json")
        sync_directory(directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{directory / debt.id}.json cannot be removed: {error.strerror}"
    return None


def with_value(debt: Debt, value: str | None) -> Debt:
    """The same debt after another value by the same run."""
    return debt if value in debt.news else replace(debt, news=(*debt.news, value))


def boot_id(world: World) -> str:
    """Of the server's host; empty where it is another one than this."""
    return host_identity(world.proc).boot_id if world.here else ""


def _write(directory: Path, debts: list[Debt]) -> None:
    paths.private_dir(paths.private_dir(directory.parent) / directory.name)
    sync_directory(directory.parent)
    for debt in debts:
        write_whole(str(directory), f"{debt.id}.json", msgspec.json.format(msgspec.json.encode(debt)) + b"\n")


def _read(path: Path) -> Debt:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        data = file.read(SIZE_LIMIT + 1)
    return from_json(data, Debt)


def _same_server(debt: Debt, now: Identity | None, target_key: str) -> bool:
    was = debt.server
    if now is None or now.system_identifier is None or was.system_identifier is None:
        return debt.target_key == target_key
    if was.system_identifier != now.system_identifier:
        return False
    both = was.timeline is not None and was.timeline == now.timeline and was.role != now.role
    if both and debt.target_key != target_key:
        return False  # its standby, or its primary: they share even the data directory's name
    places = (was.data_directory, now.data_directory)
    return None in places or places[0] == places[1]
