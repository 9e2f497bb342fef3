"""Every key of the screen, with its action, title and help.

The only declaration: the screens, the footer, the help, the command palette and `python -m dba_console.tui.keys`
(docs/keys.md) all use it. Does not import Textual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dba_console.watch.panels.registry import PANELS, PanelKind

ScreenName = Literal[
    "everywhere", "overview", "detail", "findings", "evidence", "backends", "jobs", "job", "history", "runbooks",
    "runbook", "walkthrough", "reverts",
]  # fmt: skip

_INHERITED_KEYS: dict[ScreenName, tuple[ScreenName, ...]] = {
    "findings": ("detail",), "backends": ("detail",), "runbooks": ("detail",), "jobs": ("detail",),
    "history": ("detail",),
}  # fmt: skip
"""Screens that inherit the keys of another screen, except those that they define themselves."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and what it does.

    `keys` are Textual's key names, the first is the one shown; `action` is the method `do_ACTION` of the screen.
    """

    keys: tuple[str, ...]
    shown: str
    action: str
    title: str
    help: str
    where: ScreenName = "everywhere"
    group: str = "screen"


_PANEL_KEYS = "1234567890"

_FINDING_KEYS = (
    Key(("a",), "a", "acknowledge", "acknowledge", "acknowledge the finding, with a note", "findings", "findings"),
    Key(("s",), "s", "silence", "silence", "silence the finding: 30m, 2h, with a note", "findings", "findings"),
    Key(("u",), "u", "unsilence", "undo", "remove the acknowledgement or the silence", "findings", "findings"),
    Key(("r",), "r", "runbook", "runbook", "the runbook for it", "findings", "findings"),
)

_RUNBOOK_KEYS = (
    Key(("b",), "b", "runbooks", "runbooks", "the runbooks and the open runs", group="runbooks"),
    Key(("w",), "w", "walkthrough", "run", "the open run; the one that waits for you first", group="runbooks"),
    Key(("enter",), "enter", "choose", "open", "open the runbook or the run", "runbooks", "runbooks"),
    Key(("i",), "i", "inputs", "inputs", "enter its inputs, one after the other", "runbook", "runbooks"),
    Key(
        ("s",),
        "s",
        "begin",
        "start",
        "show checks and plan, then ask whether to start",
        "runbook",
        "runbooks",
    ),
    Key(
        ("t",),
        "t",
        "rehearse",
        "rehearse",
        "run its checks, show what the other steps would do",
        "runbook",
        "runbooks",
    ),
    Key(
        ("enter",),
        "enter",
        "answer",
        "answer",
        "answer the question; enter alone confirms nothing",
        "walkthrough",
        "runbooks",
    ),
    Key(("y",), "y", "read", "read", "confirm that you read it, if nothing else is asked", "walkthrough", "runbooks"),
    Key(("p",), "p", "hold", "hold", "start no further step; again: continue", "walkthrough", "runbooks"),
    Key(("s",), "s", "skip", "skip", "skip this step, with a reason", "walkthrough", "runbooks"),
    Key(("j",), "j", "jump", "jump", "continue at another step, with a reason", "walkthrough", "runbooks"),
    Key(("k",), "k", "stop", "stop", "stop the running action at its next safe point", "walkthrough", "runbooks"),
    Key(
        ("x",),
        "x",
        "tick",
        "tick",
        "exclude this row from the action and go to the next; again: include it",
        "walkthrough",
        "runbooks",
    ),
    Key(
        ("e",),
        "e",
        "abort",
        "end",
        "end the run here, with a reason; nothing is reverted automatically",
        "walkthrough",
        "runbooks",
    ),
    Key(("u",), "u", "undo", "undo", "end the run and choose which steps to revert", "walkthrough", "runbooks"),
    Key(
        ("t",),
        "t",
        "take",
        "take over",
        "answer from this console instead of the other one",
        "walkthrough",
        "runbooks",
    ),
    Key(("r",), "r", "resume", "resume", "resume an interrupted run", "walkthrough", "runbooks"),
    Key(
        ("tab",),
        "tab",
        "pane",
        "more",
        "switch between step, output and all steps",
        "walkthrough",
        "runbooks",
    ),
    Key(
        ("escape", "backspace"),
        "esc",
        "back",
        "leave",
        "leave the screen; the run continues",
        "walkthrough",
        "runbooks",
    ),
    Key(("escape", "backspace"), "esc", "back", "back", "back to the previous screen", "runbook", "runbooks"),
    Key(
        ("p",),
        "p",
        "put_back",
        "revert now",
        "start the runbook that reverts these temporary settings",
        "reverts",
        "runbooks",
    ),
    Key(("escape", "backspace"), "esc", "back", "later", "decide later; the finding stays open", "reverts", "runbooks"),
)

_JOB_KEYS = (
    Key(("d",), "d", "past", "history",
        "finished dumps and restores: durations, trend, when they exceed their window", group="jobs"),
    Key(("enter",), "enter", "job", "job", "the selected dump, restore or other long operation", "jobs", "jobs"),
    Key(("d",), "d", "past", "its history", "the finished runs of this job", "job", "jobs"),
    Key(("escape", "backspace"), "esc", "back", "back", "back to the table", "job", "jobs"),
    Key(("enter",), "enter", "past_runs", "its runs", "every run of the selected job", "history", "jobs"),
)  # fmt: skip

_BACKEND_KEYS = (
    Key(
        ("x",),
        "x",
        "tick",
        "tick",
        "tick this row for c and k, and go to the next; again: untick",
        "backends",
        "table",
    ),
    Key(
        ("c",),
        "c",
        "cancel",
        "cancel",
        "cancel the queries of the chosen rows; shows them and asks",
        "backends",
        "table",
    ),
    Key(
        ("k",),
        "k",
        "terminate",
        "terminate",
        "terminate the sessions of the chosen rows; shows them and asks",
        "backends",
        "table",
    ),
)

_SCROLL_KEYS = (
    Key(("up",), "↑", "row_up", "line up", "scroll up one line", "evidence", "findings"),
    Key(("down",), "↓", "row_down", "line down", "scroll down one line", "evidence", "findings"),
    Key(("pageup",), "pgup", "page_up", "page up", "scroll up one screen", "evidence", "findings"),
    Key(("pagedown",), "pgdn", "page_down", "page down", "scroll down one screen", "evidence", "findings"),
)

_SCROLLED_SCREENS: tuple[tuple[ScreenName, str], ...] = (
    ("runbook", "runbooks"),
    ("walkthrough", "runbooks"),
    ("job", "jobs"),
    ("reverts", "runbooks"),
)

KEYS: tuple[Key, ...] = (
    *(
        Key((digit,), digit, f"panel_{digit}", f"panel {digit}", "", group="panels")
        for digit in _PANEL_KEYS
    ),
    Key(("o",), "o", "panel_o", "nodes of the cluster", "nodes and poolers of the configured cluster", group="panels"),
    Key(("c",), "c", "panel_c", "console's own cost", "the console's own load, and whether it keeps up",
        group="panels"),
    Key(("f",), "f", "panel_f", "findings", "every finding with its evidence", group="panels"),
    Key(("tab", "down"), "tab", "focus_next", "next panel", "select the next panel", "overview", "panels"),
    Key(("shift+tab", "up"), "shift+tab", "focus_previous", "previous panel", "select the previous panel", "overview",
        "panels"),
    Key(("enter",), "enter", "open", "detail", "open the selected panel", "overview", "panels"),
    Key(("escape", "backspace"), "esc", "back", "back", "close the row, then the filter, then the panel", "detail",
        "panels"),
    Key(("space",), "space", "space", "pause", "pause; again: continue", group="time"),
    Key(("left",), "←", "step_back", "previous sample", "previous sample (pauses)", group="time"),
    Key(("right",), "→", "step_on", "next sample", "next sample", group="time"),
    Key(("shift+left",), "shift+←", "minute_back", "back 1 minute", "one minute back", group="time"),
    Key(("shift+right",), "shift+→", "minute_on", "forward 1 min", "one minute forward", group="time"),
    Key(("left_square_bracket",), "[", "sign_back", "previous mark", "to the previous mark or finding", group="time"),
    Key(("right_square_bracket",), "]", "sign_on", "next mark", "to the next mark or finding", group="time"),
    Key(("g",), "g", "go", "go to time", "go to a time: 14:53:07, -10m, +90s from the start, mark:TEXT, RFC 3339",
        group="time"),
    Key(("h",), "h", "first", "start", "to the start of the recording", group="time"),
    Key(("end", "l"), "end", "live", "live", "return to live; in a recording, go to its end", group="time"),
    Key(("plus",), "+", "faster", "faster", "play, then faster: ×1 ×2 ×4 ×16 ×64", group="time"),
    Key(("minus",), "-", "slower", "slower", "slower; below ×1 it pauses", group="time"),
    Key(("m",), "m", "mark", "mark", "mark this moment, with an optional line of text", group="record"),
    Key(("n",), "n", "note", "note", "write a note; while paused, it belongs to the time shown", group="record"),
    Key(("up",), "↑", "row_up", "row up", "the row above", "detail", "table"),
    Key(("down",), "↓", "row_down", "row down", "the row below", "detail", "table"),
    Key(("pageup",), "pgup", "page_up", "page up", "a page up", "detail", "table"),
    Key(("pagedown",), "pgdn", "page_down", "page down", "a page down", "detail", "table"),
    Key(("home",), "home", "top", "first row", "the first row (overview: the start of the recording)", group="table"),
    Key(("enter",), "enter", "evidence", "evidence", "the finding, its evidence charted around its start", "findings",
        "findings"),
    *_FINDING_KEYS,
    Key(("escape", "backspace"), "esc", "back", "back", "back to the findings", "evidence", "findings"),
    *(replace(key, where="evidence") for key in _FINDING_KEYS),
    *_SCROLL_KEYS,
    Key(("r",), "r", "runbook", "runbook", "the runbook for the most urgent finding", "overview", "findings"),
    Key(("enter",), "enter", "row", "row", "the selected row: whole query, all columns", "detail", "table"),
    Key(("tab",), "tab", "table_next", "next table", "the next table of the panel", "detail", "table"),
    Key(("shift+tab",), "shift+tab", "table_previous", "previous table", "the previous table", "detail", "table"),
    Key(("slash",), "/", "filter", "filter", "show only rows that contain a text (any column, any case)", "detail",
        "table"),
    Key(("greater_than_sign",), ">", "sort_next", "sort", "sort by the next column; capital letters name a column",
        "detail", "table"),
    Key(("less_than_sign",), "<", "sort_previous", "sort back", "sort by the previous column", "detail", "table"),
    Key(("i",), "i", "invert", "invert", "reverse the order", "detail", "table"),
    Key(("full_stop",), ".", "scroll_right", "scroll right", "columns to the right", "detail", "table"),
    Key(("comma",), ",", "scroll_left", "scroll left", "columns to the left", "detail", "table"),
    *_BACKEND_KEYS,
    *_JOB_KEYS,
    *_RUNBOOK_KEYS,
    *(replace(key, where=where, group=group) for where, group in _SCROLLED_SCREENS for key in _SCROLL_KEYS),
    Key(("question_mark", "f1"), "?", "help", "help", "all keys of this screen"),
    Key(("ctrl+p",), "ctrl+p", "palette", "commands", "find a command by its name"),
    Key(("ctrl+z",), "ctrl+z", "suspend", "suspend", "suspend the console and return to the shell; fg resumes"),
    Key(("q", "ctrl+q", "ctrl+c"), "q", "quit", "quit", "quit; the agent keeps recording for its grace period"),
)  # fmt: skip
"""In the order of the help and of docs/keys.md."""

_GROUPS = {
    "panels": "Panels", "findings": "Findings", "time": "Time", "record": "Record", "table": "Tables",
    "jobs": "Dumps & restores", "runbooks": "Runbooks", "screen": "Screen",
}  # fmt: skip


def keys_of(where: ScreenName) -> tuple[Key, ...]:
    """Return the keys that work on that screen."""
    own = {name for key in KEYS if key.where == where for name in key.keys}
    inherited = _INHERITED_KEYS.get(where, ())
    return tuple(
        key
        for key in KEYS
        if key.where in ("everywhere", where) or (key.where in inherited and not own.intersection(key.keys))
    )


def find_key(where: ScreenName, name: str) -> Key | None:
    """Return the key of that Textual name on that screen; a screen's own key overrides the one for everywhere.

    >>> find_key("detail", "enter").action, find_key("overview", "enter").action, find_key("overview", "f12")
    ('row', 'open', None)
    """
    matches = [key for key in keys_of(where) if name in key.keys]
    own = [key for key in matches if key.where != "everywhere"]
    return next(iter(own or matches), None)


def groups(where: ScreenName | None = None) -> list[tuple[str, list[Key]]]:
    """Return group titles with their keys: of one screen for its help, of all screens for the documentation."""
    chosen = KEYS if where is None else keys_of(where)
    return [(title, [key for key in chosen if key.group == group]) for group, title in _GROUPS.items()]


def markdown(panel_titles: dict[str, str]) -> str:
    """Return docs/keys.md. `panel_titles` maps a key to the title of its panel."""
    lines = ["# Keys", "", "Generated by `python -m dba_console.tui.keys`; a test compares it with the program."]
    for title, chosen in groups():
        lines += ["", f"## {title}", "", "| key | where | what it does |", "|---|---|---|"]
        for key in chosen:
            meaning = key.help or f"{panel_titles.get(key.shown, key.title)} in full"
            shown = "`|`" if key.shown == "|" else f"`{key.shown}`"
            lines.append(f"| {shown} | {key.where} | {meaning} |")
    return "\n".join(lines) + "\n"


def panel_of_key(key: str) -> str | None:
    """Return the name of the panel with that key, None if no panel has it."""
    return next((name for name, kind in PANELS.items() if kind.key == key), None)


def panel_titles() -> dict[str, str]:
    """Map each panel's key to its title."""
    return {kind.key: kind.title for kind in PANELS.values()}


def panel_kind(name: str) -> PanelKind:
    """Return the panel's declaration."""
    return PANELS[name]


if __name__ == "__main__":
    print(markdown(panel_titles()), end="")
