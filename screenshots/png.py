"""Convert SVG to small PNG by two system commands, without a browser or an imaging library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dba_console.core.errors import Unsupported

ZOOM = 1.5
"""Pixels per SVG unit: sharp on a dense screen, and still a small file."""
COLOURS = 64
"""Enough for a screen of sixteen colours with antialiasing; a quarter of the size of a full-colour file."""
PACKAGES = {"rsvg-convert": "librsvg2-bin", "pngquant": "pngquant"}
"""Commands, and the Debian packages that contain them."""
FONT, FONT_PACKAGE = "DejaVu Sans Mono", "fonts-dejavu-core"


def require_converters() -> None:
    """Raise Unsupported with every missing package if no PNG can be created."""
    missing = [package for command, package in PACKAGES.items() if shutil.which(command) is None]
    if shutil.which("fc-list") is not None and not _run("fc-list", FONT).strip():
        missing.append(FONT_PACKAGE)
    if missing:
        raise Unsupported(
            f"cannot convert the screenshots to PNG: {' and '.join(missing)} missing",
            hint=f"apt install {' '.join(missing)}",
        )


def convert(svg: Path) -> Path:
    """Write the PNG beside the SVG, and return its path. Raises Unsupported with the converter's message."""
    png = svg.with_suffix(".png")
    _run("rsvg-convert", "--zoom", str(ZOOM), "--output", str(png), str(svg))
    _run("pngquant", "--force", "--speed", "1", "--nofs", "--strip", "--output", str(png), str(COLOURS), str(png))
    return png


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Unsupported(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
