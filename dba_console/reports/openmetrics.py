"""OpenMetrics text 1.0 with timestamps, which `promtool tsdb create-blocks-from openmetrics` loads.

All points of a series stand together there, but a recording has them tick by tick: they are collected in a temporary
file, compressed and by series. Source: the OpenMetrics specification, version 1.0.0.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import zstandard

from dba_console.core.errors import ConsoleError
from dba_console.core.redact import redact
from dba_console.core.sanitize import clean
from dba_console.reports.export_formats import Progress, Span
from dba_console.reports.metrics import METRICS, Labels, Metric, MetricReader

PREFIX = "dba_console_"
_CHUNK_POINTS = 250_000
"""Points held in memory: 16 bytes each."""
_IN_MEMORY = 8 << 20
"""Bytes of the temporary file held in memory, so that a short span needs no disk."""
_READ_SHARE = 0.7
"""Share of the time that reading takes, the rest is writing."""


def write_openmetrics(span: Span, out: BinaryIO, progress: Progress, *, every_s: float = 0) -> list[str]:
    """Write every number of the span. `every_s`: minimum distance of the points of a series.

    Returns what was left out, in sentences.
    """
    reader = MetricReader(int(every_s * 1e6))
    meta = span.recording.meta
    instance = span.recording.directory.name if meta is None else meta.target
    with SeriesFile() as series:
        for at_ms, points in reader.read(span):
            for metric, labels, value in points:
                series.add(metric, labels, at_ms, value)
            progress(_READ_SHARE * span.share(at_ms * 1000))
        series.flush()
        families = series.families()
        for done, metric in enumerate(families):
            out.write(_head(metric))
            for labels in sorted(families[metric]):
                begin = _begin(metric, labels, instance)
                for times, values in series.chunks(metric, labels):
                    out.write(_lines(begin, times, values))
            progress(_READ_SHARE + (1 - _READ_SHARE) * (done + 1) / len(families))
    out.write(b"# EOF\n")
    return reader.notes()


class _Chunk(NamedTuple):
    at: int
    size: int
    points: int


class SeriesFile:
    """Points by series in a temporary file. Use as a context manager. Raises ConsoleError if it cannot be written."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        self._buffers: dict[tuple[Metric, Labels], tuple[array[int], array[float]]] = {}
        self._chunks: dict[tuple[Metric, Labels], list[_Chunk]] = {}
        self._buffered = 0
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._decompressor = zstandard.ZstdDecompressor()

    def __enter__(self) -> SeriesFile:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # a full disk was reported; the file has no name

    def add(self, metric: Metric, labels: Labels, at_ms: int, value: float) -> None:
        """Add the next point of a series."""
        buffer = self._buffers.get((metric, labels))
        if buffer is None:
            buffer = self._buffers[metric, labels] = (array("q"), array("d"))
        buffer[0].append(at_ms)
        buffer[1].append(value)
        self._buffered += 1
        if self._buffered >= _CHUNK_POINTS:
            self.flush()

    def flush(self) -> None:
        """Write what is in memory."""
        try:
            for series, (times, values) in self._buffers.items():
                packed = self._compressor.compress(times.tobytes() + values.tobytes())
                self._chunks.setdefault(series, []).append(_Chunk(self._file.tell(), len(packed), len(times)))
                self._file.write(packed)
            self._file.flush()
        except OSError as error:
            raise ConsoleError(
                f"cannot write a temporary file in {tempfile.gettempdir()}: {error.strerror}",
                hint="TMPDIR names another directory; a shorter span (--from, --to) needs less",
            ) from error
        self._buffers.clear()
        self._buffered = 0

    def families(self) -> dict[Metric, list[Labels]]:
        """Return the metrics with points, in the order of their declaration, then those of chart values by name."""
        order = {metric: number for number, metric in enumerate(METRICS)}
        found: dict[Metric, list[Labels]] = {}
        for metric, labels in self._chunks:
            found.setdefault(metric, []).append(labels)
        return dict(sorted(found.items(), key=lambda one: (order.get(one[0], len(order)), one[0].name)))

    def chunks(self, metric: Metric, labels: Labels) -> Iterator[tuple[array[int], array[float]]]:
        """Yield times in milliseconds and values of a series, oldest first."""
        for chunk in self._chunks[metric, labels]:
            self._file.seek(chunk.at)
            data = self._decompressor.decompress(self._file.read(chunk.size))
            times, values = array("q"), array("d")
            times.frombytes(data[: 8 * chunk.points])
            values.frombytes(data[8 * chunk.points :])
            yield times, values


def _head(metric: Metric) -> bytes:
    name = PREFIX + metric.name
    unit = f"# UNIT {name} {metric.unit}\n" if metric.unit else ""
    return f"# TYPE {name} {metric.kind}\n{unit}# HELP {name} {_escaped(metric.help)}\n".encode()


def _begin(metric: Metric, labels: Labels, instance: str) -> str:
    suffix = {"counter": "_total", "info": "_info", "gauge": ""}[metric.kind]
    names = ("instance", *metric.labels)
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, (instance, *labels), strict=True))
    return f"{PREFIX}{metric.name}{suffix}{{{pairs}}} "


def _escaped(text: str) -> str:
    r"""Return foreign text as a label value.

    >>> _escaped('a"b\\c')
    'a\\"b\\\\c'
    """
    return clean(redact(text)).replace("\\", "\\\\").replace('"', '\\"')


def _lines(begin: str, times: array[int], values: array[float]) -> bytes:
    lines = [
        f"{begin}{int(value) if value.is_integer() else value} {at_ms // 1000}.{at_ms % 1000:03}\n"
        for at_ms, value in zip(times, values, strict=True)
    ]
    return "".join(lines).encode()
