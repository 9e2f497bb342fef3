"""The keys an operator presses to resolve an incident, from the overview to the end of the runbook's run.

Real incidents of the demo at 80×24 in tmux. Typed words (`yes`, a count, the name of the target, who was asked) are not
counted; the enter after them is.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from bench.console import PROGRAM, own_directories
from bench.figure import Figure
from bench.terminal import Terminal

FINDING_S, STEP_S = 90.0, 150.0
SETTLED_S = 0.6
"""A letter answers a question only after the question has been on the screen for a moment, as a reader needs it."""

LETTER_S = 1.5
"""Enter within this time after a letter belongs to the letter's answer."""
IDLE_S = 35.0
"""The runbook ends only sessions that have been idle for longer than this."""


@dataclass(frozen=True, slots=True)
class Press:
    """What is on the screen when a key is pressed, and the key; `words` are typed before it."""

    seen: str
    key: str
    words: str = ""
    wait_s: float = 0.0
    """Reading time before the key."""


def _typed(seen: str, words: str) -> Press:
    return Press(seen, "Enter", words)


@dataclass(frozen=True, slots=True)
class Walk:
    """An incident, the keys that resolve it, the goal, and the keys needed before questions opened their own prompt."""

    incident: str
    presses: tuple[Press, ...]
    goal: int
    before: int


_OPEN = (Press(r"→ r", "r"), Press(r"s start", "s"))
_START = _typed(r"type `yes`:", "yes")
_COUNT = _typed(r"type `(\d+)`:", r"\1")
_NOTE = _typed(r"note:", "a ticket")

_ASKED = _typed(r"who was asked[^$]*note:", "the owner")
_AGREED = _typed(r"what was agreed[^$]*note:", "a ticket")

WALKS = (
    Walk("lock-queue", (*_OPEN, _START, Press(r"ddl/root", "d"), _COUNT, _NOTE), 9, 17),
    Walk("idle-in-transaction", (*_OPEN, _START, _ASKED, Press(r"end/wait", "e"), _COUNT, _AGREED), 10, 19),
    Walk(
        "slot-retention",
        (
            *_OPEN, _START, _ASKED, Press(r"back/cap", "g"), Press(r"0 of 1 chosen", "x"),
            _typed(r"type `(old_replica)`:", r"\1"), Press(r"y or n:", "y"), _AGREED,
        ),
        11, 21,
    ),
    Walk(
        "connection-storm",
        (
            *_OPEN, Press(r"from the finding: invoice-export", "Enter"), _START,
            Press(r"source/limit", "l", wait_s=IDLE_S),
            Press(r"the role, from[^$]*value: shop_jobs", "Enter", wait_s=LETTER_S),
            _typed(r"maximum connections[^$]*value:", "20"),
            _typed(r"type `(shop:[^`]*)`:", r"\1"), _COUNT, _NOTE,
        ),
        20, 63,
    ),
)  # fmt: skip


def run(smoke: bool = False) -> list[Figure]:
    return [_measure(walk) for walk in (WALKS[:1] if smoke else WALKS)]


def _measure(walk: Walk) -> Figure:
    with own_directories(), Terminal(walk.incident, 80, 24) as terminal:
        terminal.start([PROGRAM, "demo", "--incident", walk.incident])
        for press in walk.presses:
            limit_s = FINDING_S if press.key == "r" else STEP_S
            found = _wait_for(terminal, press.seen, limit_s)
            time.sleep(SETTLED_S + press.wait_s)
            if press.words:
                terminal.type(found.expand(press.words))
            terminal.keys(press.key)
        _wait_for(terminal, rf"{walk.incident} on .* · done", STEP_S)
        terminal.keys("q")
        terminal.wait_for_end()
    name = f"keys from the overview to the end of {walk.incident}"
    return Figure(name, len(walk.presses), "keys", walk.goal, f"{walk.before} before")


def _wait_for(terminal: Terminal, pattern: str, limit_s: float) -> re.Match[str]:
    end = time.monotonic() + limit_s
    while (found := re.search(pattern, screen := terminal.screen())) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"{pattern!r} did not appear:\n{screen}")
        time.sleep(0.1)
    return found
