"""ASCII in place of what a terminal or a pipe without UTF-8 cannot show, in the same number of cells."""

from __future__ import annotations

from dba_console.panels.text_elements import Line, Span, width

_UNICODE_SIGNS = "─╌│┼┬┴├┤┌┐└┘╵▁▂▃▄▅▆▇█·…←→▲▼⧗●×≈−–▶✓↓↑"
_ASCII_SIGNS = "--|+++++++++'_..--=##.~<>^vw*x~-->+v^"
_TRANSLATION = str.maketrans(_UNICODE_SIGNS, _ASCII_SIGNS)


def ascii_text(text: str) -> str:
    """`text` in ASCII: our signs by their likeness, any other sign as `?`, twice where it was wide.

    >>> ascii_text("▇▇▁ 81% · 表")
    '##_ 81% . ??'
    """
    if text.isascii():
        return text
    likeness = text.translate(_TRANSLATION)
    if likeness.isascii():
        return likeness
    return "".join(sign if sign.isascii() else "?" * width(sign) for sign in likeness)


def ascii_line(spans: Line) -> Line:
    return tuple(Span(ascii_text(span.text), span.style) for span in spans)
