"""Benches by name: one after the other, or side by side where their figures do not matter."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from bench.figure import Figure

SIDE_BY_SIDE = 4
"""Benches of a smoke run at a time: most of each is waiting."""


def measure(name: str, smoke: bool) -> Sequence[Figure]:
    """The figures of one bench."""
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    found: Sequence[Figure] = importlib.import_module(f"bench.{name}").run(smoke)
    return found


def side_by_side(names: Sequence[str]) -> Iterator[Sequence[Figure]]:
    """The figures of smoke runs, in the order of the names. Raises what the first of them to fail raised."""
    with ProcessPoolExecutor(SIDE_BY_SIDE, get_context("spawn"), max_tasks_per_child=1) as pool:
        try:
            yield from pool.map(measure, names, [True] * len(names))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
