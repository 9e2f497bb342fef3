"""What runs have left changed on this server: shown before all else where a console begins, put back with a key."""

from __future__ import annotations

from dba_console.frames.model import Finding, Frame
from dba_console.panels.cells import Line, Span, Style, clean, fit_line, line
from dba_console.panels.text import rule
from dba_console.panels.times import moment_of
from dba_console.panels.wrapping import wrap_lines
from dba_console.tui.keys import Where
from dba_console.tui.pages import Page
from dba_console.tui.view import Scene

RULE = "settings-left"
BOOK = "put-back"
_AFTER = (
    "Putting back shows each of them with what was there before, and asks. What somebody has set otherwise since is "
    "left alone. Until it is done this stays a finding. A run that was interrupted can be gone on with instead (w)."
)


class OwedView(Page):
    """The settings, since when, by which run. Kept as it was last known."""

    where: Where = "owed"
    hints: tuple[str, ...] = ("put_back", "back", "help", "quit")

    def __init__(self) -> None:
        super().__init__()
        self._kept: Finding | None = None

    def lines(self, scene: Scene, width: int, height: int) -> list[Line]:
        now = left(scene.frame)
        self._kept = now or self._kept
        head = [fit_line(rule(line(Span("Settings of a run were not put back", "title")), width), width)]
        one = self._kept
        if one is None:
            return [*head, line(Span(f" {scene.waiting_for}", "dim"))]
        lines = _ended() if now is None else _told(one)
        wrapped = [(Span(" "), *spans) for spans in wrap_lines(lines, max(1, width - 2))]
        return [*head, *self.scrolled([fit_line(spans, width) for spans in wrapped], height - 1)]


def left(frame: Frame | None) -> Finding | None:
    """The finding that tells of it; None where nothing is left, or the run goes on."""
    if frame is None:
        return None
    return next((one for one in frame.findings if one.id == RULE and one.severity != "info"), None)


def _told(one: Finding) -> list[Line]:
    style: Style = "crit" if one.severity == "critical" else "warn"
    who = [clean(str(name)) for name in one.evidence.get("who") or ()]
    by = f", by {', '.join(who)}" if who else ""
    settings = [line(Span("  "), Span(clean(str(told)), style)) for told in one.evidence.get("settings") or ()]
    return [
        (),
        line(Span(f"{clean(one.text)}.", style)),
        (),
        *settings,
        (),
        line(f"Since {moment_of(one.since)}{by}."),
        (),
        line(Span("p", "key"), f" puts them back now (runbook {BOOK}); ", Span("esc", "key"), " leaves it for later."),
        line(Span(_AFTER, "dim")),
    ]


def _ended() -> list[Line]:
    return [(), line(Span("Nothing is left: everything is as it was.", "ok"))]
