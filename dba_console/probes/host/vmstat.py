"""/proc/vmstat: what the kernel did about memory, under names that changed from kernel to kernel.

A counter is summed over its family: `pgsteal_kswapd` (from 4.8) is also `pgsteal_kswapd_dma`, `..._normal` and so on
(3.5 to 4.7). A family this kernel does not have is None. Names from mm/vmstat.c of the kernels 2.6.32 to 6.18.
"""

from __future__ import annotations

from collections.abc import Sequence

from dba_console.samples.host import VmStat

_ZONES = (b"_dma", b"_dma32", b"_normal", b"_high", b"_movable", b"_device")

_RENAMED: dict[str, tuple[bytes, ...]] = {
    "pgpgin_kb": (b"pgpgin",),
    "pgpgout_kb": (b"pgpgout",),
    # Before 5.9 only file pages had a workingset, and the counter had no suffix.
    "refault_file": (b"workingset_refault_file", b"workingset_refault"),
    "refault_anon": (b"workingset_refault_anon",),
}
"""Fields whose kernel name is not their own: the first that exists counts."""


class VmStatParser:
    """Finds each counter once and then by its place: the kernel does not rearrange the file while it runs."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._tokens = -1
        self._plan: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = []

    def parse(self, data: bytes) -> VmStat:
        """The reading in /proc/vmstat. Raises ValueError where it is not `name number` lines."""
        tokens = data.split()
        if len(tokens) != self._tokens:
            if len(tokens) % 2:
                raise ValueError("/proc/vmstat is not made of names and numbers")
            self._plan = _plan(tokens[::2])
            self._tokens = len(tokens)
        values = [None if places is None else _sum(tokens, *places) for places in self._plan]
        return VmStat(self._page_size, *values)


def _sum(tokens: Sequence[bytes], added: tuple[int, ...], taken: tuple[int, ...]) -> int:
    if len(added) == 1 and not taken:
        return int(tokens[added[0]])
    return sum(int(tokens[place]) for place in added) - sum(int(tokens[place]) for place in taken)


def _plan(names: Sequence[bytes]) -> list[tuple[tuple[int, ...], tuple[int, ...]] | None]:
    """For each field of VmStat after the page size: places of the numbers to add and to take away, None for none."""
    place = {name: 2 * index + 1 for index, name in enumerate(names)}
    return [_counter_places(place, field) for field in VmStat.__struct_fields__[1:]]


def _counter_places(place: dict[bytes, int], field: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    for name in _RENAMED.get(field, (field.encode(),)):
        # Zones only: pgscan_direct_throttle is another counter, not a part of pgscan_direct.
        members = tuple(place[member] for member in (name, *(name + zone for zone in _ZONES)) if member in place)
        if members:
            return members, ()
    return _old_reclaim_places(place, field)


def _old_reclaim_places(place: dict[bytes, int], field: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Kernels before 3.5 count what was reclaimed by zone for everybody, and kswapd's share as kswapd_steal."""
    kswapd = place.get(b"kswapd_steal")
    if kswapd is None:
        return None
    if field == "pgsteal_kswapd":
        return (kswapd,), ()
    if field == "pgsteal_direct":
        everybody = tuple(place[b"pgsteal" + zone] for zone in _ZONES if b"pgsteal" + zone in place)
        return (everybody, (kswapd,)) if everybody else None
    return None
