"""Run benches by name: sequentially, or in parallel if their figures do not matter (smoke runs)."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from bench.figure import Figure

SIDE_BY_SIDE = 4
"""Benches of a smoke run in parallel: most of their time is waiting."""


def measure(name: str, smoke: bool) -> Sequence[Figure]:
    """Return the figures of one bench."""
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    begun = time.monotonic()
    found: Sequence[Figure] = importlib.import_module(f"bench.{name}").run(smoke)
    print(f"{name} took {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return found


def side_by_side(names: Sequence[str]) -> Iterator[Sequence[Figure]]:
    """Yield the figures of smoke runs in the order of the names. Raises the exception of the first failed bench."""
    with ProcessPoolExecutor(SIDE_BY_SIDE, get_context("spawn"), max_tasks_per_child=1) as pool:
        try:
            yield from pool.map(measure, names, [True] * len(names))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
