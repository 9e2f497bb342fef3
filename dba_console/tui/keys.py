"""Every key of the screen, declared once.

The screens act on it, the footer and the help show it, the command palette offers it, and `python -m
dba_console.tui.keys` prints it as the table of docs/keys.md: none of them can disagree. No Textual here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from dba_console.watch.panels.registry import PANELS, PanelKind

ScreenName = Literal[
    "everywhere", "overview", "detail", "findings", "evidence", "backends", "jobs", "job", "history", "runbooks",
    "runbook", "walkthrough", "owed",
]  # fmt: skip

_INHERITED_KEYS: dict[ScreenName, tuple[ScreenName, ...]] = {
    "findings": ("detail",), "backends": ("detail",), "runbooks": ("detail",), "jobs": ("detail",),
    "history": ("detail",),
}  # fmt: skip
"""Screens that are another one as well: its keys that have no meaning of their own there mean the same."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key and what it does.

    `keys` are Textual's names, the first of them the one shown; `action` is the method `do_ACTION` of the screen.
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
    Key(("a",), "a", "acknowledge", "acknowledge", "somebody knows of it; with a note", "findings", "findings"),
    Key(("s",), "s", "silence", "silence", "keep it quiet for a time: 30m, 2h, with a note", "findings", "findings"),
    Key(("u",), "u", "unsilence", "take back", "take back an acknowledgement or a silence", "findings", "findings"),
    Key(("r",), "r", "runbook", "runbook", "the runbook that answers it", "findings", "findings"),
)

_RUNBOOK_KEYS = (
    Key(("b",), "b", "runbooks", "runbooks", "the runbooks, and the runs under way", group="runbooks"),
    Key(("w",), "w", "walkthrough", "run", "the run under way, first the one that waits for you", group="runbooks"),
    Key(("enter",), "enter", "choose", "open", "read the runbook, or see the run", "runbooks", "runbooks"),
    Key(("i",), "i", "inputs", "inputs", "give its inputs, one after the other", "runbook", "runbooks"),
    Key(
        ("s",),
        "s",
        "begin",
        "begin",
        "begin: checks and plan are shown, then it asks whether to start",
        "runbook",
        "runbooks",
    ),
    Key(
        ("t",),
        "t",
        "rehearse",
        "rehearse",
        "really run its checks, and tell what the rest would do",
        "runbook",
        "runbooks",
    ),
    Key(
        ("enter",),
        "enter",
        "answer",
        "answer",
        "answer what it asks; enter alone confirms nothing",
        "walkthrough",
        "runbooks",
    ),
    Key(("y",), "y", "read", "read", "I have read it: where nothing more is asked", "walkthrough", "runbooks"),
    Key(("p",), "p", "hold", "hold", "begin nothing new; again: go on", "walkthrough", "runbooks"),
    Key(("s",), "s", "skip", "skip", "leave this step out, with the reason", "walkthrough", "runbooks"),
    Key(("j",), "j", "jump", "jump", "go on at another step, with the reason", "walkthrough", "runbooks"),
    Key(("k",), "k", "stop", "stop", "stop what runs now, at its next safe point", "walkthrough", "runbooks"),
    Key(
        ("x",),
        "x",
        "tick",
        "tick",
        "leave this row out of what is acted on, and go to the next; again: take it in",
        "walkthrough",
        "runbooks",
    ),
    Key(
        ("e",),
        "e",
        "abort",
        "end",
        "end the run here, with the reason; nothing is taken back by itself",
        "walkthrough",
        "runbooks",
    ),
    Key(("u",), "u", "undo", "undo", "end the run, and be asked which steps are taken back", "walkthrough", "runbooks"),
    Key(
        ("t",),
        "t",
        "take",
        "take over",
        "answer from here instead of from the other console",
        "walkthrough",
        "runbooks",
    ),
    Key(("r",), "r", "resume", "resume", "go on with a run that was interrupted", "walkthrough", "runbooks"),
    Key(
        ("tab",),
        "tab",
        "pane",
        "more",
        "the step alone, the output, all steps: what has the screen",
        "walkthrough",
        "runbooks",
    ),
    Key(
        ("escape", "backspace"), "esc", "back", "leave", "leave the screen; the run goes on", "walkthrough", "runbooks"
    ),
    Key(("escape", "backspace"), "esc", "back", "back", "back to where you came from", "runbook", "runbooks"),
    Key(
        ("p",),
        "p",
        "put_back",
        "put back now",
        "begin the runbook that puts back what runs have left changed",
        "owed",
        "runbooks",
    ),
    Key(("escape", "backspace"), "esc", "back", "later", "leave it for later; it stays a finding", "owed", "runbooks"),
)

_JOB_KEYS = (
    Key(("d",), "d", "past", "history",
        "dumps and restores that ended: how long, their trend, when they outgrow their window", group="jobs"),
    Key(("enter",), "enter", "job", "job", "the selected dump, restore or other long work in full", "jobs", "jobs"),
    Key(("d",), "d", "past", "its history", "the runs of this job that ended", "job", "jobs"),
    Key(("escape", "backspace"), "esc", "back", "back", "back to the table", "job", "jobs"),
    Key(("enter",), "enter", "past_runs", "its runs", "every run of the selected job", "history", "jobs"),
)  # fmt: skip

_BACKEND_KEYS = (
    Key(
        ("x",),
        "x",
        "tick",
        "tick",
        "choose this row as well, for c and k, and go to the next; again: not",
        "backends",
        "table",
    ),
    Key(
        ("c",),
        "c",
        "cancel",
        "cancel",
        "cancel the queries of the rows chosen; shows them and asks",
        "backends",
        "table",
    ),
    Key(
        ("k",),
        "k",
        "terminate",
        "terminate",
        "end the sessions of the rows chosen; shows them and asks",
        "backends",
        "table",
    ),
)

_SCROLL_KEYS = (
    Key(("up",), "↑", "row_up", "line up", "a line up, where not all of it fits", "evidence", "findings"),
    Key(("down",), "↓", "row_down", "line down", "a line down", "evidence", "findings"),
    Key(("pageup",), "pgup", "page_up", "page up", "a screen up", "evidence", "findings"),
    Key(("pagedown",), "pgdn", "page_down", "page down", "a screen down", "evidence", "findings"),
)

_SCROLLED_SCREENS: tuple[tuple[ScreenName, str], ...] = (
    ("runbook", "runbooks"),
    ("walkthrough", "runbooks"),
    ("job", "jobs"),
    ("owed", "runbooks"),
)

KEYS: tuple[Key, ...] = (
    *(
        Key((digit,), digit, f"panel_{digit}", f"panel {digit}", "", group="panels")
        for digit in _PANEL_KEYS
    ),
    Key(("o",), "o", "panel_o", "nodes of the cluster", "nodes and poolers of the configured cluster", group="panels"),
    Key(("c",), "c", "panel_c", "console's own cost", "what the console itself costs and whether it keeps up",
        group="panels"),
    Key(("f",), "f", "panel_f", "findings", "what is wrong: every finding with its evidence", group="panels"),
    Key(("tab", "down"), "tab", "focus_next", "next panel", "choose the next panel", "overview", "panels"),
    Key(("shift+tab", "up"), "shift+tab", "focus_previous", "previous panel", "choose the previous panel", "overview",
        "panels"),
    Key(("enter",), "enter", "open", "detail", "open the chosen panel in full", "overview", "panels"),
    Key(("escape", "backspace"), "esc", "back", "back", "back: closes the row, the filter, then the panel", "detail",
        "panels"),
    Key(("space",), "space", "space", "pause", "hold the moment; again: go on", group="time"),
    Key(("left",), "←", "step_back", "one sample back", "one sample back (pauses)", group="time"),
    Key(("right",), "→", "step_on", "one sample on", "one sample on", group="time"),
    Key(("shift+left",), "shift+←", "minute_back", "one minute back", "one minute back", group="time"),
    Key(("shift+right",), "shift+→", "minute_on", "one minute on", "one minute on", group="time"),
    Key(("left_square_bracket",), "[", "sign_back", "previous mark", "to the mark or finding before", group="time"),
    Key(("right_square_bracket",), "]", "sign_on", "next mark", "to the mark or finding after", group="time"),
    Key(("g",), "g", "go", "go to time", "to a time: 14:53:07, -10m, +90s from the start, mark:TEXT, RFC 3339",
        group="time"),
    Key(("h",), "h", "first", "start", "to the start of the recording", group="time"),
    Key(("end", "l"), "end", "live", "live", "back to live; in a recording, to its end", group="time"),
    Key(("plus",), "+", "faster", "faster", "play, then faster: ×1 ×2 ×4 ×16 ×64", group="time"),
    Key(("minus",), "-", "slower", "slower", "slower; below ×1 it pauses", group="time"),
    Key(("m",), "m", "mark", "mark", "mark this moment, with a line of text if you like", group="record"),
    Key(("n",), "n", "note", "note", "write a note; while paused it is about the moment shown", group="record"),
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
    Key(("r",), "r", "runbook", "runbook", "the runbook that answers the most urgent finding", "overview", "findings"),
    Key(("enter",), "enter", "row", "row", "the selected row in full: whole query, all columns", "detail", "table"),
    Key(("tab",), "tab", "table_next", "next table", "the next table of the panel", "detail", "table"),
    Key(("shift+tab",), "shift+tab", "table_previous", "previous table", "the previous table", "detail", "table"),
    Key(("slash",), "/", "filter", "filter", "show only rows that contain a text (any column, any case)", "detail",
        "table"),
    Key(("greater_than_sign",), ">", "sort_next", "sort", "sort by the next column; capital letters name a column",
        "detail", "table"),
    Key(("less_than_sign",), "<", "sort_previous", "sort before", "sort by the previous column", "detail", "table"),
    Key(("i",), "i", "invert", "invert", "turn the order around", "detail", "table"),
    Key(("full_stop",), ".", "scroll_right", "scroll right", "columns to the right", "detail", "table"),
    Key(("comma",), ",", "scroll_left", "scroll left", "columns to the left", "detail", "table"),
    *_BACKEND_KEYS,
    *_JOB_KEYS,
    *_RUNBOOK_KEYS,
    *(replace(key, where=where, group=group) for where, group in _SCROLLED_SCREENS for key in _SCROLL_KEYS),
    Key(("question_mark", "f1"), "?", "help", "help", "all keys of this screen"),
    Key(("ctrl+p",), "ctrl+p", "palette", "commands", "find a command by its name"),
    Key(("ctrl+z",), "ctrl+z", "suspend", "suspend", "stop the console and go back to the shell; fg goes on"),
    Key(("q", "ctrl+q", "ctrl+c"), "q", "quit", "quit", "leave; the agent goes on recording for its grace time"),
)  # fmt: skip
"""In the order of help and documentation."""

_GROUPS = {
    "panels": "Panels", "findings": "Findings", "time": "Time", "record": "Record", "table": "Tables",
    "jobs": "Dumps & restores", "runbooks": "Runbooks", "screen": "Screen",
}  # fmt: skip


def keys_of(where: ScreenName) -> tuple[Key, ...]:
    """The keys that do something on that screen."""
    own = {name for key in KEYS if key.where == where for name in key.keys}
    inherited = _INHERITED_KEYS.get(where, ())
    return tuple(
        key
        for key in KEYS
        if key.where in ("everywhere", where) or (key.where in inherited and not own.intersection(key.keys))
    )


def find_key(where: ScreenName, name: str) -> Key | None:
    """The key of that Textual name on that screen; a screen's own meaning goes before the one it has everywhere.

    >>> find_key("detail", "enter").action, find_key("overview", "enter").action, find_key("overview", "f12")
    ('row', 'open', None)
    """
    matches = [key for key in keys_of(where) if name in key.keys]
    own = [key for key in matches if key.where != "everywhere"]
    return next(iter(own or matches), None)


def groups(where: ScreenName | None = None) -> list[tuple[str, list[Key]]]:
    """Titles of groups with their keys, for help (`where` given) and documentation (all)."""
    chosen = KEYS if where is None else keys_of(where)
    return [(title, [key for key in chosen if key.group == group]) for group, title in _GROUPS.items()]


def markdown(panel_titles: dict[str, str]) -> str:
    """The table for docs/keys.md. `panel_titles`: key -> what the panel is called."""
    lines = ["# Keys", "", "Printed by `python -m dba_console.tui.keys`; a test holds it to the program."]
    for title, chosen in groups():
        lines += ["", f"## {title}", "", "| key | where | what it does |", "|---|---|---|"]
        for key in chosen:
            meaning = key.help or f"{panel_titles.get(key.shown, key.title)} in full"
            shown = "`|`" if key.shown == "|" else f"`{key.shown}`"
            lines.append(f"| {shown} | {key.where} | {meaning} |")
    return "\n".join(lines) + "\n"


# The panels the screen can open, by key.


def panel_of_key(key: str) -> str | None:
    """The name of the panel with that key, None where there is none."""
    return next((name for name, kind in PANELS.items() if kind.key == key), None)


def panel_titles() -> dict[str, str]:
    """Key -> title of every panel."""
    return {kind.key: kind.title for kind in PANELS.values()}


def panel_kind(name: str) -> PanelKind:
    """The panel's declaration."""
    return PANELS[name]


if __name__ == "__main__":
    print(markdown(panel_titles()), end="")
