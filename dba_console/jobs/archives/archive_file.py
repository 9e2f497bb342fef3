"""Read a dump archive from disk: a directory, a custom or tar file, the beginning of a plain dump. Opens no pipe."""

from __future__ import annotations

import os
import re
import stat
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from dba_console.core.atomic_files import open_regular
from dba_console.jobs.archives.dump_plan import DumpPlan, plan_from_toc, sizes_by_offset
from dba_console.jobs.archives.toc import MAGIC, ArchiveError, ArchiveNotFoundError, Toc, file_stem, read_toc

_HEAD = 64 << 10
"""Bytes read of a plain dump."""
_MAX_MEMBERS = 200_000
_COMPRESSION_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
_DUMPED_FROM = re.compile(r"^-- Dumped from database version (.+?)(?: \(.*\))?$", re.MULTILINE)
_DUMPED_BY = re.compile(r"^-- Dumped by pg_dump version (.+?)(?: \(.*\))?$", re.MULTILINE)
_CONNECT = re.compile(r'^\\connect (?:-reuse-previous=on )?(?:"dbname=\'(.*)\'"|"(.*)"|(\S+))$', re.MULTILINE)
_PLAIN = re.compile(r"^-- PostgreSQL database(?: cluster)? dump", re.MULTILINE)


def open_archive(path: str | os.PathLike[str]) -> DumpPlan:
    """Read the plan of the archive at `path`, with the size of each object in it.

    A running dump is read in its current state: data files have their current size. Of a plain dump only the beginning
    is read, and the plan has no entries. Raises ArchiveError if there is no archive or it cannot be read.
    """
    location = Path(path)
    try:
        mode = location.stat().st_mode
        if stat.S_ISDIR(mode):
            toc = read_directory_toc(location)
            return plan_from_toc(toc, directory_data_sizes(location, toc), form="directory")
        if not stat.S_ISREG(mode):
            raise ArchiveError(f"{location} is neither a file nor a directory", hint="a pipe can only be read once")
        with open_regular(location) as file:
            return _read_archive_file(file, location)
    except ArchiveError as error:
        raise ArchiveError(_with_path(location, error.message), hint=error.hint) from None
    except OSError as error:
        raise ArchiveNotFoundError(f"{location} cannot be read: {error.strerror or error}") from None


def read_directory_toc(directory: Path) -> Toc:
    """Read the table of contents of a directory archive, written before its data. Raises ArchiveError, OSError."""
    try:
        if not stat.S_ISREG((directory / "toc.dat").stat().st_mode):
            raise ArchiveError(f"{directory / 'toc.dat'} is not a regular file", hint="a pipe can only be read once")
        with open_regular(directory / "toc.dat") as file:
            return read_toc(file)
    except FileNotFoundError:
        hint = "a running dump writes it after reading the catalog"
        raise ArchiveError(f"{directory} is not a directory archive: it has no toc.dat", hint=hint) from None


def directory_data_sizes(directory: Path, toc: Toc) -> dict[int, int]:
    """Return the size of each object's data file by dump id."""
    files: dict[str, int] = {}
    blobs = 0
    with os.scandir(directory) as found:
        for one in found:
            name = one.name
            if name.startswith("blob_"):
                blobs += one.stat().st_size
            elif name != "toc.dat":
                files[file_stem(name)] = one.stat().st_size
    return _data_sizes(toc, files, blobs)


def _data_sizes(toc: Toc, files: Mapping[str, int], blobs: int) -> dict[int, int]:
    """Return the size of each object's data; large objects are divided evenly among their entries."""
    sizes = {one.dump_id: files[one.file] for one in toc.entries if one.file is not None and one.file in files}
    large = [one.dump_id for one in toc.entries if one.desc == "BLOBS"]
    return sizes | dict.fromkeys(large, blobs // len(large) if large else 0)


def _with_path(path: Path, message: str) -> str:
    return message if str(path) in message else f"{path}: {message}"


def _read_archive_file(file: BinaryIO, path: Path) -> DumpPlan:
    head = file.read(_HEAD)
    if head.startswith(MAGIC):
        file.seek(0)
        toc = read_toc(file)
        return plan_from_toc(toc, sizes_by_offset(toc, os.fstat(file.fileno()).st_size) or None, form="custom")
    if head[257:262] == b"ustar":
        file.seek(0)
        return _read_tar(file)
    if not head:
        raise ArchiveError(f"{path} is empty", hint="a running dump writes nothing until it has read the catalog")
    return _read_plain_head(head)


def _read_tar(file: BinaryIO) -> DumpPlan:
    """Read a tar archive header by header; pg_dump writes toc.dat first."""
    toc: Toc | None = None
    sizes: dict[str, int] = {}
    blobs = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for _ in range(_MAX_MEMBERS):
                member = tar.next()
                if member is None:
                    break
                sizes[member.name] = member.size
                blobs += member.size if member.name.startswith("blob_") else 0
                if member.name == "toc.dat" and (held := tar.extractfile(member)) is not None:
                    toc = read_toc(held)  # type: ignore[arg-type]  # only its read() is used
    except tarfile.TarError as error:
        if toc is None:
            raise ArchiveError(f"cannot read the tar file: {error}") from None
    if toc is None:
        raise ArchiveError("not an archive of pg_dump: a tar file without toc.dat")
    return plan_from_toc(toc, _data_sizes(toc, sizes, blobs), form="tar")


def _read_plain_head(head: bytes) -> DumpPlan:
    compression = next((name for magic, name in _COMPRESSION_MAGIC.items() if head.startswith(magic)), "none")
    if compression == "gzip":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error as error:
            raise ArchiveError(f"cannot read the gzip file: {error}") from None
    elif compression != "none":
        return DumpPlan(entries=(), format="plain", compression=compression)  # reading it needs a library
    if head.startswith(MAGIC):
        raise ArchiveError(
            "a custom archive compressed with gzip", hint="decompress it with gunzip: pg_restore cannot read it"
        )
    text = head.decode("utf-8", "replace")
    if _PLAIN.search(text) is None:
        raise ArchiveError("not a PostgreSQL dump: neither an archive nor a plain dump")
    server, dumper, connect = _DUMPED_FROM.search(text), _DUMPED_BY.search(text), _CONNECT.search(text)
    return DumpPlan(
        entries=(),
        format="plain",
        compression=compression,
        database=next((one for one in connect.groups() if one), None) if connect else None,
        server_version=server[1] if server else None,
        dump_version=dumper[1] if dumper else None,
    )
