"""The cost of objects: seconds by weight, from finished and running objects of this run, else from earlier runs.

A kind of object has a cost per object and a cost per byte: with a single number, ten thousand empty tables would
determine the rate of the large one. How long one running object takes says nothing about the others, until it is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from dba_console.jobs.archives.object_durations import PreviousRun
from dba_console.jobs.archives.objects import DumpObject, ObjectSums
from dba_console.jobs.archives.toc import DumpEntry

MIN_SHARE_KNOWN = 0.05
"""Share done of a running object, from which its own rate is better than that of others."""
_MAX_EXTRAPOLATION = 20.0
"""A rate is used up to this multiple of the heaviest object measured."""
_MAX_EXTRAPOLATION_BY_SIZE = 40.0
"""The same, if their time depended on their size, not their number."""
_AGREEMENT_FACTOR = 1.2
"""Error allowed for each of two estimates that agree."""
_MIN_SPREAD = 0.05
"""Relative squared spread of weights below which they count as equal."""
_MIN_MEASURED = 3
_MIN_MEASURED_SHARE = 0.25
_ONE_TABLE = (0.25, 1.5)
"""The rate of one or two tables, which are less than that share of all, may be that of the others times this."""
_MIN_UNSEEN = 20
"""Objects that ended between two observations, from which their mean is used."""
_OTHER_INDEX = "INDEX expression"
RELATIVE_COSTS: dict[str, tuple[float, float, float]] = {
    "TABLE DATA": (1.0, 1.0, 1.0),
    "BLOBS": (0.5, 2.0, 8.0),
    "TABLE DATA compressed": (0.5, 4.0, 100.0),
    "CONSTRAINT": (0.08, 0.16, 0.36),
    "INDEX": (0.2, 0.36, 0.8),
    "INDEX brin": (0.02, 0.05, 0.2),
    "INDEX gin": (0.1, 1.0, 8.0),
    _OTHER_INDEX: (0.3, 1.0, 6.0),
    "FK CONSTRAINT": (0.08, 0.2, 0.6),
    "CHECK CONSTRAINT": (0.05, 0.1, 0.3),
    "ANALYZE": (0.02, 0.05, 0.2),
    "MATERIALIZED VIEW DATA": (0.1, 1.0, 6.0),
}
"""Seconds per table byte as a multiple of its data's: at least, likely, at most. The range measured in restores of
tables with a key, two indexes and a foreign key each, with one and two jobs, default and tuned. Used (and marked as
assumed) only until one of the kind is measured: the width of the range decides whether an ETA is shown. A foreign key
on small rows, or checked without enough memory for its join, takes longer: 1.2 was measured. What is computed for each
row (an index on words or expressions, a view) has no typical cost, nor have compressed rows."""


def relative_cost(kind: str) -> tuple[float, float, float] | None:
    """Return the relative cost of a kind; None for kinds that take no time."""
    return RELATIVE_COSTS.get(kind, RELATIVE_COSTS[_OTHER_INDEX] if kind.startswith("INDEX ") else None)


class CostRate(Struct, frozen=True, kw_only=True, gc=False):
    """The cost of one kind of object."""

    each_s: float
    per_byte_s: float
    source: str
    """measured: in this run; history; assumed: from another kind."""
    max_weight: float
    """Bytes of the heaviest object measured."""
    by_size: bool = False
    """Most of the measured time depends on size."""
    unseen: bool = False
    """Derived from objects that ended between two observations, as of the last of them."""

    def seconds_for(self, weight: float) -> float:
        return self.each_s + self.per_byte_s * weight


class Cost(Struct, frozen=True, gc=False):
    """The cost of one object in seconds, with a range if it is assumed."""

    seconds: float
    source: str
    """As CostRate.source."""
    least: float
    most: float


def certain_cost(seconds: float, source: str) -> Cost:
    return Cost(seconds, source, seconds, seconds)


class CostModel:
    """Cost rates by kind of object, at one moment."""

    def __init__(
        self,
        classes: dict[str, ObjectSums],
        running: Iterable[DumpObject],
        now_us: int,
        previous: PreviousRun | None,
        busy_s: float | None = None,
    ) -> None:
        """`busy_s`: seconds all workers together had for the objects that have ended, if known."""
        self._classes, self._busy_s, self._factor = classes, busy_s, 1.0
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._previous = previous
        self._found: dict[str, CostRate | None] = {}
        for item in running:
            point = _point(item, now_us)
            if point is not None:
                self._points.setdefault(item.entry.kind, []).append(point)
        self._factor = self._unseen_factor()

    def rate(self, kind: str) -> CostRate | None:
        """Return the rate of a kind; None if nothing is known, not even for similar kinds."""
        if kind not in self._found:
            self._found[kind] = (
                self._measured_rate(kind)
                or self._rate_from_previous(kind)
                or self._rate_of_unseen(kind)
                or self._rate_from_similar(kind)
            )
        return self._found[kind]

    def cost(self, entry: DumpEntry) -> Cost | None:
        """Return the cost of one object: what it took in the previous run if that is known, else by its kind. A rate
        measured on much lighter objects is not used if the previous run, or the time of its data, gives a better
        estimate."""
        kind, weight = entry.kind, entry.weight or 0.0
        known = None if self._previous is None else self._previous.seconds_of(entry)
        if known is not None:
            return certain_cost(known, "history")
        rate = self.rate(kind)
        if rate is None:
            return None
        if rate.source == "assumed":
            return _assumed_cost(kind, rate, weight)
        most = rate.max_weight * (_MAX_EXTRAPOLATION_BY_SIZE if rate.by_size else _MAX_EXTRAPOLATION)
        if weight <= most:
            seconds = rate.seconds_for(weight)
            if entry.phase == "data" and self._is_of_few(kind):
                return Cost(seconds, rate.source, _ONE_TABLE[0] * seconds, _ONE_TABLE[1] * seconds)
            return certain_cost(seconds, rate.source)
        other = self._rate_from_previous(kind)
        if other is not None:
            return certain_cost(other.seconds_for(weight), "history")
        similar = self._rate_from_similar(kind)
        if similar is None or weight > similar.max_weight * _MAX_EXTRAPOLATION:
            return _assumed_cost(kind, rate, weight)
        return _mean_cost(rate.seconds_for(weight), similar.seconds_for(weight))

    def _is_of_few(self, kind: str) -> bool:
        """Return whether the rate of a kind is that of too few objects to be typical."""
        sums, points = self._classes[kind], self._points.get(kind, [])
        measured = sums.timed_weight + sum(weight for weight, _ in points)
        return sums.timed + len(points) < _MIN_MEASURED and measured < _MIN_MEASURED_SHARE * sums.weight

    def _measured_rate(self, kind: str) -> CostRate | None:
        sums, points = self._classes.get(kind), self._points.get(kind, [])
        if sums is None or not (sums.timed or points):
            return None
        n = sums.timed + len(points)
        w = sums.timed_weight + sum(weight for weight, _ in points)
        t = sums.timed_us / 1e6 + sum(seconds for _, seconds in points)
        ww = sums.squares + sum(weight * weight for weight, _ in points)
        wt = sums.products + sum(weight * seconds for weight, seconds in points)
        each, per_byte = _fit(n, w, t, ww, wt)
        if each == 0 and sums.phase != "data" and n * (least := self._min_seconds(kind)) < t / 2:
            each, per_byte = least, (t - n * least) / w if w > 0 else 0.0
        heaviest = max([sums.heaviest, *(weight for weight, _ in points)])
        if heaviest <= 0 and sums.weight > 0:
            return None  # only empty ones so far: the cost per byte is unknown
        by_size = n >= _MIN_MEASURED and per_byte * w > t / 2
        return CostRate(
            each_s=each * self._factor,
            per_byte_s=per_byte * self._factor,
            source="measured",
            max_weight=heaviest,
            by_size=by_size,
            unseen=self._factor < 1.0,
        )

    def _unseen_factor(self) -> float:
        """Return the correction for objects that ended between two observations: those observed are the slow ones, but
        all together had no more time than there was."""
        if self._busy_s is None:
            return 1.0
        needed_s, unseen = 0.0, 0
        for kind, sums in self._classes.items():
            rate = self._measured_rate(kind) if sums.done > 0 else None
            if rate is not None:
                needed_s += rate.each_s * sums.done + rate.per_byte_s * sums.weight_done
                unseen += sums.done - sums.timed
        return min(1.0, self._busy_s / needed_s) if unseen > 0 and needed_s > 0 else 1.0

    def _rate_of_unseen(self, kind: str) -> CostRate | None:
        """Return the mean cost of all objects that ended, for a kind of which none was observed while it ran."""
        ended = [sums for other, sums in self._classes.items() if relative_cost(other)]
        count = sum(sums.done for sums in ended)
        own = self._classes.get(kind)
        if self._busy_s is None or own is None or own.done < _MIN_UNSEEN:
            return None
        heaviest = own.weight_done / own.done
        each_s = self._busy_s / count
        return CostRate(each_s=each_s, per_byte_s=0.0, source="measured", max_weight=heaviest, unseen=True)

    def _min_seconds(self, kind: str) -> float:
        """Return the minimum cost of an object of any kind: that of an empty table's data."""
        data = self._measured_rate("TABLE DATA") if kind != "TABLE DATA" else None
        return data.each_s if data is not None else 0.0

    def _rate_from_previous(self, kind: str) -> CostRate | None:
        """Return the rate of its phase in the previous run, without the objects whose own times are known."""
        sums = self._classes.get(kind)
        if self._previous is None or sums is None or sums.phase in ("schema", "rest"):
            return None
        known = next((one for one in self._previous.phases if one.name == sums.phase), None)
        if known is None:
            return None
        weight = known.bytes
        if weight is None:
            weight = int(sum(one.weight for one in self._classes.values() if one.phase == sums.phase))
        apart = [one for one in self._previous.longest.values() if one.phase == sums.phase]
        busy_s = known.busy_s - sum(one.seconds for one in apart)
        weight -= sum(one.bytes for one in apart)
        if weight <= 0 or busy_s <= 0:
            return None
        return CostRate(each_s=0.0, per_byte_s=busy_s / weight, source="history", max_weight=float("inf"))

    def _rate_from_similar(self, kind: str) -> CostRate | None:
        own = relative_cost(kind)
        if own is None:
            return None
        for other in ("TABLE DATA", "INDEX", "CONSTRAINT", "BLOBS"):
            known = self._measured_rate(other) if other != kind else None
            if known is not None and known.per_byte_s > 0:
                per_byte = known.per_byte_s * own[1] / RELATIVE_COSTS[other][1]
                return CostRate(each_s=known.each_s, per_byte_s=per_byte, source="assumed", max_weight=known.max_weight)
        return None


def _mean_cost(light: float, similar: float) -> Cost:
    """Combine the estimates from lighter objects and from its data: the more they differ, the wider the range."""
    return Cost(
        math.sqrt(light * similar),
        "assumed",
        min(light, similar) / _AGREEMENT_FACTOR,
        max(light, similar) * _AGREEMENT_FACTOR,
    )


def _assumed_cost(kind: str, rate: CostRate, weight: float) -> Cost:
    least, likely, most = relative_cost(kind) or (0.3, 1.0, 3.0)
    whole = rate.seconds_for(weight)
    return Cost(whole, "assumed", whole * least / likely, whole * most / likely)


def _point(item: DumpObject, now_us: int) -> tuple[float, float] | None:
    """Return weight and seconds so far of a running object whose share is known: data, or the build of an index."""
    weight = item.entry.weight
    if item.started_us is None or not weight:
        return None
    seconds, share = max(0, now_us - item.started_us) / 1e6, item.share
    if item.entry.phase == "data" and item.done_us is not None:
        seconds = max(0, item.done_us - item.started_us) / 1e6
    if item.entry.phase != "data":
        if item.stage is not None and item.stage.name == "scan" and item.entry.method is not None:
            return None  # how its sort will compare with its scan is unknown here
        left = item.remaining_build(now_us)
        share = seconds / (seconds + left.seconds) if left is not None and seconds > 0 else None
    if share is None or share < MIN_SHARE_KNOWN:
        return None
    return weight * share, seconds


def _fit(n: int, w: float, t: float, ww: float, wt: float) -> tuple[float, float]:
    """Fit seconds per object and seconds per byte, both >= 0, by least squares; equal weights give only the latter.

    >>> _fit(2, 30.0, 5.0, 500.0, 80.0)
    (1.0, 0.1)
    """
    if w <= 0:
        return t / n, 0.0
    spread = ww / n - (w / n) ** 2
    if spread <= _MIN_SPREAD * (w / n) ** 2:
        return 0.0, t / w
    per_byte = (wt / n - w * t / n / n) / spread
    each = (t - per_byte * w) / n
    if per_byte <= 0:
        return t / n / 2, t / w / 2  # the larger ones took less: the two values cannot be separated
    return (0.0, t / w) if each < 0 else (round(each, 12), round(per_byte, 18))
