"""Characters of bars, charts and lines as SVG shapes, so that they join at cell edges in any font."""

from __future__ import annotations

WIDTH, HEIGHT = 8.43, 17.0
"""Size of a cell in SVG units: DejaVu Sans Mono at 14 is 0.602 × 14 wide."""
_THICK = 1.2
_BLOCKS = "▁▂▃▄▅▆▇█"
_ARMS = {
    "─": "lr", "│": "ud", "┌": "rd", "┐": "ld", "└": "ru", "┘": "lu", "├": "rud", "┤": "lud", "┬": "lrd", "┴": "lru",
    "┼": "lrud", "╵": "u",
}  # fmt: skip
"""Directions of a line from the middle of its cell: left, right, up, down."""


def shape(character: str, column: int, row: int) -> str | None:
    """Return the SVG path of a character in its cell; None if the font draws it."""
    x, y = column * WIDTH, row * HEIGHT
    if character in _BLOCKS:
        high = HEIGHT * (_BLOCKS.index(character) + 1) / 8
        return _box(x, y + HEIGHT - high, WIDTH, high)
    if character == "╌":
        third = WIDTH / 3
        return "".join(_box(x + part * WIDTH / 2 + third / 4, y + _middle(), third, _THICK) for part in (0, 1))
    if character == "⧗":
        return _hourglass(x, y)
    arms = _ARMS.get(character)
    return None if arms is None else "".join(_arm(arm, x, y) for arm in arms)


def _hourglass(x: float, y: float) -> str:
    """Return the hourglass, which few fonts have."""
    left, wide, top, high = x + 1.2, WIDTH - 2.4, y + 3.4, 10.0
    return f"M{number(left)} {number(top)}h{number(wide)}l{number(-wide)} {number(high)}h{number(wide)}z"


def _arm(arm: str, x: float, y: float) -> str:
    across, down = x + WIDTH / 2 - _THICK / 2, y + _middle()
    half_wide, half_high = WIDTH / 2 + _THICK / 2, HEIGHT / 2 + _THICK / 2
    match arm:
        case "l":
            return _box(x, down, half_wide, _THICK)
        case "r":
            return _box(across, down, half_wide, _THICK)
        case "u":
            return _box(across, y, _THICK, half_high)
        case _:
            return _box(across, down, _THICK, half_high)


def _middle() -> float:
    return HEIGHT / 2 - _THICK / 2


def _box(x: float, y: float, wide: float, high: float) -> str:
    # Both edges are rounded, not the distance between them: otherwise thin gaps show between two cells.
    return f"M{number(x)} {number(y)}H{number(x + wide)}V{number(y + high)}H{number(x)}z"


def number(value: float) -> str:
    """Format a coordinate, to a hundredth.

    >>> number(8.430001), number(17.0)
    ('8.43', '17')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")
