"""A measured figure, and a Markdown table of figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in `unit`; `goal` is its maximum, `against` describes what it was compared with."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    against: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.value <= self.goal


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a Markdown table for docs/performance.md."""
    lines = ["| figure | measured | goal | | details |", "|---|---|---|---|---|"]
    for figure in figures:
        goal = "" if figure.goal is None else f"≤ {figure.goal:g} {figure.unit}"
        verdict = {None: "", True: "met", False: "missed"}[figure.met]
        lines.append(f"| {figure.name} | {figure.value:.3g} {figure.unit} | {goal} | {verdict} | {figure.against} |")
    return "\n".join(lines)
