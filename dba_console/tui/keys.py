"""Every key of the screen, with its action, title and help.

The only declaration: the screens, the footer, the help, the command palette and `python -m dba_console.tui.keys`
(docs/keys.md) all use it. Does not import Textual.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import Literal

from dba_console.watch.drawing.registry import PANELS
from dba_console.watch.layout import Layout

ScreenName = Literal[
    "everywhere", "overview", "detail", "findings", "evidence", "backends", "jobs", "job", "history", "runbooks",
    "runbook", "walkthrough", "reverts", "comparison",
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

    @property
    def acts(self) -> bool:
        """Whether it changes or requests a change: capital letters, and a few that act on the console alone."""
        return self.shown in ascii_uppercase or self.action in _ACTING


_ACTING = ("begin", "rehearse", "hold", "tick", "unsilence")
_SHOWN = {
    "escape": "esc", "left": "←", "right": "→", "shift+left": "shift+←", "shift+right": "shift+→",
    "left_square_bracket": "[", "right_square_bracket": "]", "plus": "+", "minus": "-", "up": "↑", "down": "↓",
    "pageup": "pgup", "pagedown": "pgdn", "slash": "/", "greater_than_sign": ">", "less_than_sign": "<",
    "equals_sign": "=", "full_stop": ".", "comma": ",", "question_mark": "?",
    "at": "@", "ampersand": "&",
}  # fmt: skip
"""Names of keys on the screen, where they differ from Textual's."""


def _on(where: ScreenName, group: str, *rows: tuple[str, str, str, str]) -> tuple[Key, ...]:
    """Return the keys of a screen: Textual's names separated by blanks, action, title, help."""
    return tuple(
        Key(tuple(names.split()), _SHOWN.get(names.split()[0], names.split()[0]), action, title, meaning, where, group)
        for names, action, title, meaning in rows
    )


_FINDING_KEYS = _on(
    "findings", "findings",
    ("a", "acknowledge", "acknowledge", "acknowledge the finding, with a note"),
    ("z", "silence", "silence", "silence the finding: 30m, 2h, with a note"),
    ("u", "unsilence", "undo", "remove the acknowledgement or the silence"),
    ("r", "runbook", "runbook", "open its runbook"),
    ("e", "postmortem", "postmortem", "write the postmortem of the finding, as Markdown and as HTML"),
)  # fmt: skip

_SCROLL_KEYS = _on(
    "evidence", "findings",
    ("up", "row_up", "line up", "scroll up one line"),
    ("down", "row_down", "line down", "scroll down one line"),
    ("pageup", "page_up", "page up", "scroll up one screen"),
    ("pagedown", "page_down", "page down", "scroll down one screen"),
)  # fmt: skip

_SCROLLED_SCREENS: tuple[tuple[ScreenName, str], ...] = (
    ("runbook", "runbooks"), ("walkthrough", "runbooks"), ("job", "jobs"), ("reverts", "runbooks"),
    ("comparison", "time"),
)  # fmt: skip

_NAMED_PANELS = _on(
    "everywhere", "panels",
    ("o", "panel_o", "nodes of the cluster", "nodes and poolers of the configured cluster"),
    ("c", "panel_c", "console's own cost", "the console's own load, and whether it keeps up"),
    ("f", "panel_f", "findings", "every finding with its evidence"),
)  # fmt: skip
"""Panels whose key needs more than the title of the panel."""
_PANEL_KEYS = tuple(
    (panel.key, f"panel_{panel.key}", f"panel {panel.key}", "")
    for panel in PANELS.values()
    if panel.key not in {key.shown for key in _NAMED_PANELS}
)

KEYS: tuple[Key, ...] = (
    *_on("everywhere", "panels", *_PANEL_KEYS),
    *_NAMED_PANELS,
    *_on(
        "overview", "panels",
        ("tab down", "focus_next", "next panel", "select the next panel"),
        ("shift+tab up", "focus_previous", "previous panel", "select the previous panel"),
        ("enter", "open", "detail", "open the selected panel"),
    ),
    *_on("detail", "panels", ("escape backspace", "back", "back", "close the row, then the filter, then the panel")),
    *_on(
        "everywhere", "time",
        ("space", "space", "pause", "pause; again: continue"),
        ("left", "step_back", "previous sample", "previous sample (pauses)"),
        ("right", "step_on", "next sample", "next sample"),
        ("shift+left", "minute_back", "back 1 minute", "one minute back"),
        ("shift+right", "minute_on", "forward 1 min", "one minute forward"),
        ("left_square_bracket", "sign_back", "previous mark", "to the previous mark or finding"),
        ("right_square_bracket", "sign_on", "next mark", "to the next mark or finding"),
        ("g", "go", "go to time", "go to a time: 14:53:07, -10m, +90s from the start, mark:TEXT, RFC 3339"),
        ("h", "first", "start", "to the start of the recording"),
        ("at", "compare", "compare", "keep this moment; then, at another moment: show what changed between the two"),
        ("ampersand", "other_host", "other host",
         "replay --with: the next host's recording at the same moment, corrected by the offset of the clocks"),
        ("end l", "live", "live", "return to live; in a recording, go to its end"),
        ("plus", "faster", "faster", "play, then faster: ×1 ×2 ×4 ×16 ×64"),
        ("minus", "slower", "slower", "slower; below ×1 it pauses"),
    ),
    *_on(
        "everywhere", "record",
        ("m", "mark", "mark", "mark this moment, with an optional line of text"),
        ("n", "note", "note", "write a note; while paused, it belongs to the time shown"),
    ),
    *_on(
        "detail", "table",
        ("up", "row_up", "row up", "the row above"),
        ("down", "row_down", "row down", "the row below"),
        ("pageup", "page_up", "page up", "a page up"),
        ("pagedown", "page_down", "page down", "a page down"),
    ),
    *_on("everywhere", "table", ("home", "top", "first row", "the first row (overview: the start of the recording)")),
    *_on(
        "findings", "findings",
        ("enter", "evidence", "evidence", "the finding, its evidence charted around its start"),
    ),
    *_FINDING_KEYS,
    *_on("evidence", "findings", ("escape backspace", "back", "back", "back to the findings")),
    *(replace(key, where="evidence") for key in _FINDING_KEYS),
    *_SCROLL_KEYS,
    *_on(
        "overview", "findings",
        ("r", "runbook", "runbook", "open the runbook for the most urgent finding"),
        ("e", "postmortem", "postmortem", "write the postmortem of the most urgent finding, or of the session"),
    ),
    *_on(
        "detail", "table",
        ("enter", "row", "row", "the selected row: whole query, all columns"),
        ("tab", "table_next", "next table", "the next table of the panel"),
        ("shift+tab", "table_previous", "previous table", "the previous table"),
        ("slash", "filter", "filter", "show only rows that contain a text (any column, any case)"),
        ("greater_than_sign", "sort_next", "sort", "sort by the next column"),
        ("less_than_sign", "sort_previous", "sort back", "sort by the previous column"),
        ("equals_sign", "sort_by", "sort by", "sort by a column: type the beginning of its name"),
        ("v", "invert", "reverse", "reverse the order"),
        ("full_stop", "scroll_right", "scroll right", "columns to the right"),
        ("comma", "scroll_left", "scroll left", "columns to the left"),
    ),
    *_on(
        "backends", "table",
        ("x", "tick", "choose", "choose this row for C and K and select the next one; again: not this row"),
        ("C", "cancel", "cancel", "cancel the queries of the chosen rows, after you confirm"),
        ("K", "terminate", "terminate", "terminate the sessions of the chosen rows, after you confirm"),
    ),
    *_on(
        "everywhere", "jobs",
        ("d", "past", "history", "finished dumps and restores: durations, trend, when they exceed their window"),
    ),
    *_on("jobs", "jobs", ("enter", "job", "job", "the selected dump, restore or other long operation")),
    *_on(
        "job", "jobs",
        ("d", "past", "its history", "the finished runs of this job"),
        ("escape backspace", "back", "back", "back to the table"),
    ),
    *_on("history", "jobs", ("enter", "past_runs", "its runs", "every run of the selected job")),
    *_on(
        "everywhere", "runbooks",
        ("b", "runbooks", "runbooks", "the runbooks and the open runs"),
        ("w", "walkthrough", "run", "the open run; of several the one that needs your answer"),
    ),
    *_on("runbooks", "runbooks", ("enter", "choose", "open", "open the runbook or the run")),
    *_on(
        "runbook", "runbooks",
        ("i", "inputs", "inputs", "enter its inputs, one after the other"),
        ("s", "begin", "start", "show checks and plan, then confirm the start"),
        ("t", "rehearse", "rehearse", "run its checks, show what the other steps would do"),
    ),
    *_on(
        "walkthrough", "runbooks",
        ("enter", "answer", "answer", "answer the question; enter alone confirms nothing"),
        ("p", "hold", "pause run", "pause the run: start no further step; again: continue"),
        ("S", "skip", "skip", "skip this step, with a reason"),
        ("J", "jump", "jump", "continue at another step, with a reason"),
        ("X", "stop", "stop", "stop the running action at its next safe point"),
        ("x", "tick", "choose", "leave this row out of the action and select the next one; again: include it"),
        ("E", "abort", "end", "end the run, with a reason; reverts temporary settings, in a cutover every step"),
        ("U", "undo", "revert", "end the run and choose which steps to revert"),
        ("T", "take", "take over", "take control of the run from the other console"),
        ("R", "resume", "resume", "resume an interrupted run"),
        ("tab", "pane", "more", "switch between step, output and all steps"),
        ("escape backspace", "back", "leave", "leave the screen; the run continues"),
    ),
    *_on("runbook", "runbooks", ("escape backspace", "back", "back", "back to the previous screen")),
    *_on(
        "reverts", "runbooks",
        ("P", "put_back", "revert now", "start the runbook that reverts these temporary settings"),
        ("escape backspace", "back", "later", "decide later; the finding stays open"),
    ),
    *_on("comparison", "time", ("escape backspace", "back", "back", "close the comparison")),
    *(replace(key, where=where, group=group) for where, group in _SCROLLED_SCREENS for key in _SCROLL_KEYS),
    *_on(
        "everywhere", "screen",
        ("y", "copy", "copy",
         "copy the selected row, its query or the command (OSC 52); shift-drag selects text with the mouse"),
        ("question_mark f1", "help", "help", "all keys of this screen"),
        ("ctrl+p", "palette", "commands", "find a command by its name"),
        ("ctrl+z", "suspend", "suspend", "suspend the console and return to the shell; fg resumes"),
        ("q ctrl+q ctrl+c", "quit", "quit", "quit; the agent keeps recording for its grace period"),
    ),
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


_INTRODUCTION = """\
Generated by `python -m dba_console.tui.keys`; a test compares it with the program.

Capital letters change something, after a confirmation. `?` shows the keys of the current screen.

| where | screen |
|---|---|
| detail | any panel in full; *backends*: Sessions and Locks |
| findings, evidence | the list of findings; one finding with its charts |
| jobs, job, history | Dump & restore in full; one job; finished jobs |
| runbooks, runbook, walkthrough | the list of runbooks; one of them before its start; a run |
| reverts | temporary settings that a run left behind, shown when the console starts |
| comparison | what changed between two moments |"""


def markdown(panel_titles: dict[str, str]) -> str:
    """Return docs/keys.md: keys that mean the same on several screens once. `panel_titles` maps a key to its panel."""
    screens: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for key in KEYS:
        screens.setdefault((key.keys, key.help), []).append(key.where)
    lines = ["# Keys", "", _INTRODUCTION]
    for title, chosen in groups():
        lines += ["", f"## {title}", "", "| key | where | what it does |", "|---|---|---|"]
        for key in chosen:
            if where := screens.pop((key.keys, key.help), None):
                meaning = key.help or f"{panel_titles.get(key.shown, key.title)} in full"
                shown = " ".join(f"`{_SHOWN.get(name, name)}`" for name in key.keys)
                lines.append(f"| {shown} | {', '.join(where)} | {meaning} |")
    return "\n".join(lines) + "\n"


def panel_of_key(key: str) -> str | None:
    """Return the name of the panel with that key, None if no panel has it."""
    return next((name for name, kind in PANELS.items() if kind.key == key), None)


def panel_titles() -> dict[str, str]:
    """Map each panel's key to its title."""
    return {kind.key: kind.title for kind in PANELS.values()}


def panel_kind(name: str) -> Layout:
    """Return the panel's declaration."""
    return PANELS[name]


if __name__ == "__main__":
    print(markdown(panel_titles()), end="")
