"""The screen of one moment as SVG or PNG, and the panels as text. PNG needs the optional package resvg-py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from dba_console.core.errors import Unsupported
from dba_console.core.sanitize import clean
from dba_console.reports.export_formats import Progress, Span
from dba_console.reports.recorded_moments import FrameReader, one_picture, timed_pictures
from dba_console.reports.recorded_screen import DEFAULT_SIZE, RecordedScreen, screen_look
from dba_console.reports.svg import FONT, drawing
from dba_console.watch.drawing.overview import show_text
from dba_console.watch.frames.picture import Picture

ZOOM = 1.5
"""Pixels per SVG unit: sharp on a dense screen, and still a small file."""
_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 20" width="20" height="20">'
    f'<text x="2" y="15" font-size="14" font-family="{FONT}">%s</text></svg>'
)


def export_svg(
    span: Span, file: BinaryIO, progress: Progress, *, size: str = DEFAULT_SIZE, panel: Sequence[str] = ()
) -> None:
    """Write the screen at the start of the span as SVG. Raises UsageError, SessionError."""
    file.write(svg_at(span, size, panel).encode())
    progress(1.0)


def export_png(
    span: Span, file: BinaryIO, progress: Progress, *, size: str = DEFAULT_SIZE, panel: Sequence[str] = ()
) -> None:
    """Write the screen at the start of the span as PNG. Raises Unsupported, UsageError, SessionError."""
    require_png()
    file.write(png_of(svg_at(span, size, panel)))
    progress(1.0)


def svg_at(span: Span, size: str, panels: Sequence[str]) -> str:
    """Return the screen at the start of the span."""
    look = screen_look(size, panels)
    picture, missing = one_picture(span.recording, span.from_us)
    return drawing(RecordedScreen(span.recording, look).lines(picture, missing=missing), look.width)


def require_png() -> None:
    """Raise Unsupported, with what to install, if PNG cannot be made here."""
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise Unsupported(
            "PNG needs the package resvg-py, which is not installed",
            hint="pip install 'dba-console[pictures]'; --format svg needs nothing",
        ) from None
    # Without a font the picture would have bars and lines, but no text.
    if png_of(_LETTER % "M") == png_of(_LETTER % ""):
        raise Unsupported(
            "PNG needs a monospaced font, and this host has none",
            hint="apt install fonts-dejavu-core; --format svg uses the fonts of its reader",
        )


def png_of(svg: str, zoom: float = ZOOM) -> bytes:
    """Return an SVG drawing as PNG. Text is drawn with the fonts of this host."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, monospace_family="DejaVu Sans Mono"))


def export_text(
    span: Span,
    file: BinaryIO,
    progress: Progress,
    *,
    size: str = DEFAULT_SIZE,
    panel: Sequence[str] = (),
    every_s: float = 0,
) -> None:
    """Write the panels as `show` prints them: once for a span of one moment, else after each change.

    Only the columns of `size` count. `every_s`: the least time between two. Where samples are missing, a line says so.
    Raises UsageError, SessionError.
    """
    look = screen_look(size, panel)
    reader = FrameReader(span.recording)

    def text_of(picture: Picture) -> str:
        return show_text(reader.frame(picture), list(look.panels) or None, look.width, reader.history)

    if span.from_us == span.to_us:
        picture, missing = one_picture(span.recording, span.from_us)
        file.write(_with_note(text_of(picture), missing).encode())
        progress(1.0)
        return
    before = ""
    for timed in timed_pictures(span, int(every_s * 1e6)):
        if timed.missing:
            file.write(f"\n-- {clean(timed.missing)}\n".encode())
            continue
        text = text_of(timed.picture)
        # The header has the time, and changes with each sample.
        body = text.partition("\n")[2]
        if body != before:
            file.write((text if not before else f"\n{text}").encode())
        before = body
        progress(span.share(timed.picture.wall_us))


def _with_note(text: str, missing: str) -> str:
    return f"{text}-- {clean(missing)}\n" if missing else text
