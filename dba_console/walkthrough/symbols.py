"""What the states of steps, blocks and runs look like: a sign and a word, and colour only on top of them."""

from __future__ import annotations

from dba_console.panels.text_elements import Span, Style
from dba_console.plans.run_view import RunState, RunView, StepState

_STEPS: dict[StepState, tuple[str, Style]] = {
    "pending": ("·", "dim"),
    "running": ("▶", "key"),
    "ok": ("✓", "ok"),
    "failed": ("×", "crit"),
    "skipped": ("–", "dim"),
    "waiting": ("⧗", "changed"),
    "unknown": ("?", "warn"),
    "undone": ("←", "warn"),
}
_RUNS: dict[RunState, Style] = {
    "planned": "changed",
    "running": "",
    "waiting": "warn",
    "paused": "warn",
    "interrupted": "warn",
    "done": "ok",
    "failed": "crit",
    "aborted": "warn",
}


def step_symbol(state: StepState) -> Span:
    """One cell for a step or a block in that state."""
    sign, style = _STEPS.get(state, ("?", "warn"))
    return Span(sign, style)


def step_style(state: StepState) -> Style:
    """How words about it are shown."""
    return _STEPS.get(state, ("?", "warn"))[1]


def run_word(view: RunView) -> Span:
    """The run's state in words: `rehearsal, asks`."""
    words: str = "asks" if view.question is not None else view.state
    if view.mode == "rehearse":
        words = f"rehearsal, {words}"
    return Span(words, "warn" if view.question is not None else _RUNS.get(view.state, "warn"))
