"""Which parts are due at a tick. Pure arithmetic on tick numbers."""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.samples.registry import PARTS


def due_parts(names: Sequence[str], tick: int, interval_s: float) -> list[str]:
    """Those of `names` to be read at `tick` (counted from 0, where all are).

    Slow parts are spread over the ticks of their period, so that no second pays for all of them.

    >>> due_parts(["pg.activity", "pg.sizes"], 0, 1.0), due_parts(["pg.activity", "pg.sizes"], 1, 1.0)
    (['pg.activity', 'pg.sizes'], ['pg.activity'])
    """
    if tick == 0:
        return list(names)
    return [name for name in names if (tick + _phase(name)) % _period(name, interval_s) == 0]


def _period(name: str, interval_s: float) -> int:
    return max(1, round(PARTS[name].every_s / interval_s))


def _phase(name: str) -> int:
    return _PHASES[name]


_PHASES = {name: index for index, name in enumerate(PARTS)}
