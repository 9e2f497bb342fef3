"""Every panel by name: those of the subjects, then findings and the console itself."""

from __future__ import annotations

from dba_console.watch import subjects
from dba_console.watch.drawing import console_usage, findings
from dba_console.watch.layout import Layout

PANELS = {
    **subjects.layouts(),
    "findings": Layout(name="findings", title="Findings", key="f", compact=findings.compact, full=findings.detail),
    "own": Layout(name="own", title="This console", key="c", compact=console_usage.compact, full=console_usage.detail),
}
