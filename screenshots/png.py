"""Convert SVG to small PNG, without a browser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dba_console.core.errors import Unsupported
from dba_console.reports.pictures import png_of, require_png

COLOURS = 64
"""Enough for a screen of sixteen colours with antialiasing; a quarter of the size of a full-colour file."""
PROGRAM = "pngquant"


def require_converters() -> None:
    """Raise Unsupported, with what to install, if no PNG can be created."""
    if shutil.which(PROGRAM) is None:
        raise Unsupported(f"cannot reduce the colours of the screenshots: no {PROGRAM}", hint=f"apt install {PROGRAM}")
    require_png()


def convert(svg: Path) -> Path:
    """Write the PNG beside the SVG, and return its path. Raises Unsupported with the converter's message."""
    png = svg.with_suffix(".png")
    png.write_bytes(png_of(svg.read_text()))
    command = [PROGRAM, "--force", "--speed", "1", "--nofs", "--strip", "--output", str(png), str(COLOURS), str(png)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Unsupported(f"{PROGRAM} failed: {done.stderr.strip()}")
    return png
