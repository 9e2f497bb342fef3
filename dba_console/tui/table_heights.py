"""How several tables share one screen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MIN_CURRENT, MIN_OTHER = 10, 4
"""Lines the table in use keeps, and what another needs to be worth showing: title, heads, two rows."""


def divide_height(rows: Sequence[int], current: int, height: int) -> list[int]:
    """Lines for each table, title and heads included, that together make `height`; 0 for one not shown.

    `rows` are the tables' numbers of rows, `current` the place of the one in use. Where all fit, each has what it needs
    and the last one what is left; else the others have little and the one in use the rest.

    >>> divide_height([3, 2], 0, 20), divide_height([50, 2], 0, 20)
    ([5, 15], [16, 4])
    >>> divide_height([50, 50], 0, 12), divide_height([50, 9], 1, 20)
    ([12, 0], [4, 16])
    """
    needed = [2 + max(1, count) for count in rows]
    if sum(needed) <= height:
        return [*needed[:-1], height - sum(needed[:-1])]
    given = [0] * len(rows)
    left = height
    for place, need in enumerate(needed):
        other = min(need, MIN_OTHER)
        if place != current and left - other >= MIN_CURRENT:
            given[place] = other
            left -= other
    given[current] = left
    return given
