"""A session as one file, made by `session share`: a zip of the session directory, opened like a session.

A shared file may come from anywhere: only names of our files are extracted, as regular files, up to a size.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import io
import os
import shutil
import signal
import stat
import tempfile
import threading
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import msgspec
from msgspec import Struct

from dba_console.core.decoding import from_json
from dba_console.core.errors import SessionError
from dba_console.core.units import human_bytes
from dba_console.recording.layout import DATABASE, LOG, SAMPLES, parse_name
from dba_console.recording.run_paths import RUNS

MANIFEST = "dba-console.json"
FORMAT = 1
_TOP = frozenset((DATABASE, SAMPLES, LOG, RUNS, "out"))
MAX_FILES = 20_000
MAX_BYTES = 16 << 30
"""Extracted size: ten sessions of a week."""
MAX_DEPTH = 7
_MANIFEST_BYTES = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others allocate as much memory as the file says."""
_READ_BYTES = 4 << 20
"""Of one read: the list of members, which is the largest, has less with MAX_FILES of ours."""
_CHUNK = 1 << 20
_MODE = (stat.S_IFREG | 0o600) << 16
_MAGIC = b"PK\x03\x04"


class Manifest(Struct, kw_only=True):
    """The member `dba-console.json`: what is in the file, for people and for this program."""

    format: int = FORMAT
    session: str
    """Name of the session directory."""
    level: str
    program_version: str
    replaced: dict[str, int] = {}
    """Number of originals replaced, by class."""
    left_out: list[str] = []
    """What of the original could not be read, and is missing."""


def pack(directory: Path, manifest: Manifest, file: BinaryIO) -> None:
    """Write a session directory as a shared file. Raises OSError."""
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        archive.writestr(_member(MANIFEST, zipfile.ZIP_STORED), msgspec.json.format(msgspec.json.encode(manifest)))
        for path in sorted(directory.rglob("*")):
            if path.relative_to(directory).parts[0] not in _TOP or not path.is_file():
                continue
            # Samples are compressed already.
            method = zipfile.ZIP_STORED if path.name == SAMPLES else zipfile.ZIP_DEFLATED
            info = _member(f"{directory.name}/{path.relative_to(directory).as_posix()}", method)
            with path.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, _CHUNK)


def _member(name: str, method: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type, info.external_attr, info.create_system = method, _MODE, 3
    return info


def is_shared_file(path: Path) -> bool:
    """Return whether this is a regular file that begins as ours do."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with path.open("rb") as file:
            start = file.read(30 + len(MANIFEST))
    except OSError:
        return False
    return start.startswith(_MAGIC) and start.endswith(MANIFEST.encode())


def open_shared(path: Path) -> Path:
    """Return a session directory with the content of a shared file, removed when this process ends.

    Raises SessionError.
    """
    _remove_abandoned()
    place = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # held until this process ends, however it ends
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    _end_regularly()
    return extract(path, place)


_PREFIX, _LOCK = "dba-console-shared-", ".lock"


def _remove_abandoned() -> None:
    """Remove what killed processes of this user have extracted."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if place.lstat().st_uid != os.geteuid():
                continue
            lock = os.open(place / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
        except OSError:
            continue  # in use
        finally:
            os.close(lock)


def _end_regularly() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, unless something else handles them."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)


class _ZipSource(io.FileIO):
    """A file of which zipfile reads the list of members, and what else it needs at once, only up to a size."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:  # the end of the file, which zipfile has moved to
            return super().read(_READ_BYTES) or b""
        if size > _READ_BYTES:
            raise zipfile.BadZipFile("its list of files is too long")
        return super().read(size) or b""


def extract(path: Path, place: Path, called: str | None = None) -> Path:
    """Extract a shared file below `place`; return the session directory. `called`: its name in messages.

    Raises SessionError.
    """
    name = called or str(path)
    try:
        with _ZipSource(path) as file, zipfile.ZipFile(file) as archive:
            manifest = _manifest(archive, name)
            members = [info for info in archive.infolist() if info.filename != MANIFEST]
            _check(members, manifest, name, place)
            for info in members:
                _extract_member(archive, info, place)
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, OverflowError, zlib.error) as error:
        # RuntimeError: an encrypted member; OverflowError: an offset beyond any file
        raise SessionError(f"cannot read {name}: damaged ({error})", hint="copy the file again") from error
    except OSError as error:
        raise SessionError(f"cannot extract {name} to {place}: {error.strerror or error}") from error
    return place / manifest.session


def _manifest(archive: zipfile.ZipFile, name: str) -> Manifest:
    try:
        info = archive.getinfo(MANIFEST)
        data = b""
        if info.compress_type in _METHODS:
            with archive.open(info) as file:  # ZipFile.read() decompresses everything first
                data = file.read(_MANIFEST_BYTES + 1)
        if not 0 < len(data) <= _MANIFEST_BYTES:
            raise SessionError(f"cannot read {name}: its {MANIFEST} is empty or too large")
        manifest = from_json(data, Manifest)
    except (KeyError, msgspec.MsgspecError) as error:
        raise SessionError(f"cannot read {name}: not a shared session ({error})") from error
    if manifest.format > FORMAT:
        raise SessionError(
            f"{name} has format {manifest.format}; this program reads up to {FORMAT}",
            hint="read it with the version of dba-console that wrote it, or a newer one",
        )
    if parse_name(manifest.session) is None:
        raise SessionError(f"cannot read {name}: {manifest.session[:80]!r} is not the name of a session")
    return manifest


def _check(members: list[zipfile.ZipInfo], manifest: Manifest, name: str, place: Path) -> None:
    """Raise SessionError unless every member is a file of this session, and all of them fit."""
    for info in members:
        pieces = PurePosixPath(info.filename).parts
        kind = stat.S_IFMT(info.external_attr >> 16)
        plain = info.filename == "/".join(pieces) and not {"..", "."} & {*pieces} and "\\" not in info.filename
        if (
            not plain
            or len(pieces) < 2
            or len(pieces) > MAX_DEPTH
            or pieces[0] != manifest.session
            or pieces[1] not in _TOP
            or (len(pieces) > 2) != (pieces[1] in (RUNS, "out"))
            or kind not in (0, stat.S_IFREG)
            or info.compress_type not in _METHODS
            or info.is_dir()
        ):
            raise SessionError(f"cannot read {name}: {info.filename[:80]!r} is not a file of a session")
    size = sum(info.file_size for info in members)
    if len(members) > MAX_FILES or size > MAX_BYTES or len({info.filename for info in members}) < len(members):
        raise SessionError(f"cannot read {name}: {len(members)} files with {size} bytes are not a session")
    if size > shutil.disk_usage(place).free // 2:
        raise OSError(errno.ENOSPC, f"{human_bytes(size)} are more than half of the free space")


def _extract_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, place: Path) -> None:
    target = place / info.filename
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with archive.open(info) as source, os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)  # zipfile reads at most the size that it states
