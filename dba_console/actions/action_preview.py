"""What an action would do: the record that its preview, the journal, the question and the permission gate share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, ValidationError

from dba_console.core.decoding import convert


class ActionPreview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an action would do: shown before the confirmation, recorded with the intent."""

    text: str
    """One sentence: the current state, and the cost of the change."""
    exact: str
    """What will be done, verbatim: the command, the statement, the path and bytes."""
    values: dict[str, Any] = {}
    """Measured before; compared with those after."""
    refusal: str | None = None
    """Reason for a refusal, one sentence; None: not refused."""
    hint: str | None = None
    count: int | None = None
    """Number of objects it acts on; what `confirm=type:count` asks for."""
    name: str = ""
    """Name of a single object; what `confirm=type:name` asks for instead of the count."""
    rows: tuple[dict[str, Any], ...] = ()
    """The exact set it acts on; `act` touches nothing else."""
    done: bool = False
    """Nothing to do: the state is already as requested."""
    by: str = ""
    """With `done`: not as requested yet; this program will do it."""
    destructive: bool = False
    """It can destroy the cluster: the permission gate requires typed text, not a letter and not `yes`."""


def recorded_preview(fields: Mapping[str, Any]) -> ActionPreview | None:
    """Return the preview in the fields of a journal record; None if there is none that can be read."""
    try:
        return convert(fields.get("action_preview") or None, ActionPreview | None)  # type: ignore[arg-type]
    except ValidationError:
        return None
