"""A defect of this program in words, for a run's journal and for whoever looks on."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from dba_console.redact import redact


def internal_error_text(error: Exception) -> str:
    """What went wrong, and where in the code; no value of a variable, which may be a secret."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return redact(f"{type(error).__name__}: {error}"[:500]) + place
