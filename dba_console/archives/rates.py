"""What an object costs: seconds by its weight, learnt from this run's finished and running objects, else from before.

A kind of object costs so much each, and so much a byte: one figure for both would let ten thousand empty tables set
the rate of the one that is large.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dba_console.archives.entries import Phase
from dba_console.archives.items import Item, Sums

SHARE_KNOWN = 0.05
"""Of an object under way: from here on its own pace says more than what others took."""
_BEYOND = 20.0
"""Times the heaviest object measured, up to which a rate is carried over."""
_FAR = 500.0
"""The same, where their time went by their size and not by their number."""
_APART = 1.2
"""How far off either of two ways to reckon an object may be, where they agree."""
_ALIKE = 0.05
"""Spread of weights, squared and relative, below which they count as equal."""
_SEVERAL = 3
PRIOR: dict[str, tuple[float, float, float]] = {
    "TABLE DATA": (1.0, 1.0, 1.0),
    "BLOBS": (0.5, 1.0, 2.0),
    "CONSTRAINT": (0.12, 0.2, 0.36),
    "INDEX": (0.27, 0.5, 0.8),
    "FK CONSTRAINT": (0.15, 0.33, 0.95),
    "CHECK CONSTRAINT": (0.05, 0.1, 0.3),
    "ANALYZE": (0.02, 0.05, 0.2),
}
"""Seconds a byte of table as a multiple of what its data took, at least, likely and at most: the range that restores of
tables with a key, two indexes and a foreign key each gave, with one and two jobs, default and tuned. Assumed only
until one of the kind is measured, and said to be assumed: how far the range reaches decides if an end is foretold.
A foreign key of small rows, or checked without memory for its join, takes more still: 1.2 was seen."""
OF_PHASE: dict[str, Phase] = {
    "TABLE DATA": "data",
    "BLOBS": "data",
    "CONSTRAINT": "indexes",
    "INDEX": "indexes",
    "FK CONSTRAINT": "constraints",
    "CHECK CONSTRAINT": "constraints",
}


class PhaseBefore(Struct, frozen=True, kw_only=True):
    """One phase of an earlier run."""

    name: str
    wall_s: float
    busy_s: float | None = None
    """Of all its objects together; None: as wall_s."""
    bytes: float | None = None
    """What its objects weighed, measured as they are now; None: as much as now."""


class PhasesBefore(Struct, frozen=True, kw_only=True):
    """What is known of the last run of this job, or of the usual one."""

    wall_s: float
    phases: tuple[PhaseBefore, ...] = ()
    bytes: float | None = None


class Rate(Struct, frozen=True, kw_only=True, gc=False):
    """What one kind of object costs."""

    each_s: float
    per_byte_s: float
    source: str
    """measured: in this run; history; assumed: from another kind."""
    upto: float
    """Bytes of the heaviest object that it is known to hold for."""
    by_size: bool = False
    """Their bytes took most of the time of those measured."""
    several: bool = False
    """Measured on so many that one of no other size, and slow, says nothing of the rest: it may have waited."""

    def of(self, weight: float) -> float:
        return self.each_s + self.per_byte_s * weight


class Cost(Struct, frozen=True, gc=False):
    """Of one object: seconds, and between what they may lie where they are assumed."""

    seconds: float
    source: str
    """As that of a rate."""
    least: float
    most: float


def sure(seconds: float, source: str) -> Cost:
    return Cost(seconds, source, seconds, seconds)


class Rates:
    """By kind of object, as of one look."""

    def __init__(
        self, classes: dict[str, Sums], running: Iterable[Item], now_us: int, before: PhasesBefore | None
    ) -> None:
        self._classes = classes
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._before = before
        self._found: dict[str, Rate | None] = {}
        self._overdue: dict[str, float] = {}
        """Seconds a byte that one under way has taken already: its kind takes no less."""
        for item in running:
            if item.started_us is not None and item.entry.weight and item.entry.phase != "data":
                taken = max(0, now_us - item.started_us) / 1e6 / item.entry.weight
                self._overdue[item.entry.desc] = max(taken, self._overdue.get(item.entry.desc, 0.0))
            point = _point(item, now_us)
            if point is not None:
                self._points.setdefault(item.entry.desc, []).append(point)

    def of(self, desc: str) -> Rate | None:
        """What it costs; None where nothing is known, not even of its like."""
        if desc not in self._found:
            self._found[desc] = self._measured(desc) or self._from_before(desc) or self._likened(desc)
        return self._found[desc]

    def cost(self, desc: str, weight: float) -> Cost | None:
        """What one object of that weight costs. What was measured on far lighter ones is not carried over to it, where
        the run before, or what its data took, says more."""
        rate = self.of(desc)
        if rate is None:
            return None
        if rate.source == "assumed":
            return self._doubted(desc, rate, weight)
        if rate.several and weight <= rate.upto:
            return sure(rate.of(weight), rate.source)
        if weight <= rate.upto * (_FAR if rate.by_size else _BEYOND):
            return sure(max(rate.of(weight), self._overdue.get(desc, 0.0) * weight), rate.source)
        other = self._from_before(desc)
        if other is not None:
            return sure(other.of(weight), "history")
        liked = self._likened(desc)
        if liked is None or weight > liked.upto * _BEYOND:
            return self._doubted(desc, rate, weight)
        return self._between(desc, rate.of(weight), liked.of(weight), weight)

    def _between(self, desc: str, light: float, liked: float, weight: float) -> Cost:
        """By far lighter ones of its kind, and by what its data took: the more the two differ the less is known."""
        taken = self._overdue.get(desc, 0.0) * weight
        lower, upper = min(light, liked) / _APART, max(light, liked) * _APART
        return Cost(max((light + liked) / 2, taken), "assumed", max(lower, taken), max(upper, taken))

    def _doubted(self, desc: str, rate: Rate, weight: float) -> Cost:
        least, likely, most = PRIOR.get(desc, (0.3, 1.0, 3.0))
        taken = self._overdue.get(desc, 0.0) * weight
        whole = max(rate.of(weight), taken)
        return Cost(whole, "assumed", max(whole * least / likely, taken), whole * most / likely)

    def _measured(self, desc: str) -> Rate | None:
        sums, points = self._classes.get(desc), self._points.get(desc, [])
        if sums is None or not (sums.timed or points):
            return None
        n = sums.timed + len(points)
        w = sums.timed_weight + sum(weight for weight, _ in points)
        t = sums.timed_us / 1e6 + sum(seconds for _, seconds in points)
        ww = sums.squares + sum(weight * weight for weight, _ in points)
        wt = sums.products + sum(weight * seconds for weight, seconds in points)
        each, per_byte = _fit(n, w, t, ww, wt)
        if each == 0 and desc not in ("TABLE DATA", "BLOBS") and n * (least := self._least(desc)) < t / 2:
            each, per_byte = least, (t - n * least) / w if w > 0 else 0.0
        heaviest = max([sums.heaviest, *(weight for weight, _ in points)])
        if heaviest <= 0 and sums.weight > 0:
            return None  # only empty ones so far: what a byte costs is not known
        several = n >= _SEVERAL
        by_size = several and per_byte * w > t / 2
        return Rate(
            each_s=each, per_byte_s=per_byte, source="measured", upto=heaviest, by_size=by_size, several=several
        )

    def _least(self, desc: str) -> float:
        """What an object of any kind costs at least, where its own kind does not tell: as an empty table's data."""
        data = self._measured("TABLE DATA") if desc != "TABLE DATA" else None
        return data.each_s if data is not None else 0.0

    def _from_before(self, desc: str) -> Rate | None:
        phase = OF_PHASE.get(desc)
        if self._before is None or phase is None:
            return None
        known = next((one for one in self._before.phases if one.name == phase), None)
        if known is None:
            return None
        kinds = [
            (kind, self._classes[kind].weight) for kind, of in OF_PHASE.items() if of == phase and kind in self._classes
        ]
        weight = known.bytes if known.bytes is not None else sum(weight for _, weight in kinds)
        if weight <= 0:
            return None
        seconds = known.busy_s if known.busy_s is not None else known.wall_s
        return Rate(each_s=0.0, per_byte_s=seconds / weight, source="history", upto=float("inf"))

    def _likened(self, desc: str) -> Rate | None:
        if desc not in PRIOR:
            return None
        for kind in ("TABLE DATA", "INDEX", "CONSTRAINT", "BLOBS"):
            known = self._measured(kind) if kind != desc else None
            if known is not None and known.per_byte_s > 0:
                per_byte = known.per_byte_s * PRIOR[desc][1] / PRIOR[kind][1]
                return Rate(each_s=known.each_s, per_byte_s=per_byte, source="assumed", upto=known.upto)
        return None


def _point(item: Item, now_us: int) -> tuple[float, float] | None:
    """Weight and seconds so far of data under way, where its share is known."""
    weight, share = item.entry.weight, item.share
    if item.started_us is None or not weight or share is None or share < SHARE_KNOWN or item.entry.phase != "data":
        return None
    return weight * share, max(0, now_us - item.started_us) / 1e6


def _fit(n: int, w: float, t: float, ww: float, wt: float) -> tuple[float, float]:
    """Seconds each and seconds a byte, neither below 0, by least squares; one weight alone says only the latter.

    >>> _fit(2, 30.0, 5.0, 500.0, 80.0)
    (1.0, 0.1)
    """
    if w <= 0:
        return t / n, 0.0
    spread = ww / n - (w / n) ** 2
    if spread <= _ALIKE * (w / n) ** 2:
        return 0.0, t / w
    per_byte = (wt / n - w * t / n / n) / spread
    each = (t - per_byte * w) / n
    if per_byte <= 0:
        return t / n / 2, t / w / 2  # the larger ones took less: neither figure can be told from the other
    return (0.0, t / w) if each < 0 else (round(each, 12), round(per_byte, 18))
