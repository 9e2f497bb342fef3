"""The panels the screen can open, by key."""

from __future__ import annotations

from dba_console.panels.registry import PANELS, PanelKind


def panel_of_key(key: str) -> str | None:
    """The name of the panel with that key, None where there is none."""
    return next((name for name, kind in PANELS.items() if kind.key == key), None)


def panel_titles() -> dict[str, str]:
    """Key -> title of every panel."""
    return {kind.key: kind.title for kind in PANELS.values()}


def panel_kind(name: str) -> PanelKind:
    """The panel's declaration."""
    return PANELS[name]
