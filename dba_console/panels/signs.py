"""ASCII in place of what a terminal or a pipe without UTF-8 cannot show, in the same number of cells."""

from __future__ import annotations

from dba_console.panels.cells import Line, Span, width

_OURS = "─╌│┼┬┴├┤┌┐└┘╵▁▂▃▄▅▆▇█·…←→▲▼⧗●×≈−–▶✓↓↑"
_LIKE = "--|+++++++++'_..--=##.~<>^vw*x~-->+v^"
_ASCII = str.maketrans(_OURS, _LIKE)


def ascii_text(text: str) -> str:
    """`text` in ASCII: our signs by their likeness, any other sign as `?`, twice where it was wide.

    >>> ascii_text("▇▇▁ 81% · 表")
    '##_ 81% . ??'
    """
    if text.isascii():
        return text
    likeness = text.translate(_ASCII)
    if likeness.isascii():
        return likeness
    return "".join(sign if sign.isascii() else "?" * width(sign) for sign in likeness)


def ascii_line(spans: Line) -> Line:
    return tuple(Span(ascii_text(span.text), span.style) for span in spans)
