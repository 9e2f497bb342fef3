"""SVG to small PNG by two commands of the system, so that no browser and no imaging library is needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dba_console.core.errors import Unsupported

ZOOM = 1.5
"""Pixels of the picture per unit of the drawing: sharp on a dense screen, and still a small file."""
COLOURS = 64
"""A screen of sixteen colours needs no more for its smoothed edges; the file is a quarter of a full-colour one."""
PACKAGES = {"rsvg-convert": "librsvg2-bin", "pngquant": "pngquant"}
"""The commands and the Debian packages that have them."""
FONT, FONT_PACKAGE = "DejaVu Sans Mono", "fonts-dejavu-core"


def require_converters() -> None:
    """Raises Unsupported, naming every package that is missing, where no PNG can be made."""
    missing = [package for command, package in PACKAGES.items() if shutil.which(command) is None]
    if shutil.which("fc-list") is not None and not _run("fc-list", FONT).strip():
        missing.append(FONT_PACKAGE)
    if missing:
        raise Unsupported(
            f"the pictures cannot be converted to PNG here: {' and '.join(missing)} missing",
            hint=f"apt install {' '.join(missing)}",
        )


def convert(svg: Path) -> Path:
    """Write the PNG beside the SVG, and return its path. Raises Unsupported with the converter's words."""
    png = svg.with_suffix(".png")
    _run("rsvg-convert", "--zoom", str(ZOOM), "--output", str(png), str(svg))
    _run("pngquant", "--force", "--speed", "1", "--nofs", "--strip", "--output", str(png), str(COLOURS), str(png))
    return png


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Unsupported(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
