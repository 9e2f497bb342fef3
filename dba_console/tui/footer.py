"""The first and the last line of every screen: where one stands, and which keys do something here and now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dba_console.panels.text_elements import Line, Span, clean, cut, fit_line, line, line_width
from dba_console.panels.wrapping import wrap
from dba_console.tui.keys import Key, ScreenName, keys_of
from dba_console.tui.time_cursor import TimeCursor
from dba_console.tui.time_travel import TimeNavigator
from dba_console.units import human_duration

SILENT_TICKS = 2.5
"""An agent not heard of for longer is said to be silent."""

NOTICE_LINES = 4
"""A refusal has to be read whole; more than that is no sentence."""
_SEPARATOR = "  "
_LIVE_ONLY_ACTIONS = frozenset(
    (
        "mark", "note", "acknowledge", "silence", "unsilence", "tick", "cancel", "terminate", "put_back", "inputs",
        "begin", "rehearse", "answer", "read", "hold", "skip", "jump", "stop", "abort", "undo", "take", "resume",
    )
)  # fmt: skip
"""What a recording refuses."""
_NOT_BY_MOUSE = ("panel", "time", "read")


def outdated_reason(navigator: TimeNavigator, interval_s: float) -> str | None:
    """What keeps the screen from being up to date, None where nothing does."""
    if navigator.connection_state == "lost":
        return f"agent lost: {navigator.connection_text}; trying again"
    silent_s = navigator.silent_s
    if (
        navigator.connection_state == "attached"
        and silent_s is not None
        and silent_s > SILENT_TICKS * max(1.0, interval_s)
    ):
        return f"no sample for {human_duration(silent_s)}"
    if navigator.waiting:
        return "the recording is slow to answer"
    return None


def data_age_text(navigator: TimeNavigator) -> str | None:
    """How old what is shown is while no agent sends anything: the header says it, and it grows without a key press."""
    silent_s = navigator.silent_s
    return human_duration(silent_s) if navigator.connection_state == "lost" and silent_s is not None else None


def footer_line(hints: Sequence[str], where: ScreenName, cursor: TimeCursor, cells: int) -> Line:
    """As many of the hinted keys as fit whole; help and quit always do."""
    spans: list[Span] = [Span(" ")]
    for _, shown, title in _fitting_items(hints, where, cursor, cells):
        spans += [Span(shown, "key"), Span(f" {title}{_SEPARATOR}")]
    return fit_line(tuple(spans), cells)


def footer_key(hints: Sequence[str], where: ScreenName, cursor: TimeCursor, cells: int, column: int) -> Key | None:
    """The key shown at that column of the footer. None beside them, on those that stand for several keys, and on the
    one that confirms: that is a matter of the keyboard.
    """
    start = 1
    for hint, shown, title in _fitting_items(hints, where, cursor, cells):
        end = start + line_width(line(shown, " ", title))
        if start <= column < end:
            return None if hint in _NOT_BY_MOUSE else next((key for key in keys_of(where) if key.action == hint), None)
        start = end + len(_SEPARATOR)
    return None


def _fitting_items(
    hints: Sequence[str], where: ScreenName, cursor: TimeCursor, cells: int
) -> list[tuple[str, str, str]]:
    """What fits of the hinted keys: action, key, title."""
    items = [(hint, *item) for hint in hints if (item := _item(hint, where, cursor)) is not None]
    while items and _items_width(items) > cells - 1:
        # The last two are help and quit: what gives way stands before them.
        del items[-3 if len(items) > 2 else -1]
    return items


def notice_lines(text: str, cells: int) -> list[Line]:
    """A sentence in place of the keys, until the next key: over the lines above where it is a long one."""
    pieces = wrap(clean(text), max(1, cells - 2))
    shown = pieces[:NOTICE_LINES]
    if len(pieces) > NOTICE_LINES:
        shown[-1] = cut(f"{shown[-1]} {pieces[NOTICE_LINES]}", cells - 2)
    return [fit_line(line(Span(f" {piece}", "changed")), cells) for piece in shown]


def _items_width(items: Iterable[tuple[str, str, str]]) -> int:
    return sum(line_width(line(shown, " ", title, _SEPARATOR)) for _, shown, title in items)


def _item(hint: str, where: ScreenName, cursor: TimeCursor) -> tuple[str, str] | None:
    if hint == "panel":
        return ("1-9", "panel")
    if hint == "time":
        return ("←/→", "time") if cursor.live else ("end", "live" if cursor.can_go_live else "newest")
    if hint in _LIVE_ONLY_ACTIONS and not cursor.can_go_live:
        return None  # a recording that is over takes no marks, and nothing is done from it
    key = next((key for key in keys_of(where) if key.action == hint), None)
    if key is None:
        return None
    return (key.shown, _space_title(cursor) if hint == "space" else key.title)


def _space_title(cursor: TimeCursor) -> str:
    if cursor.live or cursor.playing:
        return "pause"
    return "live" if cursor.can_go_live and not cursor.moved else "play"
