"""File systems of a test's own, small ones to be filled and frozen. They need root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.requirements import require_tool


@contextmanager
def mounted(kind: str, path: Path, *options: str, source: str = "none") -> Iterator[Path]:
    """A file system at `path`, until the block ends."""
    path.mkdir(exist_ok=True)
    subprocess.run([require_tool("mount"), "-t", kind, *options, source, str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run([require_tool("umount"), "-l", str(path)], check=True)


@contextmanager
def loop_mounted(image: Path, path: Path, size: str = "512M") -> Iterator[Path]:
    """An ext4 of its own, of a size as truncate(1) reads it."""
    subprocess.run(["truncate", "-s", size, str(image)], check=True)
    subprocess.run([require_tool("mkfs.ext4"), "-q", str(image)], check=True)
    with mounted("ext4", path, "-o", "loop", source=str(image)):
        yield path


@contextmanager
def frozen(directory: Path) -> Iterator[None]:
    """The file system is frozen: writers wait."""
    freeze = require_tool("fsfreeze")
    subprocess.run([freeze, "-f", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run([freeze, "-u", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """A file that takes all there is, to the last byte."""
    filler = directory / "filler"
    with open(filler, "wb", buffering=0) as file:
        for piece in (65536, 4096, 512, 1):
            try:
                while file.write(b"\0" * piece) == piece:
                    pass
            except OSError:
                continue
    return filler
