"""The view of settings that runs left changed on this server: shown first in a new console, reverted with a key."""

from __future__ import annotations

from dba_console.tui.keys import ScreenName
from dba_console.tui.screen_view import Scene, ScrolledPage
from dba_console.watch.frames.model import Finding, Frame
from dba_console.watch.panels.overview import title_rule
from dba_console.watch.panels.text_elements import Line, Span, Style, clean, fit_line, line, wrap_lines
from dba_console.watch.panels.time_formats import local_date_and_time

RULE_ID = "settings-left"
RUNBOOK_ID = "put-back"
_EXPLANATION = (
    "A preview shows each setting with its previous value, then you confirm. Settings that were changed again since "
    "are left alone. The finding stays open until then. An interrupted run can be resumed instead (w)."
)


class PendingRevertsView(ScrolledPage):
    """The settings, since when, by which run. Stays as last known."""

    where: ScreenName = "reverts"
    hints: tuple[str, ...] = ("put_back", "back", "help", "quit")

    def __init__(self) -> None:
        super().__init__()
        self._last_known: Finding | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        now = pending_reverts_finding(scene.frame)
        self._last_known = now or self._last_known
        head = [fit_line(title_rule(line(Span("Settings of a run were not reverted", "title")), width), width)]
        one = self._last_known
        if one is None:
            return [*head, line(Span(f" {scene.waiting_text}", "dim"))]
        lines = _reverted_lines() if now is None else _pending_lines(one)
        wrapped = [(Span(" "), *spans) for spans in wrap_lines(lines, max(1, width - 2))]
        return [*head, *self.scrolled([fit_line(spans, width) for spans in wrapped], height - 1)]


def pending_reverts_finding(frame: Frame | None) -> Finding | None:
    """Return the finding about them; None if none are left, or the run still continues."""
    if frame is None:
        return None
    return next((one for one in frame.findings if one.id == RULE_ID and one.severity != "info"), None)


def _pending_lines(one: Finding) -> list[Line]:
    style: Style = "crit" if one.severity == "critical" else "warn"
    who = [clean(str(name)) for name in one.evidence.get("who") or ()]
    by = f", by {', '.join(who)}" if who else ""
    settings = [line(Span("  "), Span(clean(str(setting)), style)) for setting in one.evidence.get("settings") or ()]
    return [
        (),
        line(Span(f"{clean(one.text)}.", style)),
        (),
        *settings,
        (),
        line(f"Since {local_date_and_time(one.since)}{by}."),
        (),
        line(
            Span("p", "key"),
            f" reverts them now (runbook {RUNBOOK_ID}); ",
            Span("esc", "key"),
            " decides later.",
        ),
        line(Span(_EXPLANATION, "dim")),
    ]


def _reverted_lines() -> list[Line]:
    return [(), line(Span("All settings are reverted.", "ok"))]
