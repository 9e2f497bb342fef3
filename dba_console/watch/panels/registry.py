"""Every panel by name: those of the subjects, and those whose subject does not declare its panel yet."""

from __future__ import annotations

from dba_console.watch import subjects
from dba_console.watch.layout import Layout
from dba_console.watch.panels import (
    console_usage,
    findings,
)
from dba_console.watch.subjects import PANEL_NAMES

_UNDECLARED = (
    Layout(name="findings", title="Findings", key="f", compact=findings.compact, full=findings.detail),
    Layout(name="own", title="This console", key="c", compact=console_usage.compact, full=console_usage.detail),
)

_BY_NAME: dict[str, Layout] = {layout.name: layout for layout in _UNDECLARED} | subjects.layouts()

PANELS = {name: _BY_NAME[name] for name in (*PANEL_NAMES, "findings", "own")}
